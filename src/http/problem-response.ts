import { Elysia, NotFoundError } from 'elysia';
import * as v from 'valibot';
import { findDatabaseError } from '../db/errors';
import { incompatibilityDetails, schemaCodes } from '../db/schema-check';
import type { RateLimitedRequest, RouteDeps } from '../deps';
import { AppError, causeChain } from '../errors';
import { describeError } from '../log';
import { isProblemSlug, type ProblemSlug, problemKinds } from '../shared/problems';
import { type Cors, pathOf, requestIdOf } from './request-context';

export const Problem = v.object({
  type: v.pipe(v.string(), v.description('The path of the page that explains this kind of problem')),
  title: v.string(),
  status: v.number(),
  detail: v.string(),
  instance: v.pipe(v.string(), v.description('The path of the request')),
  code: v.pipe(v.number(), v.description('A number for this kind of problem that never changes')),
  http_code: v.number(),
  requestId: v.string(),
  errors: v.optional(
    v.pipe(
      v.array(v.object({ pointer: v.string(), rule: v.string(), message: v.string() })),
      v.description('Each broken rule, with the JSON pointer of the field or the name of the query parameter'),
    ),
  ),
});
export type Problem = v.InferOutput<typeof Problem>;

export const problemMediaType = 'application/problem+json';

/** Problems of every private route; below, those of routes with a body. */
export const readProblems = [
  'malformed-request',
  'unauthenticated',
  'invalid-input',
  'rate-limited',
  'internal-error',
  'auth-keys-unavailable',
  'database-unavailable',
] as const satisfies ProblemSlug[];
export const bodyProblems = [
  ...readProblems,
  'malformed-json',
  'request-timeout',
  'payload-too-large',
  'unsupported-media-type',
] as const satisfies ProblemSlug[];

/** Problems that every path may return, with or without a route. */
export const problemsAnywhere = [
  'route-not-found',
  'method-not-allowed',
  'malformed-request',
] as const satisfies ProblemSlug[];

type ProblemResponses<Slug extends ProblemSlug> = {
  readonly [Status in (typeof problemKinds)[Slug]['status']]: typeof Problem;
};

/** The `response` entries of a route for its problems, by status. */
export function problems<const Slug extends ProblemSlug>(...slugs: Slug[]): ProblemResponses<Slug>;
export function problems(...slugs: ProblemSlug[]): Record<number, typeof Problem> {
  const byStatus = Map.groupBy(slugs, (slug) => problemKinds[slug].status);
  return Object.fromEntries(
    [...byStatus].map(([status, slugs]) => [status, { ...Problem, documents: Problem, slugs }]),
  );
}

/** The problems of a `response` entry that `problems` created; none for other entries. */
export function slugsOf(response: unknown): readonly ProblemSlug[] {
  return v.is(DocumentedProblem, response) ? response.slugs : [];
}

const DocumentedProblem = v.object({
  slugs: v.array(v.custom<ProblemSlug>(isProblemSlug)),
});

/** The body of RFC 9457 with the contract's members `code` and `http_code`. */
export function toProblem(error: AppError, request: Request, requestId: string): Problem {
  const kind = problemKinds[error.slug];
  return {
    type: `/problems/${error.slug}`,
    title: kind.title,
    status: kind.status,
    detail: error.detail,
    instance: pathOf(request).slice(0, 200),
    code: kind.code,
    http_code: kind.status,
    requestId,
    ...(error.errors === undefined ? {} : { errors: [...error.errors] }),
  };
}

/** Converts errors to problem responses. It must come before every module, because a hook applies only to later routes. */
export function createErrorHandler(
  { log, rateLimits, server }: Pick<RouteDeps, 'log' | 'rateLimits' | 'server'>,
  { routeTable, cors }: { routeTable: RouteTable; cors: Cors },
) {
  /** The error if the client has requested too many missing paths. */
  const limitFailure = (context: RateLimitedRequest): AppError | undefined => {
    try {
      rateLimits?.takeAnonymous(context);
      return undefined;
    } catch (error) {
      return toAppError(error);
    }
  };

  return new Elysia({ name: 'http.error-handler' }).onError({ as: 'global' }, function respondWithProblem(context) {
    const { error, request, set } = context;
    const requestId = requestIdOf(set);
    let failure: AppError;
    if (error instanceof NotFoundError) {
      const preflight = cors.preflightResponse(request);
      if (preflight !== undefined) {
        set.status = preflight.status;
        return preflight;
      }
      failure =
        limitFailure({ request, server: server(), set }) ??
        notFound(routeTable.allowedMethods(pathOf(request)), cors.preflightRefusal(request));
    } else {
      failure = toAppError(error);
    }
    const kind = problemKinds[failure.slug];
    // A probe during a stop is expected to fail.
    const isServerError = kind.status >= 500 && failure.slug !== 'shutting-down';
    if (isServerError) log.error({ requestId, problem: failure.slug, ...describeError(error) }, 'request failed');
    else if (log.isDebug) log.debug({ requestId, problem: failure.slug, ...refusalOf(failure) }, 'request refused');
    set.status = kind.status;
    return problemResponse(failure, request, requestId);
  });
}

/** The broken rules or the failed token check. No pointers, because clients choose field names. */
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

/** Decides by class, never by `code`: any error may have a `code` that looks like one of Elysia's. */
function toAppError(error: unknown): AppError {
  for (const cause of causeChain(error)) if (cause instanceof AppError) return cause;
  const failure = findDatabaseError(error);
  const unfit = schemaCodes.find(({ code }) => code === failure?.code);
  if (unfit !== undefined)
    return new AppError('database-unavailable', { detail: incompatibilityDetails[unfit.state], cause: error });
  return new AppError(failure?.isUnavailable ? 'database-unavailable' : 'internal-error', { cause: error });
}

/** The methods of every path, for 405 and `Allow`. Elysia itself returns 404 for a wrong method. */
export interface RouteTable {
  fill(routes: readonly { method: string; path: string }[]): void;
  allowedMethods(path: string): string[];
}

export function createRouteTable(): RouteTable {
  const methodsByPattern = new Map<string, { segments: string[]; methods: Set<string> }>();
  return {
    fill(routes) {
      for (const { method, path } of routes) {
        // OPTIONS routes exist only for probes.
        if (method === 'OPTIONS') continue;
        const segments = segmentsOf(path);
        const key = segments.join('/');
        const known = methodsByPattern.get(key) ?? { segments, methods: new Set<string>() };
        known.methods.add(method);
        if (method === 'GET') known.methods.add('HEAD');
        methodsByPattern.set(key, known);
      }
    },
    allowedMethods(path) {
      const sent = segmentsOf(path);
      const methods = [...methodsByPattern.values()]
        .filter(({ segments }) => segments.length === sent.length && segments.every(matches(sent)))
        .flatMap((pattern) => [...pattern.methods]);
      return [...new Set(methods)].sort();
    },
  };
}

function segmentsOf(path: string): string[] {
  return path.replace(/\/$/, '').split('/');
}

function matches(sent: readonly string[]) {
  return (segment: string, index: number) => segment.startsWith(':') || segment === sent[index];
}
