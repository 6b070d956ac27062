import { Command } from 'commander';
import { buildName } from '../package-root';
import { moment } from './moment';

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
