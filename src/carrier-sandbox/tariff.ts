import { finalExpenseCents, firstFinalExpenseAge, firstTermAge, termRatesMicros } from './rates';

export interface PricedApplicant {
  readonly ageYears: number;
  readonly gender: 'Male' | 'Female';
  readonly state: string;
}

export interface Pricing {
  readonly product: string;
  readonly coverage: number;
  readonly terms: { years: number; price: number; riders: Rider[] }[];
}

interface Rider {
  readonly type: string;
  readonly price: number;
  readonly included: boolean;
  readonly coverage: number;
}

/** Yearly, in dollars. */
const policyFee = 65;
/** Cover for a man counts 10,000; for a woman 8,000 to the age of 50, falling in a line to 7,200 at 60 and after. */
const femaleFactor = (ageYears: number) => 8000 - 80 * Math.min(10, Math.max(0, ageYears - 50));
/** A hundred dollars of larger cover cost less; the factors are hundredths. */
const sizeFactors = new Map([
  [100_000, 125],
  [250_000, 110],
  [500_000, 100],
  [1_000_000, 87],
]);
export const coverages = [...sizeFactors.keys()];
const dearStates = new Set(['NY', 'CA', 'FL']);
const finalExpenseCoverage = 10_000;
/** A whole-life policy is written to this age, which is its term. */
const maturityAge = 121;

/** The ages at which the carrier writes any policy. */
export const issueAges = { min: firstTermAge, max: firstFinalExpenseAge + finalExpenseCents.male.length - 1 };

/**
 * Monthly prices for an applicant: term life with one entry a term length that can still be issued, from 76 on a
 * final-expense entry instead. Prices are dollars with two decimals, each rounded half up once, from whole numbers.
 */
export function priceApplication(
  applicant: PricedApplicant,
  coverage = defaultCoverage(applicant.ageYears),
): Pricing[] {
  if (applicant.ageYears >= firstFinalExpenseAge) return [priceFinalExpense(applicant)];
  return termRatesMicros.flatMap(({ years, rates }) => {
    const rate = rates[applicant.ageYears - firstTermAge];
    if (rate === undefined) return [];
    const cents = termCents(rate, applicant, coverage);
    const riders = termRiders(cents, applicant.ageYears, coverage);
    return [{ product: `TERM_${years}`, coverage, terms: [{ years, price: toDollars(cents), riders }] }];
  });
}

/** What is offered to somebody who names no amount. */
function defaultCoverage(ageYears: number): number {
  if (ageYears < 60) return 500_000;
  return ageYears < 70 ? 250_000 : 100_000;
}

/** (rate · cover · factors + fee) · 0.088, the usual factor of a monthly premium. */
function termCents(rateMicros: number, applicant: PricedApplicant, coverage: number): bigint {
  const thousands = BigInt(coverage / 1000);
  const size = BigInt(sizeFactors.get(coverage) ?? 100);
  const state = dearStates.has(applicant.state) ? 103n : 100n;
  const scaled = BigInt(rateMicros) * thousands * size * BigInt(genderFactor(applicant)) * state;
  const fee = BigInt(policyFee) * 1_000_000n * 100_000_000n;
  return divideHalfUp((scaled + fee) * 88n, 100_000_000n * 10_000_000n);
}

/** Montana forbids prices by gender: everybody pays the mean. */
function genderFactor({ ageYears, gender, state }: PricedApplicant): number {
  if (state === 'MT') return (10_000 + femaleFactor(ageYears)) / 2;
  return gender === 'Male' ? 10_000 : femaleFactor(ageYears);
}

function priceFinalExpense({ ageYears, gender, state }: PricedApplicant): Pricing {
  const index = ageYears - firstFinalExpenseAge;
  const [female, male] = [finalExpenseCents.female[index] ?? 0, finalExpenseCents.male[index] ?? 0];
  const mean = divideHalfUp(BigInt(female + male), 2n);
  const cents = state === 'MT' ? mean : BigInt(gender === 'Male' ? male : female);
  const riders = [acceleratedDeathBenefit(finalExpenseCoverage)];
  const years = maturityAge - ageYears;
  return {
    product: 'FINAL_EXPENSE',
    coverage: finalExpenseCoverage,
    terms: [{ years, price: toDollars(cents), riders }],
  };
}

/** A rider whose issue age has passed is left out. */
function termRiders(termPriceCents: bigint, ageYears: number, coverage: number): Rider[] {
  const accidental = Math.min(coverage, 300_000);
  const riders = [
    { toAge: 75, rider: acceleratedDeathBenefit(coverage) },
    { toAge: 60, rider: rider('WAIVER_OF_PREMIUM', divideHalfUp(termPriceCents * 8n, 100n), coverage) },
    { toAge: 65, rider: rider('ACCIDENTAL_DEATH', BigInt(accidental / 1000) * 2n, accidental) },
    { toAge: 60, rider: rider('CHILD_TERM', 500n, 10_000) },
  ];
  return riders.filter(({ toAge }) => ageYears <= toAge).map((each) => each.rider);
}

function acceleratedDeathBenefit(coverage: number): Rider {
  return { type: 'ACCELERATED_DEATH_BENEFIT', price: 0, included: true, coverage: Math.min(coverage * 0.75, 250_000) };
}

function rider(type: string, cents: bigint, coverage: number): Rider {
  return { type, price: toDollars(cents), included: false, coverage };
}

function divideHalfUp(dividend: bigint, divisor: bigint): bigint {
  return (2n * dividend + divisor) / (2n * divisor);
}

function toDollars(cents: bigint): number {
  return Number(cents) / 100;
}
