import { Elysia, NotFoundError } from 'elysia';
import { findDatabaseError } from '../db/errors';
import { gateCodes, unfitDetail } from '../db/schema-fit';
import type { AppDeps, LimitedExchange } from '../deps';
import { AppError, causeChain } from '../errors';
import { describeError } from '../log';
import { problemKinds } from '../problems';
import type { Cors } from './cors';
import { problemMediaType, toProblem } from './problem';
import { pathOf, requestIdOf } from './request-context';
import type { RouteTable } from './route-table';

/**
 * Turns whatever was thrown into a problem body. It must be mounted before every module: a hook applies only to
 * routes that come after it.
 */
export function createErrorHandler(
  { log, rateLimits }: Pick<AppDeps, 'log' | 'rateLimits'>,
  { routeTable, cors }: { routeTable: RouteTable; cors: Cors },
) {
  /** The refusal of somebody who has asked too often for what is not there. */
  const visitorFailure = (exchange: LimitedExchange): AppError | undefined => {
    try {
      rateLimits?.takeVisitor(exchange);
      return undefined;
    } catch (error) {
      return toAppError(error);
    }
  };

  return new Elysia({ name: 'http.error-handler' }).onError({ as: 'global' }, function answerProblem(context) {
    const { error, request, server, set } = context;
    const requestId = requestIdOf(set);
    let failure: AppError;
    if (error instanceof NotFoundError) {
      const preflight = cors.answerPreflight(request);
      if (preflight !== undefined) {
        set.status = preflight.status;
        return preflight;
      }
      failure =
        visitorFailure({ request, server, set }) ??
        notFound(routeTable.allowedMethods(pathOf(request)), cors.preflightRefusal(request));
    } else {
      failure = toAppError(error);
    }
    const kind = problemKinds[failure.slug];
    // A probe during a stop finds no fault.
    const isFault = kind.status >= 500 && failure.slug !== 'shutting-down';
    if (isFault) log.error({ requestId, problem: failure.slug, ...describeError(error) }, 'request failed');
    else if (log.isDebug) log.debug({ requestId, problem: failure.slug, ...refusalOf(failure) }, 'request refused');
    set.status = kind.status;
    return problemResponse(failure, request, requestId);
  });
}

/** Lists broken rules and the failed token check. Pointers are left out, because callers choose field names. */
function refusalOf(failure: AppError) {
  if (failure.errors !== undefined) return { rules: [...new Set(failure.errors.map(({ rule }) => rule))] };
  const { reason, cause } = failure;
  return { reason, ...(cause === undefined ? {} : { errors: describeError(cause).errors }) };
}

export function problemResponse(failure: AppError, request: Request, requestId: string): Response {
  const kind = problemKinds[failure.slug];
  return new Response(JSON.stringify(toProblem(failure, request, requestId)), {
    status: kind.status,
    headers: {
      'content-type': problemMediaType,
      'cache-control': 'no-store',
      ...('retryAfterSeconds' in kind ? { 'retry-after': String(kind.retryAfterSeconds) } : {}),
      // Otherwise Bun reads all remaining chunks of a refused body.
      ...(request.headers.has('transfer-encoding') && !request.bodyUsed ? { connection: 'close' } : {}),
      ...failure.headers,
    },
  });
}

/** @param detail replaces the problem's general text */
export function notFound(allowedMethods: readonly string[], detail?: string): AppError {
  const options = detail === undefined ? {} : { detail };
  return allowedMethods.length === 0
    ? new AppError('route-not-found', options)
    : new AppError('method-not-allowed', { ...options, headers: { allow: allowedMethods.join(', ') } });
}

/** Decides by class, never by `code`: any error may carry a `code` that looks like one of Elysia's. */
function toAppError(error: unknown): AppError {
  for (const cause of causeChain(error)) if (cause instanceof AppError) return cause;
  const failure = findDatabaseError(error);
  const unfit = gateCodes.find(({ code }) => code === failure?.code);
  if (unfit !== undefined)
    return new AppError('database-unavailable', { detail: unfitDetail[unfit.fit], cause: error });
  return new AppError(failure?.isUnavailable ? 'database-unavailable' : 'internal-error', { cause: error });
}
