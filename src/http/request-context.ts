import { type Context, Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import type { Cors } from './cors';
import { addToHeader } from './list-header';
import { isHealthProbe, isOddTarget } from './sent-target';

const requestIdHeader = 'x-request-id';
/** Anything else in the header is ignored: it would go into logs and, with a line break, past the error handler. */
const requestIdShape = /^[\w-]{8,64}$/;
/** A caller may send any word. */
const methods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** The id of the request that is answered so. */
export function requestIdOf({ headers }: Context['set']): string {
  return String(headers[requestIdHeader] ?? '');
}

/**
 * Gives every request an id that its answer and its one log line carry. The line names the route pattern, never
 * the address, which may hold personal data.
 */
export function createRequestContext(
  {
    log,
    newRequestId,
    lifecycle,
    metrics,
    tracing,
  }: Pick<AppDeps, 'log' | 'newRequestId' | 'lifecycle' | 'metrics' | 'tracing'>,
  cors: Cors,
) {
  const begun = new WeakMap<Request, { readonly startedAtMs: number; readonly requestId: string }>();

  const plugin = new Elysia({ name: 'http.request-context' });
  if (tracing !== undefined) {
    plugin.wrap(
      (handle, request) =>
        (...args: unknown[]) =>
          tracing.inSpanOf(request, () => handle(...args)),
    );
  }
  return plugin
    .onRequest(function identify({ request, set }) {
      const sent = request.headers.get(requestIdHeader);
      const requestId = sent !== null && requestIdShape.test(sent) ? sent : newRequestId();
      begun.set(request, { startedAtMs: performance.now(), requestId });
      set.headers[requestIdHeader] = requestId;
      if (request.url.includes('/v2/private/')) addToHeader(set.headers, 'vary', 'Authorization');
      if (lifecycle.isDraining) {
        set.headers.connection = 'close';
        lifecycle.onRequestWhileDraining();
      }
      // Bun omits an invalid host, and Elysia would then use the path as the host. Bun joins two hosts with a comma.
      if (request.url.startsWith('/') && !isHealthProbe(request)) throw withoutHost();
      if (request.headers.get('host')?.includes(',')) throw withTwoHosts();
      if (isOddTarget(request)) throw new AppError('route-not-found');
    })
    .onAfterResponse({ as: 'global' }, function logRequest({ request, route, set }) {
      // Nothing may throw here: it would end the process (elysia#1474).
      const { startedAtMs = Number.NaN, requestId = '' } = begun.get(request) ?? {};
      const method = methods.has(request.method) ? request.method : 'other';
      const status = Number(set.status ?? 200);
      const durationMs = performance.now() - startedAtMs;
      const answer = { requestId, method, route, status, durationMs };
      log.request({ ...answer, traceId: tracing?.traceIdOf(request), refusedOrigin: cors.refusedOrigin(request) });
      try {
        metrics?.answered(answer);
        tracing?.answered(request, answer);
      } catch {
        // What is watched matters more than the watching.
      }
    });
}

function withoutHost(): AppError {
  return new AppError('malformed-request', { detail: 'The Host header is missing or names no host.' });
}

function withTwoHosts(): AppError {
  return new AppError('malformed-request', { detail: 'The request has more than one Host header.' });
}

/** The path that was asked. A `Host` header of any shape, or none, reaches `request.url`, which `new URL` may refuse. */
export function pathOf({ url }: Request): string {
  return /^(?:[a-z]+:\/\/[^/]*)?(\/[^?]*)/.exec(url)?.[1] ?? '/';
}
