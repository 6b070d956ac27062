import { createHash } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readlinkSync,
  readSync,
  realpathSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import Connection from 'libsql';
import { errorCode } from '../errors';
import { commandName } from '../shared/build';
import { DatabaseError, isBusy, type TokenFault } from './errors';

/** An unusable database file, WAL or folder, with advice for the operator. */
export class DatabaseFileError extends DatabaseError {
  readonly advice: string;

  constructor(code: string, advice: string, cause?: unknown) {
    super(code, true, cause);
    this.advice = advice;
  }
}

/** Resolves all links in the path of a database file, which may be missing. */
export function realPathOf(path: string): string {
  try {
    if (existsSync(path)) return realpathSync(path);
    const folder = realpathSync(dirname(path));
    const target = linkTarget(path);
    return target === undefined ? join(folder, basename(path)) : resolve(folder, target);
  } catch {
    return resolve(path);
  }
}

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

/**
 * Rejects a missing or empty file that has a WAL: SQLite would delete the WAL, and the commits that only the WAL has.
 *
 * @throws DatabaseFileError `WAL_ORPHANED`
 */
export function rejectOrphanedWal(path: string): void {
  const file = realPathOf(path);
  // The WAL is looked up first: another process that creates the database writes the first page before the WAL.
  const left = [`${file}-wal`, `${file}-shm`].find((name) => existsSync(name));
  if (left === undefined) return;
  const found = statSync(file, { throwIfNoEntry: false });
  if (found !== undefined && found.size > 0) return;
  const state = found === undefined ? 'missing' : 'empty (0 bytes)';
  throw new DatabaseFileError(
    'WAL_ORPHANED',
    `The WAL ${left} belongs to a database file that is ${state}: put the file back beside its WAL. ` +
      `The WAL may contain saves that are nowhere else, so nothing was changed.`,
  );
}

/**
 * Creates an empty file and its folder if they are missing, with access for the owner only. The WAL gets the same mode.
 *
 * @returns whether it created the file
 * @throws DatabaseFileError `WAL_ORPHANED`, `SQLITE_READONLY` or `SQLITE_CANTOPEN`
 */
export function createIfMissing(path: string): boolean {
  rejectOrphanedWal(path);
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // `wx` does not open an existing file: closing it would release the POSIX locks that this process has on it.
    closeSync(openSync(path, 'wx', 0o600));
    return true;
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw toOpenFailure(path, error);
    try {
      accessSync(path, constants.W_OK);
      const { size, mode } = statSync(path);
      if (size === 0 && (mode & 0o077) !== 0) chmodSync(path, 0o600);
    } catch (error) {
      throw toOpenFailure(path, error);
    }
    return false;
  }
}

/** Removes the file that `createIfMissing` created if it is still empty. */
export function removeEmpty(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.size !== 0) return;
  for (const suffix of ['', '-journal']) rmSync(`${path}${suffix}`, { force: true });
}

function toOpenFailure(path: string, error: unknown): DatabaseFileError {
  const code = errorCode(error) === 'EROFS' ? 'SQLITE_READONLY' : 'SQLITE_CANTOPEN';
  return new DatabaseFileError(code, openAdvice(path, code), error);
}

/** Explains why a file cannot be opened, as far as type, owner and mode show it. */
export function openAdvice(path: string, code: string): string {
  const file = realPathOf(path);
  const start = `The database ${file} cannot be opened (${code})`;
  const found = statOf(file);
  if (found?.isDirectory() === true) return `${start}: it is a folder. DATABASE_URL must name a file.`;
  const refused = foldersOf(file).find((folder) => statOf(folder)?.isDirectory() === true);
  const names = [...(refused === undefined ? [] : [refused]), file, `${file}-wal`, `${file}-shm`];
  for (const name of names) {
    const stats = statOf(name);
    if (stats === undefined) continue;
    const refusal = refusalOf(name, stats.isDirectory());
    if (refusal === undefined) continue;
    if (refusal === 'EROFS') return `${start}: ${name} is on a read-only file system.`;
    const kind = stats.isDirectory() ? 'the folder ' : '';
    const mode = (stats.mode & 0o7777).toString(8).padStart(4, '0');
    return (
      `${start}: ${kind}${name} belongs to uid ${stats.uid}, gid ${stats.gid} with mode ${mode}, and this process runs ` +
      `as uid ${process.getuid?.()}, gid ${process.getgid?.()}.`
    );
  }
  return `${start}.`;
}

