import { createClient } from '@libsql/client';
import * as v from 'valibot';
import { currentSecret } from '../config/secrets';
import { openThreaded } from './backup';
import { type DatabaseSettings, localPath } from './client';
import { abandon, withKeyFault } from './database-file';
import { toDatabaseError } from './errors';
import { quoted } from './sql-client';

/** The value of a cell. Integers are bigints, so that the driver never binds one as a floating-point number. */
const Value = v.union([v.null(), v.string(), v.bigint(), v.number(), v.instance(Uint8Array)]);
export type Value = v.InferOutput<typeof Value>;
export type Row = readonly Value[];
const Rows = v.array(v.array(Value));

export interface Statement {
  readonly sql: string;
  readonly args?: readonly Value[];
}

/** A connection to a file or server that reads and writes whole tables. All failures are DatabaseErrors. */
export interface RowStore {
  read(sql: string, args?: readonly Value[]): Promise<readonly Row[]>;
  /** Runs statements in one transaction, without foreign-key checks. */
  write(statements: readonly Statement[]): Promise<void>;
  close(): Promise<void>;
}

export type DatabasePlace = Pick<DatabaseSettings, 'url' | 'authToken' | 'encryptionKey'>;

/** Fails if the database is unusable, and starts the snapshot. */
const firstQuery = 'SELECT count(*) FROM sqlite_schema';

/** Creating an index or writing many rows takes longer than any statement of the service. */
const requestTimeoutMs = 120_000;

/** Opens a read-only snapshot: every read sees the same state while others write. */
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
    write: () => Promise.reject(new TypeError('A snapshot is read-only')),
    async close() {
      snapshot.close();
      client.close();
    },
  };
}

/** Opens a database to write to. A file is locked exclusively, and not synced: the caller checks and syncs it at the end. */
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
      // The driver closes a file only when its statements are garbage-collected, and would keep the lock until then.
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

/** A server limits a response to 10 MB and a write transaction to five seconds. */
const pageRows = 2_000;
const pageBytes = 2_000_000;
/** SQLite allows 32,766 in one statement. */
const valuesPerStatement = 2_000;

export interface Table {
  readonly name: string;
  /** The rowid, or the primary key of a table without one. Rows are ordered by the keys and begin with them. */
  readonly keys: readonly string[];
  readonly columns: readonly string[];
}

export async function describeTable(store: RowStore, name: string): Promise<Table> {
  const columns = await store.read('SELECT name, type, pk FROM pragma_table_info(?) ORDER BY pk', [name]);
  const primaryKey = columns.filter(([, , pk]) => pk !== 0n);
  const list = await store.read("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", [name]);
  const isWithoutRowid = list[0]?.[0] === 1n;
  const [first] = primaryKey;
  const isAlias = primaryKey.length === 1 && String(first?.[1]).toUpperCase() === 'INTEGER';
  const keys = isWithoutRowid || isAlias ? primaryKey.map(([column]) => String(column)) : ['rowid'];
  const others = columns.map(([column]) => String(column)).filter((column) => !keys.includes(column));
  return { name, keys, columns: others };
}

export async function lastKey(store: RowStore, { name, keys }: Table): Promise<Row | undefined> {
  const order = keys.map((key) => `${quoted(key)} DESC`).join(', ');
  const [row] = await store.read(`SELECT ${listed(keys)} FROM ${quoted(name)} ORDER BY ${order} LIMIT 1`);
  return row;
}

/** Reads all rows in pages of about `pageBytes`, ordered by key. */
export async function* pagesOf(store: RowStore, table: Table, after?: Row, upTo?: Row) {
  for (let last = after; ; ) {
    const page = await store.read(...pageQuery(table, last, upTo));
    if (page.length === 0) return;
    yield page;
    last = keyOf(table, page.at(-1));
  }
}

export function keyOf({ keys }: Table, row: Row = []): Row {
  return row.slice(0, keys.length);
}

export function pageQuery({ name, keys, columns }: Table, after?: Row, upTo?: Row): [sql: string, args: Row] {
  const [key, all] = [listed(keys), listed([...keys, ...columns])];
  const size = columns.map((column) => `coalesce(octet_length(${quoted(column)}), 0)`).join(' + ') || '0';
  const bounds = [
    ...(after === undefined ? [] : [`(${key}) > (${after.map(() => '?').join(', ')})`]),
    ...(upTo === undefined ? [] : [`(${key}) <= (${upTo.map(() => '?').join(', ')})`]),
  ];
  const where = bounds.length === 0 ? '' : `WHERE ${bounds.join(' AND ')}`;
  // The subquery limits the rows; the running sum limits the bytes.
  const sql = `SELECT ${all} FROM (
    SELECT *, sum("size of copy") OVER (ORDER BY ${key}) - "size of copy" AS "size before" FROM (
      SELECT ${[...keys.map((each) => `${quoted(each)} AS ${quoted(each)}`), ...columns.map(quoted)].join(', ')},
        ${size} AS "size of copy"
      FROM ${quoted(name)} ${where} ORDER BY ${key} LIMIT ${pageRows}))
    WHERE "size before" < ${pageBytes} ORDER BY ${key}`;
  return [sql, [...(after ?? []), ...(upTo ?? [])]];
}

export function insertsOf({ name, keys, columns }: Table, rows: readonly Row[]): Statement[] {
  const all = [...keys, ...columns];
  const values = `(${all.map(() => '?').join(', ')})`;
  const perStatement = Math.max(1, Math.floor(valuesPerStatement / all.length));
  const into = `INSERT INTO ${quoted(name)} (${listed(all)}) VALUES`;
  return Array.from({ length: Math.ceil(rows.length / perStatement) }, (_, index) => {
    const some = rows.slice(index * perStatement, (index + 1) * perStatement);
    return { sql: `${into} ${some.map(() => values).join(', ')}`, args: some.flat() };
  });
}

function listed(names: readonly string[]): string {
  return names.map(quoted).join(', ');
}

export type Digest = ReturnType<typeof createDigest>;

export function createDigest() {
  const hash = new Bun.CryptoHasher('sha256');
  let count = 0;
  return {
    add(rows: readonly Row[]): void {
      for (const row of rows) for (const value of row) addValue(hash, value);
      count += rows.length;
    },
    rows: () => count,
    checksum: () => hash.copy().digest('hex'),
  };
}

export function checksumOf(rows: readonly Row[]): string {
  const digest = createDigest();
  digest.add(rows);
  return digest.checksum();
}

/** Hashes each value with its type and length, so that different rows have different input. */
function addValue(hash: Bun.CryptoHasher, value: Value): void {
  if (value instanceof Uint8Array) hash.update(`b${value.byteLength}:`).update(value);
  else if (typeof value === 'string') hash.update(`s${Buffer.byteLength(value)}:${value}`);
  else if (value === null) hash.update('n');
  else hash.update(`${typeof value === 'bigint' ? 'i' : 'r'}${value};`);
}

export async function firstCell(store: RowStore, query: string): Promise<Value | undefined> {
  return (await store.read(query))[0]?.[0];
}
