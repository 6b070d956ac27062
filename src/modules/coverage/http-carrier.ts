import {
  BrokenCircuitError,
  CircuitState,
  ConsecutiveBreaker,
  circuitBreaker,
  DelegateBackoff,
  ExponentialBackoff,
  handleWhen,
  type IBackoffFactory,
  type IRetryBackoffContext,
  retry,
  wrap,
} from 'cockatiel';
import * as v from 'valibot';
import { currentSecret, type SecretSource } from '../../config/secrets';
import { type Carrier, CarrierAcceptance, type CarrierDecision, CarrierError, carrierId } from '../../shared/carrier';
import type { BreakerState, CarrierEndpoint, CarrierObserver } from '../../telemetry/events';

export interface HttpCarrierSettings {
  readonly url: string;
  readonly apiKey: SecretSource;
  /** The timeout of one attempt. */
  readonly timeoutMs: number;
  /** Attempts of one call. All use the same reference, so that the carrier repeats an acceptance. */
  readonly attempts: number;
  /** The circuit opens after this many consecutive failures, and half-opens after `breakerMs`. */
  readonly breakerFailures: number;
  readonly breakerMs: number;
  readonly observers?: readonly CarrierObserver[];
}

/** Upper bound of `Retry-After`. */
const maxRetryAfterMs = 60 * 60_000;
const exponential = new ExponentialBackoff({ initialDelay: 200, maxDelay: 1000 });
/** Exponential backoff with jitter, at least the carrier's `Retry-After`. */
const backoff = new DelegateBackoff<IRetryBackoffContext<unknown>, IBackoffFactory<unknown>>(
  (context, before = exponential) => {
    const state = before.next(context);
    const error = 'error' in context.result ? context.result.error : undefined;
    return { delay: Math.max(state.duration, retryAfterOf(error)), state };
  },
);
const maxReplyBytes = 1_000_000;
const excerptCharacters = 500;

const Refusal = v.object({ decision: v.picklist(['declined', 'not-filed']) });
const Referenced = v.looseObject({ clientReference: v.nullish(v.string()) });

/**
 * A client of the carrier's HTTP API: a timeout for each attempt and for the call, bounded retries with jitter, and a
 * circuit breaker for each of the two endpoints, which fail independently.
 */
export function createHttpCarrier(settings: HttpCarrierSettings): Carrier {
  const { url, apiKey, timeoutMs, attempts, observers = [] } = settings;
  const breaker = (endpoint: CarrierEndpoint) => {
    const policy = circuitBreaker(handleWhen(isTransient), {
      halfOpenAfter: settings.breakerMs,
      breaker: new ConsecutiveBreaker(settings.breakerFailures),
    });
    policy.onStateChange((state) => {
      for (const observer of observers) observer.breakerChanged(endpoint, breakerStates[state]);
    });
    let openedAtMs = Number.POSITIVE_INFINITY;
    policy.onBreak(() => {
      openedAtMs = performance.now();
    });
    return { policy, isOverdue: () => performance.now() - openedAtMs > settings.breakerMs };
  };
  const breakers = { start: breaker('start'), find: breaker('find') };
  const authorization = (): Record<string, string> => {
    const key = currentSecret(apiKey);
    return key === undefined ? {} : { authorization: `Bearer ${key}` };
  };

  const ask = async (
    endpoint: CarrierEndpoint,
    path: string,
    init: CarrierRequest,
    deadlineMs: number,
  ): Promise<AttemptedResponse> => {
    const current = breakers[endpoint];
    const leftMs = () => deadlineMs - performance.now();
    let lastFailure: unknown;
    let mayBeAccepted = false;
    const retrying = retry(
      handleWhen((error) => isTransient(error) && leftMs() > retryAfterOf(error)),
      { maxAttempts: attempts - 1, backoff },
    );
    try {
      return await wrap(retrying, current.policy).execute(async () => {
        try {
          const response = await attempt(endpoint, (headers) => {
            const request = { ...init, headers: { ...init.headers, ...headers } };
            return sendRequest(`${url}${path}`, request, Math.max(1, Math.min(timeoutMs, leftMs())));
          });
          if (isTransientStatus(response.status)) throw new CarrierError('unavailable', excerpt(response), response);
          return { ...response, mayBeAccepted };
        } catch (error) {
          if (error instanceof CarrierError) {
            mayBeAccepted ||= error.mayBeAccepted;
            error.mayBeAccepted = mayBeAccepted;
          }
          lastFailure = error;
          throw error;
        }
      });
    } catch (error) {
      if (!(error instanceof BrokenCircuitError)) throw error;
      // The circuit opened between two attempts: the carrier was asked, and may have accepted.
      if (lastFailure !== undefined) throw lastFailure;
      if (current.isOverdue()) {
        // The library counts by the machine's clock, which was set back since.
        if (breakers[endpoint] === current) breakers[endpoint] = breaker(endpoint);
        return ask(endpoint, path, init, deadlineMs);
      }
      throw new CarrierError('unavailable', 'not asked: circuit open', { cause: error, wasAsked: false });
    }
  };

  const attempt = (endpoint: CarrierEndpoint, send: Send): Promise<HttpResponse> =>
    observers.reduceRight<Send>(
      (inner, observer) => (outer) => observer.observeAttempt(endpoint, (headers) => inner({ ...outer, ...headers })),
      send,
    )({});

  const start: Carrier['start'] = async ({ clientReference, flow, applicant }, mayBeKnown) => {
    const deadlineMs = performance.now() + attempts * timeoutMs;
    if (mayBeKnown) {
      const path = `/applications/${encodeURIComponent(clientReference)}`;
      const found = await ask('find', path, { headers: authorization() }, deadlineMs);
      if (found.status !== 404) return readDecision(found, clientReference);
    }
    const init = {
      method: 'POST',
      headers: { ...authorization(), 'content-type': 'application/json', 'idempotency-key': clientReference },
      body: JSON.stringify({ clientReference, flow, applicant }),
    };
    return readDecision(await ask('start', '/applications', init, deadlineMs), clientReference);
  };
  return {
    id: carrierId(url),
    start: (application, mayBeKnown) =>
      observers.reduceRight<() => Promise<CarrierDecision>>(
        (inner, observer) => () => observer.observeCall(inner),
        () => start(application, mayBeKnown),
      )(),
  };
}

