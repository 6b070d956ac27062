import { calendarDateAt, startOfDay } from '../../calendar';

/** A month as a caller spells it; `month` counts from 1. */
export interface SpelledMonth {
  readonly month: number;
  readonly year: number | undefined;
}

export interface Month {
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
/** A table of our own: what a month is called must not depend on the language of the machine. */
const monthBySpelling = new Map([
  ...names.flatMap((name, index): [string, number][] => [
    [name, index + 1],
    [name.slice(0, 3), index + 1],
    [String(index + 1), index + 1],
    [String(index + 1).padStart(2, '0'), index + 1],
  ]),
  ['sept', 9],
]);

/** Full names, for suggestions. */
export const monthNames = names.map((name) => name.charAt(0).toUpperCase() + name.slice(1));

/**
 * Reads an English month name in full or by three letters (and `Sept`) in any case and with or without a full stop, `1` to
 * `12`, or `YYYY-MM`. Surrounding spaces are ignored.
 */
export function parseMonth(text: string): SpelledMonth | undefined {
  const [, year, spelling = ''] = /^(?:(\d{4})-(?=\d{1,2}$))?(.*)$/s.exec(text.trim()) ?? [];
  const month = monthBySpelling.get(spelling.toLowerCase().replace(/(?<=[a-z])\.$/, ''));
  return month === undefined ? undefined : { month, year: year === undefined ? undefined : Number(year) };
}

/** The month that is meant: without a year the latest such month that has begun in the time zone. */
export function resolveMonth({ month, year }: SpelledMonth, now: Date, timeZone: string): Month {
  if (year !== undefined) return { month, year };
  const [thisYear = 0, thisMonth = 0] = calendarDateAt(now, timeZone).split('-').map(Number);
  return { month, year: month <= thisMonth ? thisYear : thisYear - 1 };
}

/** Epoch milliseconds of the month's first instant in the time zone, and of the next month's. */
export function monthEdges({ month, year }: Month, timeZone: string): { from: number; until: number } {
  const first = new Temporal.PlainDate(year, month, 1);
  return { from: startOfDay(first, timeZone), until: startOfDay(first.add({ months: 1 }), timeZone) };
}
