import { createHash, timingSafeEqual } from 'node:crypto';
import { Elysia } from 'elysia';
import { beforeDeadline } from '../db/deadline';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { currentSecret } from '../secret-files';
import type { DatabaseFacts } from '../telemetry/observers';

/** A scrape is answered whatever the database does. */
const patienceMs = 500;
const factsKeptForMs = 5_000;

interface MetricsDeps extends Pick<AppDeps, 'metrics' | 'rateLimits' | 'lifecycle'> {
  readonly config: Pick<AppDeps['config'], 'metricsToken'>;
  readonly readFacts: () => Promise<DatabaseFacts>;
  /** Returns the code of the failure that keeps the database from taking writes. */
  readonly whyUnwritable: () => Promise<string | undefined>;
}

/** `GET /metrics` with the metrics token. The route exists only if the settings have one. */
export function createMetricsRoute({ metrics, rateLimits, lifecycle, config, ...database }: MetricsDeps) {
  const plugin = new Elysia({ name: 'http.metrics' });
  if (metrics === undefined || config.metricsToken === undefined) return plugin;
  const { metricsToken: source } = config;
  const expected = () => digest(`Bearer ${currentSecret(source)}`);
  const facts = keptForAWhile(database.readFacts);
  // A scrape that waits no longer reports the last result, and before the first one that writes are unavailable.
  let isWritable = false;
  const probe = async () => {
    isWritable = (await database.whyUnwritable()) === undefined;
  };
  plugin.get(
    '/metrics',
    async ({ request, server, set }) => {
      if (!timingSafeEqual(digest(request.headers.get('authorization') ?? ''), expected())) {
        rateLimits?.takeStranger({ request, server, set });
        throw new AppError('unauthenticated', { headers: { 'www-authenticate': 'Bearer' } });
      }
      const probing = beforeDeadline(probe(), patienceMs).catch(() => undefined);
      const [currentFacts] = await Promise.all([facts(), probing]);
      const text = await metrics.print({
        inFlight: server?.pendingRequests ?? 0,
        database: currentFacts,
        isWritable: !lifecycle.hasLostDisk && isWritable,
        hasLostDatabase: lifecycle.hasLostDisk,
      });
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

/** Reads once for all scrapes of a few seconds; undefined while that fails or takes too long. */
function keptForAWhile(read: () => Promise<DatabaseFacts>): () => Promise<DatabaseFacts | undefined> {
  let reading: Promise<DatabaseFacts> | undefined;
  let last: { readonly facts: DatabaseFacts | undefined; readonly atMs: number } | undefined;
  return async () => {
    if (last !== undefined && performance.now() - last.atMs < factsKeptForMs) return last.facts;
    reading ??= read().finally(() => {
      reading = undefined;
    });
    const facts = await beforeDeadline(reading, patienceMs).catch(() => undefined);
    last = { facts, atMs: performance.now() };
    return facts;
  };
}
