import { createHash, timingSafeEqual } from 'node:crypto';
import { Elysia, NotFoundError } from 'elysia';
import * as v from 'valibot';
import { currentSecret } from '../config/secrets';
import type { Database } from '../db/client';
import { incompatibilityDetails, schemaState } from '../db/schema-check';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { logFields } from '../log-fields';
import { cached, withTimeout } from '../shared/async';
import { buildIdentity } from '../shared/build';
import type { DatabaseFacts } from '../telemetry/events';
import { problems } from './problem-response';

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
  /** The code of the error that prevents writes; undefined if writes succeed. */
  readonly whyUnwritable: () => Promise<string | undefined>;
}

/** Liveness and readiness probes. */
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
          summary: 'Check that the service can read, and whether it can write',
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
  const state = await schemaState($client);
  if (state !== 'compatible') throw new AppError('database-unavailable', { detail: incompatibilityDetails[state] });
}

/** A scrape returns in time also if the database is slow. */
const patienceMs = 500;
const factsTtlMs = 5_000;

interface MetricsDeps extends Pick<AppDeps, 'metrics' | 'rateLimits' | 'lifecycle' | 'monotonicMs'> {
  readonly config: Pick<AppDeps['config'], 'metricsToken'>;
  readonly readFacts: () => Promise<DatabaseFacts>;
  /** The code of the error that prevents writes; undefined if writes succeed. */
  readonly whyUnwritable: () => Promise<string | undefined>;
}

/** `GET /metrics` with the metrics token. The route exists only if the settings have one. */
export function createMetricsRoute({ metrics, rateLimits, lifecycle, monotonicMs, config, ...database }: MetricsDeps) {
  const plugin = new Elysia({ name: 'http.metrics' });
  if (metrics === undefined || config.metricsToken === undefined) return plugin;
  const { metricsToken: source } = config;
  const expected = () => digest(`Bearer ${currentSecret(source)}`);
  const facts = cached({
    ttlMs: factsTtlMs,
    now: monotonicMs,
    load: async () => ({ current: await database.readFacts().catch(() => undefined) }),
    onReloadFailure: () => undefined,
  });
  // The last result; a scrape does not wait longer than `patienceMs` for a new one.
  let isWritable = false;
  const probe = async () => {
    isWritable = (await database.whyUnwritable()) === undefined;
  };
  plugin.get(
    '/metrics',
    async ({ request, server, set }) => {
      if (!timingSafeEqual(digest(request.headers.get('authorization') ?? ''), expected())) {
        rateLimits?.takeUnauthenticated({ request, server, set });
        throw new AppError('unauthenticated', { headers: { 'www-authenticate': 'Bearer' } });
      }
      const probing = withTimeout(probe(), patienceMs, () => undefined).catch(() => undefined);
      // The timeout is outside the cache, so that scrapes share one read for as long as it runs.
      const reading = withTimeout(facts(), patienceMs, () => ({ current: undefined }));
      const [{ current }] = await Promise.all([reading, probing]);
      const text = await metrics.print({
        inFlight: server?.pendingRequests ?? 0,
        database: current,
        isWritable: !lifecycle.hasLostDisk && isWritable,
        hasLostDatabase: lifecycle.hasLostDisk,
      });
      return new Response(text, { headers: { 'content-type': metrics.contentType, 'cache-control': 'no-store' } });
    },
    { detail: { hide: true } },
  );
  return plugin;
}

/** Digests have one length, as `timingSafeEqual` requires. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
