import type { InValue, ResultSet, Row } from '@libsql/client';
import Connection from 'libsql';
import { LRUCache } from 'lru-cache';
import * as v from 'valibot';
import { manualCheckpoints } from './checkpointer';
import { abandon, DatabaseFileError, encryptionOption, openAdvice, rejectOrphanedWal } from './database-file';
import { DatabaseError, isBusy, toDatabaseError } from './errors';
import { contentsOf, contentsQuery } from './schema-check';
import type { SqlStatement } from './sql-client';
import type { Outcome, WriteBatch } from './write-queue';

/** Far more than the service has: the texts of its statements are constant. */
const maxCached = 500;

interface CachedStatement {
  readonly statement: ReturnType<Connection.Database['prepare']>;
  readonly columns: readonly string[];
  readonly parameterCount: number;
  readonly toRow: (values: readonly Value[]) => Row;
}

type Value = null | string | number | bigint | ArrayBuffer;
const Rows = v.array(v.custom<readonly Value[]>(Array.isArray));

/**
 * The prepared-statement cache of one connection.
 *
 * A reused statement of this driver returns the rows or values of an earlier call if it is run by `get` or `run`, is not
 * read to its end, or gets fewer arguments than it has parameters. So it is run by `all` only, with all arguments.
 */
export function createStatementCache(connection: Connection.Database) {
  const cache = new LRUCache<string, CachedStatement>({ max: maxCached });

  const prepare = (sql: string): CachedStatement => {
    const statement = connection.prepare(sql);
    const columns = statement.reader
      ? statement
          .raw(true)
          .columns()
          .map(({ name }) => name)
      : [];
    return { statement, columns, parameterCount: countParameters(sql), toRow: createRowMaker(columns) };
  };

  return {
    /** @param isCached false for a statement that runs once, or that may change the schema */
    run({ sql, args = [] }: SqlStatement, isCached: boolean): ResultSet {
      const values = args.map(toBound);
      let prepared = isCached ? cache.get(sql) : undefined;
      if (prepared === undefined) {
        prepared = prepare(sql);
        if (isCached) cache.set(sql, prepared);
      }
      const { parameterCount } = prepared;
      if (values.length !== parameterCount) {
        throw new TypeError(`The statement has ${parameterCount} parameters, and got ${values.length} values`);
      }
      const rows = v.parse(Rows, prepared.statement.all(values));
      // The driver reads the column names of a statement only when it is prepared, so DDL makes them stale.
      if (!isCached && !prepared.statement.reader) cache.clear();
      return toResultSet(prepared, rows);
    },
  };
}

/** Counts the placeholders outside of quotes and comments. */
export function countParameters(sql: string): number {
  const bare = sql.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|\/\*[\s\S]*?\*\//g, '');
  if (/[:@$]\w|\?\d/.test(bare)) throw new TypeError('Parameters must be written as ?');
  return bare.split('?').length - 1;
}

/** The driver ends the process when a value has an unknown type. */
function toBound(value: InValue | undefined): null | string | number | bigint | Buffer {
  switch (typeof value) {
    case 'string':
    case 'bigint':
      return value;
    case 'boolean':
      return value ? 1 : 0;
    case 'number':
      if (Number.isFinite(value)) return value;
      throw new RangeError('Only finite numbers can be bound');
    default:
      if (value === null) return null;
      if (value instanceof Uint8Array) return Buffer.from(value);
      throw new TypeError('Only text, numbers, booleans, bytes and null can be bound');
  }
}

function toResultSet({ columns, toRow }: CachedStatement, values: v.InferOutput<typeof Rows>): ResultSet {
  return {
    columns: [...columns],
    columnTypes: columns.map(() => ''),
    rows: values.map(toRow),
    rowsAffected: 0,
    lastInsertRowid: undefined,
    toJSON: () => ({ columns, rows: values }),
  };
}

/**
 * Makes rows with the shape of the libSQL client: values by index and, enumerable, by column name. The indexes are getters
 * of a prototype, because defining them on each row takes longer than reading the row.
 */
function createRowMaker(columns: readonly string[]): (values: readonly Value[]) => Row {
  class ResultRow implements Row {
    [column: string]: Value;
    [index: number]: Value;
    readonly #values: readonly Value[];

    constructor(values: readonly Value[]) {
      this.#values = values;
      for (const [index, name] of named) this[name] = values[index] ?? null;
    }

    get length(): number {
      return this.#values.length;
    }

    static {
      for (const index of columns.keys()) {
        Object.defineProperty(ResultRow.prototype, index, {
          get(this: ResultRow) {
            return this.#values[index];
          },
        });
      }
    }
  }
  // The first of two columns with one name wins, and an index wins over a name that looks like one.
  const named = [...columns.entries()].filter(
    ([index, name]) => columns.indexOf(name) === index && !Object.hasOwn(ResultRow.prototype, name),
  );
  return (values) => new ResultRow(values);
}

/** Overwrites deleted content, which would otherwise stay readable in the file until its page is reused. */
const secureDelete = 'PRAGMA secure_delete = ON';

