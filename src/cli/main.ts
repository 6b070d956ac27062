import { Command } from 'commander';
import packageJson from '../../package.json' with { type: 'json' };
import { ConfigError } from '../config';
import { findDatabaseError, reasonOf } from '../db/errors';
import { carrierCommand } from './carrier';
import { catalogCommand } from './catalog';
import { doctorCommand } from './doctor';
import { activitiesImport } from './import-activities';
import { cemeteriesImport } from './import-cemeteries';
import { importProductsCommand } from './import-products';
import { importRowsCommand } from './import-rows';
import { staffImport } from './import-staff';
import { migrateCommand, seedCommand } from './migrate';
import { OperatorError } from './operator-error';
import { tokenCommand } from './token';
import { userCommand } from './user';

const program = new Command('planning')
  .description('The operator’s command line of the personal planning service. Settings come from the environment.')
  .version(packageJson.version)
  .showHelpAfterError('(add --help for help)')
  .addCommand(migrateCommand())
  .addCommand(seedCommand())
  .addCommand(tokenCommand())
  .addCommand(
    new Command('import')
      .description('Import a file')
      .addCommand(importRowsCommand(cemeteriesImport))
      .addCommand(importProductsCommand())
      .addCommand(importRowsCommand(staffImport))
      .addCommand(importRowsCommand(activitiesImport)),
  )
  .addCommand(userCommand())
  .addCommand(catalogCommand())
  .addCommand(doctorCommand())
  .addCommand(carrierCommand())
  .addHelpText('after', '\nExit codes: 0 it is done; 1 it is not, for a reason that standard error gives.');

try {
  await program.parseAsync(process.argv);
} catch (error) {
  const message = operatorMessage(error);
  if (message === undefined) throw error;
  process.stderr.write(`${message}\n`);
  process.exitCode = 1;
}

/** What an operator can act on; undefined for a fault of the program itself, which shows its stack. */
function operatorMessage(error: unknown): string | undefined {
  if (error instanceof OperatorError || error instanceof ConfigError) return error.message;
  const failure = findDatabaseError(error);
  if (failure === undefined) return isSystemError(error) ? `${error.message}.` : undefined;
  return failure.isUnavailable
    ? `The database cannot be used right now (${failure.code}).`
    : `The database refuses this (${failure.code}): ${reasonOf(failure)}`;
}

/** What the system refuses, such as a file that may not be read or written: the message names it and why. */
function isSystemError(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && 'syscall' in error;
}
