import { Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { addToHeader } from './list-header';

const exposedHeaders = 'Allow, ETag, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id';
const preflightHeaders = {
  'access-control-allow-methods': 'GET, HEAD, POST',
  // Longer than any browser keeps it.
  'access-control-max-age': '86400',
};
/** A page asks for a few, which its scripts for monitoring and tracing add to. */
const maxAskedHeaders = 64;
const headerName = /^[\w!#$%&'*+.^`|~-]{1,100}$/;

export type Cors = ReturnType<typeof createCors>;

/**
 * Lets pages of the configured origins call, with the token that they send. No cookie has a meaning here, so credentials
 * are not allowed. Without a configured origin, no response has a CORS header.
 */
export function createCors({ corsOrigins, publicUrl }: Pick<AppDeps['config'], 'corsOrigins' | 'publicUrl'>) {
  const allowed = new Set(corsOrigins);
  const isAllowed = (origin: string) =>
    allowed.size > 0 &&
    !origin.endsWith('*') &&
    (allowed.has(origin) || allowed.has(`${origin.replace(/:\d{1,5}$/, '')}:*`));

  /** The origin of the page that sends a request, where it is another page than the service's own and is not allowed. */
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
    answerPreflight(request: Request): Response | undefined {
      if (!isPreflight(request) || !isAllowed(request.headers.get('origin') ?? '')) return undefined;
      const asked = askedHeaders(request);
      return new Response(null, {
        status: 204,
        headers: { ...preflightHeaders, ...(asked === '' ? {} : { 'access-control-allow-headers': asked }) },
      });
    },

    /** What a preflight request of another page is told. A browser shows it in its list of requests alone. */
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
 * The headers that a page wants to send. A list of our own would break each page whose monitoring adds a header, and
 * would protect nothing: a caller outside a browser sends any.
 */
function askedHeaders({ headers }: Request): string {
  const names = (headers.get('access-control-request-headers') ?? '').split(',', maxAskedHeaders);
  return names
    .map((name) => name.trim())
    .filter((name) => headerName.test(name))
    .join(', ');
}
