import * as v from 'valibot';
import { type AppError, problemKinds } from '../errors';

export const Problem = v.object({
  type: v.pipe(v.string(), v.description('A page that explains this kind of problem')),
  title: v.string(),
  status: v.number(),
  detail: v.string(),
  instance: v.pipe(v.string(), v.description('The path that was asked')),
  code: v.pipe(v.number(), v.description('A number for this kind of problem that never changes')),
  http_code: v.number(),
  requestId: v.string(),
  errors: v.optional(
    v.pipe(
      v.array(v.object({ pointer: v.string(), rule: v.string(), message: v.string() })),
      v.description('Every broken rule, by JSON pointer into the body or name of a query parameter'),
    ),
  ),
});
export type Problem = v.InferOutput<typeof Problem>;

export const problemMediaType = 'application/problem+json';

/** The `response` entries of every private route for the problems that it may answer with. */
export const readProblems = { 400: Problem, 401: Problem, 429: Problem, 500: Problem, 503: Problem } as const;
export const queryProblems = { ...readProblems, 422: Problem } as const;
export const bodyProblems = { ...queryProblems, 408: Problem, 413: Problem, 415: Problem } as const;

/** The body of RFC 9457 with the contract's own words `code` and `http_code`. */
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

/** The path that was asked. A `Host` header of any shape reaches `request.url`, which `new URL` may refuse. */
export function pathOf({ url }: Request): string {
  return /^[a-z]+:\/\/[^/]*(\/[^?]*)/.exec(url)?.[1] ?? '/';
}
