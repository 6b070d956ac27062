import { type ProblemSlug, problemKinds } from './shared/problems';

/** One broken rule. `pointer` is a JSON pointer into the body, or the name of a query parameter. */
export interface FieldError {
  readonly pointer: string;
  readonly rule: string;
  readonly message: string;
}

/**
 * A failure whose text may be shown to the caller. `detail` must never hold a value that the caller sent,
 * SQL, or the text of a library; the private reason goes into `cause`.
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

/** A mistake that the operator can correct. A process prints the message alone and exits with 1. */
export class OperatorError extends Error {
  override readonly name: string = 'OperatorError';
}

/** The code of an operating system error. */
export function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
}

/** Every error from `error` down its chain of causes, the outermost first. */
export function* causeChain(error: unknown): Generator<Error> {
  const seen = new Set<unknown>();
  for (let current = error; current instanceof Error && !seen.has(current); current = current.cause) {
    seen.add(current);
    yield current;
  }
}
