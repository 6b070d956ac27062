import type { InStatement, ResultSet } from '@libsql/client';
import Connection from 'libsql';
import { manualCheckpoints } from './checkpointer';
import { DatabaseFileError, openAdvice, requireOwnLog } from './database-file';
import { abandon, encryptionOption } from './encryption';
import { DatabaseError, toDatabaseError } from './errors';
import { createStatementCache } from './kept-statements';
import { contentsOf, contentsQuery } from './schema-fit';
import type { Outcome, Unit } from './write-queue';

/** Otherwise an erased answer could be read in the file until its place is used again. */
export const overwriteWhatIsDeleted = 'PRAGMA secure_delete = ON';

/** A connection to a local file and its prepared statements. */
export interface LocalConnection {
  readonly connection: Connection.Database;
  readonly statements: ReturnType<typeof createStatementCache>;
}

const openCodes = new Set([
  'SCHEMA_FOREIGN',
  'SQLITE_BUSY',
  'SQLITE_CORRUPT',
  'SQLITE_FULL',
  'SQLITE_IOERR',
  'SQLITE_NOTADB',
  'SQLITE_READONLY',
]);

/**
 * @param isOwn refuses a database of another program before anything is changed
 * @throws DatabaseError `SQLITE_BUSY`, `SQLITE_NOTADB`, `SQLITE_CANTOPEN`, `SCHEMA_FOREIGN` or another code of SQLite
 */
export function openConnection(path: string, encryptionKey: string | undefined, isOwn = false): LocalConnection {
  requireOwnLog(path);
  let connection: Connection.Database | undefined;
  try {
    connection = new Connection(path, { timeout: 0, ...encryptionOption(encryptionKey) });
    const statements = createStatementCache(connection);
    // Before WAL mode is set, which changes the file.
    if (isOwn && contentsOf(statements.run(contentsQuery, false).rows[0]) === 'foreign') {
      throw new DatabaseError('SCHEMA_FOREIGN', false);
    }
    const settings = ['PRAGMA synchronous = NORMAL', manualCheckpoints, overwriteWhatIsDeleted];
    connection.exec(`PRAGMA journal_mode = WAL; ${settings.join('; ')}`);
    // The first read creates the log.
    statements.run('SELECT 1 FROM sqlite_schema LIMIT 1', false);
    return { connection, statements };
  } catch (error) {
    const failure = toDatabaseError(error);
    if (connection !== undefined) {
      // A close would bring the log of another program into its file.
      if (failure.code === 'SQLITE_NOTADB' || failure.code === 'SCHEMA_FOREIGN') abandon(connection);
      else connection.close();
    }
    // The driver names no code for a file that it cannot open.
    if (openCodes.has(failure.code)) throw failure;
    throw new DatabaseFileError('SQLITE_CANTOPEN', openAdvice(path, 'SQLITE_CANTOPEN'), error);
  }
}

/** The version of SQLite in the driver. */
export function driverVersion(): string {
  const statements = createStatementCache(new Connection(':memory:', { timeout: 0 }));
  return String(statements.run('SELECT sqlite_version() AS version', false).rows[0]?.version);
}

/** Ends an open transaction before it closes, since the driver closes a connection only with its last statement. */
export function closeConnection({ connection }: LocalConnection): void {
  try {
    if (connection.inTransaction) connection.exec('ROLLBACK');
  } finally {
    connection.close();
  }
}

/** A number in the header of the file; the service does not use it. */
export function userVersionOf({ statements }: LocalConnection): number {
  return Number(statements.run('PRAGMA user_version', false).rows[0]?.user_version);
}

/**
 * Runs a unit inside the open transaction. A failed unit is undone alone.
 *
 * @throws DatabaseError that undoes the whole transaction: a full or failing disk, a lock, or a statement that ended it
 */
export function runUnit({ connection, statements }: LocalConnection, { statements: own }: Unit): Outcome {
  // A single statement is atomic by itself.
  const isGuarded = own.length > 1;
  try {
    if (isGuarded) connection.exec('SAVEPOINT unit');
    const results = own.map((statement) => statements.run(statement, true));
    if (isGuarded) connection.exec('RELEASE unit');
    return { results };
  } catch (error) {
    const failure = toDatabaseError(error);
    if (failure.isUnavailable || !connection.inTransaction) throw failure;
    if (isGuarded) connection.exec('ROLLBACK TO unit; RELEASE unit');
    return { error: failure };
  }
}

/**
 * Leaves WAL mode, which removes the log. It needs the exclusive lock, so it fails where another process has the file
 * open; the log then stays, and holds nothing that the file does not.
 */
export function removeLog({ connection }: LocalConnection): void {
  for (let tries = 0; tries < maxRemovals; tries += 1) {
    try {
      connection.exec('PRAGMA journal_mode = DELETE');
      return;
    } catch {
      // A thread of the driver may hold a connection for a moment after its close.
      Bun.sleepSync(removalPauseMs);
    }
  }
}

const maxRemovals = 10;
const removalPauseMs = 2;

/** One transaction without foreign keys, since a table that is rebuilt is dropped in between. */
export function runMigration(
  { connection, statements }: LocalConnection,
  batched: readonly InStatement[],
): ResultSet[] {
  try {
    connection.exec('PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE');
    const results = batched.map((statement) => statements.run(statement, false));
    connection.exec('COMMIT');
    return results;
  } finally {
    if (connection.inTransaction) connection.exec('ROLLBACK');
    connection.exec('PRAGMA foreign_keys = ON');
  }
}

/** A transaction that had begun and is undone. */
export class TransactionError extends Error {
  override readonly name = 'TransactionError';
  readonly failure: DatabaseError;

  constructor(failure: DatabaseError) {
    super('The transaction is undone', { cause: failure });
    this.failure = failure;
  }
}

/** Whether a transaction may have failed for what one unit did, so that the others are stored without it. */
export function isOfOneUnit({ code, isUnavailable }: DatabaseError): boolean {
  return !isUnavailable || code === 'SQLITE_FULL';
}
