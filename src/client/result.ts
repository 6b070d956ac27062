import { knownSlugs } from '../shared/problems' with { type: 'macro' };
import type { ProblemKinds } from './api';

/** One broken rule of a request. `pointer` is a JSON pointer into the body, or the name of a query parameter. */
export interface FieldError {
  readonly pointer: string;
  readonly rule: string;
  readonly message: string;
}

/** Responses with these statuses may have `Retry-After`. */
const retryStatuses = [408, 409, 429, 502, 503, 504] as const;
type RetryStatus = (typeof retryStatuses)[number];

export function isRetryStatus(status: number): boolean {
  return retryStatuses.some((each) => each === status);
}

interface ProblemMembers<Slug extends keyof ProblemKinds> {
  readonly slug: Slug;
  readonly status: ProblemKinds[Slug]['status'];
  readonly code: ProblemKinds[Slug]['code'];
  /** The address of the page that explains the error. */
  readonly type: string;
  readonly title: string;
  readonly detail: string;
  readonly instance: string;
}

type OneProblem<Slug extends keyof ProblemKinds> = ProblemMembers<Slug> &
  (Slug extends 'invalid-input' ? { readonly errors: readonly FieldError[] } : unknown) &
  (Slug extends 'method-not-allowed' ? { readonly allow: readonly string[] } : unknown) &
  (ProblemKinds[Slug]['status'] extends RetryStatus ? { readonly retryAfterSeconds: number | undefined } : unknown);

/** An error response of the service; `slug` discriminates the kinds. */
export type ServiceProblem = { [Slug in keyof ProblemKinds]: OneProblem<Slug> }[keyof ProblemKinds];

/** A call without a response of the service. */
export type CallProblem =
  /** No connection, a broken connection, or a redirect; in a browser also a response that CORS blocks. */
  | { readonly slug: 'network-failure'; readonly cause: unknown }
  /**
   * Nothing was sent: a header or a setting is invalid, or JSON would change a value (NaN, a Date). `errors` has a JSON
   * pointer for each such value, in the form of `invalid-input`.
   */
  | { readonly slug: 'invalid-call'; readonly errors: readonly FieldError[]; readonly cause: unknown }
  /** The call, with all attempts and waits, took longer than `timeoutMs`. It may have had its effect. */
  | { readonly slug: 'timed-out'; readonly timeoutMs: number }
  /** The caller's `signal` was aborted; `cause` is its reason. */
  | { readonly slug: 'aborted'; readonly cause: unknown }
  /** The token function has thrown, or has returned a value that is not a token. */
  | { readonly slug: 'token-unavailable'; readonly cause: unknown }
  /** The response of a proxy, or a kind of error that is newer than this client. `text` is the start of the body. */
  | {
      readonly slug: 'unexpected-answer';
      readonly status: number;
      readonly text: string;
      readonly retryAfterSeconds: number | undefined;
    };

/** Every error of a call; `slug` discriminates the kinds. */
export type ClientError = ServiceProblem | CallProblem;

export interface Success<Data> {
  readonly data: Data;
  readonly error: undefined;
  readonly isNotModified: false;
  /** The version of the record in `data`, for `ifMatch` and `ifNoneMatch`. */
  readonly etag: string | undefined;
  /** The id of this call in the log of the service. */
  readonly requestId: string;
}

/** The version that `ifNoneMatch` names is current. */
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
  /** The ETag of the stored record, if the response has it: a 412, or an application that the carrier declined. */
  readonly etag: string | undefined;
  readonly requestId: string;
}

export type Result<Data> = Success<Data> | Failure;

const slugs = new Set(knownSlugs());
const maxTextLength = 1000;

/**
 * Converts a response to a result.
 *
 * @throws TypeError for a redirect
 */
export async function readResponse<Data>(
  response: Response,
  sent: { readonly requestId: string; readonly ifNoneMatch: string | undefined },
): Promise<Result<Data> | NotModified> {
  const requestId = response.headers.get('x-request-id') ?? sent.requestId;
  const etag = response.headers.get('etag') ?? undefined;
  const text = await response.text();
  // Browsers hide the status of a redirect that is not followed. In old Bun, `redirected` is always true.
  if (response.type === 'opaqueredirect' || [301, 302, 303, 307, 308].includes(response.status)) {
    throw new TypeError('The response is a redirect, which the client does not follow');
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

/** A newer service may have kinds that this client does not know. */
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
