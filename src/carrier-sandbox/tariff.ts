/**
 * The sandbox carrier's rates as whole numbers, so that a price is the same on every machine.
 *
 * Term life: yearly dollars for $1,000 of cover, in millionths, of a man at each issue age from 18 to the highest of
 * the term. Fitted to published monthly prices for $500,000 (insuranceopedia.com, insure.com, creditdonkey.com):
 * 0.60 / 0.65 / 1.03 / 2.42 / 7.15 / 21.0 / 36.0 at 20 / 30 / 40 / 50 / 60 / 70 / 75 for 20 years, log-linear between,
 * times a factor of the term. Below 20 the rate of 20 applies.
 */
const termRatesMicros: readonly { readonly years: number; readonly rates: readonly number[] }[] = [
  {
    years: 10,
    rates: [
      432000, 432000, 432000, 434247, 436505, 438775, 441057, 443351, 445657, 447974, 450304, 452646, 455000, 471442,
      488478, 506129, 524418, 543369, 563004, 583348, 604428, 626269, 648900, 703326, 762317, 826256, 895557, 970671,
      1052086, 1140328, 1235973, 1339639, 1452000, 1601179, 1765685, 1947092, 2147138, 2367736, 2610998, 2879253,
      3175069, 3501277, 3861000, 4284026, 4753400, 5274201, 5852062, 6493236, 7204660, 7994030, 8869887, 9841705,
      10920000, 12162960, 13547399, 15089421, 16806961, 18720000,
    ],
  },
  {
    years: 15,
    rates: [
      492000, 492000, 492000, 494731, 497477, 500238, 503014, 505806, 508614, 511437, 514275, 517130, 520000, 540995,
      562837, 585561, 609202, 633798, 659387, 686009, 713706, 742521, 772500, 844694, 923636, 1009955, 1104341, 1207548,
      1320400, 1443798, 1578729, 1726270, 1887600, 2108913, 2356173, 2632424, 2941063, 3285890, 3671146, 4101571,
      4582461, 5119734, 5720000, 6354594, 7059592, 7842805, 8712909, 9679545, 10753424, 11946441, 13271815, 14744230,
      16380000,
    ],
  },
  {
    years: 20,
    rates: [
      600000, 600000, 600000, 604822, 609682, 614582, 619521, 624500, 629519, 634578, 639677, 644818, 650000, 680622,
      712686, 746261, 781417, 818230, 856777, 897140, 939404, 983660, 1030000, 1121851, 1221892, 1330855, 1449534,
      1578797, 1719587, 1872932, 2039951, 2221864, 2420000, 2696897, 3005478, 3349366, 3732602, 4159687, 4635641,
      5166053, 5757155, 6415891, 7150000, 7963379, 8869287, 9878250, 11001992, 12253571,
    ],
  },
  {
    years: 25,
    rates: [
      780000, 780000, 780000, 786268, 792587, 798957, 805377, 811850, 818374, 824951, 831580, 838263, 845000, 886160,
      929325, 974592, 1022065, 1071850, 1124060, 1178813, 1236233, 1296450, 1359600, 1489582, 1631990, 1788014, 1958953,
      2146235, 2351422, 2576225, 2822520, 3092361, 3388000, 3788929, 4237303, 4738737, 5299509, 5926642, 6627989,
      7412332, 8289492, 9270453, 10367500,
    ],
  },
  {
    years: 30,
    rates: [
      1020000, 1020000, 1020000, 1028197, 1036460, 1044790, 1053186, 1061650, 1070181, 1078782, 1087451, 1096191,
      1105000, 1160416, 1218610, 1279724, 1343902, 1411298, 1482075, 1556401, 1634454, 1716422, 1802500, 1984599,
      2185094, 2405845, 2648898, 2916504, 3211146, 3535555, 3892737, 4286003, 4719000, 5272281, 5890433, 6581059,
      7352659, 8214725,
    ],
  },
];

const firstTermAge = 18;

/**
 * Final expense: monthly cents for $10,000 at each issue age from 76 to 90, women then men. Published for 75, 80 and 85
 * (choicemutual.com, November 2024), log-linear between and carried on to 90.
 */
const finalExpenseCents = {
  female: [7573, 8077, 8615, 9188, 9800, 10464, 11173, 11929, 12737, 13600, 14521, 15505, 16555, 17676, 18873],
  male: [10363, 11071, 11828, 12636, 13500, 14268, 15079, 15936, 16842, 17800, 18812, 19882, 21012, 22207, 23470],
} as const;

const firstFinalExpenseAge = 76;

interface PricedApplicant {
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
/** The factor of a woman in ten thousandths of that of a man: 8,000 to the age of 50, then linear to 7,200 at 60. */
const femaleFactor = (ageYears: number) => 8000 - 80 * Math.min(10, Math.max(0, ageYears - 50));
/** In hundredths: a larger coverage costs less per dollar. */
const sizeFactors = new Map([
  [100_000, 125],
  [250_000, 110],
  [500_000, 100],
  [1_000_000, 87],
]);
export const coverages = [...sizeFactors.keys()];
const dearStates = new Set(['NY', 'CA', 'FL']);
const finalExpenseCoverage = 10_000;
/** The term of a whole-life policy ends at this age. */
const maturityAge = 121;

/** The ages at which the carrier issues a policy. */
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

/** The coverage of an application that names none. */
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

/** Montana forbids prices by gender, so both pay the mean. */
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
