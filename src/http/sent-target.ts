import { pathOf } from './problem';

/** No route is as deep. */
const maxSegments = 16;
/** A segment that some program on the way takes for another place, as it is written or escaped. */
const steps = /^\.{1,2}(?:;.*)?$|[\\/]/;
const refused = new WeakSet<Request>();
/** Where a load balancer asks: HAProxy's plain `option httpchk` sends `OPTIONS / HTTP/1.0` without a Host. */
const probes: ReadonlySet<string> = new Set(['OPTIONS /', ...methodsAt('/health/live'), ...methodsAt('/health/ready')]);

type Handle = (request: Request) => Response | Promise<Response>;
type SentRequest = Request & { readonly params?: Readonly<Record<string, string>> };

/**
 * Routes for Bun, beside those that Elysia gives it. Bun resolves dot segments and backslashes in `request.url`, so a
 * gateway's rule for a path could be passed by another spelling of it; only Bun's router sees the target as it was sent. It
 * leads here what has no route as it is written: another method, a slash at the end, and other spellings, which are refused.
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
    // Bun gives a slash at the end to the first, and what follows an empty segment to the second.
    routes[`${path}/*`] = answer;
    routes[`${path}//*`] = refuse;
  }
  return routes;
}

/** Whether the path was not written as its route is. */
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
