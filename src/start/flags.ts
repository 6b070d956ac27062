import { Command, InvalidArgumentError } from 'commander';
import { buildName } from '../shared/build';
import { parseInstant } from '../shared/calendar';

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

export interface StartFlags {
  readonly demo?: boolean;
  /** A date or a date-time, as it was written. */
  readonly now?: string;
  /** The file that settings come from instead of `.env`. */
  readonly envFile?: string;
}

/** Reads the arguments of a start; ends the process for `--help`, and with the reason for what it cannot use. */
export function readStartFlags(args: readonly string[]): StartFlags {
  const command = new Command('bun start')
    .description('Starts the personal planning service. Settings come from the environment or .env: see README.md.')
    .version(buildName)
    .option('--env-file <path>', 'read settings from this file instead of .env in the working directory')
    .option('--demo', 'serve demo data in files of its own, which each start creates again; your data stays unchanged')
    .option('--now <time>', 'with --demo: stop the clock at a date or date-time, such as 2026-01-15', moment)
    .showHelpAfterError()
    .parse(args, { from: 'user' });
  const flags = command.opts<StartFlags>();
  if (flags.now !== undefined && flags.demo !== true) command.error('error: --now has a meaning with --demo alone');
  return flags;
}
