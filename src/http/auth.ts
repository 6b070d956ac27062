import { Elysia } from 'elysia';
import { type Caller, unauthenticated } from '../auth/verifier';
import type { AppDeps, LimitedExchange } from '../deps';
import { AppError } from '../errors';
import { readJsonBody } from './request-body';

/**
 * What every private module uses: the caller, known before anything else of the request is looked at. A `resolve`
 * or `beforeHandle` would run after validation and answer 422 to a stranger, and the body is parsed earlier still,
 * so the parser checks the token too; the second check is a look into the verifier's cache.
 */
export function createAuth({
  verifyToken,
  config,
  rateLimits,
  tracing,
}: Pick<AppDeps, 'verifyToken' | 'config' | 'rateLimits' | 'tracing'>) {
  const authenticate = async (exchange: LimitedExchange): Promise<Caller> => {
    let caller: Caller;
    try {
      caller = await verifyToken(bearerToken(exchange.request), () => rateLimits?.requireStranger(exchange));
    } catch (error) {
      if (error instanceof AppError && error.slug === 'unauthenticated') rateLimits?.takeStranger(exchange);
      throw error;
    }
    tracing?.callerKnown(exchange.request);
    rateLimits?.takeCaller(caller.id, exchange);
    return caller;
  };

  return new Elysia({ name: 'http.auth' })
    .onParse({ as: 'scoped' }, async function readBody({ request, server, set }) {
      await authenticate({ request, server, set });
      return readJsonBody(request, { limitBytes: config.bodyLimitBytes, timeoutMs: config.requestTimeoutMs });
    })
    .derive({ as: 'scoped' }, async function identifyCaller({ request, server, set }) {
      return { caller: await authenticate({ request, server, set }) };
    });
}

export const managerRole = 'salesManager';

/** The `transform` of a route for one role, which comes after the caller is known and before anything is validated. */
export function requireRole({ roles }: Caller, role: string): void {
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
