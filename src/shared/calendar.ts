/** A calendar date as `YYYY-MM-DD`. It is text, because a `Date` depends on the time zone of its reader. */
export type CalendarDate = string;

const datePart = /^(\d{4})-(\d{2})-(\d{2})/;
const time = String.raw`(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?`;
const offset = String.raw`(?:Z|[+-](?:0\d|1[0-4]):?[0-5]\d)`;
const isoDateOrDateTime = new RegExp(String.raw`^\d{4}-\d{2}-\d{2}(?:T${time}${offset}?)?$`);
const isoInstant = new RegExp(String.raw`^\d{4}-\d{2}-\d{2}T${time}${offset}$`);

/**
 * Returns the date in an ISO 8601 date or date-time without applying the offset; undefined for any other text and for a
 * date that does not exist.
 */
export function parseCalendarDate(text: string): CalendarDate | undefined {
  if (!isoDateOrDateTime.test(text)) return undefined;
  const date = text.slice(0, 10);
  const [year, month, day] = partsOf(date);
  return month >= 1 && month <= 12 && day >= 1 && day <= daysIn(year, month) ? date : undefined;
}

/**
 * Returns the epoch milliseconds of an ISO 8601 date-time with an offset (finer fractions are cut off), or of the beginning of a
 * date in an IANA time zone; undefined for any other text and for a date that does not exist.
 */
export function parseInstant(text: string, timeZone: string): number | undefined {
  const date = parseCalendarDate(text);
  if (date === undefined) return undefined;
  if (date === text) return startOfDay(Temporal.PlainDate.from(date), timeZone);
  return isoInstant.test(text) ? Temporal.Instant.from(text).epochMilliseconds : undefined;
}

/** Returns the epoch milliseconds at which a date begins in an IANA time zone; not midnight if a clock change skips it. */
export function startOfDay(date: Temporal.PlainDate, timeZone: string): number {
  return date.toZonedDateTime(timeZone).epochMilliseconds;
}

/** Describes an IANA time zone by its current offset and next change, from the runtime's data. */
export function describeZone(timeZone: string, now: Date): string {
  // Avoids loading the table of zones, which is slow.
  if (timeZone === 'UTC') return timeZone;
  const here = Temporal.Instant.fromEpochMilliseconds(now.getTime()).toZonedDateTimeISO(timeZone);
  const next = here.getTimeZoneTransition('next');
  const change = next === null ? 'without a change to come' : `${next.offset} from ${next.toPlainDate()}`;
  return `${timeZone}, now ${here.offset}, ${change}`;
}

/** Returns the date in an IANA time zone at an instant. */
export function calendarDateAt(instant: Date, timeZone: string): CalendarDate {
  const second = Math.floor(instant.getTime() / 1000);
  const last = lastDates.get(timeZone);
  if (last?.second === second) return last.date;
  const date = formatDate(instant, timeZone);
  lastDates.set(timeZone, { second, date });
  return date;
}

/** By time zone. Days begin and clocks change at whole seconds, so the date is constant within a second. */
const lastDates = new Map<string, { readonly second: number; readonly date: CalendarDate }>();

function formatDate(instant: Date, timeZone: string): CalendarDate {
  const parts = new Map(
    formatterFor(timeZone)
      .formatToParts(instant)
      .map(({ type, value }) => [type, value]),
  );
  return `${parts.get('year')?.padStart(4, '0')}-${parts.get('month')}-${parts.get('day')}`;
}

/** Returns the age in full years. In a common year, a birthday on 29 February is on 1 March. */
export function ageOn(birthDate: CalendarDate, today: CalendarDate): number {
  const [birthYear, birthMonth, birthDay] = partsOf(birthDate);
  const [year, month, day] = partsOf(today);
  const hadBirthday = month > birthMonth || (month === birthMonth && day >= birthDay);
  return year - birthYear - (hadBirthday ? 0 : 1);
}

function partsOf(date: CalendarDate): [year: number, month: number, day: number] {
  const match = datePart.exec(date);
  return [Number(match?.[1]), Number(match?.[2]), Number(match?.[3])];
}

function daysIn(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}

const formatters = new Map<string, Intl.DateTimeFormat>();

function formatterFor(timeZone: string): Intl.DateTimeFormat {
  const known = formatters.get(timeZone);
  if (known !== undefined) return known;
  const formatter = new Intl.DateTimeFormat('en-US', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' });
  formatters.set(timeZone, formatter);
  return formatter;
}
