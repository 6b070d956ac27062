import { Command } from 'commander';
import { buildName } from '../package-root';
import { applicationsCommand } from './applications';
import { auditCommand } from './audit';
import { backupCommand } from './backup';
import { carrierCommand } from './carrier';
import { catalogCommand } from './catalog';
import { copyCommand } from './copy';
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
  return (
    new Command('planning')
      .description('The operator’s command line of the personal planning service. Settings come from the environment.')
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
      .addHelpText('after', '\nExit codes: 0 it is done; 1 it is not, for a reason that standard error gives.')
  );
}
