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
    meaning: 'At least one field breaks a rule. Nothing was stored.',
    remedy:
      'Each entry of `errors` has the JSON pointer of a field (or the name of a query parameter), the broken rule, and a ' +
      'message. `errors` lists all faults.',
    advice: 'Each `message` beside its field. Keep the input.',
  },
  'unsupported-media-type': {
    code: 202,
    status: 415,
    title: 'The body must be application/json',
    meaning: 'The Content-Type of the body is missing or is not JSON in UTF-8.',
    remedy: 'Send `Content-Type: application/json` and no Content-Encoding.',
  },
  'payload-too-large': {
    code: 203,
    status: 413,
    title: 'The body is too large',
    meaning: 'The request body is larger than this service accepts, or arrives in too many chunks.',
    remedy: 'Send a smaller body or larger chunks. `detail` has the limit.',
  },
  'malformed-request': {
    code: 204,
    status: 400,
    title: 'The request could not be read',
    meaning: 'The request is incomplete, is not well-formed HTTP, or has too many query parameters.',
    remedy: '`detail` names the fault, such as a missing `Host` header. If it does not, send the whole request again.',
  },
  'request-timeout': {
    code: 205,
    status: 408,
    title: 'The body took too long',
    meaning: 'The whole request body did not arrive in time. Nothing was stored.',
    remedy: 'Send the request again, on a new connection.',
    advice: 'The connection is slow, and nothing was saved yet. Keep the input for another try.',
  },
  unauthenticated: {
    code: 210,
    status: 401,
    title: 'A valid token is needed',
    meaning: 'The request has no bearer token, or the token is expired, malformed or not meant for this service.',
    remedy:
      'Get a new token and send it once, as `Authorization: Bearer <token>`. `detail` names the fault of the refused ' +
      'token.',
    advice: 'A link to sign in. Keep the input.',
  },
  'auth-keys-unavailable': {
    code: 211,
    status: 503,
    title: 'Tokens cannot be checked right now',
    meaning: 'The service could not fetch the keys to check tokens.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
    advice: 'Nothing during the first repeats. Then: this takes longer than usual. Do not sign the person out.',
    retryAfterSeconds: 5,
  },
  forbidden: {
    code: 220,
    status: 403,
    title: 'The caller may not do this',
    meaning: 'The token is valid, but this operation needs another role or another position in the team.',
    remedy: 'Use a token that has the permission. `detail` says what is missing.',
    advice: 'The person has no access. It is better to hide links to this operation.',
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
    meaning: 'The path does not support this HTTP method.',
    remedy: 'Use a method that the `Allow` header lists.',
  },
  'user-not-found': {
    code: 232,
    status: 404,
    title: 'There is no record yet',
    meaning: 'The signed-in person has no record. The first save creates it.',
    remedy: 'Save any section first. An empty object is enough.',
    advice: 'The first step, empty.',
  },
  'application-in-progress': {
    code: 240,
    status: 409,
    title: 'The same application is being started',
    meaning: 'Another request for the same application is still waiting for the carrier.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The application is being started. Repeat the request meanwhile.',
    retryAfterSeconds: 2,
  },
  'idempotency-key-reused': {
    code: 241,
    status: 422,
    title: 'The Idempotency-Key was used for other data',
    meaning: 'An earlier request had the same key and another body. Nothing was stored or sent to the carrier.',
    remedy: 'Use a new key for new data, and the same key only to repeat a request.',
  },
  'precondition-failed': {
    code: 242,
    status: 412,
    title: 'The record has changed',
    meaning: 'The stored version does not meet `If-Match` or `If-None-Match`. Nothing was changed.',
    remedy: 'Read the record, apply the change again, and save with the current ETag. This response has it too.',
    advice: 'These answers were changed meanwhile, perhaps in another tab. Offer both versions.',
  },
  'rate-limited': {
    code: 250,
    status: 429,
    title: 'Too many requests',
    meaning:
      'The caller exceeded the limit of requests in a minute or of applications in a day, or changes a record faster than ' +
      'it can be matched. Nothing was done.',
    remedy:
      'Send the request again after the seconds in `Retry-After`. `RateLimit` in each response has the remaining requests.',
    advice: 'Nothing for a short wait, otherwise the time of the next try.',
    retryAfterSeconds: 60,
  },
  'internal-error': {
    code: 300,
    status: 500,
    title: 'The service failed',
    meaning: 'Something went wrong on our side.',
    remedy: 'Try again; if it persists, report the `requestId`.',
    advice: 'An error on our side, with the `requestId` for support.',
  },
  'database-unavailable': {
    code: 301,
    status: 503,
    title: 'The database does not answer',
    meaning: 'The database is unreachable, locked, full or too slow right now.',
    remedy: 'Send the request again after the seconds in `Retry-After`. Every save may be repeated safely.',
    advice: 'Nothing during the first repeats. Then: saving takes longer than usual. Keep the input.',
    retryAfterSeconds: 1,
  },
  'shutting-down': {
    code: 302,
    status: 503,
    title: 'This instance is shutting down',
    meaning: 'The instance finishes its open requests and accepts no new ones.',
    remedy: 'Send the request again after the seconds in `Retry-After`. Another instance will respond.',
    retryAfterSeconds: 1,
  },
  'carrier-unavailable': {
    code: 310,
    status: 503,
    title: 'The carrier does not answer',
    meaning: 'The partner carrier is unreachable or overloaded. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The carrier is not available. The application is kept and continues later.',
    retryAfterSeconds: 5,
  },
  'carrier-timeout': {
    code: 311,
    status: 504,
    title: 'The carrier is too slow',
    meaning: 'The partner carrier did not answer in time. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The carrier needs more time. The application is kept and continues later.',
    retryAfterSeconds: 5,
  },
  'carrier-bad-answer': {
    code: 312,
    status: 502,
    title: 'The carrier’s answer cannot be read',
    meaning: 'The response of the partner carrier has an invalid form. The application is kept and settled later.',
    remedy: 'Send the request again after the seconds in `Retry-After`. It does not start a second application.',
    advice: 'The carrier has a problem. The application is kept and continues later.',
    retryAfterSeconds: 5,
  },
  'carrier-declined': {
    code: 313,
    status: 422,
    title: 'The carrier declines the application',
    meaning: 'The partner carrier does not offer a policy to this applicant.',
    remedy: 'Correct the data if they are wrong. For a day, the same data get the same decline.',
    advice: 'The carrier offers no policy with these data. Show the data for review.',
  },
} as const satisfies Record<string, ProblemKind>;

export type ProblemSlug = keyof typeof problemKinds;

export function isProblemSlug(value: unknown): value is ProblemSlug {
  return typeof value === 'string' && Object.hasOwn(problemKinds, value);
}
