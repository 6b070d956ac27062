import * as v from 'valibot';
import { line } from './fields';

/** Who applies, as the carrier is told: contract 4.3's six names, normalised; `dateOfBirth` as YYYY-MM-DD. */
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

/** In dollars, rounded to cents: a carrier that reckons in binary fractions sends 12.340000000000002. */
const Amount = v.pipe(v.number(), v.minValue(0), v.maxValue(1e9), v.transform(toCents));
const Price = v.pipe(Amount, v.minValue(0.01));
const Years = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(120));
const Label = line(200);

/**
 * `pricing` of contract 2.4 as it is accepted from a carrier. Bounded, because each response with the person's record
 * contains it.
 */
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

/** Pricing as it is stored. The rules of today do not apply: every stored price stays readable. */
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

/** What the carrier has decided, with a bounded part of its own words. */
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

/** It is not known what the carrier has decided: it may or may not have accepted. */
export class CarrierError extends Error {
  override readonly name = 'CarrierError';
  readonly kind: 'timeout' | 'unavailable' | 'bad-answer';
  readonly reply: string;
  /** False when the call was not sent: the circuit is open, or the carrier has asked to wait. */
  readonly wasAsked: boolean;
  /** Whether the carrier may have accepted: not if it was not asked, or if each of its responses was a 4xx. */
  mayBeAccepted: boolean;
  /** How long the carrier asks to wait before the next request. */
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

export interface Carrier {
  /** Names the carrier, since an application number is unique only within one. */
  readonly id: string;
  /**
   * Starts the application, or repeats what was decided under its reference before. One that may be known already is
   * first asked for by its reference.
   *
   * @throws CarrierError when it is not known what the carrier has decided
   */
  start(application: CarrierApplication, mayBeKnown: boolean): Promise<CarrierDecision>;
}

function toCents(dollars: number): number {
  return Math.round(dollars * 100) / 100;
}

/** The id of the carrier at an address: without its scheme, and without credentials. */
export function carrierId(url: string): string {
  const { host, pathname } = new URL(url);
  return pathname === '/' ? host : `${host}${pathname}`;
}
