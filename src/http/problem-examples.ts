import { AppError } from '../errors';
import type { ProblemSlug } from '../problems';
import { managerRole, withoutRole, withoutToken } from './auth';
import type { DocumentedRoute } from './docs-introduction';
import { tooLarge, tooLate } from './json-body';
import { overLimit } from './rate-limits';
import { withTooManyParameters } from './raw-query';
import { isValibotSchema } from './valibot-schema';

/** The `requestId` of every problem that is shown as an example. */
export const exampleRequestId = '0198c2f4-6b1e-7d3a-9c54-2f0a8e71b6d3';

interface Met {
  readonly hooks: DocumentedRoute['hooks'];
  readonly bodyLimitBytes: number;
}

/** Those that say more than their kind does. */
const failures: Partial<Record<ProblemSlug, (met: Met) => AppError>> = {
  'malformed-request': withTooManyParameters,
  'invalid-input': ({ hooks }) => refusalOf(hooks),
  'payload-too-large': ({ bodyLimitBytes }) => tooLarge(bodyLimitBytes),
  'request-timeout': tooLate,
  unauthenticated: withoutToken,
  forbidden: () => withoutRole(managerRole),
  'rate-limited': () => overLimit('default', 60),
};

/** An example of a failure of a route, for the documentation. */
export function exampleFailure(slug: ProblemSlug, met: Met): AppError {
  return failures[slug]?.(met) ?? new AppError(slug);
}

/** The response to unknown fields, or to bad parameters on routes without a body. */
function refusalOf({ body, query }: DocumentedRoute['hooks']): AppError {
  if (isValibotSchema(body)) return errorOf(() => body['~standard'].validate({ unknownField: true }));
  if (!isValibotSchema(query) || !('entries' in query)) return new AppError('invalid-input');
  const known = Object.keys(Object(query.entries));
  const names = known.length === 0 ? ['unknown'] : known;
  return errorOf(() => query['~standard'].validate(Object.fromEntries(names.map((name) => [name, '?']))));
}

function errorOf(validate: () => unknown): AppError {
  try {
    validate();
  } catch (error) {
    if (error instanceof AppError) return error;
  }
  return new AppError('invalid-input');
}
