import { Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { addToHeader } from './list-header';

const exposedHeaders = 'Allow, ETag, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id';
const preflightHeaders = {
  'access-control-allow-methods': 'GET, HEAD, POST',
  'access-control-allow-headers':
    'Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, X-Request-Id, baggage, traceparent, tracestate',
  // Longer than any browser keeps it.
  'access-control-max-age': '86400',
};

export type Cors = ReturnType<typeof createCors>;

/**
 * Lets pages of the configured origins call, with the token that they send; no cookie has a meaning here, so none are
 * allowed. Without an origin nothing is added to any answer.
 */
export function createCors({ corsOrigins }: Pick<AppDeps['config'], 'corsOrigins'>) {
  const allowed = new Set(corsOrigins);
  const plugin = new Elysia({ name: 'http.cors' });
  return {
    plugin:
      allowed.size === 0
        ? plugin
        : plugin.onRequest(function allowOrigin({ request, set }) {
            addToHeader(set.headers, 'vary', 'Origin');
            const origin = request.headers.get('origin');
            if (origin !== null && allowed.has(origin)) {
              set.headers['access-control-allow-origin'] = origin;
              set.headers['access-control-expose-headers'] = exposedHeaders;
            }
          }),

    /** The answer to a browser that asks whether a page may send a request, whatever the path; no route takes OPTIONS. */
    answerPreflight({ method, headers }: Request): Response | undefined {
      const isPreflight = method === 'OPTIONS' && headers.has('access-control-request-method');
      if (!isPreflight || !allowed.has(headers.get('origin') ?? '')) return undefined;
      return new Response(null, { status: 204, headers: preflightHeaders });
    },
  };
}
