import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { Database } from '../db/client';
import { schemaFit, unfitDetail } from '../db/schema-fit';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { Problem } from './problem';

const Live = v.object({ status: v.literal('live') });
const Ready = v.object({ status: v.literal('ready'), writes: v.picklist(['available', 'unavailable']) });

/** How long whoever watches waits for a primary, where a replica serves the reads. */
const primaryPatienceMs = 250;

/** For whoever watches the process: is it alive (no database asked), and can it serve right now. */
export function createHealthRoutes({ db, reads, lifecycle }: Pick<AppDeps, 'db' | 'reads' | 'lifecycle'>) {
  const isPrimaryServing = createPatientCheck(async () => (await schemaFit(db.$client)) === 'fit');
  return new Elysia({ prefix: '/health', tags: ['Operation'] })
    .get('/live', () => ({ status: 'live' as const }), {
      response: { 200: Live },
      detail: { summary: 'Tell that the process runs', operationId: 'getLiveness' },
    })
    .get(
      '/ready',
      async () => {
        if (lifecycle.isDraining) throw new AppError('shutting-down');
        if (lifecycle.hasLostDisk) {
          throw new AppError('database-unavailable', {
            detail: 'The disk has failed; the service must be started anew.',
          });
        }
        const isServing = reads === db || isPrimaryServing();
        await requireFit(reads);
        const writes = (await isServing) ? 'available' : 'unavailable';
        return { status: 'ready' as const, writes } as const;
      },
      {
        response: { 200: Ready, 503: Problem },
        detail: {
          summary: 'Tell that reads are served on a schema that fits, and whether writes are',
          operationId: 'getReadiness',
        },
      },
    );
}

async function requireFit({ $client }: Database): Promise<void> {
  const fit = await schemaFit($client);
  if (fit !== 'fit') throw new AppError('database-unavailable', { detail: unfitDetail[fit] });
}

/** A check that is made once for all who ask at once, and is taken to have failed while it lasts too long. */
function createPatientCheck(check: () => Promise<boolean>): () => Promise<boolean> {
  let checking: Promise<boolean> | undefined;
  let patience = Promise.resolve(false);
  return () => {
    if (checking === undefined) {
      patience = Bun.sleep(primaryPatienceMs).then(() => false);
      checking = check()
        .catch(() => false)
        .finally(() => {
          checking = undefined;
        });
    }
    return Promise.race([checking, patience]);
  };
}
