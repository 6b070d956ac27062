import { createClient } from '@libsql/client';
import * as v from 'valibot';
import { currentSecret } from '../secret-files';
import { openThreaded } from './backup';
import { type DatabaseSettings, localPath } from './client';
import { abandon, withKeyFault } from './encryption';
import { toDatabaseError } from './errors';

/** What SQLite stores in a cell: an integer is a bigint, so that it is never bound as a floating-point number. */
const Value = v.union([v.null(), v.string(), v.bigint(), v.number(), v.instance(Uint8Array)]);
export type Value = v.InferOutput<typeof Value>;
export type Row = readonly Value[];
const Rows = v.array(v.array(Value));

export interface Statement {
  readonly sql: string;
  readonly args?: readonly Value[];
}

/** One connection to a database of any kind, for reading and writing whole tables. Failures are DatabaseError. */
export interface RowStore {
  read(sql: string, args?: readonly Value[]): Promise<readonly Row[]>;
  /** Runs the statements in one transaction, without foreign-key checks. */
  write(statements: readonly Statement[]): Promise<void>;
  close(): Promise<void>;
}

export type DatabasePlace = Pick<DatabaseSettings, 'url' | 'authToken' | 'encryptionKey'>;

/** Finds out whether the database can be used, and begins the state that a snapshot reads. */
const firstQuery = 'SELECT count(*) FROM sqlite_schema';

/** An index or a transaction of many rows takes longer than any statement of the service. */
const requestTimeoutMs = 120_000;

/** Opens a database that is only read: every read sees the state of the first one, whatever others write meanwhile. */
export async function openSnapshot(place: DatabasePlace): Promise<RowStore> {
  const path = localPath(place.url);
  if (path !== undefined) return openFile(path, place.encryptionKey, 'BEGIN');
  const client = openServer(place);
  const snapshot = await client.transaction('read').catch((error: unknown) => {
    throw toDatabaseError(error);
  });
  await rowsOf(snapshot.execute(firstQuery));
  return {
    read: (sql, args = []) => rowsOf(snapshot.execute({ sql, args: [...args] })),
    write: () => Promise.reject(new TypeError('A snapshot is only read')),
    async close() {
      snapshot.close();
      client.close();
    },
  };
}

/**
 * Opens a database to be filled. A file is locked for this process alone, and not synced: the caller checks and syncs it
 * when it is whole.
 */
export async function openTarget(place: DatabasePlace): Promise<RowStore> {
  const path = localPath(place.url);
  if (path !== undefined) {
    const first = 'PRAGMA locking_mode = EXCLUSIVE; PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF';
    return openFile(path, place.encryptionKey, first);
  }
  const client = openServer(place);
  await rowsOf(client.execute(firstQuery));
  return {
    read: (sql, args = []) => rowsOf(client.execute({ sql, args: [...args] })),
    async write(statements) {
      try {
        await client.migrate(statements.map(({ sql, args = [] }) => ({ sql, args: [...args] })));
      } catch (error) {
        throw toDatabaseError(error);
      }
    },
    close: async () => client.close(),
  };
}

async function openFile(path: string, key: string | undefined, first: string): Promise<RowStore> {
  const connection = openThreaded(path, key, 5_000);
  connection.defaultSafeIntegers(true);
  try {
    await connection.exec(`${first}; ${firstQuery}`);
  } catch (error) {
    const failure = toDatabaseError(error);
    if (failure.code === 'SQLITE_NOTADB') abandon(connection);
    else connection.close();
    throw withKeyFault(failure, path, key);
  }
  const attempt = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      throw toDatabaseError(error);
    }
  };
  const transact = async (statements: readonly Statement[]) => {
    await connection.exec('BEGIN IMMEDIATE');
    try {
      for (const { sql, args = [] } of statements) {
        const statement = await connection.prepare(sql);
        statement.run([...args]);
      }
      await connection.exec('COMMIT');
    } catch (error) {
      await connection.exec('ROLLBACK').catch(() => undefined);
      throw error;
    }
  };
  return {
    read: (sql, args = []) =>
      attempt(async () => {
        const statement = await connection.prepare(sql);
        return v.parse(Rows, await statement.raw(true).all([...args]));
      }),
    write: (statements) => attempt(() => transact(statements)),
    async close() {
      // The driver closes the file only when its statements are garbage, and would hold the lock until then.
      await connection.exec('PRAGMA locking_mode = NORMAL; SELECT count(*) FROM sqlite_schema').catch(() => undefined);
      connection.close();
    },
  };
}

function openServer({ url, authToken: setting }: DatabasePlace) {
  const authToken = currentSecret(setting);
  return createClient({
    url,
    intMode: 'bigint',
    ...(authToken === undefined ? {} : { authToken }),
    fetch: (input: Request, init?: RequestInit) =>
      fetch(input, { ...init, signal: AbortSignal.timeout(requestTimeoutMs) }),
  });
}

async function rowsOf(result: ReturnType<ReturnType<typeof openServer>['execute']>): Promise<readonly Row[]> {
  try {
    const { rows, columns } = await result;
    return rows.map((row) => columns.map((_, index) => toValue(row[index])));
  } catch (error) {
    throw toDatabaseError(error);
  }
}

function toValue(value: unknown): Value {
  return v.parse(Value, value instanceof ArrayBuffer ? new Uint8Array(value) : value);
}
