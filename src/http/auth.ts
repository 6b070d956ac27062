import { Elysia } from 'elysia';
import { type AuthenticatedClient, unauthenticated } from '../auth/verifier';
import type { RateLimitedRequest, RouteDeps } from '../deps';
import { AppError } from '../errors';
import { readJsonBody } from './request-body';

/**
 * The plugin of every private module: authenticates a request before its body is read and before anything is validated.
 * A `resolve` or `beforeHandle` would run after validation, so that a request without a token would get 422.
 */
export function createAuth({
  verifyToken,
  config,
  rateLimits,
  tracing,
  server,
}: Pick<RouteDeps, 'verifyToken' | 'config' | 'rateLimits' | 'tracing' | 'server'>) {
  const authenticated = new WeakMap<Request, AuthenticatedClient>();

  const authenticate = async (context: RateLimitedRequest): Promise<AuthenticatedClient> => {
    const { request } = context;
    try {
      const client = await verifyToken(bearerToken(request), () => rateLimits?.requireUnauthenticated(context));
      tracing?.requestAuthenticated(request);
      rateLimits?.takeAuthenticated(client.id, context);
      return client;
    } catch (error) {
      if (error instanceof AppError && error.slug === 'unauthenticated') rateLimits?.takeUnauthenticated(context);
      throw error;
    }
  };

  return new Elysia({ name: 'http.auth' })
    .onParse({ as: 'scoped' }, async function readBody({ request, set }) {
      authenticated.set(request, await authenticate({ request, server: server(), set }));
      return readJsonBody(request, { limitBytes: config.bodyLimitBytes, timeoutMs: config.requestTimeoutMs });
    })
    .derive({ as: 'scoped' }, async function identifyClient({ request, set }) {
      return { client: authenticated.get(request) ?? (await authenticate({ request, server: server(), set })) };
    });
}

export const managerRole = 'salesManager';

/**
 * The `transform` of a route for one role. It runs after authentication and before validation.
 *
 * @throws AppError `forbidden`
 */
export function requireRole({ roles }: AuthenticatedClient, role: string): void {
  if (!roles.includes(role)) throw withoutRole(role);
}

export function withoutRole(role: string): AppError {
  return new AppError('forbidden', { detail: `The token does not have the role ${role}.` });
}

export function withoutToken(): AppError {
  return new AppError('unauthenticated', {
    detail: 'The request has no Authorization header.',
    headers: { 'www-authenticate': 'Bearer realm="personal-planning"' },
  });
}

function bearerToken(request: Request): string {
  const header = request.headers.get('authorization');
  if (header === null) throw withoutToken();
  const token = /^Bearer +(\S+)$/i.exec(header)?.[1];
  if (token === undefined) throw unauthenticated('The Authorization header is not `Bearer` and one token.');
  return token;
}
