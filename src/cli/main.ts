import { ConfigError, mistypedSettings } from '../config';
import { DatabaseFileError } from '../db/database-file';
import { keyRemedy } from '../db/encryption';
import { findDatabaseError, reasonOf } from '../db/errors';
import { OperatorError } from '../errors';
import { describeConfigError, loadSettings } from '../start/env-files';
import { excludeLoopback } from '../start/proxies';
import { createProgram } from './program';
import { systemSentence } from './system-error';

// A full disk; whoever reads no further, such as `head`, is no failure.
process.stdout.on('error', (error) => {
  if (!('code' in error && error.code === 'EPIPE')) process.stderr.write(`${systemSentence(error) ?? error.message}\n`);
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

/** What an operator can act on; undefined for a fault of the program itself, which shows its stack. */
function operatorMessage(error: unknown): string | undefined {
  if (error instanceof OperatorError) return error.message;
  if (error instanceof ConfigError) return describeConfigError(error);
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
