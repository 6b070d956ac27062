import { Database as Connection } from 'bun:sqlite';
import { DatabaseError } from './errors';
import { knownSchemas, neededMigration } from './schema-fit';

// Bun's own SQLite and not the libSQL driver, which closes a file only when its statements are collected as garbage:
// until then it holds locks that nobody can give back.

export interface Contents {
  /** Rows of `users`. */
  readonly persons: number;
  /** Name of the newest migration that was applied. */
  readonly schema: string;
}

/** Why a file is no database of this service. */
export class UnfitError extends Error {
  override readonly name = 'UnfitError';
  readonly kind: 'not a database' | 'damaged' | 'foreign' | 'newer';

  constructor(kind: UnfitError['kind']) {
    super(`The file is ${kind}`);
    this.kind = kind;
  }
}

/**
 * Writes a consistent copy of a database that others may go on reading and writing: for them it is one more reader.
 *
 * @param target an empty file
 * @throws DatabaseError
 */
export function copyDatabase(path: string, target: string): void {
  withConnection(path, (connection) => {
    connection.run('PRAGMA busy_timeout = 5000');
    connection.run('VACUUM INTO ?', [target]);
  });
}

/**
 * Checks a copy that nobody else uses, page by page, and makes it one single file.
 *
 * @throws UnfitError when it is not, or no longer, a database of this service
 */
export function examineCopy(path: string): Contents {
  try {
    return withConnection(path, (connection) => {
      rows(connection, 'PRAGMA journal_mode = DELETE');
      const [verdict] = rows(connection, 'PRAGMA integrity_check(1)');
      if (verdict?.[0] !== 'ok') throw new UnfitError('damaged');
      return { schema: schemaOf(connection), persons: Number(rows(connection, 'SELECT count(*) FROM users')[0]?.[0]) };
    });
  } catch (error) {
    const code = error instanceof DatabaseError ? error.code : undefined;
    if (code === 'SQLITE_NOTADB') throw new UnfitError('not a database');
    if (code === 'SQLITE_CORRUPT') throw new UnfitError('damaged');
    throw error;
  }
}

function schemaOf(connection: Connection): string {
  const tables = rows(
    connection,
    `SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('__drizzle_migrations', 'users')`,
  );
  if (tables.length < 2) throw new UnfitError('foreign');
  const applied = Number(rows(connection, 'SELECT max(created_at) FROM __drizzle_migrations')[0]?.[0]);
  const schema = knownSchemas.find(({ createdAt }) => createdAt === applied);
  if (applied < neededMigration) {
    if (schema === undefined) throw new UnfitError('foreign');
    return schema.name;
  }
  const minReader = Number(rows(connection, 'SELECT max(min_reader) FROM schema_compatibility')[0]?.[0]);
  if (minReader > neededMigration) throw new UnfitError('newer');
  return schema?.name ?? `newer than ${knownSchemas.at(-1)?.name}`;
}

/**
 * Does something while nobody else can use a database: all of it is in the one file, without a log beside it.
 *
 * Whoever opens the file meanwhile waits for the lock. If another file has its name by then, SQLite refuses them
 * every write (SQLITE_READONLY_DBMOVED), which it does only for a file that is not in WAL mode.
 *
 * @throws DatabaseError `SQLITE_BUSY` while another process has it open
 */
export function withSoleUse<Result>(path: string, work: () => Result): Result {
  return withConnection(path, (connection) => {
    const journalMode = () => rows(connection, 'PRAGMA journal_mode = DELETE')[0]?.[0];
    if (journalMode() !== 'delete') throw new DatabaseError('SQLITE_BUSY', true);
    connection.run('BEGIN EXCLUSIVE');
    // Whoever came between the two has set WAL mode again, in which the lock keeps no reader out.
    if (rows(connection, 'PRAGMA journal_mode')[0]?.[0] !== 'delete') throw new DatabaseError('SQLITE_BUSY', true);
    return work();
  });
}

function withConnection<Result>(path: string, work: (connection: Connection) => Result): Result {
  let connection: Connection | undefined;
  try {
    connection = new Connection(path, { readwrite: true, create: false });
    return work(connection);
  } catch (error) {
    throw toFailure(error);
  } finally {
    connection?.close(true);
  }
}

/** Rows as lists of values; the statement does not outlive the call, so that the connection can be closed. */
function rows(connection: Connection, query: string): unknown[][] {
  const statement = connection.prepare(query);
  try {
    return statement.values();
  } finally {
    statement.finalize();
  }
}

/** The codes are extended, such as SQLITE_IOERR_WRITE. */
function toFailure(error: unknown): unknown {
  if (!(error instanceof Error && 'code' in error)) return error;
  const code = /^SQLITE_[A-Z]+/.exec(String(error.code))?.[0];
  return code === undefined || error instanceof DatabaseError ? error : new DatabaseError(code, true, error);
}
