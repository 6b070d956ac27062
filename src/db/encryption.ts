import { createHash } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { commandName } from '../shared/build';
import type { TokenFault } from './errors';
import { DatabaseError } from './errors';

/**
 * What the driver is given for a key: its cipher takes the first 32 bytes of a key and ignores the rest, so all of it
 * goes into those 32, of 6 bits each.
 */
export function driverKey(key: string): string {
  return createHash('sha256').update(key).digest('base64url').slice(0, 32);
}

/** The option of a connection to a file; none for a file that is not encrypted. */
export function encryptionOption(key: string | undefined): { encryptionKey?: string } {
  return key === undefined ? {} : { encryptionKey: driverKey(key) };
}

/** What the key and a file that it does not open have to do with each other, and what an operator can do about it. */
const keyFaults = {
  NOT_ENCRYPTED: `It is not encrypted, but DATABASE_ENCRYPTION_KEY is set: encrypt it by \`${commandName} rekey\`, or unset the key.`,
  WRONG_ENCRYPTION_KEY:
    'DATABASE_ENCRYPTION_KEY does not open it: it is encrypted with another key, or is no database.',
  ENCRYPTION_KEY_NEEDED: 'It is encrypted, and DATABASE_ENCRYPTION_KEY is not set; or it is no database.',
} as const;

export type KeyFault = keyof typeof keyFaults;

/**
 * Why a file cannot be opened with a key, or without one; undefined where that is not because of the key.
 *
 * It closes the file, which gives up every lock on it that this process holds: ask only when none is open.
 */
export function keyFaultOf(path: string, key: string | undefined): KeyFault | undefined {
  const isPlain = isPlainDatabase(path);
  if (key !== undefined) return isPlain ? 'NOT_ENCRYPTED' : 'WRONG_ENCRYPTION_KEY';
  return isPlain ? undefined : 'ENCRYPTION_KEY_NEEDED';
}

const abandoned: object[] = [];

/**
 * Keeps a connection until the process ends. Use it in place of `close` for a connection that met SQLITE_NOTADB: its
 * close would checkpoint a log that was left behind with the wrong key, which destroys the database.
 */
export function abandon(connection: object): void {
  abandoned.push(connection);
}

/** A failure to open a file, told by what its key has to do with it. */
export function withKeyFault(failure: DatabaseError, path: string, key: string | undefined): DatabaseError {
  const fault = failure.code === 'SQLITE_NOTADB' ? keyFaultOf(path, key) : undefined;
  return fault === undefined ? failure : new DatabaseError(fault, false, failure);
}

/** The remedies for the token of a libSQL server that is not accepted. */
const tokenFaults: Readonly<Record<TokenFault, string>> = {
  TOKEN_REFUSED:
    'It does not accept DATABASE_AUTH_TOKEN: the token is missing, has expired or is signed with another key.',
  TOKEN_READ_ONLY: 'DATABASE_AUTH_TOKEN has no write permission: set a token that has it.',
};

/** What an operator can do about a key or a token with which a database failed with `code`, after a space; else nothing. */
export function keyRemedy(code: string | undefined): string {
  for (const [fault, remedy] of Object.entries({ ...keyFaults, ...tokenFaults }))
    if (fault === code) return ` ${remedy}`;
  return '';
}

/** Whether a file begins as a database does that anybody can read. */
function isPlainDatabase(path: string): boolean {
  const descriptor = openSync(path, 'r');
  try {
    const start = Buffer.alloc(16);
    readSync(descriptor, start, 0, start.length, 0);
    return start.toString('latin1') === 'SQLite format 3\0';
  } finally {
    closeSync(descriptor);
  }
}
