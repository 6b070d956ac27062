import { Command, CommanderError } from 'commander';
import { describeConfigError, loadSettings } from '../config/env-files';
import { ConfigError, mistypedSettings } from '../config/settings';
import { DatabaseFileError, keyRemedy } from '../db/database-file';
import { findDatabaseError, reasonOf } from '../db/errors';
import { OperatorError } from '../errors';
import { lazy } from '../shared/async';
import { buildName } from '../shared/build';
import { excludeLoopback } from '../start/services';
import { carrierCommand, demoCommand, migrateCommand, seedCommand, tokenCommand } from './admin';
import { applicationsCommand } from './applications';
import { auditCommand } from './audit';
import { backupCommand, copyCommand } from './backup';
import { catalogCommand, importProductsCommand } from './catalog';
import { type Context, currentOperator } from './context';
import { doctorCommand } from './doctor';
import { importRowsCommand } from './import';
import { activitiesImport, cemeteriesImport, staffImport } from './import-kinds';
import { rekeyCommand, restoreCommand } from './restore';
import { userCommand } from './user';

if (import.meta.main) void runProcess();

async function runProcess(): Promise<void> {
  const context = processContext();
  process.stdout.on('error', (error) => {
    // A reader such as `head` may end early; any other error, such as a full disk, is reported.
    if (!('code' in error && error.code === 'EPIPE'))
      process.stderr.write(`${systemMessage(error) ?? error.message}\n`);
    process.exit(1);
  });
  // Without a listener, these signals end the process.
  for (const signal of ['SIGUSR1', 'SIGUSR2'] as const) process.on(signal, () => undefined);
  // The code of a process that ends while a promise is pending: Bun ends it once no handle is open.
  process.exitCode = 1;
  process.exitCode = await runCommand(context, process.argv.slice(2), (command) => {
    const { envFile } = command.optsWithGlobals<{ envFile?: string }>();
    loadSettings(process.env, { execArgv: process.execArgv, envFile });
    excludeLoopback(process.env);
    // Doctor lists them with its findings.
    if (command.name() === 'doctor') return;
    for (const { key, rule } of mistypedSettings(process.env)) process.stderr.write(`${key} ${rule}\n`);
  });
}

function processContext(): Context {
  const { env, stdout, stderr } = process;
  return {
    ...{ env, stdout, stderr },
    cwd: process.cwd(),
    // Opened on first use.
    get stdin() {
      return process.stdin;
    },
    operator: lazy(currentOperator),
    exitCode: 0,
    onSignals(signals, listener) {
      for (const signal of signals) process.on(signal, listener);
      return () => {
        for (const signal of signals) process.off(signal, listener);
      };
    },
    exit: (code) => process.exit(code),
  };
}

/**
 * Runs a command line and prints the message of a failure.
 *
 * @param prepare is called before the command, with its options parsed
 * @returns the exit code
 */
export async function runCommand(
  context: Context,
  args: readonly string[],
  prepare: (command: Command) => void = () => undefined,
): Promise<number> {
  try {
    const program = createProgram(context).hook('preAction', (_, command) => prepare(command));
    await program.parseAsync([...args], { from: 'user' });
    return context.exitCode;
  } catch (error) {
    // Commander has printed the message or the help.
    if (error instanceof CommanderError) return error.exitCode;
    const message = operatorMessage(error);
    if (message === undefined) throw error;
    context.stderr.write(`${message}\n`);
    return 1;
  }
}

/** Creates the command line. Each run needs its own, because commander keeps parsed options in the command. */
export function createProgram(context: Context = processContext()): Command {
  const program = new Command('planning')
    .description('The command line of the personal planning service, for operators')
    .version(buildName)
    // A command and its subcommand may have options of the same name.
    .enablePositionalOptions()
    .showHelpAfterError('(add --help for help)')
    .addCommand(migrateCommand(context))
    .addCommand(seedCommand(context))
    .addCommand(tokenCommand(context))
    .addCommand(
      new Command('import')
        .description('Import a file')
        .addCommand(importRowsCommand(context, cemeteriesImport))
        .addCommand(importProductsCommand(context))
        .addCommand(importRowsCommand(context, staffImport))
        .addCommand(importRowsCommand(context, activitiesImport)),
    )
    .addCommand(userCommand(context))
    .addCommand(applicationsCommand(context))
    .addCommand(auditCommand(context))
    .addCommand(catalogCommand(context))
    .addCommand(backupCommand(context))
    .addCommand(restoreCommand(context))
    .addCommand(copyCommand(context))
    .addCommand(rekeyCommand(context))
    .addCommand(doctorCommand(context))
    .addCommand(carrierCommand(context))
    .addCommand(demoCommand(context))
    .addHelpText('after', '\nThe exit code is 0 on success. It is 1 on failure, with the reason on standard error.');
  configure(program, context);
  return program;
}

/** Configures every command, because commander hands these settings down only to commands that it creates itself. */
function configure(command: Command, context: Context): void {
  command
    // Accepted before and after the name of a command.
    .option('--env-file <path>', 'read settings from this file instead of .env in the working directory')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => context.stdout.write(text),
      writeErr: (text) => context.stderr.write(text),
    });
  for (const each of command.commands) configure(each, context);
}

/** The message about a failure that an operator can correct; undefined for a bug, which shows its stack. */
function operatorMessage(error: unknown): string | undefined {
  if (error instanceof ConfigError) return describeConfigError(error);
  if (error instanceof OperatorError) return error.message;
  const failure = findDatabaseError(error);
  if (failure === undefined) return systemMessage(error);
  if (failure instanceof DatabaseFileError) return failure.advice;
  if (failure.code === 'SQLITE_BUSY') return 'Another process is writing to the database (SQLITE_BUSY): try again.';
  const remedy = keyRemedy(failure.code);
  if (remedy !== '') return `The database cannot be opened (${failure.code}).${remedy}`;
  return failure.isUnavailable
    ? `The database is unavailable (${failure.code}).`
    : `The database rejects this (${failure.code}): ${reasonOf(failure)}`;
}

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or folder',
  EEXIST: 'the file exists already: name a new one',
  EISDIR: 'it is a folder',
  EACCES: 'permission denied',
  ENOSPC: 'the disk is full',
};

/** The message about a failed system call, with its file; undefined for any other error. */
function systemMessage(error: unknown): string | undefined {
  if (!(error instanceof Error && 'code' in error && 'syscall' in error)) return undefined;
  const code = String(error.code);
  const file = 'path' in error ? `${error.path}: ` : '';
  return `${file}${reasons[code] ?? error.message} (${code}).`;
}
