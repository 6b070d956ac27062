import { Command } from 'commander';
import { describeConfigError, loadSettings } from '../config/env-files';
import { ConfigError, mistypedSettings } from '../config/settings';
import { DatabaseFileError } from '../db/database-file';
import { keyRemedy } from '../db/encryption';
import { findDatabaseError, reasonOf } from '../db/errors';
import { OperatorError } from '../errors';
import { buildName } from '../shared/build';
import { excludeLoopback } from '../start/services';
import { carrierCommand, demoCommand, tokenCommand } from './admin';
import { applicationsCommand } from './applications';
import { auditCommand } from './audit';
import { backupCommand } from './backup';
import { catalogCommand, importProductsCommand } from './catalog';
import { systemSentence } from './context';
import { copyCommand } from './copy';
import { doctorCommand } from './doctor';
import { importRowsCommand } from './import';
import { activitiesImport, cemeteriesImport, staffImport } from './import-kinds';
import { migrateCommand, seedCommand } from './migrate';
import { rekeyCommand } from './rekey';
import { restoreCommand } from './restore';
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

if (import.meta.main) await runProcess();

async function runProcess(): Promise<void> {
  // A full disk; whoever reads no further, such as `head`, is no failure.
  process.stdout.on('error', (error) => {
    if (!('code' in error && error.code === 'EPIPE'))
      process.stderr.write(`${systemSentence(error) ?? error.message}\n`);
    process.exit(1);
  });

  // Without a handler each ends the command in the middle of its work.
  for (const signal of ['SIGUSR1', 'SIGUSR2'] as const) process.on(signal, () => undefined);

  try {
    const program = createProgram().hook('preAction', (_, command) => {
      const { envFile } = command.optsWithGlobals<{ envFile?: string }>();
      loadSettings(process.env, { execArgv: process.execArgv, envFile });
      excludeLoopback(process.env);
      // Doctor lists them with its findings.
      if (command.name() === 'doctor') return;
      for (const { key, rule } of mistypedSettings(process.env)) process.stderr.write(`${key} ${rule}\n`);
    });
    await program.parseAsync(process.argv);
  } catch (error) {
    const message = operatorMessage(error);
    if (message === undefined) throw error;
    process.stderr.write(`${message}\n`);
    process.exitCode = 1;
  }
}

/** What an operator can act on; undefined for a fault of the program itself, which shows its stack. */
function operatorMessage(error: unknown): string | undefined {
  if (error instanceof ConfigError) return describeConfigError(error);
  if (error instanceof OperatorError) return error.message;
  const failure = findDatabaseError(error);
  if (failure === undefined) return systemSentence(error);
  if (failure instanceof DatabaseFileError) return failure.advice;
  if (failure.code === 'SQLITE_BUSY') return 'Another process is writing to the database (SQLITE_BUSY): try again.';
  const remedy = keyRemedy(failure.code);
  if (remedy !== '') return `The database cannot be opened (${failure.code}).${remedy}`;
  return failure.isUnavailable
    ? `The database cannot be used right now (${failure.code}).`
    : `The database refuses this (${failure.code}): ${reasonOf(failure)}`;
}
