import { type ProblemSlug, problemKinds } from './shared/problems';

/** One broken rule. `pointer` is a JSON pointer into the body or the name of a query parameter. */
export interface FieldError {
  readonly pointer: string;
  readonly rule: string;
  readonly message: string;
}

/**
 * An error with a public text. `detail` must not contain a value from the request, SQL, or a message of a library; these
 * belong in `cause`.
 */
export class AppError extends Error {
  override readonly name = 'AppError';
  readonly slug: ProblemSlug;
  readonly detail: string;
  readonly errors: readonly FieldError[] | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** The failed check, for the log. */
  readonly reason: string | undefined;

  constructor(
    slug: ProblemSlug,
    options: {
      detail?: string;
      errors?: readonly FieldError[];
      headers?: Readonly<Record<string, string>>;
      cause?: unknown;
      reason?: string | undefined;
    } = {},
  ) {
    const detail = options.detail ?? problemKinds[slug].meaning;
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.slug = slug;
    this.detail = detail;
    this.errors = options.errors;
    this.headers = options.headers ?? {};
    this.reason = options.reason;
  }
}

/** An error that the operator can correct. The process prints only its message and exits with 1. */
export class OperatorError extends Error {
  override readonly name: string = 'OperatorError';
}

/** The code of an operating system error, or `otherwise` for an error without one. */
export function errorCode(error: unknown, otherwise = 'unknown reason'): string {
  return error instanceof Error && 'code' in error ? String(error.code) : otherwise;
}

/** The error and its chain of causes, the outermost first. */
export function* causeChain(error: unknown): Generator<Error> {
  const seen = new Set<unknown>();
  for (let current = error; current instanceof Error && !seen.has(current); current = current.cause) {
    seen.add(current);
    yield current;
  }
}
