import { Elysia, NotFoundError } from 'elysia';
import * as v from 'valibot';
import type { Database } from '../db/client';
import { schemaFit, unfitDetail } from '../db/schema-fit';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { logFields } from '../log-fields';
import { buildIdentity } from '../package-root';
import { problems } from './problem';

const Live = v.object({
  status: v.literal('live'),
  version: v.pipe(v.string(), v.description('The version of the service')),
});
const Ready = v.object({
  status: v.literal('ready'),
  writes: v.picklist(['available', 'unavailable']),
  reason: v.pipe(v.optional(v.string()), v.description('The reason that writes fail, such as SQLITE_FULL')),
});

interface HealthDeps extends Pick<AppDeps, 'reads' | 'lifecycle' | 'hasTokenKeys'> {
  /** Returns the code of the failure that keeps the database from taking writes. */
  readonly whyUnwritable: () => Promise<string | undefined>;
}

/** Routes for probes: liveness, which asks no database, and readiness. */
export function createHealthRoutes({ reads, lifecycle, hasTokenKeys, whyUnwritable }: HealthDeps) {
  const readiness = async (): Promise<v.InferOutput<typeof Ready>> => {
    if (lifecycle.isDraining) throw new AppError('shutting-down');
    if (lifecycle.hasLostDisk) {
      throw new AppError('database-unavailable', {
        detail:
          `The database is lost: ${lifecycle.lossReason ?? 'the disk has failed'}. ${lifecycle.lossRemedy ?? ''}`.trimEnd(),
      });
    }
    if (!hasTokenKeys()) throw new AppError('auth-keys-unavailable');
    const probing = whyUnwritable();
    await requireFit(reads);
    const reason = await probing;
    if (reason === undefined) return { status: 'ready', writes: 'available' };
    // The codes of a remote server are not fixed.
    return { status: 'ready', writes: 'unavailable', reason: v.is(logFields.code, reason) ? reason : 'UNKNOWN' };
  };
  const hidden = { detail: { hide: true } };

  return (
    new Elysia({ tags: ['Operation'] })
      .get('/health/live', () => ({ status: 'live' as const, version: buildIdentity.version }), {
        response: { 200: Live, ...problems('malformed-request') },
        detail: {
          summary: 'Check that the process runs',
          description: 'Does not query the database. Restart an instance that fails this check.',
          operationId: 'getLiveness',
        },
      })
      .get('/health/ready', readiness, {
        response: {
          200: Ready,
          ...problems('malformed-request', 'database-unavailable', 'auth-keys-unavailable', 'shutting-down'),
        },
        detail: {
          summary: 'Check that reads are served on a schema that fits, and whether writes are',
          description:
            'Send no requests to an instance that fails this check. `OPTIONS /` and `OPTIONS /health/ready` run it without a body.',
          operationId: 'getReadiness',
        },
      })
      // The default probes of load balancers.
      .options('/', ({ request }) => withoutBody(request, readiness), hidden)
      .options('/health/live', ({ request }) => withoutBody(request, () => undefined), hidden)
      .options('/health/ready', ({ request }) => withoutBody(request, readiness), hidden)
  );
}

/** Responds to an OPTIONS probe. The CORS code responds to preflight requests of browsers. */
async function withoutBody({ headers }: Request, check: () => unknown): Promise<Response> {
  if (headers.has('access-control-request-method')) throw new NotFoundError();
  await check();
  return new Response(null, { status: 204, headers: { allow: 'GET, HEAD, OPTIONS' } });
}

async function requireFit({ $client }: Database): Promise<void> {
  const fit = await schemaFit($client);
  if (fit !== 'fit') throw new AppError('database-unavailable', { detail: unfitDetail[fit] });
}
