import { toJson, toQuery, Unsendable } from './json';
import {
  type CallProblem,
  type ClientError,
  failure,
  isRetryStatus,
  type NotModified,
  type Result,
  readResponse,
} from './result';
import { createTokens, type Refused, type TokenSetting } from './tokens';

/** Ends a call after its timeout, or when the caller aborts it. */
interface Deadline {
  /** For `fetch`; undefined where the platform has no `AbortController`. */
  readonly signal: AbortSignal | undefined;
  /** Why the call has ended; undefined while it runs. */
  readonly problem: CallProblem | undefined;
  readonly leftMs: number;
  /** Settles like `work`, or rejects when the call ends. Does not cancel `work`. */
  within<Value>(work: Promise<Value>): Promise<Value>;
  /** Resolves after `ms`, or when the call ends. */
  pause(ms: number): Promise<void>;
  /** Removes the timer and the listener; a long-lived signal would keep them in memory. */
  end(): void;
}

/** The maximum of `setTimeout`, which fires at once for a longer time. */
const longestTimerMs = 2 ** 31 - 1;

function startDeadline(timeoutMs: number, outer: AbortSignal | undefined): Deadline {
  const controller = typeof AbortController === 'function' ? new AbortController() : undefined;
  const startedAtMs = performance.now();
  let problem: CallProblem | undefined;
  let reject: (reason: unknown) => void = () => undefined;
  const over = new Promise<never>((_, rejectOver) => {
    reject = rejectOver;
  });
  // It may reject while the call awaits nothing.
  over.catch(() => undefined);
  function stop(why: CallProblem): void {
    problem = problem ?? why;
    reject(problem);
    controller?.abort();
  }
  const abort = () => stop({ slug: 'aborted', cause: outer?.reason });
  const timer = setTimeout(() => stop({ slug: 'timed-out', timeoutMs }), Math.min(timeoutMs, longestTimerMs));
  if (outer?.aborted) abort();
  outer?.addEventListener('abort', abort);

  return {
    signal: controller?.signal,
    get problem() {
      return problem;
    },
    get leftMs() {
      return timeoutMs - (performance.now() - startedAtMs);
    },
    within: (work) => Promise.race([work, over]),
    async pause(ms) {
      let pausing: ReturnType<typeof setTimeout> | undefined;
      const pause = new Promise<void>((resolve) => {
        pausing = setTimeout(resolve, ms);
      });
      await Promise.race([pause, over]).catch(() => undefined);
      clearTimeout(pausing);
    },
    end() {
      clearTimeout(timer);
      outer?.removeEventListener('abort', abort);
    },
  };
}

const firstWaitMs = 250;
const longestWaitMs = 8000;

/** Errors that prove that a request had no effect. A retry of a save with `If-Match` gets 412 if the first had one. */
const withoutEffect: readonly string[] = ['rate-limited', 'request-timeout', 'auth-keys-unavailable'];

/**
 * Returns the backoff with jitter before the next attempt in milliseconds; undefined if the call must not be retried. All
 * operations without `If-Match` are idempotent.
 *
 * @param attempt the number of the failed attempt, from 1
 */
function retryDelayMs(
  error: ClientError,
  { attempt, hasIfMatch }: { readonly attempt: number; readonly hasIfMatch: boolean },
): number | undefined {
  if (hasIfMatch ? !withoutEffect.includes(error.slug) : !isTemporary(error)) return undefined;
  const askedMs = 'retryAfterSeconds' in error ? (error.retryAfterSeconds ?? 0) * 1000 : 0;
  const ceilingMs = Math.min(longestWaitMs, firstWaitMs * 2 ** (attempt - 1));
  // Random, so that clients that failed together do not retry together.
  return askedMs + ceilingMs * (askedMs === 0 ? Math.random() : Math.random() / 4);
}

