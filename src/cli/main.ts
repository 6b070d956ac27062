import { ConfigError } from '../config';
import { findDatabaseError, reasonOf } from '../db/errors';
import { OperatorError } from './operator-error';
import { createProgram } from './program';

try {
  await createProgram().parseAsync(process.argv);
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
