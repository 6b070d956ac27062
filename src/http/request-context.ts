import { type Context, Elysia } from 'elysia';
import type { AppDeps } from '../deps';
import { AppError } from '../errors';
import type { Cors } from './cors';
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
 */
export function sentTargetRoutes(handle: Handle) {
  const respond = (request: SentRequest) => {
    const isProbe = request.url.startsWith('/') && isHealthProbe(request);
    if (!isAsResolved(request)) refused.add(request);
    // Elysia finds no path in a URL without a host.
    return handle(isProbe ? new Request(`http://localhost${request.url}`, request) : request);
  };
  const refuse = (request: Request) => {
    refused.add(request);
    return handle(request);
  };
  const routes: Record<string, Handle> = { '/*': refuse };
  for (let path = '/:s0', depth = 1; depth <= maxSegments; path += `/:s${depth}`, depth += 1) {
    routes[path] = respond;
    // The first matches a trailing slash, the second an empty segment.
    routes[`${path}/*`] = respond;
    routes[`${path}//*`] = refuse;
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

function isAsResolved(request: SentRequest): boolean {
  const sent = Object.values(request.params ?? {});
  const resolved = pathOf(request).replace(/\/$/, '').slice(1).split('/');
  return sent.length === resolved.length && sent.every((segment, index) => segment === unescaped(resolved[index]));
}

function unescaped(segment = ''): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
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
  const begun = new WeakMap<Request, { readonly startedAtMs: number; readonly requestId: string }>();

  const plugin = new Elysia({ name: 'http.request-context' });
  if (tracing !== undefined) {
    plugin.wrap(
      (handle, request) =>
        (...args: unknown[]) =>
          tracing.inRequestSpan(request, () => handle(...args)),
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
      // An exception here would end the process (elysia#1474).
      const { startedAtMs = Number.NaN, requestId = '' } = begun.get(request) ?? {};
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
 * and parses those that look like JSON (elysia#1800). A repeated parameter becomes an array, which no schema takes.
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
