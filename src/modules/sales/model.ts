import * as v from 'valibot';
import { activityKinds, staffRoles } from '../../db/schema/lists';
import { calendarDateAt, parseInstant, startOfDay } from '../../shared/calendar';
import { hint } from '../../shared/field-errors';
import { Identifier as ExactIdentifier, personName } from '../../shared/fields';

/** A month as a request names it; `month` counts from 1. */
export interface MonthInput {
  readonly month: number;
  readonly year: number | undefined;
}

interface YearMonth {
  readonly month: number;
  readonly year: number;
}

const names = [
  'january',
  'february',
  'march',
  'april',
  'may',
  'june',
  'july',
  'august',
  'september',
  'october',
  'november',
  'december',
];
/** The runtime's names of months would depend on the locale of the machine. */
const monthByName = new Map([
  ...names.flatMap((name, index): [string, number][] => [
    [name, index + 1],
    [name.slice(0, 3), index + 1],
    [String(index + 1), index + 1],
    [String(index + 1).padStart(2, '0'), index + 1],
  ]),
  ['sept', 9],
]);

const monthNames = names.map((name) => name.charAt(0).toUpperCase() + name.slice(1));

/**
 * Reads an English month name in full or by three letters (and `Sept`) in any case and with or without a full stop, `1` to
 * `12`, or `YYYY-MM`. Surrounding spaces are ignored.
 */
export function parseMonth(text: string): MonthInput | undefined {
  const [, year, name = ''] = /^(?:(\d{4})-(?=\d{1,2}$))?(.*)$/s.exec(text.trim()) ?? [];
  const month = monthByName.get(name.toLowerCase().replace(/(?<=[a-z])\.$/, ''));
  return month === undefined ? undefined : { month, year: year === undefined ? undefined : Number(year) };
}

/** Without a year, the latest such month that has begun in the time zone. */
export function resolveMonth({ month, year }: MonthInput, now: Date, timeZone: string): YearMonth {
  if (year !== undefined) return { month, year };
  const [thisYear = 0, thisMonth = 0] = calendarDateAt(now, timeZone).split('-').map(Number);
  return { month, year: month <= thisMonth ? thisYear : thisYear - 1 };
}

/** Epoch milliseconds of the month's first instant in the time zone, and of the next month's. */
export function monthBounds({ month, year }: YearMonth, timeZone: string): { from: number; until: number } {
  const first = new Temporal.PlainDate(year, month, 1);
  return { from: startOfDay(first, timeZone), until: startOfDay(first.add({ months: 1 }), timeZone) };
}

/** Counters of a counselor and of the team, by the names that the contract gives them. */
const Glance = v.object({
  cemetryPlans: v.pipe(v.number(), v.description('Cemetery plans')),
  qoutes: v.pipe(v.number(), v.description('Quotes')),
  qoutesAndContract: v.pipe(v.number(), v.description('Quotes with a contract')),
  applications: v.pipe(v.number(), v.description('Applications')),
});

const ManagerGlance = v.object({ monthlyPlan: v.number(), semiAnnualPlan: v.number(), ...Glance.entries });
const Earnings = v.pipe(
  v.number(),
  v.description('With at most two decimals; negative where corrections exceed sales'),
);

const Period = v.pipe(
  v.object({
    month: v.pipe(v.string(), v.description('YYYY-MM')),
    timeZone: v.pipe(v.string(), v.description('IANA name of the time zone that the month begins and ends in')),
    from: v.pipe(v.string(), v.description('First instant of the month, ISO 8601, UTC')),
    until: v.pipe(v.string(), v.description('First instant after the month, ISO 8601, UTC')),
  }),
  v.description('The reported month. A `month` without a year is the latest one that has begun'),
);

export const MonthlyGlanceBody = v.object({
  data: v.object({
    teamGlance: v.object({ glance: Glance, totalMonthlyEarnings: Earnings }),
    managerReport: v.object({ glance: ManagerGlance, totalEarnings: Earnings }),
    counselorsReport: v.pipe(
      v.array(
        v.object({
          glance: Glance,
          totalMonthlyEarnings: Earnings,
          name: v.object({ first: v.string(), last: v.string() }),
        }),
      ),
      v.description('By last name, first name and id. A counselor without sales has zeros'),
    ),
    period: Period,
  }),
});
export type MonthlyGlanceBody = v.InferOutput<typeof MonthlyGlanceBody>;

const monthRule = 'month: must be an English month name, its first three letters or Sept, 1 to 12, or YYYY-MM';

const MonthText = v.pipe(
  v.string(),
  v.description('English name in full or by three letters, or Sept, in any case; 1 to 12; or YYYY-MM'),
  v.examples(['January']),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const month = parseMonth(dataset.value);
    if (month !== undefined) return month;
    addIssue({ message: monthRule + hint(dataset.value, monthNames) });
    return NEVER;
  }),
);

