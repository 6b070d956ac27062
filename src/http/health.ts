import { Elysia, NotFoundError } from 'elysia';
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

/** For what watches the process: is it alive (no database asked), and can it serve right now. */
export function createHealthRoutes({ db, reads, lifecycle }: Pick<AppDeps, 'db' | 'reads' | 'lifecycle'>) {
  const whyUnwritable = createWriteProbe(db);
  const readiness = async (): Promise<v.InferOutput<typeof Ready>> => {
    if (lifecycle.isDraining) throw new AppError('shutting-down');
    if (lifecycle.hasLostDisk) {
      throw new AppError('database-unavailable', {
        detail: 'The disk has failed; the service must be started anew.',
      });
    }
    const probing = whyUnwritable();
    await requireFit(reads);
    const reason = await probing;
    if (reason === undefined) return { status: 'ready', writes: 'available' };
    // A server may name its codes as it likes.
    return { status: 'ready', writes: 'unavailable', reason: v.is(logFields.code, reason) ? reason : 'UNKNOWN' };
  };
  const hidden = { detail: { hide: true } };

  return (
    new Elysia({ tags: ['Operation'] })
      .get('/health/live', () => ({ status: 'live' as const }), {
        response: { 200: Live, ...problems('malformed-request') },
        detail: {
          summary: 'Tell that the process runs',
          description: 'Asks no database. Restart an instance that fails it.',
          operationId: 'getLiveness',
        },
      })
      .get('/health/ready', readiness, {
        response: { 200: Ready, ...problems('malformed-request', 'database-unavailable', 'shutting-down') },
        detail: {
          summary: 'Tell that reads are served on a schema that fits, and whether writes are',
          description:
            'Send no requests to an instance that fails it. `OPTIONS /` and `OPTIONS /health/ready` say the same without a body.',
          operationId: 'getReadiness',
        },
      })
      // The probes that load balancers send unless they are told otherwise.
      .options('/', ({ request }) => withoutBody(request, readiness), hidden)
      .options('/health/live', ({ request }) => withoutBody(request, () => undefined), hidden)
      .options('/health/ready', ({ request }) => withoutBody(request, readiness), hidden)
  );
}

/** The response to a probe by OPTIONS; a preflight request of a browser goes on to where CORS decides. */
async function withoutBody({ headers }: Request, check: () => unknown): Promise<Response> {
  if (headers.has('access-control-request-method')) throw new NotFoundError();
  await check();
  return new Response(null, { status: 204, headers: { allow: 'GET, HEAD, OPTIONS' } });
}

async function requireFit({ $client }: Database): Promise<void> {
  const fit = await schemaFit($client);
  if (fit !== 'fit') throw new AppError('database-unavailable', { detail: unfitDetail[fit] });
}
