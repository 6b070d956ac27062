import * as v from 'valibot';
import type { AppError } from '../errors';
import { isProblemSlug, type ProblemSlug, problemKinds } from '../problems';
import { pathOf } from './request-context';

export const Problem = v.object({
  type: v.pipe(v.string(), v.description('A page that explains this kind of problem')),
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
      v.description('Every broken rule, by JSON pointer into the body or name of a query parameter'),
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

/** What any address may answer, whether it is a route's or not. */
export const problemsAnywhere = [
  'route-not-found',
  'method-not-allowed',
  'malformed-request',
] as const satisfies ProblemSlug[];

type ProblemAnswers<Slug extends ProblemSlug> = {
  readonly [Status in (typeof problemKinds)[Slug]['status']]: typeof Problem;
};

/** The `response` entries of a route for all that it may refuse or fail with, by status. */
export function problems<const Slug extends ProblemSlug>(...slugs: Slug[]): ProblemAnswers<Slug>;
export function problems(...slugs: ProblemSlug[]): Record<number, typeof Problem> {
  const byStatus = Map.groupBy(slugs, (slug) => problemKinds[slug].status);
  return Object.fromEntries(
    [...byStatus].map(([status, slugs]) => [status, { ...Problem, documents: Problem, slugs }]),
  );
}

/** Which problems an entry that `problems` has made stands for; none for another. */
export function slugsOf(response: unknown): readonly ProblemSlug[] {
  return v.is(DocumentedProblem, response) ? response.slugs : [];
}

const DocumentedProblem = v.object({
  slugs: v.array(v.custom<ProblemSlug>(isProblemSlug)),
});

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
