import { Elysia, NotFoundError } from 'elysia';
import { findDatabaseError } from '../db/errors';
import { gateCodes, unfitDetail } from '../db/schema-fit';
import type { AppDeps } from '../deps';
import { AppError, causeChain, problemKinds } from '../errors';
import { describeError } from '../log';
import { pathOf, problemMediaType, toProblem } from './problem';
import { requestIdOf } from './request-context';
import type { RouteTable } from './route-table';

/**
 * Turns whatever was thrown into a problem body. It must be mounted before every module: a hook applies only to
 * routes that come after it.
 */
export function createErrorHandler({ log }: Pick<AppDeps, 'log'>, routeTable: RouteTable) {
  return new Elysia({ name: 'http.error-handler' }).onError({ as: 'global' }, function answerProblem(context) {
    const { error, request, set } = context;
    const requestId = requestIdOf(set);
    const failure = toAppError(error, () => routeTable.allowedMethods(pathOf(request)));
    const kind = problemKinds[failure.slug];
    if (kind.status >= 500) log.error({ requestId, problem: failure.slug, ...describeError(error) }, 'request failed');
    else log.debug({ requestId, problem: failure.slug, ...refusalOf(failure) }, 'request refused');
    set.status = kind.status;
    return problemResponse(failure, request, requestId);
  });
}

/** Which rules were broken, and by what a token was refused: never where, as a name of a field may be the caller's own. */
function refusalOf(failure: AppError) {
  if (failure.errors !== undefined) return { rules: [...new Set(failure.errors.map(({ rule }) => rule))] };
  return failure.cause === undefined ? {} : { errors: describeError(failure.cause).errors };
}

export function problemResponse(failure: AppError, request: Request, requestId: string): Response {
  const kind = problemKinds[failure.slug];
  return new Response(JSON.stringify(toProblem(failure, request, requestId)), {
    status: kind.status,
    headers: {
      'content-type': problemMediaType,
      'cache-control': 'no-store',
      ...('retryAfterSeconds' in kind ? { 'retry-after': String(kind.retryAfterSeconds) } : {}),
      ...failure.headers,
    },
  });
}

/** Decides by class, never by `code`: any error may carry a `code` that looks like one of Elysia's. */
function toAppError(error: unknown, allowedMethods: () => string[]): AppError {
  for (const cause of causeChain(error)) if (cause instanceof AppError) return cause;
  if (error instanceof NotFoundError) {
    const allow = allowedMethods();
    return allow.length === 0
      ? new AppError('route-not-found')
      : new AppError('method-not-allowed', { headers: { allow: allow.join(', ') } });
  }
  const failure = findDatabaseError(error);
  const unfit = gateCodes.find(({ code }) => code === failure?.code);
  if (unfit !== undefined)
    return new AppError('database-unavailable', { detail: unfitDetail[unfit.fit], cause: error });
  return new AppError(failure?.isUnavailable ? 'database-unavailable' : 'internal-error', { cause: error });
}
