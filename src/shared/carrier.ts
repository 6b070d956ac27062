import * as v from 'valibot';
import { line } from './fields';

/** The applicant in a request to the carrier: the six fields of contract 4.3, with `dateOfBirth` as YYYY-MM-DD. */
export interface Applicant {
  readonly firstName: string;
  readonly lastName: string;
  readonly dateOfBirth: string;
  readonly gender: 'Male' | 'Female';
  readonly state: string;
  readonly email: string;
}

interface CarrierApplication {
  readonly clientReference: string;
  readonly flow: 'ltc' | 'life';
  readonly applicant: Applicant;
}

/** Dollars, rounded to cents: a carrier may send binary fractions such as 12.340000000000002. */
const Amount = v.pipe(v.number(), v.minValue(0), v.maxValue(1e9), v.transform(toCents));
const Price = v.pipe(Amount, v.minValue(0.01));
const Years = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(120));
const Label = line(200);

/** `pricing` of contract 2.4 from a carrier. It has bounds, because each response with the record contains it. */
export const CarrierPricing = v.pipe(
  v.array(
    v.object({
      product: Label,
      coverage: Amount,
      terms: v.pipe(
        v.array(
          v.object({
            years: Years,
            price: Price,
            riders: v.pipe(
              v.array(v.object({ type: Label, price: Amount, included: v.boolean(), coverage: Amount })),
              v.maxLength(50),
            ),
          }),
        ),
        v.minLength(1),
        v.maxLength(50),
      ),
    }),
  ),
  v.minLength(1),
  v.maxLength(50),
);
export type CarrierPricing = v.InferOutput<typeof CarrierPricing>;

/** An acceptance by the carrier. */
export const CarrierAcceptance = v.object({
  applicationNumber: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
  pricing: CarrierPricing,
});

/** Stored pricing. It has no bounds, so that every stored price stays readable. */
export const StoredPricing = v.array(
  v.object({
    product: v.string(),
    coverage: v.number(),
    terms: v.array(
      v.object({
        years: v.pipe(v.number(), v.description('Term length in years')),
        price: v.pipe(v.number(), v.description('In dollars, at most two decimals')),
        riders: v.array(v.object({ type: v.string(), price: v.number(), included: v.boolean(), coverage: v.number() })),
      }),
    ),
  }),
);

/** A decision of the carrier. `reply` is the beginning of its response. */
export type CarrierDecision =
  | {
      readonly kind: 'accepted';
      readonly applicationNumber: number;
      readonly pricing: CarrierPricing;
      readonly reply: string;
    }
  | { readonly kind: 'declined'; readonly reason: 'declined' | 'not-filed'; readonly reply: string };

interface FailureDetails {
  readonly cause?: unknown;
  readonly wasAsked?: boolean;
  /** Whether an earlier try of the same call may have been accepted. */
  readonly mayBeAccepted?: boolean;
  readonly status?: number;
  readonly retryAfterMs?: number | undefined;
}

/** A call without a decision: the carrier may or may not have accepted. */
export class CarrierError extends Error {
  override readonly name = 'CarrierError';
  readonly kind: 'timeout' | 'unavailable' | 'bad-answer';
  readonly reply: string;
  /** False if the call was not sent: the circuit breaker is open, or the `Retry-After` of the carrier is not over. */
  readonly wasAsked: boolean;
  /** False if no request was sent or each response was a 4xx. */
  mayBeAccepted: boolean;
  /** `Retry-After` of the carrier. */
  readonly retryAfterMs: number | undefined;
  /** For the log: the kind of failure, with the status of the carrier's response if there is one. */
  readonly code: string;

  constructor(
    kind: CarrierError['kind'],
    reply: string,
    { cause, wasAsked = true, mayBeAccepted = false, status, retryAfterMs }: FailureDetails = {},
  ) {
    super(`The carrier has not decided (${kind})`, { cause });
    this.kind = kind;
    this.reply = reply;
    this.wasAsked = wasAsked;
    this.mayBeAccepted = mayBeAccepted || (wasAsked && (status === undefined || status < 400 || status >= 500));
    this.retryAfterMs = retryAfterMs;
    this.code = status === undefined ? kind : `${kind} ${status}`;
  }

  /** Whether the carrier refuses the request itself (4xx), so that the same request will be refused again. */
  get isRefusal(): boolean {
    return this.kind === 'bad-answer' && !this.mayBeAccepted;
  }
}

/** Classifies a failed call for metrics and traces. */
export function carrierOutcome(error: unknown): CarrierError['kind'] | 'not-asked' | 'error' {
  if (!(error instanceof CarrierError)) return 'error';
  return error.wasAsked ? error.kind : 'not-asked';
}

export interface Carrier {
  /** An application number is unique within one carrier only. */
  readonly id: string;
  /**
   * Starts the application, or returns the earlier decision for its reference. With `mayBeKnown`, the carrier is asked for
   * the reference first.
   *
   * @throws CarrierError if there is no decision
   */
  start(application: CarrierApplication, mayBeKnown: boolean): Promise<CarrierDecision>;
}

function toCents(dollars: number): number {
  return Math.round(dollars * 100) / 100;
}

/** Returns the id of the carrier at an address, without scheme and credentials. */
export function carrierId(url: string): string {
  const { host, pathname } = new URL(url);
  return pathname === '/' ? host : `${host}${pathname}`;
}
