/** One kind of failure that a caller can meet. `meaning`, `remedy` and `advice` are the text of its page under /problems. */
interface ProblemKind {
  readonly code: number;
  readonly status: number;
  readonly title: string;
  readonly meaning: string;
  readonly remedy: string;
  /** What to show the person before it; for failures that people meet, and not developers alone. */
  readonly advice?: string;
  /** Sent as `Retry-After` when the failure itself knows nothing better. */
  readonly retryAfterSeconds?: number;
}

/** Every failure of the service by its slug. `code` and `status` are part of the public contract and never change. */
export const problemKinds = {
  'malformed-json': {
    code: 200,
    status: 400,
    title: 'The body is not JSON',
    meaning: 'The request body could not be read as JSON in UTF-8.',
    remedy: 'Send one JSON value, without trailing commas, comments, NaN or Infinity.',
  },
  'invalid-input': {
    code: 201,
    status: 422,
    title: 'Some fields are not valid',
    meaning: 'The request was read, but at least one field breaks a rule. Nothing was stored.',
    remedy:
      'Each entry of `errors` names a field by JSON pointer (a query parameter by its name), the rule it breaks, and ' +
      'what is allowed. They are all there at once, so one round mends them.',
    advice: 'Each `message` beside its field, and what was typed.',
  },
  'unsupported-media-type': {
    code: 202,
    status: 415,
    title: 'The body must be application/json',
    meaning: 'The request carries a body whose Content-Type is missing or is not JSON in UTF-8.',
    remedy: 'Send `Content-Type: application/json` and no Content-Encoding.',
  },
  'payload-too-large': {
    code: 203,
    status: 413,
    title: 'The body is too large',
    meaning: 'The request body is larger than this service accepts, or arrives in too many chunks.',
    remedy: 'Send less, or in larger chunks; `detail` has the limit.',
  },
  'malformed-request': {
    code: 204,
    status: 400,
    title: 'The request could not be read',
    meaning: 'The request broke off, is not well-formed HTTP, or has too many query parameters.',
    remedy: '`detail` says what to change, such as a missing `Host` header; without it, send the request again, whole.',
  },
  'request-timeout': {
    code: 205,
    status: 408,
    title: 'The body took too long',
    meaning: 'The whole request body did not arrive in time. Nothing was stored.',
    remedy: 'Send the request again, on a new connection.',
    advice: 'That the connection is slow and nothing was saved yet; keep what was typed, for another try.',
  },
  unauthenticated: {
    code: 210,
    status: 401,
    title: 'A valid token is needed',
    meaning: 'The request has no bearer token, or the token is expired, malformed or not meant for this service.',
    remedy:
      'Get a fresh token and send it as `Authorization: Bearer <token>`, once: `detail` says what is wrong with the one ' +
      'that was sent.',
    advice: 'The way to sign in; keep what was typed, for when they are back.',
  },
  'auth-keys-unavailable': {
    code: 211,
    status: 503,
    title: 'Tokens cannot be checked right now',
    meaning: 'The keys that tokens are checked with could not be fetched.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
    advice: 'Nothing for the first repeats, then that it takes longer than usual; sign nobody out.',
    retryAfterSeconds: 5,
  },
  forbidden: {
    code: 220,
    status: 403,
    title: 'The caller may not do this',
    meaning:
      'The token is valid, but what was asked is for another role, or for somebody with another place in the team.',
    remedy: 'Use a token of somebody who may; `detail` says what is missing.',
    advice: 'That this is for somebody else; better, nothing that leads to it.',
  },
  'route-not-found': {
    code: 230,
    status: 404,
    title: 'There is no such path',
    meaning: 'No endpoint has this path. Paths are case-sensitive.',
    remedy: 'Compare the path with the list at /swagger.',
  },
  'method-not-allowed': {
    code: 231,
    status: 405,
    title: 'The path does not take this method',
    meaning: 'The path exists, but not for this HTTP method.',
    remedy: 'Use a method that the `Allow` header lists.',
  },
  'user-not-found': {
    code: 232,
    status: 404,
    title: 'There is no record yet',
    meaning: 'The signed-in person has no record: it is made by the first save.',
    remedy: 'Save anything first; an empty object is enough.',
    advice: 'The first step, empty.',
  },
  'application-in-progress': {
    code: 240,
    status: 409,
    title: 'The same application is being started',
    meaning: 'Another request for the same application is still waiting for the carrier.',
    remedy: 'Send the request again after the seconds in `Retry-After`; it starts nothing twice.',
    advice: 'That their application is being started, while the request is repeated.',
    retryAfterSeconds: 2,
  },
  'idempotency-key-reused': {
    code: 241,
    status: 422,
    title: 'The Idempotency-Key was used for other data',
    meaning: 'The key was sent before with another body. Nothing was stored or sent to the carrier.',
    remedy: 'Use a new key for new data, and the same key only to repeat a request.',
  },
  'precondition-failed': {
    code: 242,
    status: 412,
    title: 'The record has changed',
    meaning: 'What is stored now does not meet the condition in `If-Match` or `If-None-Match`. Nothing was changed.',
    remedy: 'Read the record, decide again, and save with its ETag, which this response carries too.',
    advice: 'That these answers have changed meanwhile, perhaps in another tab: both versions, to choose from.',
  },
  'rate-limited': {
    code: 250,
    status: 429,
    title: 'Too many requests',
    meaning: 'The caller has used up a limit, of requests in a minute or of applications in a day. Nothing was done.',
    remedy:
      'Send the request again after the seconds in `Retry-After`. `RateLimit`, in each answer, says how many are left.',
    advice: 'Nothing where the wait is short, else when it goes on.',
    retryAfterSeconds: 60,
  },
  'internal-error': {
    code: 300,
    status: 500,
    title: 'The service failed',
    meaning: 'Something went wrong on our side.',
    remedy: 'Try again; if it persists, report the `requestId`.',
    advice: 'That something went wrong on our side, with the `requestId` for whoever helps them.',
  },
  'database-unavailable': {
    code: 301,
    status: 503,
    title: 'The database does not answer',
    meaning: 'The database is unreachable, locked, full or too slow right now.',
    remedy: 'Send the request again after the seconds in `Retry-After`. Every save may be repeated safely.',
    advice: 'Nothing for the first repeats, then that saving takes longer than usual; keep what was typed.',
    retryAfterSeconds: 1,
  },
  'shutting-down': {
    code: 302,
    status: 503,
    title: 'This instance is shutting down',
    meaning: 'The instance finishes the requests it has and takes no new work.',
    remedy: 'Send the request again after the seconds in `Retry-After`; another instance will answer.',
    retryAfterSeconds: 1,
  },
  'carrier-unavailable': {
    code: 310,
    status: 503,
    title: 'The carrier does not answer',
    meaning: 'The partner carrier is away or overloaded. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`; it starts nothing twice.',
    advice: 'That the carrier is away, and that their application is kept and goes on.',
    retryAfterSeconds: 5,
  },
  'carrier-timeout': {
    code: 311,
    status: 504,
    title: 'The carrier is too slow',
    meaning: 'The partner carrier did not answer in time. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`; it starts nothing twice.',
    advice: 'That the carrier takes long, and that their application is kept and goes on.',
    retryAfterSeconds: 5,
  },
  'carrier-bad-answer': {
    code: 312,
    status: 502,
    title: 'The carrier’s answer cannot be read',
    meaning: 'The partner carrier answered in a form that is not agreed. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`; it starts nothing twice.',
    advice: 'That the carrier has trouble, and that their application is kept and goes on.',
    retryAfterSeconds: 5,
  },
  'carrier-declined': {
    code: 313,
    status: 422,
    title: 'The carrier declines the application',
    meaning: 'The partner carrier does not write a policy for this applicant.',
    remedy: 'Correct the data if they are wrong; a decline of the same data is repeated for a day.',
    advice: 'That the carrier offers them no policy with these data, and the data, to look over once more.',
  },
} as const satisfies Record<string, ProblemKind>;

export type ProblemSlug = keyof typeof problemKinds;

export function isProblemSlug(value: unknown): value is ProblemSlug {
  return typeof value === 'string' && Object.hasOwn(problemKinds, value);
}

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
  /** A word for the log: which check has failed. */
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

/** Every error from `error` down its chain of causes, the outermost first. */
export function* causeChain(error: unknown): Generator<Error> {
  const seen = new Set<unknown>();
  for (let current = error; current instanceof Error && !seen.has(current); current = current.cause) {
    seen.add(current);
    yield current;
  }
}
