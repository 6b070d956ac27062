import { createHash, timingSafeEqual } from 'node:crypto';
import { Elysia } from 'elysia';
import { beforeDeadline } from '../db/deadline';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import type { ApplicationCounts } from '../telemetry/observers';

/** A scrape is answered whatever the database does. */
const countPatienceMs = 500;
const countsKeptForMs = 5_000;

interface MetricsDeps extends Pick<AppDeps, 'metrics' | 'rateLimits'> {
  readonly config: Pick<AppDeps['config'], 'metricsToken'>;
  readonly countApplications: () => Promise<ApplicationCounts>;
}

/** `GET /metrics` for whoever has the token; without one in the settings there is no such path. */
export function createMetricsRoute({ metrics, rateLimits, config, countApplications }: MetricsDeps) {
  const plugin = new Elysia({ name: 'http.metrics' });
  if (metrics === undefined || config.metricsToken === undefined) return plugin;
  const { metricsToken: source } = config;
  const expected = () => digest(`Bearer ${typeof source === 'function' ? source() : source}`);
  const counts = keptForAWhile(countApplications);
  plugin.get(
    '/metrics',
    async ({ request, server, set }) => {
      if (!timingSafeEqual(digest(request.headers.get('authorization') ?? ''), expected())) {
        rateLimits?.takeStranger({ request, server, set });
        throw new AppError('unauthenticated', { headers: { 'www-authenticate': 'Bearer' } });
      }
      const applications = await counts();
      const text = await metrics.print({ inFlight: server?.pendingRequests ?? 0, applications });
      return new Response(text, { headers: { 'content-type': metrics.contentType, 'cache-control': 'no-store' } });
    },
    { detail: { hide: true } },
  );
  return plugin;
}

/** Of one length, so that comparing them takes one time. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Asks once for all who scrape within a while; undefined while that fails or takes too long. */
function keptForAWhile(count: () => Promise<ApplicationCounts>): () => Promise<ApplicationCounts | undefined> {
  let counting: Promise<ApplicationCounts> | undefined;
  let last: { readonly counts: ApplicationCounts | undefined; readonly atMs: number } | undefined;
  return async () => {
    if (last !== undefined && performance.now() - last.atMs < countsKeptForMs) return last.counts;
    counting ??= count().finally(() => {
      counting = undefined;
    });
    const counts = await beforeDeadline(counting, countPatienceMs).catch(() => undefined);
    last = { counts, atMs: performance.now() };
    return counts;
  };
}
