import type { ProblemKinds } from './api';

/** One broken rule of a request. `pointer` is a JSON pointer into the body, or the name of a query parameter. */
export interface FieldError {
  readonly pointer: string;
  readonly rule: string;
  readonly message: string;
}

/** Whose answers may say when to come again. */
const retryStatuses = [408, 409, 429, 502, 503, 504] as const;
type RetryStatus = (typeof retryStatuses)[number];

export function isRetryStatus(status: number): boolean {
  return retryStatuses.some((each) => each === status);
}

interface ProblemMembers<Slug extends keyof ProblemKinds> {
  readonly slug: Slug;
  readonly status: ProblemKinds[Slug]['status'];
  readonly code: ProblemKinds[Slug]['code'];
  /** The address of a page that explains it. */
  readonly type: string;
  readonly title: string;
  readonly detail: string;
  readonly instance: string;
}

type OneProblem<Slug extends keyof ProblemKinds> = ProblemMembers<Slug> &
  (Slug extends 'invalid-input' ? { readonly errors: readonly FieldError[] } : unknown) &
  (Slug extends 'method-not-allowed' ? { readonly allow: readonly string[] } : unknown) &
  (ProblemKinds[Slug]['status'] extends RetryStatus ? { readonly retryAfterSeconds: number | undefined } : unknown);

/** What the service answers when something is wrong, one member a kind. */
export type ServiceProblem = { [Slug in keyof ProblemKinds]: OneProblem<Slug> }[keyof ProblemKinds];

/** No answer came, or one that is not the service's. */
export type CallProblem =
  /** No connection, one that broke, or a redirect; in a browser also an answer that CORS keeps back. */
  | { readonly slug: 'network-failure'; readonly cause: unknown }
  /**
   * Nothing was sent: a header or a setting is invalid, or JSON would change a value (NaN, a Date). `errors` has a JSON
   * pointer for each value, in the form of `invalid-input`.
   */
  | { readonly slug: 'invalid-call'; readonly errors: readonly FieldError[]; readonly cause: unknown }
  /** `timeoutMs` is over, all attempts and waits counted. What was sent may have been carried out. */
  | { readonly slug: 'timed-out'; readonly timeoutMs: number }
  /** The caller's `signal` was aborted; `cause` is its reason. */
  | { readonly slug: 'aborted'; readonly cause: unknown }
  /** The function that gives tokens has thrown, or what it gave cannot be a token. */
  | { readonly slug: 'token-unavailable'; readonly cause: unknown }
  /** A proxy's page, or a kind of problem that is newer than this client. `text` is its beginning. */
  | {
      readonly slug: 'unexpected-answer';
      readonly status: number;
      readonly text: string;
      readonly retryAfterSeconds: number | undefined;
    };

/** Every way in which a call can fail, told apart by `slug`. */
export type ClientError = ServiceProblem | CallProblem;
