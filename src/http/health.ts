import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { Database } from '../db/client';
import { schemaFit, unfitDetail } from '../db/schema-fit';
import { createWriteProbe } from '../db/write-probe';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { logFields } from '../log-fields';
import { problems } from './problem';

const Live = v.object({ status: v.literal('live') });
const Ready = v.object({
  status: v.literal('ready'),
  writes: v.picklist(['available', 'unavailable']),
  reason: v.pipe(v.optional(v.string()), v.description('Why nothing can be written, such as SQLITE_FULL')),
});

/** For whoever watches the process: is it alive (no database asked), and can it serve right now. */
export function createHealthRoutes({ db, reads, lifecycle }: Pick<AppDeps, 'db' | 'reads' | 'lifecycle'>) {
  const whyUnwritable = createWriteProbe(db);
  return new Elysia({ prefix: '/health', tags: ['Operation'] })
    .get('/live', () => ({ status: 'live' as const }), {
      response: { 200: Live, ...problems('malformed-request') },
      detail: {
        summary: 'Tell that the process runs',
        description: 'Asks no database: whoever fails it should be started anew.',
        operationId: 'getLiveness',
      },
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
        const probing = whyUnwritable();
        await requireFit(reads);
        const reason = await probing;
        return reason === undefined
          ? ({ status: 'ready', writes: 'available' } as const)
          : // A server may name its codes as it likes.
            ({
              status: 'ready',
              writes: 'unavailable',
              reason: v.is(logFields.code, reason) ? reason : 'UNKNOWN',
            } as const);
      },
      {
        response: { 200: Ready, ...problems('malformed-request', 'database-unavailable', 'shutting-down') },
        detail: {
          summary: 'Tell that reads are served on a schema that fits, and whether writes are',
          description: 'Whoever fails it should get no requests for now.',
          operationId: 'getReadiness',
        },
      },
    );
}

async function requireFit({ $client }: Database): Promise<void> {
  const fit = await schemaFit($client);
  if (fit !== 'fit') throw new AppError('database-unavailable', { detail: unfitDetail[fit] });
}
