import { type Context, Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import { addToHeader } from './response';

/** More than any route has. */
const maxSegments = 16;
/** A segment that a proxy may resolve to another path, plain or percent-encoded. */
const steps = /^\.{1,2}(?:;.*)?$|[\\/]/;
const refused = new WeakSet<Request>();
/** Probes of load balancers. HAProxy's plain `option httpchk` sends `OPTIONS / HTTP/1.0` without a Host. */
const probes: ReadonlySet<string> = new Set(['OPTIONS /', ...methodsAt('/health/live'), ...methodsAt('/health/ready')]);

type Handle = (request: Request) => Response | Promise<Response>;
type SentRequest = Request & { readonly params?: Readonly<Record<string, string>> };

/**
 * Routes for Bun, in addition to Elysia's. Bun resolves dot segments and backslashes in `request.url`, so another spelling
 * could bypass a gateway's rule for a path. Only Bun's router sees the target as it was sent. These routes match every
 * target without a route of its own: another method, a trailing slash, or another spelling, which is refused.
 *
 * @param slashed paths of routes with a trailing slash, for which Elysia gives Bun the route without it only
 */
export function sentTargetRoutes(handle: Handle, slashed: readonly string[]) {
  const respondBelow = (base: string) => (request: SentRequest) => {
    const isProbe = request.url.startsWith('/') && isHealthProbe(request);
    if (!isAsResolved(request, base)) refused.add(request);
    // Elysia finds no path in a URL without a host.
    return handle(isProbe ? new Request(`http://localhost${request.url}`, request) : request);
  };
  const refuse = (request: Request) => {
    refused.add(request);
    return handle(request);
  };
  const routes: Record<string, Handle> = {};
  for (const base of ['/', ...slashed]) {
    const respond = respondBelow(base);
    routes[`${base}*`] = base === '/' ? refuse : handle;
    routes[`${base}/*`] = refuse;
    for (let path = `${base}:s0`, depth = 1; depth <= maxSegments; path += `/:s${depth}`, depth += 1) {
      routes[path] = respond;
      // The first matches a trailing slash, the second an empty segment.
      routes[`${path}/*`] = respond;
      routes[`${path}//*`] = refuse;
    }
  }
  return routes;
}

/** Whether the path differs from the spelling of its route. */
function isOddTarget(request: SentRequest): boolean {
  for (const name in request.params) if (steps.test(request.params[name] ?? '')) return true;
  return refused.has(request);
}

function isHealthProbe(request: Request): boolean {
  return probes.has(`${request.method} ${pathOf(request).replace(/(?<=.)\/$/, '')}`);
}

function methodsAt(path: string): string[] {
  return ['GET', 'HEAD', 'OPTIONS'].map((method) => `${method} ${path}`);
}

function isAsResolved(request: SentRequest, base: string): boolean {
  const sent = `${base}${Object.values(request.params ?? {}).join('/')}`;
  const resolved = pathOf(request).replace(/\/$/, '');
  return sent === (resolved.includes('%') ? unescaped(resolved) : resolved);
}

function unescaped(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

const requestIdHeader = 'x-request-id';
/** Other values are ignored: they would appear in logs, and a line break would bypass the error handler. */
const requestIdShape = /^[\w-]{8,64}$/;
/** A client may send any word as the method. */
const methods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

export function requestIdOf({ headers }: Context['set']): string {
  return String(headers[requestIdHeader] ?? '');
}

/**
 * Gives each request an id, which its response and its one log line contain. The line has the route pattern, never the
 * URL, which may contain personal data.
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
  const plugin = new Elysia({ name: 'http.request-context' });
  if (tracing !== undefined) {
    plugin.wrap(
      (handle, request) =>
        (...args: unknown[]) =>
          tracing.inRequestSpan(request, () => handle(...args)),
    );
  }
  return plugin
    .decorate({ requestId: '', startedAtMs: Number.NaN })
    .onRequest(function identify(context) {
      const { request, set } = context;
      const sent = request.headers.get(requestIdHeader);
      const requestId = sent !== null && requestIdShape.test(sent) ? sent : newRequestId();
      context.requestId = requestId;
      context.startedAtMs = performance.now();
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
    .onAfterResponse({ as: 'global' }, function logRequest({ request, route, set, requestId, startedAtMs }) {
      // An exception here would end the process (elysia#1474).
      const method = methods.has(request.method) ? request.method : 'other';
      const status = Number(set.status ?? 200);
      const durationMs = performance.now() - startedAtMs;
      const completed = { requestId, method, route, status, durationMs };
      log.request({ ...completed, traceId: tracing?.traceIdOf(request), refusedOrigin: cors.refusedOrigin(request) });
      try {
        metrics?.requestCompleted(completed);
        tracing?.requestCompleted(request, completed);
      } catch {
        // Telemetry must never fail a request.
      }
    });
}

function withoutHost(): AppError {
  return new AppError('malformed-request', { detail: 'The Host header is missing or names no host.' });
}

function withTwoHosts(): AppError {
  return new AppError('malformed-request', { detail: 'The request has more than one Host header.' });
}

/** The path of the request. `new URL` refuses a `request.url` with a malformed or missing host. */
export function pathOf({ url }: Request): string {
  return /^(?:[a-z]+:\/\/[^/]*)?(\/[^?]*)/.exec(url)?.[1] ?? '/';
}

/** Routes have few parameters. Each one costs time before the token is checked. */
const maxParameters = 64;

/**
 * Query values exactly as sent, before they are validated: with a Standard Schema, Elysia splits values at commas
 * and parses those that look like JSON (elysia#1800). A repeated parameter becomes an array, which no schema accepts.
 */
export const rawQuery = new Elysia({ name: 'http.raw-query' })
  .onRequest(function boundQuery({ request }) {
    let separator = request.url.indexOf('?');
    for (let count = 0; separator !== -1; count += 1) {
      if (count === maxParameters) throw withTooManyParameters();
      separator = request.url.indexOf('&', separator + 1);
    }
  })
  .onTransform({ as: 'global' }, function readQuery(context) {
    const start = context.request.url.indexOf('?');
    if (start === -1) return;
    const query: Record<string, string | string[]> = Object.create(null);
    for (const [name, value] of new URLSearchParams(context.request.url.slice(start + 1))) {
      const earlier = query[name];
      if (earlier === undefined) query[name] = value;
      else if (typeof earlier === 'string') query[name] = [earlier, value];
      else earlier.push(value);
    }
    // Elysia analyses this function. If it passed the context on, Elysia would parse cookies and headers each time.
    const wider: { query: Record<string, string | string[] | undefined> } = context;
    wider.query = query;
  });

export function withTooManyParameters(): AppError {
  return new AppError('malformed-request', { detail: `The query has more than ${maxParameters} parameters.` });
}

const exposedHeaders = 'Allow, ETag, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id';
const preflightHeaders = {
  'access-control-allow-methods': 'GET, HEAD, POST',
  // Longer than any browser keeps it.
  'access-control-max-age': '86400',
};
/** Pages need few headers; monitoring scripts add some. */
const maxRequestedHeaders = 64;
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

    /** The response to a preflight request of an allowed page, for any path. */
    preflightResponse(request: Request): Response | undefined {
      if (!isPreflight(request) || !isAllowed(request.headers.get('origin') ?? '')) return undefined;
      const allowedHeaders = requestedHeaders(request);
      return new Response(null, {
        status: 204,
        headers: {
          ...preflightHeaders,
          ...(allowedHeaders === '' ? {} : { 'access-control-allow-headers': allowedHeaders }),
        },
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
 * The headers that a page wants to send. A fixed list would break pages whose monitoring adds a header, and would protect
 * nothing, because clients outside a browser may send any header.
 */
function requestedHeaders({ headers }: Request): string {
  const names = (headers.get('access-control-request-headers') ?? '').split(',', maxRequestedHeaders);
  return names
    .map((name) => name.trim())
    .filter((name) => headerName.test(name))
    .join(', ');
}
