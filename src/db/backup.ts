import { existsSync, realpathSync, renameSync, rmSync, statfsSync, statSync } from 'node:fs';
import { open as openFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pathToFileURL } from 'node:url';
import { SqliteError } from 'libsql';
import Connection from 'libsql/promise';
import * as v from 'valibot';
import { OperatorError } from '../errors';
import {
  abandon,
  DatabaseFileError,
  driverKey,
  encryptionOption,
  type KeyFault,
  keyFaultOf,
  openAdvice,
  rejectOrphanedWal,
} from './database-file';
import { DatabaseError, toDatabaseError } from './errors';
import { knownSchemas, neededMigration } from './schema-check';

export interface Contents {
  /** Rows of `users`. */
  readonly persons: number;
  /** Name of the newest migration that was applied. */
  readonly schema: string;
}

/** A file that is not a usable database of this service. */
export class UnusableFileError extends Error {
  override readonly name = 'UnusableFileError';
  readonly kind: 'not a database' | 'damaged' | 'foreign' | 'newer' | KeyFault;

  constructor(kind: UnusableFileError['kind']) {
    super(`The file is ${kind}`);
    this.kind = kind;
  }
}

/**
 * Writes a consistent copy of a database, with the same key, while other connections read and write it. The copy runs on a
 * thread of the driver.
 *
 * @param target an empty file
 * @throws DatabaseError
 */
export function copyDatabase(path: string, target: string, key: string | undefined): Promise<void> {
  return withConnection(path, key, async (connection) => {
    await connection.exec('PRAGMA busy_timeout = 5000');
    await vacuumInto(connection, target, key);
  });
}

/**
 * Writes a checked backup beside a database file before a migration. The operator removes it.
 *
 * @returns the path of the backup
 * @throws OperatorError if the disk has no room for a copy and a rebuilt table, or the copy fails
 */
export async function backUpBeforeMigration(path: string, key: string | undefined): Promise<string> {
  const database = realpathSync(path);
  const sizeOf = (file: string) => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  const { bavail, bsize } = statfsSync(dirname(database));
  const neededBytes = 2 * (sizeOf(database) + sizeOf(`${database}-wal`));
  if (bavail * bsize < neededBytes) {
    throw new OperatorError(
      `There is no room for a backup before the migration: ${neededBytes} bytes are needed beside the database.`,
    );
  }
  try {
    return await createCheckedCopy(database, 'before-migration', key, (partial) =>
      copyDatabase(database, partial, key),
    );
  } catch (error) {
    const reason =
      error instanceof DatabaseError ? error.code : error instanceof UnusableFileError ? error.kind : 'I/O error';
    throw new OperatorError(`The backup before the migration failed (${reason}); nothing was migrated.`);
  }
}

/**
 * Writes the database of a connection to `<path>.rescued-<time>`. The files of the connection may have been removed or
 * replaced.
 *
 * @returns the path of the checked and synced copy
 */
export function rescueDatabase(connection: Connection, database: string, key: string | undefined): Promise<string> {
  return createCheckedCopy(database, 'rescued', key, (partial) => vacuumInto(connection, partial, key));
}

/** Writes a copy beside a database, checks and syncs it, and then renames it to its final name. */
async function createCheckedCopy(
  database: string,
  kind: 'before-migration' | 'rescued',
  key: string | undefined,
  copy: (partial: string) => Promise<void>,
): Promise<string> {
  const named = `${database}.${kind}-${new Date().toISOString().replaceAll(/[:.]/g, '-')}`;
  // Processes that start together may copy in the same millisecond.
  const partial = `${named}.${process.pid}.partial`;
  let kept = named;
  try {
    await writeFile(partial, '', { mode: 0o600, flag: 'wx' });
    await copy(partial);
    await examineCopy(partial, key);
    for (const file of [partial, dirname(database)]) {
      const handle = await openFile(file, 'r');
      await handle.sync();
      await handle.close();
      if (file !== partial) continue;
      if (existsSync(named)) kept = `${named}-${process.pid}`;
      renameSync(partial, kept);
    }
    return kept;
  } catch (error) {
    for (const suffix of ['', '-wal', '-shm', '-journal']) rmSync(`${partial}${suffix}`, { force: true });
    throw error;
  }
}

/** SQLite takes the key of the copy from its URI; with an empty key, the copy is not encrypted. */
async function vacuumInto(connection: Connection, target: string, key: string | undefined): Promise<void> {
  const address = `${pathToFileURL(target).href}?key=${key === undefined ? '' : driverKey(key)}`;
  try {
    await connection.exec(`VACUUM INTO '${address.replaceAll("'", "''")}'`);
  } catch (error) {
    // The driver's message may contain the URI with the key.
    const { code, isUnavailable } = toDatabaseError(error);
    throw new DatabaseError(code, isUnavailable);
  }
}

/**
 * Returns 1 if SQLite finds no fault in any page, else 0. It does not return the report, which may quote text that is not
 * UTF-8: the driver aborts the process on such text.
 */
export const intactQuery = "SELECT count(*) FROM pragma_integrity_check(1) WHERE integrity_check = 'ok'";

