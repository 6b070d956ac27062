import { toJson, toQuery, Unsendable } from './json';
import {
  type CallProblem,
  type ClientError,
  failure,
  isRetryStatus,
  type NotModified,
  type Result,
  readAnswer,
} from './result';
import { createTokens, type Refused, type TokenSetting } from './tokens';

/** How long a call may go on: until its time is over, or its caller aborts it. */
interface Deadline {
  /** For `fetch`; undefined where the platform has no `AbortController`. */
  readonly signal: AbortSignal | undefined;
  /** The reason to stop the call. */
  readonly problem: CallProblem | undefined;
  readonly leftMs: number;
  /** What `work` gives, or a rejection as soon as the call may not go on, even where `work` cannot be ended. */
  within<Value>(work: Promise<Value>): Promise<Value>;
  /** Ends early when the call may not go on. */
  pause(ms: number): Promise<void>;
  /** To be called in the end, so that a signal which outlives many calls keeps nothing of them. */
  end(): void;
}

/** A timer takes no more, and one that is asked for more ends at once. */
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

/** Of a save with `If-Match`, whose repeat gets 412 if the first did arrive, only these are known to have done nothing. */
const nothingDone: readonly string[] = ['rate-limited', 'request-timeout', 'auth-keys-unavailable'];

/**
 * How long to wait before a call is repeated; undefined where it must not be. Everything else that the service takes may
 * be repeated: a read, a save, which sets the same answers again, and an application, which is never started twice.
 *
 * @param attempt which one has just failed, from 1
 */
function waitBeforeRepeat(
  error: ClientError,
  { attempt, hasIfMatch }: { readonly attempt: number; readonly hasIfMatch: boolean },
): number | undefined {
  if (hasIfMatch ? !nothingDone.includes(error.slug) : !isPassing(error)) return undefined;
  const askedMs = 'retryAfterSeconds' in error ? (error.retryAfterSeconds ?? 0) * 1000 : 0;
  const ceilingMs = Math.min(longestWaitMs, firstWaitMs * 2 ** (attempt - 1));
  // By chance, so that many clients do not come back at one instant.
  return askedMs + ceilingMs * (askedMs === 0 ? Math.random() : Math.random() / 4);
}

/** Whether the same call may well succeed a little later. */
function isPassing(error: ClientError): boolean {
  if (error.slug === 'network-failure') return true;
  return 'status' in error && isRetryStatus(error.status);
}

export interface ClientSettings {
  /** Where the service is; may have a path. On a page, an address that begins with `/` is of the page's own host. */
  readonly baseUrl: string;
  /**
   * A bearer token, or a function that returns one for each attempt. After a 401 the function is called once more, with
   * `isRefused`. Calls that are refused at the same time share that request for a token.
   */
  readonly token: TokenSetting;
  /** Sent with every call. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** How long a call may take, all attempts and waits counted. Default 30,000. */
  readonly timeoutMs?: number | undefined;
  /** How often a call is sent, the first time counted. Default 4; 1 repeats nothing. */
  readonly attempts?: number | undefined;
  /** In the place of the platform's own. */
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
  /** Below /v2/private. */
  readonly path: string;
  readonly query?: Query | undefined;
  /** Sent if the member exists, whatever it holds. */
  readonly body?: unknown;
  readonly ifMatch?: string | undefined;
  readonly ifNoneMatch?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

/** What each attempt of a call sends, but for the token. */
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
 * What sends calls, repeats those that may be repeated, and never throws.
 *
 * @throws TypeError when it is made, for a `baseUrl` that is no address
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
        const answer = fetch(url, { ...init, ...(signal && { signal }) });
        return await deadline.within(
          answer.then((response) => readAnswer<Data>(response, { requestId, ifNoneMatch: call.ifNoneMatch })),
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
        const waitMs = waitBeforeRepeat(result.error, { attempt: count, hasIfMatch: call.ifMatch !== undefined });
        if (waitMs === undefined || count >= attempts || waitMs >= deadline.leftMs) return result;
        // Ended early, the next attempt tells why.
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
      // Refused below.
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

/** The later ones win, however their names are written. */
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
