import { Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { addToHeader } from './response';

const exposedHeaders = 'Allow, ETag, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id';
const preflightHeaders = {
  'access-control-allow-methods': 'GET, HEAD, POST',
  // Longer than any browser keeps it.
  'access-control-max-age': '86400',
};
/** Pages need few headers; monitoring scripts add some. */
const maxAskedHeaders = 64;
const headerName = /^[\w!#$%&'*+.^`|~-]{1,100}$/;

export type Cors = ReturnType<typeof createCors>;

/**
 * Allows calls from pages of the configured origins. Credentials are not allowed, because the service uses no cookies.
 * Without a configured origin, no response has a CORS header.
 */
export function createCors({ corsOrigins, publicUrl }: Pick<AppDeps['config'], 'corsOrigins' | 'publicUrl'>) {
  const allowed = new Set(corsOrigins);
  const isAllowed = (origin: string) =>
    allowed.size > 0 &&
    !origin.endsWith('*') &&
    (allowed.has(origin) || allowed.has(`${origin.replace(/:\d{1,5}$/, '')}:*`));

  /** The origin of the sending page if it is neither allowed nor the service's own. */
  const refusedOrigin = ({ headers }: Request): string | undefined => {
    const origin = headers.get('origin');
    if (origin === null || isAllowed(origin) || origin === publicUrl) return undefined;
    return origin.replace(/^https?:\/\//, '') === headers.get('host') ? undefined : origin;
  };

  const plugin = new Elysia({ name: 'http.cors' });
  return {
    plugin:
      allowed.size === 0
        ? plugin
        : plugin.onRequest(function allowOrigin({ request, set }) {
            addToHeader(set.headers, 'vary', 'Origin');
            const origin = request.headers.get('origin');
            if (origin !== null && isAllowed(origin)) {
              set.headers['access-control-allow-origin'] = origin;
              set.headers['access-control-expose-headers'] = exposedHeaders;
            }
          }),

    refusedOrigin,

    /** The response to the preflight request of an allowed page, whatever the path. */
    preflightResponse(request: Request): Response | undefined {
      if (!isPreflight(request) || !isAllowed(request.headers.get('origin') ?? '')) return undefined;
      const asked = askedHeaders(request);
      return new Response(null, {
        status: 204,
        headers: { ...preflightHeaders, ...(asked === '' ? {} : { 'access-control-allow-headers': asked }) },
      });
    },

    /** The detail of a refused preflight response. Browsers show it only in their list of requests. */
    preflightRefusal(request: Request): string | undefined {
      if (!isPreflight(request) || refusedOrigin(request) === undefined) return undefined;
      return 'The origin of the page is not listed in the setting CORS_ORIGINS, so the page may not call this service.';
    },
  };
}

function isPreflight({ method, headers }: Request): boolean {
  return method === 'OPTIONS' && headers.has('access-control-request-method');
}

/**
 * The headers that a page asks to send. A fixed list would break pages whose monitoring adds a header. It would protect
 * nothing: callers outside a browser may send any header.
 */
function askedHeaders({ headers }: Request): string {
  const names = (headers.get('access-control-request-headers') ?? '').split(',', maxAskedHeaders);
  return names
    .map((name) => name.trim())
    .filter((name) => headerName.test(name))
    .join(', ');
}
