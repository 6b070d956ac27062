import { Elysia } from 'elysia';
import type { AppDeps } from '../deps';

const requestIdHeader = 'x-request-id';
/** Anything else in the header is ignored: it would go into logs and, with a line break, past the error handler. */
const requestIdShape = /^[\w-]{8,64}$/;

/**
 * Gives every request an id that its answer and its one log line carry. The line names the route pattern, never
 * the address, which may hold personal data.
 */
export function createRequestContext({ log, newId, lifecycle }: Pick<AppDeps, 'log' | 'newId' | 'lifecycle'>) {
  const startedAtMs = new WeakMap<Request, number>();

  return new Elysia({ name: 'http.request-context' })
    .onRequest(function identify({ request, set }) {
      startedAtMs.set(request, performance.now());
      const sent = request.headers.get(requestIdHeader);
      set.headers[requestIdHeader] = sent !== null && requestIdShape.test(sent) ? sent : newId();
      if (lifecycle.isDraining) {
        set.headers.connection = 'close';
        lifecycle.onRequestWhileDraining();
      }
    })
    .onAfterResponse({ as: 'global' }, function logRequest({ request, route, set }) {
      try {
        log.info(
          {
            requestId: set.headers[requestIdHeader],
            method: request.method,
            route: route ?? 'none',
            status: set.status ?? 200,
            durationMs: Math.round((performance.now() - (startedAtMs.get(request) ?? Number.NaN)) * 100) / 100,
          },
          'request',
        );
      } catch {
        // A throw in this hook ends the process (elysia#1474); a lost log line does not matter as much.
      }
    });
}