/** Whether the same call may succeed later. */
function isTransient(error: unknown): boolean {
  return error instanceof CarrierError && error.kind !== 'bad-answer';
}

/** Includes 401 and 403: an operator can replace a rejected key. */
function isTransientStatus(status: number): boolean {
  return status >= 500 || [401, 403, 408, 425, 429].includes(status);
}

const breakerStates: Readonly<Record<CircuitState, BreakerState>> = {
  [CircuitState.Closed]: 'closed',
  [CircuitState.HalfOpen]: 'half-open',
  [CircuitState.Open]: 'open',
  [CircuitState.Isolated]: 'open',
};

type CarrierRequest = RequestInit & { readonly headers: Readonly<Record<string, string>> };
type Send = (headers: Readonly<Record<string, string>>) => Promise<HttpResponse>;

interface HttpResponse {
  readonly status: number;
  readonly reply: string;
  readonly retryAfterMs: number | undefined;
}

type AttemptedResponse = HttpResponse & Pick<CarrierError, 'mayBeAccepted'>;

/** Sends one request. Reads at most 1 MB of UTF-8. */
async function sendRequest(url: string, init: RequestInit, timeoutMs: number): Promise<HttpResponse> {
  try {
    const response = await fetch(url, { ...init, redirect: 'manual', signal: AbortSignal.timeout(timeoutMs) });
    const { status, headers } = response;
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > maxReplyBytes) throw new CarrierError('bad-answer', `${status}: larger than 1 MB`);
      chunks.push(chunk);
    }
    const reply = decode(Buffer.concat(chunks));
    if (reply === undefined) throw new CarrierError('bad-answer', `${status}: not UTF-8`, { status });
    return { status, reply, retryAfterMs: readRetryAfter(headers) };
  } catch (error) {
    if (error instanceof CarrierError) throw error;
    const isTimeout = error instanceof Error && error.name === 'TimeoutError';
    throw new CarrierError(
      isTimeout ? 'timeout' : 'unavailable',
      isTimeout ? 'no response in time' : 'connection failed',
      { cause: error },
    );
  }
}

/** Undefined for invalid UTF-8. */
function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/**
 * `Retry-After` in milliseconds, at most an hour; undefined for another form. A date is compared with the `Date` of the
 * response, so that the clocks need not agree.
 */
function readRetryAfter(headers: Headers): number | undefined {
  const text = headers.get('retry-after')?.trim() ?? '';
  if (/^\d{1,15}$/.test(text)) return Math.min(Number(text) * 1000, maxRetryAfterMs);
  const waitMs = parseHttpDate(text) - (parseHttpDate(headers.get('date') ?? '') || Date.now());
  return Number.isNaN(waitMs) ? undefined : Math.min(Math.max(waitMs, 0), maxRetryAfterMs);
}

/** Parses the preferred form of RFC 9110 §5.6.7, such as `Sun, 06 Nov 1994 08:49:37 GMT`; NaN for other forms. */
function parseHttpDate(text: string): number {
  return /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(text) ? Date.parse(text) : Number.NaN;
}

function retryAfterOf(error: unknown): number {
  return error instanceof CarrierError ? (error.retryAfterMs ?? 0) : 0;
}

/** @throws CarrierError `bad-answer` for an invalid response, or one with another reference */
function readDecision(response: AttemptedResponse, clientReference: string): CarrierDecision {
  const { status, mayBeAccepted } = response;
  const value = parseJson(response.reply);
  const referenced = v.safeParse(Referenced, value);
  const isOurs = referenced.success && (referenced.output.clientReference ?? clientReference) === clientReference;
  if (isOurs && (status === 200 || status === 201)) {
    const accepted = v.safeParse(CarrierAcceptance, value);
    if (accepted.success) return { kind: 'accepted', ...accepted.output, reply: excerpt(response) };
  }
  if (isOurs && status === 422) {
    const refused = v.safeParse(Refusal, value);
    if (refused.success) return { kind: 'declined', reason: refused.output.decision, reply: excerpt(response) };
  }
  throw new CarrierError('bad-answer', excerpt(response), { status, mayBeAccepted });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function excerpt({ status, reply }: Pick<HttpResponse, 'status' | 'reply'>): string {
  return `${status}: ${reply.slice(0, excerptCharacters)}`.replaceAll('\0', '').toWellFormed();
}
