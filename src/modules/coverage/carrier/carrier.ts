import * as v from 'valibot';
import { line } from '../../../fields';

/** Who applies, as the carrier is told: contract 4.3's six names, normalised; `dateOfBirth` as YYYY-MM-DD. */
export interface Applicant {
  readonly firstName: string;
  readonly lastName: string;
  readonly dateOfBirth: string;
  readonly gender: 'Male' | 'Female';
  readonly state: string;
  readonly email: string;
}

export interface CarrierApplication {
  readonly clientReference: string;
  readonly flow: 'ltc' | 'life';
  readonly applicant: Applicant;
}

const Amount = v.pipe(v.number(), v.minValue(0), v.maxValue(1e9));
const Label = line(200);

/** `pricing` of contract 2.4; prices in dollars. Bounded, because it goes into every answer of the person's record. */
export const CarrierPricing = v.pipe(
  v.array(
    v.object({
      product: Label,
      coverage: Amount,
      terms: v.pipe(
        v.array(
          v.object({
            years: Amount,
            price: Amount,
            riders: v.pipe(
              v.array(v.object({ type: Label, price: Amount, included: v.boolean(), coverage: Amount })),
              v.maxLength(50),
            ),
          }),
        ),
        v.maxLength(50),
      ),
    }),
  ),
  v.maxLength(50),
);
export type CarrierPricing = v.InferOutput<typeof CarrierPricing>;

/** What the carrier has decided, with a bounded part of its own words. */
export type CarrierDecision =
  | {
      readonly kind: 'accepted';
      readonly applicationNumber: number;
      readonly pricing: CarrierPricing;
      readonly reply: string;
    }
  | { readonly kind: 'declined'; readonly reason: 'declined' | 'not-filed'; readonly reply: string };

/** What the carrier has decided is not known: it may or may not have accepted. */
export class CarrierError extends Error {
  override readonly name = 'CarrierError';
  readonly kind: 'timeout' | 'unavailable' | 'bad-answer';
  readonly reply: string;
  /** False when the circuit breaker kept the call from being made. */
  readonly wasAsked: boolean;
  /** For the log: what went wrong, with the status of the carrier's answer if there is one. */
  readonly code: string;

  constructor(
    kind: 'timeout' | 'unavailable' | 'bad-answer',
    reply: string,
    { cause, wasAsked = true, status }: { cause?: unknown; wasAsked?: boolean; status?: number } = {},
  ) {
    super(`The carrier has not decided (${kind})`, { cause });
    this.kind = kind;
    this.reply = reply;
    this.wasAsked = wasAsked;
    this.code = status === undefined ? kind : `${kind} ${status}`;
  }
}

export interface Carrier {
  /**
   * Starts the application, or repeats what was decided under its reference before. One that may be known already is
   * first asked for by its reference.
   *
   * @throws CarrierError when it is not known what the carrier has decided
   */
  start(application: CarrierApplication, mayBeKnown: boolean): Promise<CarrierDecision>;
}
