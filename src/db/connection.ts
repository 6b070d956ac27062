import type { InStatement, InValue, ResultSet, Row } from '@libsql/client';
import Connection from 'libsql';
import { LRUCache } from 'lru-cache';
import * as v from 'valibot';
import { manualCheckpoints } from './checkpointer';
import { DatabaseFileError, openAdvice, requireOwnLog } from './database-file';
import { abandon, encryptionOption } from './encryption';
import { DatabaseError, toDatabaseError } from './errors';
import { contentsOf, contentsQuery } from './schema-gate';
import type { Outcome, Unit } from './write-queue';

/** Far more than this service has; SQL texts are constant. */
const maxKept = 500;

interface KeptStatement {
  readonly statement: ReturnType<Connection.Database['prepare']>;
  readonly columns: readonly string[];
  readonly parameterCount: number;
  readonly toRow: (values: readonly Value[]) => Row;
}

type Value = null | string | number | bigint | ArrayBuffer;
const Rows = v.array(v.custom<readonly Value[]>(Array.isArray));

/**
 * Runs statements on one connection, each prepared once.
 *
 * A kept statement of this driver gives another caller's rows or values if it is run by `get` or `run`, is not read to
 * its end, or gets fewer arguments than it has parameters; so it is only ever run by `all`, with as many as it has.
 */
export function createStatementCache(connection: Connection.Database) {
  const kept = new LRUCache<string, KeptStatement>({ max: maxKept });

  const prepare = (sql: string): KeptStatement => {
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
    /** @param isKept false for a statement that is run once, or that may change the schema */
    run(statement: InStatement, isKept: boolean): ResultSet {
      const { sql, args } = typeof statement === 'string' ? { sql: statement, args: [] } : statement;
      if (args !== undefined && !Array.isArray(args)) throw new TypeError('Arguments must be a list');
      const values = (args ?? []).map(toBound);
      let prepared = isKept ? kept.get(sql) : undefined;
      if (prepared === undefined) {
        prepared = prepare(sql);
        if (isKept) kept.set(sql, prepared);
      }
      const { parameterCount } = prepared;
      if (values.length !== parameterCount) {
        throw new TypeError(`The statement has ${parameterCount} parameters, and got ${values.length} values`);
      }
      const rows = v.parse(Rows, prepared.statement.all(values));
      if (!isKept && !prepared.statement.reader) kept.clear();
      return toResultSet(prepared, rows);
    },

    /** Runs statements that may change the schema: the driver names the columns of a kept one only when it is prepared. */
    exec(sql: string): void {
      kept.clear();
      connection.exec(sql);
    },
  };
}

/** Placeholders outside of quotes and comments. */
export function countParameters(sql: string): number {
  const bare = sql.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|\/\*[\s\S]*?\*\//g, '');
  if (/[:@$]\w|\?\d/.test(bare)) throw new TypeError('Parameters must be written as ?');
  return bare.split('?').length - 1;
}

/** The driver ends the whole process when it is given a value of a kind that it does not know. */
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

function toResultSet({ columns, toRow }: KeptStatement, values: v.InferOutput<typeof Rows>): ResultSet {
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
 * Makes rows as the libSQL client gives them: a value by its place and, enumerable, by the name of its column. The places
 * are properties of a prototype, since to define them on each row takes longer than to read it.
 */
function createRowMaker(columns: readonly string[]): (values: readonly Value[]) => Row {
  class KeptRow implements Row {
    [column: string]: Value;
    [place: number]: Value;
    readonly #values: readonly Value[];

    constructor(values: readonly Value[]) {
      this.#values = values;
      for (const [place, name] of named) this[name] = values[place] ?? null;
    }

    get length(): number {
      return this.#values.length;
    }

    static {
      for (const place of columns.keys()) {
        Object.defineProperty(KeptRow.prototype, place, {
          get(this: KeptRow) {
            return this.#values[place];
          },
        });
      }
    }
  }
  // Of two columns with one name the first has it, and a place comes before a name that looks like one.
  const named = [...columns.entries()].filter(
    ([place, name]) => columns.indexOf(name) === place && !Object.hasOwn(KeptRow.prototype, name),
  );
  return (values) => new KeptRow(values);
}

/** Otherwise an erased answer could be read in the file until its place is used again. */
const overwriteWhatIsDeleted = 'PRAGMA secure_delete = ON';

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
