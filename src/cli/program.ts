import { Command } from 'commander';
import { buildName } from '../package-root';
import { applicationsCommand } from './applications';
import { auditCommand } from './audit';
import { backupCommand } from './backup';
import { carrierCommand } from './carrier';
import { catalogCommand } from './catalog';
import { copyCommand } from './copy';
import { demoCommand } from './demo';
import { doctorCommand } from './doctor';
import { activitiesImport } from './import-activities';
import { cemeteriesImport } from './import-cemeteries';
import { importProductsCommand } from './import-products';
import { importRowsCommand } from './import-rows';
import { staffImport } from './import-staff';
import { migrateCommand, seedCommand } from './migrate';
import { rekeyCommand } from './rekey';
import { restoreCommand } from './restore';
import { tokenCommand } from './token';
import { userCommand } from './user';

/** The whole command line; a new one each time, since a command remembers the options that it was given. */
export function createProgram(): Command {
  const program = new Command('planning')
    .description('The command line of the personal planning service, for operators')
    .version(buildName)
    // So that a command and its subcommand can have options of the same name.
    .enablePositionalOptions()
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
    .addCommand(applicationsCommand())
    .addCommand(auditCommand())
    .addCommand(catalogCommand())
    .addCommand(backupCommand())
    .addCommand(restoreCommand())
    .addCommand(copyCommand())
    .addCommand(rekeyCommand())
    .addCommand(doctorCommand())
    .addCommand(carrierCommand())
    .addCommand(demoCommand())
    .addHelpText('after', '\nThe exit code is 0 on success. It is 1 on failure, with the reason on standard error.');
  addEnvFileOption(program);
  return program;
}

/** Adds the option to every command, so that it may stand before or after the name of a command. */
function addEnvFileOption(command: Command): void {
  command.option('--env-file <path>', 'read settings from this file instead of .env in the working directory');
  for (const each of command.commands) addEnvFileOption(each);
}
