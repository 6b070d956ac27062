import { pathOf } from './request-context';

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
  const answer = (request: SentRequest) => {
    const isProbe = request.url.startsWith('/') && isHealthProbe(request);
    if (!isAsResolved(request)) refused.add(request);
    // Elysia finds no path in an address without a host.
    return handle(isProbe ? new Request(`http://localhost${request.url}`, request) : request);
  };
  const refuse = (request: Request) => {
    refused.add(request);
    return handle(request);
  };
  const routes: Record<string, Handle> = { '/*': refuse };
  for (let path = '/:s0', depth = 1; depth <= maxSegments; path += `/:s${depth}`, depth += 1) {
    routes[path] = answer;
    // The first matches a trailing slash, the second an empty segment.
    routes[`${path}/*`] = answer;
    routes[`${path}//*`] = refuse;
  }
  return routes;
}

/** Whether the path differs from the spelling of its route. */
export function isOddTarget(request: SentRequest): boolean {
  for (const name in request.params) if (steps.test(request.params[name] ?? '')) return true;
  return refused.has(request);
}

export function isHealthProbe(request: Request): boolean {
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
