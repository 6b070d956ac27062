import { failure, type NotModified, type Result, readAnswer } from './answer';
import { type Deadline, startDeadline } from './deadline';
import type { ClientError } from './errors';
import { waitBeforeRepeat } from './retry';

export interface ClientSettings {
  /** Where the service is; may have a path. On a page, an address that begins with `/` is of the page's own host. */
  readonly baseUrl: string;
  /** A bearer token, or what gives one for each attempt. After a 401 it is asked again, once, with `isRefused`. */
  readonly token: string | ((ask: { readonly isRefused: boolean }) => string | Promise<string>);
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

export interface Call extends CallOptions {
  readonly method: 'GET' | 'POST';
  /** Below /v2/private. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>> | undefined;
  readonly body?: unknown;
  readonly ifMatch?: string | undefined;
  readonly ifNoneMatch?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

/** What each attempt of a call sends, but for the token. */
interface Prepared {
  readonly call: Call;
  readonly requestId: string;
  readonly init: ReturnType<typeof toInit>;
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

  async function attempt<Data>({ call, init, requestId }: Prepared, isRefused: boolean, deadline: Deadline) {
    const fail = (error: ClientError) => failure(error, requestId);
    const ended = (): ClientError | undefined => {
      if (deadline.isTimedOut) return { slug: 'timed-out', timeoutMs: timeoutOf(call) };
      return deadline.signal.aborted ? { slug: 'aborted', cause: deadline.signal.reason } : undefined;
    };
    const early = ended();
    if (early !== undefined) return fail(early);
    try {
      const { token: given } = settings;
      const token = typeof given === 'string' ? given : await deadline.within(Promise.resolve(given({ isRefused })));
      init.headers.set('authorization', `Bearer ${token}`);
    } catch (cause) {
      return fail(ended() ?? { slug: 'token-unavailable', cause });
    }
    try {
      const answer = fetch(`${base}${call.path}${toQuery(call.query)}`, { ...init, signal: deadline.signal });
      const read = answer.then((response) => readAnswer<Data>(response, { requestId, ifNoneMatch: call.ifNoneMatch }));
      return await deadline.within(read);
    } catch (cause) {
      return fail(ended() ?? { slug: 'network-failure', cause });
    }
  }

  const timeoutOf = (call: Call) => call.timeoutMs ?? settings.timeoutMs ?? 30_000;

  async function send<Data>(call: Call & { readonly ifNoneMatch?: undefined }): Promise<Result<Data>>;
  async function send<Data>(call: Call): Promise<Result<Data> | NotModified>;
  async function send<Data>(call: Call): Promise<Result<Data> | NotModified> {
    const requestId = requestIdOf(call.headers) ?? requestIdOf(settings.headers) ?? randomId();
    let prepared: Prepared;
    try {
      prepared = { call, requestId, init: toInit(call, toHeaders(call, settings.headers, requestId)) };
    } catch (cause) {
      return failure({ slug: 'invalid-call', cause }, requestId);
    }
    const attempts = call.attempts ?? settings.attempts ?? 4;
    const deadline = startDeadline(timeoutOf(call), call.signal);
    let hasRenewed = false;
    let isRefused = false;
    try {
      for (let count = 1; ; ) {
        const result: Result<Data> | NotModified = await attempt<Data>(prepared, isRefused, deadline);
        if (result.error === undefined) return result;
        isRefused = result.error.slug === 'unauthenticated' && typeof settings.token === 'function' && !hasRenewed;
        if (isRefused) {
          hasRenewed = true;
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

/** Made without `crypto.randomUUID`, which a page that came over plain http does not have. */
export function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function baseOf(baseUrl: string): string {
  const page = globalThis.location?.href;
  // `localhost:3000` is an address, of the scheme `localhost`.
  if (!URL.canParse(baseUrl, page) || !/^https?:$/.test(new URL(baseUrl, page).protocol)) {
    throw new TypeError('baseUrl must be an address, such as https://planning.example');
  }
  const { origin, pathname } = new URL(baseUrl, page);
  return `${origin}${pathname.replace(/(?:\/v2\/private)?\/*$/, '')}/v2/private`;
}

function requestIdOf(headers: CallOptions['headers']): string | undefined {
  return Object.entries(headers ?? {}).findLast(([name]) => name.toLowerCase() === 'x-request-id')?.[1];
}

/** The later ones win, however their names are written. */
function toHeaders(call: Call, general: CallOptions['headers'], requestId: string): Headers {
  const own = {
    'x-request-id': requestId,
    'if-match': call.ifMatch,
    'if-none-match': call.ifNoneMatch,
    'idempotency-key': call.idempotencyKey,
    'content-type': call.body === undefined ? undefined : 'application/json',
  };
  const headers = new Headers();
  for (const [name, value] of [general, call.headers, own].flatMap((given) => Object.entries(given ?? {}))) {
    if (value !== undefined) headers.set(name, value);
  }
  return headers;
}

function toInit(call: Call, headers: Headers) {
  return {
    method: call.method,
    headers,
    body: call.body === undefined ? null : JSON.stringify(call.body),
    credentials: 'omit',
    // The service redirects nobody: what does would get the body, and a POST become a GET.
    redirect: 'error',
  } satisfies RequestInit;
}

function toQuery(query: Call['query'] = {}): string {
  const entries = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return entries.length === 0 ? '' : `?${new URLSearchParams(entries)}`;
}
