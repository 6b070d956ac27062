/** One kind of error response. `meaning`, `remedy` and `advice` are the text of its page under /problems. */
interface ProblemKind {
  readonly code: number;
  readonly status: number;
  readonly title: string;
  readonly meaning: string;
  readonly remedy: string;
  /** The message for the user, if users and not only developers see the error. */
  readonly advice?: string;
  /** The default of `Retry-After`. */
  readonly retryAfterSeconds?: number;
}

/** Every error of the service by its slug. `code` and `status` are part of the public contract and never change. */
export const problemKinds = {
  'malformed-json': {
    code: 200,
    status: 400,
    title: 'Malformed JSON',
    meaning: 'The request body is not valid JSON in UTF-8.',
    remedy: 'Send one JSON value, without trailing commas, comments, NaN or Infinity.',
  },
  'invalid-input': {
    code: 201,
    status: 422,
    title: 'Invalid input',
    meaning: 'At least one field is invalid. Nothing was stored.',
    remedy:
      'Each entry of `errors` has the JSON pointer of a field (or the name of a query parameter), the broken rule, and a ' +
      'message. `errors` lists all of them.',
    advice: 'Each `message` next to its field. Keep the input.',
  },
  'unsupported-media-type': {
    code: 202,
    status: 415,
    title: 'Unsupported media type',
    meaning: 'The Content-Type of the body is missing or is not JSON in UTF-8.',
    remedy: 'Send `Content-Type: application/json` and no Content-Encoding.',
  },
  'payload-too-large': {
    code: 203,
    status: 413,
    title: 'Body too large',
    meaning: 'The request body is larger than this service accepts, or arrives in too many chunks.',
    remedy: 'Send a smaller body or larger chunks. `detail` has the limit.',
  },
  'malformed-request': {
    code: 204,
    status: 400,
    title: 'Malformed request',
    meaning: 'The request is incomplete, is not well-formed HTTP, or has too many query parameters.',
    remedy:
      'Resend the complete request. If `detail` names an error, such as a missing `Host` header, correct it first.',
  },
  'request-timeout': {
    code: 205,
    status: 408,
    title: 'Request timeout',
    meaning: 'The whole request body did not arrive in time. Nothing was stored.',
    remedy: 'Send the request again, on a new connection.',
    advice: 'The connection is slow and nothing was saved. Keep the input for a retry.',
  },
  unauthenticated: {
    code: 210,
    status: 401,
    title: 'Authentication required',
    meaning: 'The request has no bearer token, or the token is expired, malformed or not meant for this service.',
    remedy: 'Send a valid token as `Authorization: Bearer <token>`. `detail` names the error of a rejected token.',
    advice: 'A link to sign in. Keep the input.',
  },
  'auth-keys-unavailable': {
    code: 211,
    status: 503,
    title: 'Authentication keys unavailable',
    meaning: 'The service could not fetch the keys to check tokens.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
    advice: 'Nothing during the first retries. Then: this takes longer than usual. Do not sign the user out.',
    retryAfterSeconds: 5,
  },
  forbidden: {
    code: 220,
    status: 403,
    title: 'Forbidden',
    meaning: 'The token is valid but lacks the role or the position in the team that this operation requires.',
    remedy: 'Use a token with the permission that `detail` names.',
    advice: 'The user has no access. Hide links to this operation instead.',
  },
  'route-not-found': {
    code: 230,
    status: 404,
    title: 'Path not found',
    meaning: 'No endpoint has this path. Paths are case-sensitive.',
    remedy: 'See the list of paths at /swagger.',
  },
  'method-not-allowed': {
    code: 231,
    status: 405,
    title: 'Method not allowed',
    meaning: 'The path does not support this HTTP method.',
    remedy: 'Use a method that the `Allow` header lists.',
  },
  'user-not-found': {
    code: 232,
    status: 404,
    title: 'User not found',
    meaning: 'The user has no record yet. The first save creates it.',
    remedy: 'Save any section first. An empty object is enough.',
    advice: 'The first step, without input.',
  },
  'application-in-progress': {
    code: 240,
    status: 409,
    title: 'Application in progress',
    meaning: 'Another request for the same application is still waiting for the carrier.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The application is being started. Retry in the background.',
    retryAfterSeconds: 2,
  },
  'idempotency-key-reused': {
    code: 241,
    status: 422,
    title: 'Idempotency-Key reused',
    meaning: 'An earlier request had the same key and another body. Nothing was stored or sent to the carrier.',
    remedy: 'Use a new key for new data, and the same key only to repeat a request.',
  },
  'precondition-failed': {
    code: 242,
    status: 412,
    title: 'Precondition failed',
    meaning: 'The stored version does not meet `If-Match` or `If-None-Match`. Nothing was changed.',
    remedy: 'Read the record, apply the change again, and save with the current ETag. This response has it too.',
    advice: 'The answers have changed, perhaps in another tab. Offer both versions.',
  },
  'rate-limited': {
    code: 250,
    status: 429,
    title: 'Too many requests',
    meaning:
      'The client exceeded the limit of requests in a minute or of applications in a day, or changes a record faster than ' +
      'it can be matched. The request had no effect.',
    remedy:
      'Send the request again after the seconds in `Retry-After`. `RateLimit` in each response has the remaining requests.',
    advice: 'Nothing for a short wait, otherwise the time of the next retry.',
    retryAfterSeconds: 60,
  },
  'internal-error': {
    code: 300,
    status: 500,
    title: 'Internal error',
    meaning: 'The service has an unexpected error.',
    remedy: 'Retry. If the error persists, report the `requestId`.',
    advice: 'An unexpected error, with the `requestId` for support.',
  },
  'database-unavailable': {
    code: 301,
    status: 503,
    title: 'Database unavailable',
    meaning: 'The database is unreachable, locked, full or too slow.',
    remedy: 'Send the request again after the seconds in `Retry-After`. Every save may be retried safely.',
    advice: 'Nothing during the first retries. Then: saving takes longer than usual. Keep the input.',
    retryAfterSeconds: 1,
  },
  'shutting-down': {
    code: 302,
    status: 503,
    title: 'Shutting down',
    meaning: 'The instance finishes its open requests and accepts no new ones.',
    remedy: 'Send the request again after the seconds in `Retry-After`. Another instance will respond.',
    retryAfterSeconds: 1,
  },
  'carrier-unavailable': {
    code: 310,
    status: 503,
    title: 'Carrier unavailable',
    meaning: 'The partner carrier is unreachable or overloaded. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The carrier is not available. The application is kept and continues later.',
    retryAfterSeconds: 5,
  },
  'carrier-timeout': {
    code: 311,
    status: 504,
    title: 'Carrier timeout',
    meaning: 'The partner carrier did not respond in time. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The carrier needs more time. The application is kept and continues later.',
    retryAfterSeconds: 5,
  },
  'carrier-bad-answer': {
    code: 312,
    status: 502,
    title: 'Invalid carrier response',
    meaning: 'The response of the partner carrier has an invalid form. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The carrier has an error. The application is kept and continues later.',
    retryAfterSeconds: 5,
  },
  'carrier-declined': {
    code: 313,
    status: 422,
    title: 'Application declined',
    meaning: 'The partner carrier offers no policy to this applicant.',
    remedy: 'Correct the data if they are wrong. The same data are declined again for a day.',
    advice: 'The carrier offers no policy for these data. Show the data for review.',
  },
} as const satisfies Record<string, ProblemKind>;

export type ProblemSlug = keyof typeof problemKinds;

export function isProblemSlug(value: unknown): value is ProblemSlug {
  return typeof value === 'string' && Object.hasOwn(problemKinds, value);
}

/** The client calls this as a macro at build time, so that it has the slugs without the texts. */
export function knownSlugs(): string[] {
  return Object.keys(problemKinds);
}
