import type { ProblemKinds } from './api';
import { knownSlugs } from './known-slugs' with { type: 'macro' };

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

/** An answer to hand on. */
export interface Success<Data> {
  readonly data: Data;
  readonly error: undefined;
  readonly isNotModified: false;
  /** Of the state that was answered, for `ifMatch` and `ifNoneMatch`. */
  readonly etag: string | undefined;
  /** Names this call in the service's log. */
  readonly requestId: string;
}

/** What the caller has, by its `ifNoneMatch`, is still current. */
export interface NotModified {
  readonly data: undefined;
  readonly error: undefined;
  readonly isNotModified: true;
  readonly etag: string | undefined;
  readonly requestId: string;
}

export interface Failure {
  readonly data: undefined;
  readonly error: ClientError;
  readonly isNotModified: false;
  /** The tag of the stored record, if the response carries it: a 412, or an application that the carrier declined. */
  readonly etag: string | undefined;
  readonly requestId: string;
}

export type Result<Data> = Success<Data> | Failure;

const slugs = new Set(knownSlugs());
const maxTextLength = 1000;

/**
 * Reads a whole response.
 *
 * @throws TypeError for a redirect
 */
export async function readAnswer<Data>(
  response: Response,
  sent: { readonly requestId: string; readonly ifNoneMatch: string | undefined },
): Promise<Result<Data> | NotModified> {
  const requestId = response.headers.get('x-request-id') ?? sent.requestId;
  const etag = response.headers.get('etag') ?? undefined;
  const text = await response.text();
  // Browsers hide the status of a redirect that is not followed. In old Bun, `redirected` is always true.
  if (response.type === 'opaqueredirect' || [301, 302, 303, 307, 308].includes(response.status)) {
    throw new TypeError('The answer is a redirect, which the client does not follow');
  }
  if (response.status === 304 && sent.ifNoneMatch !== undefined) {
    return { data: undefined, error: undefined, isNotModified: true, etag, requestId };
  }
  const json = parseJson(text, response.headers.get('content-type'));
  if (response.ok && json !== undefined) {
    return { data: json.value, error: undefined, isNotModified: false, etag, requestId };
  }
  return failure(readProblem(response, json) ?? unexpected(response, text), requestId, etag);
}

export function failure(error: ClientError, requestId: string, etag?: string): Failure {
  return { data: undefined, error, isNotModified: false, etag, requestId };
}

function parseJson(text: string, mediaType: string | null) {
  if (!/^application\/(?:problem\+)?json\b/i.test(mediaType ?? '')) return undefined;
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

function readProblem({ status, headers }: Response, json: ReturnType<typeof parseJson>): ServiceProblem | undefined {
  const slug = /\/problems\/([a-z-]+)$/.exec(json?.value?.type)?.[1];
  if (json === undefined || slug === undefined || json.value.status !== status) return undefined;
  const { code, type, title, detail, instance, errors } = json.value;
  const problem = {
    ...{ slug, status, code, type, title, detail, instance },
    ...(slug === 'invalid-input' && { errors }),
    ...(slug === 'method-not-allowed' && { allow: headers.get('allow')?.split(/, */) ?? [] }),
    ...(isRetryStatus(status) && { retryAfterSeconds: retryAfterSeconds(headers) }),
  };
  return isKnown(problem) ? problem : undefined;
}

/** A newer service may have kinds that this client's types do not. */
function isKnown(problem: { readonly slug: string; readonly status: number }): problem is ServiceProblem {
  return slugs.has(problem.slug);
}

function unexpected({ status, headers }: Response, text: string): ClientError {
  return {
    slug: 'unexpected-answer',
    status,
    text: text.slice(0, maxTextLength),
    retryAfterSeconds: retryAfterSeconds(headers),
  };
}

/** `Retry-After` in seconds or as a date (RFC 9110 §10.2.3). */
function retryAfterSeconds(headers: Headers): number | undefined {
  const text = headers.get('retry-after') ?? '';
  if (/^\d{1,9}$/.test(text)) return Number(text);
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - Date.now()) / 1000));
}