/** A connection to a database file and its prepared-statement cache. */
export interface FileConnection {
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
 * @param isOwn rejects the database of another program before it changes anything
 * @throws DatabaseError `SQLITE_BUSY`, `SQLITE_NOTADB`, `SQLITE_CANTOPEN`, `SCHEMA_FOREIGN` or another code of SQLite
 */
export function openConnection(path: string, encryptionKey: string | undefined, isOwn = false): FileConnection {
  rejectOrphanedWal(path);
  let connection: Connection.Database | undefined;
  try {
    connection = new Connection(path, { timeout: 0, ...encryptionOption(encryptionKey) });
    const statements = createStatementCache(connection);
    // Before WAL mode is set, which changes the file.
    if (isOwn && contentsOf(statements.run({ sql: contentsQuery }, false).rows[0]) === 'foreign') {
      throw new DatabaseError('SCHEMA_FOREIGN', false);
    }
    const settings = ['PRAGMA synchronous = NORMAL', manualCheckpoints, secureDelete];
    connection.exec(`PRAGMA journal_mode = WAL; ${settings.join('; ')}`);
    // The first read creates the WAL.
    statements.run({ sql: 'SELECT 1 FROM sqlite_schema LIMIT 1' }, false);
    return { connection, statements };
  } catch (error) {
    const failure = toDatabaseError(error);
    if (connection !== undefined) {
      // A close would checkpoint the WAL of another program.
      if (failure.code === 'SQLITE_NOTADB' || failure.code === 'SCHEMA_FOREIGN') abandon(connection);
      else connection.close();
    }
    // The driver has no code for a file that it cannot open.
    if (openCodes.has(failure.code)) throw failure;
    throw new DatabaseFileError('SQLITE_CANTOPEN', openAdvice(path, 'SQLITE_CANTOPEN'), error);
  }
}

/** Returns the version of SQLite in the driver. */
export function driverVersion(): string {
  const statements = createStatementCache(new Connection(':memory:', { timeout: 0 }));
  return String(statements.run({ sql: 'SELECT sqlite_version() AS version' }, false).rows[0]?.version);
}

/** Rolls back before it closes: the driver keeps a connection open until its statements are garbage-collected. */
export function closeConnection({ connection }: FileConnection): void {
  try {
    if (connection.inTransaction) connection.exec('ROLLBACK');
  } finally {
    connection.close();
  }
}

/** Reads `user_version` from the header of the file. The service does not use the number. */
export function userVersionOf({ statements }: FileConnection): number {
  return Number(statements.run({ sql: 'PRAGMA user_version' }, false).rows[0]?.user_version);
}

/**
 * Runs a batch inside the open transaction. A failed batch is rolled back alone.
 *
 * @throws DatabaseError that rolls back the whole transaction: a full or failing disk, a lock, or a statement that ended it
 */
export function runBatch({ connection, statements }: FileConnection, batch: WriteBatch): Outcome {
  // A single statement is atomic by itself.
  const needsSavepoint = batch.statements.length > 1;
  try {
    if (needsSavepoint) connection.exec('SAVEPOINT batch');
    const results = batch.statements.map((statement) => statements.run(statement, true));
    if (needsSavepoint) connection.exec('RELEASE batch');
    return { results };
  } catch (error) {
    const failure = toDatabaseError(error);
    if (failure.isUnavailable || !connection.inTransaction) throw failure;
    if (needsSavepoint) connection.exec('ROLLBACK TO batch; RELEASE batch');
    return { error: failure };
  }
}

export type QueryResult = ResultSet | DatabaseError;

/**
 * Runs queries in one read transaction, because opening one takes as long as reading a row. A query that fails does not
 * affect the others.
 *
 * @throws DatabaseError `SQLITE_BUSY`, for all of them
 */
export function runQueries(
  { connection, statements }: FileConnection,
  queries: readonly SqlStatement[],
): QueryResult[] {
  try {
    if (queries.length > 1) connection.exec('BEGIN');
    const results = queries.map((query) => {
      try {
        return statements.run(query, true);
      } catch (error) {
        if (isBusy(error)) throw error;
        return toDatabaseError(error);
      }
    });
    if (connection.inTransaction) connection.exec('COMMIT');
    return results;
  } catch (error) {
    // Within a transaction, each later BEGIN would fail, that of a write too.
    if (connection.inTransaction) connection.exec('ROLLBACK');
    throw error;
  }
}

/**
 * Leaves WAL mode, which removes the WAL. Needs the exclusive lock. Where another process has the file open, the WAL
 * stays, and has no frame that the file does not have.
 */
export function removeWal({ connection }: FileConnection): void {
  for (let tries = 0; tries < maxRemovals; tries += 1) {
    try {
      connection.exec('PRAGMA journal_mode = DELETE');
      return;
    } catch {
      // A thread of the driver may hold a connection for some milliseconds after its close.
      Bun.sleepSync(removalPauseMs);
    }
  }
}

const maxRemovals = 10;
const removalPauseMs = 2;

/** Runs statements in one transaction without foreign keys, since a migration drops each table that it rebuilds. */
export function runMigration(
  { connection, statements }: FileConnection,
  migration: readonly SqlStatement[],
): ResultSet[] {
  try {
    connection.exec('PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE');
    const results = migration.map((statement) => statements.run(statement, false));
    connection.exec('COMMIT');
    return results;
  } finally {
    if (connection.inTransaction) connection.exec('ROLLBACK');
    connection.exec('PRAGMA foreign_keys = ON');
  }
}