/** Lists the folders above a file, the nearest first. */
function foldersOf(file: string): string[] {
  const folders: string[] = [];
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    folders.push(folder);
    if (folder === dirname(folder)) return folders;
  }
}

function statOf(path: string) {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** Checks the permissions that SQLite needs: read and write each file, create and remove files in the folder. */
function refusalOf(path: string, isFolder: boolean): string | undefined {
  try {
    accessSync(path, constants.R_OK | constants.W_OK | (isFolder ? constants.X_OK : 0));
    return undefined;
  } catch (error) {
    return errorCode(error);
  }
}

/** Never closed, so that the locks last as long as the process. */
const locks: Connection.Database[] = [];

/** Locks a file until the process ends, and returns false if another process has locked it. */
export function lockFile(path: string): boolean {
  const connection = new Connection(path);
  try {
    // Avoids a second file for the journal.
    connection.exec('PRAGMA journal_mode = MEMORY');
    connection.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    connection.close();
    if (!isBusy(error)) throw error;
    return false;
  }
  locks.push(connection);
  return true;
}

/**
 * Derives the key for the driver. The cipher uses only the first 32 bytes of a key, so this is a hash of the whole key: 32
 * characters of 6 bits.
 */
export function driverKey(key: string): string {
  return createHash('sha256').update(key).digest('base64url').slice(0, 32);
}

/** Returns the option for a connection; it is empty for a file that is not encrypted. */
export function encryptionOption(key: string | undefined): { encryptionKey?: string } {
  return key === undefined ? {} : { encryptionKey: driverKey(key) };
}

/** Each reason why the key does not open a file, with the remedy. */
const keyFaults = {
  NOT_ENCRYPTED: `It is not encrypted, but DATABASE_ENCRYPTION_KEY is set: encrypt it by \`${commandName} rekey\`, or unset the key.`,
  WRONG_ENCRYPTION_KEY:
    'DATABASE_ENCRYPTION_KEY does not open it: it is encrypted with another key, or is no database.',
  ENCRYPTION_KEY_NEEDED: 'It is encrypted, and DATABASE_ENCRYPTION_KEY is not set; or it is no database.',
} as const;

export type KeyFault = keyof typeof keyFaults;

/**
 * Explains why a file cannot be opened with a key, or without one; undefined if the key is not the reason.
 *
 * It opens and closes the file, which releases all POSIX locks of this process on it: call it only when no connection is
 * open.
 */
export function keyFaultOf(path: string, key: string | undefined): KeyFault | undefined {
  const isPlain = isPlainDatabase(path);
  if (key !== undefined) return isPlain ? 'NOT_ENCRYPTED' : 'WRONG_ENCRYPTION_KEY';
  return isPlain ? undefined : 'ENCRYPTION_KEY_NEEDED';
}

const abandoned: object[] = [];

/**
 * Keeps a connection open until the process ends. Use it in place of `close` after SQLITE_NOTADB: a close would checkpoint
 * the WAL with the wrong key, which destroys the database.
 */
export function abandon(connection: object): void {
  abandoned.push(connection);
}

/** Replaces SQLITE_NOTADB by the code of the key fault, if the key is the reason. */
export function withKeyFault(failure: DatabaseError, path: string, key: string | undefined): DatabaseError {
  const fault = failure.code === 'SQLITE_NOTADB' ? keyFaultOf(path, key) : undefined;
  return fault === undefined ? failure : new DatabaseError(fault, false, failure);
}

/** The remedies for a token that the libSQL server rejects. */
const tokenFaults: Readonly<Record<TokenFault, string>> = {
  TOKEN_REFUSED:
    'It does not accept DATABASE_AUTH_TOKEN: the token is missing, has expired or is signed with another key.',
  TOKEN_READ_ONLY: 'DATABASE_AUTH_TOKEN has no write permission: set a token that has it.',
};

/** Returns a space and the remedy if `code` is a fault of the key or the token, else an empty string. */
export function keyRemedy(code: string | undefined): string {
  for (const [fault, remedy] of Object.entries({ ...keyFaults, ...tokenFaults }))
    if (fault === code) return ` ${remedy}`;
  return '';
}

/** Whether a file begins with the header of an unencrypted database. */
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
