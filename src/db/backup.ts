import { pathToFileURL } from 'node:url';
import Connection from 'libsql';
import * as v from 'valibot';
import { abandon, driverKey, encryptionOption, type KeyFault, keyFaultOf } from './encryption';
import { DatabaseError, toDatabaseError } from './errors';
import { knownSchemas, neededMigration } from './schema-fit';

export interface Contents {
  /** Rows of `users`. */
  readonly persons: number;
  /** Name of the newest migration that was applied. */
  readonly schema: string;
}

/** Why a file is no database of this service. */
export class UnfitError extends Error {
  override readonly name = 'UnfitError';
  readonly kind: 'not a database' | 'damaged' | 'foreign' | 'newer' | KeyFault;

  constructor(kind: UnfitError['kind']) {
    super(`The file is ${kind}`);
    this.kind = kind;
  }
}

/**
 * Writes a consistent copy of a database that others may go on reading and writing: for them it is one more reader. The
 * copy has the key of the database.
 *
 * @param target an empty file
 * @throws DatabaseError
 */
export function copyDatabase(path: string, target: string, key: string | undefined): void {
  withConnection(path, key, (connection) => {
    connection.exec('PRAGMA busy_timeout = 5000');
    vacuumInto(connection, target, key);
  });
}

/** SQLite takes the key of the copy from its address; one that is empty leaves it plain. */
function vacuumInto(connection: Connection.Database, target: string, key: string | undefined): void {
  const address = `${pathToFileURL(target).href}?key=${key === undefined ? '' : driverKey(key)}`;
  try {
    connection.exec(`VACUUM INTO '${address.replaceAll("'", "''")}'`);
  } catch (error) {
    // The driver's own words may hold the address, and the key in it.
    const { code, isUnavailable } = toDatabaseError(error);
    throw new DatabaseError(code, isUnavailable);
  }
}

/**
 * Checks a copy that nobody else uses, page by page, and makes it one single file.
 *
 * @throws UnfitError when it is not, or no longer, a database of this service that the key opens
 */
export function examineCopy(path: string, key: string | undefined): Contents {
  try {
    return withConnection(path, key, (connection) => {
      firstCell(connection, 'PRAGMA journal_mode = DELETE');
      // Its own words may quote what is damaged, and the driver ends the process over text that is no UTF-8.
      const verdict = "SELECT count(*) FROM pragma_integrity_check(1) WHERE integrity_check = 'ok'";
      if (firstCell(connection, verdict) !== 1) throw new UnfitError('damaged');
      return { schema: schemaOf(connection), persons: Number(firstCell(connection, 'SELECT count(*) FROM users')) };
    });
  } catch (error) {
    const code = error instanceof DatabaseError ? error.code : undefined;
    if (code === 'SQLITE_NOTADB') throw new UnfitError(keyFaultOf(path, key) ?? 'not a database');
    if (code === 'SQLITE_CORRUPT') throw new UnfitError('damaged');
    throw error;
  }
}

function schemaOf(connection: Connection.Database): string {
  const tables = firstCell(
    connection,
    `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('__drizzle_migrations', 'users')`,
  );
  if (tables !== 2) throw new UnfitError('foreign');
  const applied = Number(firstCell(connection, 'SELECT max(created_at) FROM __drizzle_migrations'));
  const schema = knownSchemas.find(({ createdAt }) => createdAt === applied);
  if (applied < neededMigration) {
    if (schema === undefined) throw new UnfitError('foreign');
    return schema.name;
  }
  const minReader = Number(firstCell(connection, 'SELECT max(min_reader) FROM schema_compatibility'));
  if (minReader > neededMigration) throw new UnfitError('newer');
  return schema?.name ?? `newer than ${knownSchemas.at(-1)?.name}`;
}

/** What can be done with a database by whoever is alone with it: a copy with a key of its own, or without one. */
type CopyTo = (target: string, key: string | undefined) => void;

/**
 * Does something while nobody else can use a database: all of it is in the one file, without a log beside it.
 *
 * Whoever opens the file meanwhile waits for the lock. If another file has its name by then, SQLite refuses them
 * every write (SQLITE_READONLY_DBMOVED), which it does only for a file that is not in WAL mode.
 *
 * @throws DatabaseError `SQLITE_BUSY` while another process has it open
 */
export async function withSoleUse<Result>(
  path: string,
  key: string | undefined,
  work: (copyTo: CopyTo) => Result | Promise<Result>,
): Promise<Result> {
  const connection = open(path, key);
  try {
    takeAlone(connection);
    return await work((target, targetKey) => vacuumInto(connection, target, targetKey));
  } catch (error) {
    throw toFailure(error);
  } finally {
    giveBack(connection);
  }
}

function takeAlone(connection: Connection.Database): void {
  if (firstCell(connection, 'PRAGMA journal_mode = DELETE') !== 'delete') throw new DatabaseError('SQLITE_BUSY', true);
  // A transaction would hold the lock too, but nothing can be copied within one.
  connection.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT');
  // Whoever came between the two has set WAL mode again, in which the lock keeps no reader out.
  if (firstCell(connection, 'PRAGMA journal_mode') !== 'delete') throw new DatabaseError('SQLITE_BUSY', true);
}

/** The driver closes a file only when its statements are collected as garbage, and holds the lock until then. */
function giveBack(connection: Connection.Database): void {
  try {
    connection.exec('PRAGMA locking_mode = NORMAL');
    firstCell(connection, 'SELECT count(*) FROM sqlite_schema');
  } catch (error) {
    // Nothing was taken.
    if (isNoDatabase(toFailure(error))) {
      abandon(connection);
      return;
    }
  }
  connection.close();
}

function withConnection<Result>(
  path: string,
  key: string | undefined,
  work: (connection: Connection.Database) => Result,
): Result {
  const connection = open(path, key);
  let failure: unknown;
  try {
    return work(connection);
  } catch (error) {
    failure = toFailure(error);
    throw failure;
  } finally {
    if (isNoDatabase(failure)) abandon(connection);
    else connection.close();
  }
}

/** @throws DatabaseError */
function open(path: string, key: string | undefined): Connection.Database {
  try {
    return new Connection(path, { timeout: 0, ...encryptionOption(key) });
  } catch (error) {
    // The driver names no code for a file that it cannot open.
    throw new DatabaseError('SQLITE_CANTOPEN', true, error);
  }
}

const Rows = v.array(v.array(v.unknown()));

function firstCell(connection: Connection.Database, query: string): unknown {
  return v.parse(Rows, connection.prepare(query).raw(true).all())[0]?.[0];
}

function isNoDatabase(failure: unknown): boolean {
  return failure instanceof DatabaseError && failure.code === 'SQLITE_NOTADB';
}

function toFailure(error: unknown): unknown {
  return error instanceof Connection.SqliteError ? toDatabaseError(error) : error;
}