const YearText = v.pipe(
  v.string(),
  v.description('YYYY; without it the latest such month that has begun'),
  v.trim(),
  v.regex(/^\d{4}$/, 'year: must be a year as YYYY'),
  v.transform(Number),
);

export const MonthlyGlanceQuery = v.pipe(
  v.strictObject({ month: MonthText, year: v.optional(YearText) }),
  v.forward(
    v.check(
      ({ month, year }) => month.year === undefined || year === undefined || month.year === year,
      'year: must be the year of month, or be left out',
    ),
    ['year'],
  ),
);

/** The year is in `month` (YYYY-MM), in `year`, or in neither. */
export function toMonthInput({ month, year }: v.InferOutput<typeof MonthlyGlanceQuery>): MonthInput {
  return { month: month.month, year: year ?? month.year };
}

/** Spreadsheets add spaces. */
const Identifier = v.pipe(v.string(), v.trim(), ExactIdentifier);

/** A missing value is an empty text in CSV. */
const OptionalIdentifier = v.pipe(
  v.nullish(v.string()),
  v.transform((id) => id?.trim() || undefined),
  v.optional(Identifier),
);

/** A member of staff in an import. */
export const StaffRecord = v.pipe(
  v.strictObject({
    id: Identifier,
    role: v.picklist(staffRoles),
    firstName: personName(100),
    lastName: personName(100),
    managerId: OptionalIdentifier,
  }),
  v.forward(
    v.check(
      ({ role, managerId }) => (role === 'counselor') === (managerId !== undefined),
      'manager_id: must name the sales manager of a counselor, and be empty for a sales manager',
    ),
    ['managerId'],
  ),
);
export type StaffRecord = v.InferOutput<typeof StaffRecord>;

const maxAmount = 10_000_000;
const requiredRule = 'required: is required';
const amountRule = 'amount: must be a plain number such as -1234.50';
const amountRangeRule = `amount_range: must lie between -${maxAmount} and ${maxAmount}`;
const separatorRule = 'amount_separators: must be written without thousands separators, such as 1234.50';
const decimalsRule = 'two_decimals: must have at most two decimals';

/** Parses an amount into whole cents without floating-point arithmetic. */
const AmountCents = v.pipe(
  v.union([v.string(), v.number()], 'amount: must be a number'),
  v.transform((amount) => String(amount).trim()),
  v.nonEmpty(requiredRule),
  v.check((text) => !/^-?\d{1,3}([ ,_'’]\d{3})+([.,]\d*)?$/.test(text), separatorRule),
  v.regex(/^-?\d+(\.\d+)?$/, amountRule),
  v.regex(/^-?\d+(\.\d{1,2})?$/, decimalsRule),
  v.transform((text) => {
    const [, sign, units, cents = ''] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text) ?? [];
    const amountCents = Number(units) * 100 + Number(cents.padEnd(2, '0'));
    return sign === '-' && amountCents !== 0 ? -amountCents : amountCents;
  }),
  v.minValue(-maxAmount * 100, amountRangeRule),
  v.maxValue(maxAmount * 100, amountRangeRule),
);

const instantRule = 'instant: must be a date that exists as YYYY-MM-DD, or such a date-time with Z or an offset';
const instantRangeRule = 'instant_range: must lie between 1970 and 2099';
const [firstInstant, lastInstant] = [Date.UTC(1970, 0), Date.UTC(2100, 0) - 1];

/** The prefix of the ids of activities that the service records for an accepted application. */
export const ownActivityPrefix = 'coverage:';
/** One activity of each kind is recorded. A JSON list for SQL. */
export const creditedKinds = '["quote","application"]';

/** An activity in an import. `timeZone` applies to a date without a time. */
export function activityRecord(timeZone: string) {
  return v.pipe(
    v.strictObject({
      externalId: v.pipe(
        Identifier,
        v.check((id) => !id.startsWith(ownActivityPrefix), `reserved: must not begin with ${ownActivityPrefix}`),
      ),
      staffId: Identifier,
      kind: v.picklist(activityKinds),
      amount: AmountCents,
      occurredAt: v.pipe(
        v.string(),
        v.trim(),
        v.rawTransform(({ dataset, addIssue, NEVER }) => {
          const instant = parseInstant(dataset.value, timeZone);
          if (instant !== undefined) return instant;
          addIssue({ message: instantRule });
          return NEVER;
        }),
        v.minValue(firstInstant, instantRangeRule),
        v.maxValue(lastInstant, instantRangeRule),
      ),
      managerId: OptionalIdentifier,
    }),
    v.transform(({ amount: amountCents, ...record }) => ({ ...record, amountCents })),
  );
}
export type ActivityRecord = v.InferOutput<ReturnType<typeof activityRecord>>;
