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
  /** The longest that one attempt may take. */
  readonly timeoutMs: number;
  /** How often one call is tried, on the same reference: a carrier that has accepted repeats its answer. */
  readonly attempts: number;
  /** After so many failures in a row the carrier is left alone for `breakerMs`, and then asked by one call. */
  readonly breakerFailures: number;
  readonly breakerMs: number;
  readonly observers?: readonly CarrierObserver[];
}

/** The longest wait that a carrier can ask for. */
const maxRetryAfterMs = 60 * 60_000;
const exponential = new ExponentialBackoff({ initialDelay: 200, maxDelay: 1000 });
/** Exponential with jitter, and never shorter than the carrier asks for. */
const backoff = new DelegateBackoff<IRetryBackoffContext<unknown>, IBackoffFactory<unknown>>(
  (context, before = exponential) => {
    const state = before.next(context);
    const error = 'error' in context.result ? context.result.error : undefined;
    return { delay: Math.max(state.duration, retryAfterOf(error)), state };
  },
);
const maxReplyBytes = 1_000_000;
const keptReplyCharacters = 500;

const Refused = v.object({ decision: v.picklist(['declined', 'not-filed']) });
const Referring = v.looseObject({ clientReference: v.nullish(v.string()) });

/**
 * Speaks to a carrier over HTTP: a deadline an attempt and one for all of them, bounded retries with jitter, and a
 * circuit breaker for each of its two endpoints, because an answer of the one says nothing of the other.
 */
export function createHttpCarrier(settings: HttpCarrierSettings): Carrier {
  const { url, apiKey, timeoutMs, attempts, observers = [] } = settings;
  const breaker = (endpoint: CarrierEndpoint) => {
    const policy = circuitBreaker(handleWhen(isPassing), {
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
  ): Promise<Answered> => {
    const current = breakers[endpoint];
    const leftMs = () => deadlineMs - performance.now();
    let lastFailure: unknown;
    let mayBeAccepted = false;
    const retrying = retry(
      handleWhen((error) => isPassing(error) && leftMs() > retryAfterOf(error)),
      { maxAttempts: attempts - 1, backoff },
    );
    try {
      return await wrap(retrying, current.policy).execute(async () => {
        try {
          const answer = await attempt(endpoint, (headers) => {
            const whole = { ...init, headers: { ...init.headers, ...headers } };
            return exchange(`${url}${path}`, whole, Math.max(1, Math.min(timeoutMs, leftMs())));
          });
          if (isPassingStatus(answer.status)) throw new CarrierError('unavailable', kept(answer), answer);
          return { ...answer, mayBeAccepted };
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

  const attempt = (endpoint: CarrierEndpoint, send: Send): Promise<Exchanged> =>
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
function isPassing(error: unknown): boolean {
  return error instanceof CarrierError && error.kind !== 'bad-answer';
}

/** A key that is refused (401, 403) is the operator's to mend, and passes for whoever waits. */
function isPassingStatus(status: number): boolean {
  return status >= 500 || [401, 403, 408, 425, 429].includes(status);
}

const breakerStates: Readonly<Record<CircuitState, BreakerState>> = {
  [CircuitState.Closed]: 'closed',
  [CircuitState.HalfOpen]: 'half-open',
  [CircuitState.Open]: 'open',
  [CircuitState.Isolated]: 'open',
};

type CarrierRequest = RequestInit & { readonly headers: Readonly<Record<string, string>> };
type Send = (headers: Readonly<Record<string, string>>) => Promise<Exchanged>;

interface Exchanged {
  readonly status: number;
  readonly reply: string;
  readonly retryAfterMs: number | undefined;
}

type Answered = Exchanged & Pick<CarrierError, 'mayBeAccepted'>;

/** One attempt. A body is read only as far as an honest response goes, and only as UTF-8. */
async function exchange(url: string, init: RequestInit, timeoutMs: number): Promise<Exchanged> {
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
      isTimeout ? 'no answer in time' : 'connection failed',
      { cause: error },
    );
  }
}

/** Undefined for bytes that are not UTF-8. */
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

/** NaN for what is not the preferred form of RFC 9110 §5.6.7, such as `Sun, 06 Nov 1994 08:49:37 GMT`. */
function parseHttpDate(text: string): number {
  return /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(text) ? Date.parse(text) : Number.NaN;
}

function retryAfterOf(error: unknown): number {
  return error instanceof CarrierError ? (error.retryAfterMs ?? 0) : 0;
}

/** @throws CarrierError for a response that is not in the agreed form, or speaks of another application */
function readDecision(answer: Answered, clientReference: string): CarrierDecision {
  const { status, mayBeAccepted } = answer;
  const value = parseJson(answer.reply);
  const referring = v.safeParse(Referring, value);
  const isOurs = referring.success && (referring.output.clientReference ?? clientReference) === clientReference;
  if (isOurs && (status === 200 || status === 201)) {
    const accepted = v.safeParse(CarrierAcceptance, value);
    if (accepted.success) return { kind: 'accepted', ...accepted.output, reply: kept(answer) };
  }
  if (isOurs && status === 422) {
    const refused = v.safeParse(Refused, value);
    if (refused.success) return { kind: 'declined', reason: refused.output.decision, reply: kept(answer) };
  }
  throw new CarrierError('bad-answer', kept(answer), { status, mayBeAccepted });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function kept({ status, reply }: Pick<Exchanged, 'status' | 'reply'>): string {
  return `${status}: ${reply.slice(0, keptReplyCharacters)}`.replaceAll('\0', '').toWellFormed();
}