/**
 * Checks all pages of a copy and removes its WAL. No other connection may use the file.
 *
 * @throws UnusableFileError if the file is not an intact database of this service that the key opens
 */
export async function examineCopy(path: string, key: string | undefined): Promise<Contents> {
  try {
    return await withConnection(path, key, async (connection) => {
      await firstCell(connection, 'PRAGMA journal_mode = DELETE');
      if ((await firstCell(connection, intactQuery)) !== 1) throw new UnusableFileError('damaged');
      const schema = await schemaOf(connection);
      return { schema, persons: Number(await firstCell(connection, 'SELECT count(*) FROM users')) };
    });
  } catch (error) {
    const code = error instanceof DatabaseError ? error.code : undefined;
    if (code === 'SQLITE_NOTADB') throw new UnusableFileError(keyFaultOf(path, key) ?? 'not a database');
    if (code === 'SQLITE_CORRUPT') throw new UnusableFileError('damaged');
    throw error;
  }
}

async function schemaOf(connection: Connection): Promise<string> {
  const tables = await firstCell(
    connection,
    `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('__drizzle_migrations', 'users')`,
  );
  if (tables !== 2) throw new UnusableFileError('foreign');
  const applied = Number(await firstCell(connection, 'SELECT max(created_at) FROM __drizzle_migrations'));
  const schema = knownSchemas.find(({ createdAt }) => createdAt === applied);
  if (applied < neededMigration) {
    if (schema === undefined) throw new UnusableFileError('foreign');
    return schema.name;
  }
  const minReader = Number(await firstCell(connection, 'SELECT max(min_reader) FROM schema_compatibility'));
  if (minReader > neededMigration) throw new UnusableFileError('newer');
  return schema?.name ?? `newer than ${knownSchemas.at(-1)?.name}`;
}

/** Writes a copy of the locked database, with another key or without one. */
type CopyTo = (target: string, key: string | undefined) => Promise<void>;

/**
 * Runs `work` with an exclusive lock on the database, which is then one file without a WAL.
 *
 * A connection that opens the file meanwhile waits for the lock. If the file was replaced by then, SQLite rejects every
 * write of that connection (SQLITE_READONLY_DBMOVED), which it does only for a file that is not in WAL mode.
 *
 * @throws DatabaseError `SQLITE_BUSY` if another process has the database open
 */
export async function withExclusiveLock<Result>(
  path: string,
  key: string | undefined,
  work: (copyTo: CopyTo) => Result | Promise<Result>,
): Promise<Result> {
  const connection = openThreaded(path, key);
  try {
    await lockExclusively(connection);
    return await work((target, targetKey) => vacuumInto(connection, target, targetKey));
  } catch (error) {
    throw toFailure(error);
  } finally {
    await unlock(connection);
  }
}

async function lockExclusively(connection: Connection): Promise<void> {
  const busy = new DatabaseError('SQLITE_BUSY', true);
  if ((await firstCell(connection, 'PRAGMA journal_mode = DELETE')) !== 'delete') throw busy;
  // An open transaction would keep the lock too, but VACUUM cannot run within one.
  await connection.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT');
  // A connection opened in between has set WAL mode again, in which the lock does not exclude readers.
  if ((await firstCell(connection, 'PRAGMA journal_mode')) !== 'delete') throw busy;
}

/** Releases the lock before the close: the driver closes a file only when its statements are garbage-collected. */
async function unlock(connection: Connection): Promise<void> {
  try {
    await connection.exec('PRAGMA locking_mode = NORMAL');
    await firstCell(connection, 'SELECT count(*) FROM sqlite_schema');
  } catch (error) {
    // The lock was not taken.
    if (isNoDatabase(toFailure(error))) {
      abandon(connection);
      return;
    }
  }
  connection.close();
}

async function withConnection<Result>(
  path: string,
  key: string | undefined,
  work: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  const connection = openThreaded(path, key);
  let failure: unknown;
  try {
    return await work(connection);
  } catch (error) {
    failure = toFailure(error);
    throw failure;
  } finally {
    if (isNoDatabase(failure)) abandon(connection);
    else connection.close();
  }
}

/**
 * Opens a connection whose statements run on a thread of the driver.
 *
 * @throws DatabaseError
 */
export function openThreaded(path: string, key: string | undefined, timeout = 0): Connection {
  rejectOrphanedWal(path);
  try {
    return new Connection(path, { timeout, ...encryptionOption(key) });
  } catch (error) {
    // The driver has no code for a file that it cannot open.
    throw new DatabaseFileError('SQLITE_CANTOPEN', openAdvice(path, 'SQLITE_CANTOPEN'), error);
  }
}

const Rows = v.array(v.array(v.unknown()));

async function firstCell(connection: Connection, query: string): Promise<unknown> {
  const statement = await connection.prepare(query);
  return v.parse(Rows, await statement.raw(true).all())[0]?.[0];
}

function isNoDatabase(failure: unknown): boolean {
  return failure instanceof DatabaseError && failure.code === 'SQLITE_NOTADB';
}

function toFailure(error: unknown): unknown {
  return error instanceof SqliteError ? toDatabaseError(error) : error;
}
