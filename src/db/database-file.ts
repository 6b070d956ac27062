import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import Connection from 'libsql';
import { DatabaseError, isBusy } from './errors';

/** A fault of a database file or of the files beside it, with a sentence for the operator. */
export class DatabaseFileError extends DatabaseError {
  readonly advice: string;

  constructor(code: string, advice: string, cause?: unknown) {
    super(code, true, cause);
    this.advice = advice;
  }
}

/** The path of a database file with every link followed, also where the file is missing. */
export function nameOfFile(path: string): string {
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
 * Refuses a missing or empty file with a log beside it. SQLite would delete the log, and with it the commits that are not
 * in the file yet.
 *
 * @throws DatabaseFileError `WAL_ORPHANED`
 */
export function requireOwnLog(path: string): void {
  const file = nameOfFile(path);
  // Another process may create the database now: its log comes after its first page.
  const left = [`${file}-wal`, `${file}-shm`].find((name) => existsSync(name));
  if (left === undefined) return;
  const found = statSync(file, { throwIfNoEntry: false });
  if (found !== undefined && found.size > 0) return;
  const state = found === undefined ? 'missing' : 'empty (0 bytes)';
  throw new DatabaseFileError(
    'WAL_ORPHANED',
    `The log ${left} belongs to a database file that is ${state}: put the file back beside its log. ` +
      `The log may hold saves that are nowhere else, so nothing was changed.`,
  );
}

/**
 * Makes an empty file, and its folder, where there is none. The files that SQLite puts beside it take its mode.
 *
 * @returns whether it has made the file
 * @throws DatabaseFileError `WAL_ORPHANED`, `SQLITE_READONLY` or `SQLITE_CANTOPEN`
 */
export function createIfMissing(path: string): boolean {
  requireOwnLog(path);
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // An existing file is not opened here: closing it would give up the locks that this process has on it.
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

/** Removes the file that `createIfMissing` has made, if nothing was written to it. */
export function removeEmpty(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.size !== 0) return;
  for (const suffix of ['', '-journal']) rmSync(`${path}${suffix}`, { force: true });
}

function errorCode(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

/** The failure to open a file: its path, and the file or folder that this process may not use. */
function toOpenFailure(path: string, error: unknown): DatabaseFileError {
  const code = errorCode(error) === 'EROFS' ? 'SQLITE_READONLY' : 'SQLITE_CANTOPEN';
  return new DatabaseFileError(code, openAdvice(path, code), error);
}

/** Why a file cannot be opened, as far as its type, owner and mode show it. */
export function openAdvice(path: string, code: string): string {
  const file = nameOfFile(path);
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

/** The folders above a file, the nearest first. */
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

/** SQLite reads and writes each file, and creates and removes files in the folder. */
function refusalOf(path: string, isFolder: boolean): unknown {
  try {
    accessSync(path, constants.R_OK | constants.W_OK | (isFolder ? constants.X_OK : 0));
    return undefined;
  } catch (error) {
    return errorCode(error);
  }
}

/** Never closed, so that each is held for as long as this process lives. */
const held: Connection.Database[] = [];

/** Whether a file is this process's until it ends, however it ends: the lock is the operating system's. */
export function holdFile(path: string): boolean {
  const connection = new Connection(path);
  try {
    // Or a second file lies beside it.
    connection.exec('PRAGMA journal_mode = MEMORY');
    connection.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    connection.close();
    if (!isBusy(error)) throw error;
    return false;
  }
  held.push(connection);
  return true;
}
