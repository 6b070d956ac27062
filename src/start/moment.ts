import { InvalidArgumentError } from 'commander';
import { parseInstant } from '../calendar';

/** The demo user is of an age to insure in each of them. */
const years = { first: 2000, last: 2045 };

/** A date or date-time at which a clock can stand still, as it was written. */
export function moment(text: string): string {
  if (parseInstant(text, 'UTC') === undefined) {
    throw new InvalidArgumentError(
      'It must be a date that exists, such as 2026-01-15, or a date-time with Z or an offset, such as 2026-01-15T09:30:00Z.',
    );
  }
  const year = Number(text.slice(0, 4));
  if (year < years.first || year > years.last) {
    throw new InvalidArgumentError(`It must lie between ${years.first} and ${years.last}.`);
  }
  return text;
}