/** Whether a retry may succeed. */
function isTemporary(error: ClientError): boolean {
  if (error.slug === 'network-failure') return true;
  return 'status' in error && isRetryStatus(error.status);
}

export interface ClientSettings {
  /** The address of the service; may have a path. In a browser, an address that begins with `/` is on the host of the page. */
  readonly baseUrl: string;
  /**
   * A bearer token, or a function that returns one for each attempt. After a 401 the function is called once more, with
   * `isRefused`. Calls that are refused at the same time share one refresh.
   */
  readonly token: TokenSetting;
  /** Sent with every call. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The time limit of a call, with all attempts and waits. Default 30,000. */
  readonly timeoutMs?: number | undefined;
  /** The maximum number of attempts of a call. Default 4; 1 disables retries. */
  readonly attempts?: number | undefined;
  /** Replaces the `fetch` of the platform. */
  readonly fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly timeoutMs?: number | undefined;
  readonly attempts?: number | undefined;
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

interface Call extends CallOptions {
  readonly method: 'GET' | 'POST';
  /** Relative to /v2/private. */
  readonly path: string;
  readonly query?: Query | undefined;
  /** Sent if the member exists, also if its value is undefined. */
  readonly body?: unknown;
  readonly ifMatch?: string | undefined;
  readonly ifNoneMatch?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

/** The request of every attempt, without the token. */
interface Prepared {
  readonly url: string;
  readonly init: RequestInit;
  readonly headers: Headers;
  readonly attempts: number;
  readonly timeoutMs: number;
}

export interface Send {
  <Data>(call: Call & { readonly ifNoneMatch?: undefined }): Promise<Result<Data>>;
  <Data>(call: Call): Promise<Result<Data> | NotModified>;
}

/**
 * Returns the function that sends calls and retries them. That function never throws.
 *
 * @throws TypeError if `baseUrl` is not an address
 */
export function createSender(settings: ClientSettings): Send {
  const base = baseOf(settings.baseUrl);
  const fetch = settings.fetch ?? ((url: string, init: RequestInit) => globalThis.fetch(url, init));
  const general = platformInit();
  const usualTimeoutMs = settings.timeoutMs ?? 30_000;
  const tokens = createTokens(settings.token, usualTimeoutMs);

  function prepare(call: Call, given: Record<string, string>, requestId: string): Prepared {
    const [attempts, timeoutMs] = [call.attempts ?? settings.attempts ?? 4, call.timeoutMs ?? usualTimeoutMs];
    if (!(attempts >= 0 && timeoutMs >= 0)) throw new TypeError('attempts and timeoutMs must be numbers from 0');
    const headers = toHeaders(call, given, requestId);
    const body = 'body' in call ? toJson(call.body) : null;
    const url = `${base}${call.path}${toQuery(call.query)}`;
    return { url, headers, init: { ...general, method: call.method, headers, body }, attempts, timeoutMs };
  }

  async function send<Data>(call: Call & { readonly ifNoneMatch?: undefined }): Promise<Result<Data>>;
  async function send<Data>(call: Call): Promise<Result<Data> | NotModified>;
  async function send<Data>(call: Call): Promise<Result<Data> | NotModified> {
    const given = withLowerNames(settings.headers, call.headers);
    const requestId = given['x-request-id'] ?? randomId();
    const fail = (error: ClientError) => failure(error, requestId);
    let prepared: Prepared;
    try {
      prepared = prepare(call, given, requestId);
    } catch (cause) {
      return fail({ slug: 'invalid-call', errors: cause instanceof Unsendable ? cause.errors : [], cause });
    }
    const { url, headers, init, attempts, timeoutMs } = prepared;
    const deadline = startDeadline(timeoutMs, call.signal);
    const { signal } = deadline;
    let used: Refused = { token: '', refreshes: 0 };

    async function attempt(refused: Refused | undefined): Promise<Result<Data> | NotModified> {
      if (deadline.problem !== undefined) return fail(deadline.problem);
      try {
        const refreshes = tokens.refreshes();
        used = { refreshes, token: await deadline.within(tokens.get(refused)) };
        headers.set('authorization', `Bearer ${used.token}`);
      } catch (cause) {
        return fail(deadline.problem ?? { slug: 'token-unavailable', cause });
      }
      try {
        const responding = fetch(url, { ...init, ...(signal && { signal }) });
        return await deadline.within(
          responding.then((response) => readResponse<Data>(response, { requestId, ifNoneMatch: call.ifNoneMatch })),
        );
      } catch (cause) {
        return fail(deadline.problem ?? { slug: 'network-failure', cause });
      }
    }

    let hasRenewed = false;
    let refused: Refused | undefined;
    try {
      for (let count = 1; ; ) {
        const result = await attempt(refused);
        if (result.error === undefined) return result;
        refused = undefined;
        if (result.error.slug === 'unauthenticated' && typeof settings.token === 'function' && !hasRenewed) {
          hasRenewed = true;
          refused = used;
          continue;
        }
        const waitMs = retryDelayMs(result.error, { attempt: count, hasIfMatch: call.ifMatch !== undefined });
        if (waitMs === undefined || count >= attempts || waitMs >= deadline.leftMs) return result;
        // If the call ends during the pause, the next attempt returns the reason.
        await deadline.pause(waitMs);
        count += 1;
      }
    } finally {
      deadline.end();
    }
  }
  return send;
}

/** Avoids `crypto.randomUUID`, which pages over plain http lack. React Native has no `crypto`. */
export function randomId(): string {
  const { crypto } = globalThis;
  const bytes = new Uint8Array(16);
  if (typeof crypto?.getRandomValues === 'function') crypto.getRandomValues(bytes);
  else for (const index of bytes.keys()) bytes[index] = Math.random() * 256;
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Parses without `URL`, which React Native lacks. On a page the address may be relative. */
function baseOf(baseUrl: string): string {
  let address = String(baseUrl).trim();
  if (typeof location === 'object') {
    try {
      address = new URL(baseUrl, location.href).href;
    } catch {
      // Rejected below.
    }
  }
  const found = /^(https?:\/\/(?:\[[\da-f:.]+\]|[^\s/?#@\\:[\]]+)(?::\d{1,5})?)(\/[^\s?#]*)?(?:[?#]|$)/i.exec(address);
  if (found === null) throw new TypeError('baseUrl must be an address, such as https://planning.example');
  const [, origin, path = ''] = found;
  return `${origin}${path.replace(/(?:\/v2\/private)?\/*$/, '')}/v2/private`;
}

/** `fetch` options common to all calls. */
function platformInit(): RequestInit {
  return {
    // The service never redirects, so a redirect would send the body to another host. Workers lack the value `error`.
    redirect: 'manual',
    // Workers refuse this option and have no cookies.
    ...(typeof Request === 'function' && 'credentials' in new Request('http://localhost') && { credentials: 'omit' }),
  };
}

/** Later headers replace earlier ones. Header names are case-insensitive. */
function withLowerNames(...lists: readonly CallOptions['headers'][]): Record<string, string> {
  const entries = lists.flatMap((headers) => Object.entries(headers ?? {}));
  return Object.fromEntries(entries.map(([name, value]) => [name.toLowerCase(), value]));
}

function toHeaders(call: Call, given: Record<string, string>, requestId: string): Headers {
  const own = {
    'x-request-id': requestId,
    'if-match': call.ifMatch,
    'if-none-match': call.ifNoneMatch,
    'idempotency-key': call.idempotencyKey,
    'content-type': 'body' in call ? 'application/json' : undefined,
  };
  const headers = new Headers();
  for (const [name, value] of [given, own].flatMap((each) => Object.entries(each))) {
    if (value !== undefined) headers.set(name, value);
  }
  return headers;
}
