import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Client, createClient, type InStatement, type InValue } from '@libsql/client';
import { drizzle, type LibSQLDatabase } from 'drizzle-orm/libsql';
import { DatabaseError, toDatabaseError } from './errors';
import * as schema from './schema';

export type Database = LibSQLDatabase<typeof schema> & { $client: Client };

export interface DatabaseSettings {
  readonly url: string;
  readonly authToken?: string | undefined;
  /** The longest that any statement may take, waiting for a lock included. */
  readonly timeoutMs: number;
}

/** The path of a `file:` address, or undefined for a remote database. */
export function localPath(url: string): string | undefined {
  return url.startsWith('file:') ? url.slice('file:'.length) : undefined;
}

/**
 * Opens the database behind any supported address (`file:`, `http(s):`, `ws(s):`, `libsql:`). Each failing
 * statement throws a DatabaseError; a remote that is away shows at the first statement, not here.
 */
export async function openDatabase(settings: DatabaseSettings): Promise<Database> {
  const path = localPath(settings.url);
  const client = path === undefined ? openRemoteClient(settings) : await openLocalClient(path, settings);
  return drizzle({ client, schema });
}

/**
 * A local file in WAL mode; `synchronous` is FULL in this build of libSQL, so an answer that was acknowledged
 * survives a power cut. Statements run one after the other: the driver is synchronous, and after SQLITE_BUSY the
 * connection must be opened anew before any other statement runs on it, or that statement is acknowledged and
 * then rolled back (libsql-client-ts#352).
 */
async function openLocalClient(path: string, { url, timeoutMs }: DatabaseSettings): Promise<Client> {
  let client: Client;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    client = createClient({ url, timeout: timeoutMs, concurrency: 1 });
  } catch (error) {
    throw new DatabaseError('SQLITE_CANTOPEN', true, error);
  }
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <Result>(work: () => Promise<Result>): Promise<Result> => {
    const result = last.then(work).catch(async (error: unknown) => {
      const failure = toDatabaseError(error);
      if (failure.code === 'SQLITE_BUSY') await client.reconnect();
      throw failure;
    });
    last = result.catch(() => undefined);
    return result;
  };
  const guarded = guardClient(client, inTurn);
  await enableWriteAheadLog(guarded, timeoutMs);
  return guarded;
}

/** Two processes that open a new file at once both ask for WAL; SQLite refuses one without waiting. */
async function enableWriteAheadLog(client: Client, timeoutMs: number): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    try {
      await client.execute('PRAGMA journal_mode = WAL');
      return;
    } catch (error) {
      if (!(error instanceof DatabaseError && error.code === 'SQLITE_BUSY') || Date.now() >= deadline) throw error;
      await Bun.sleep(5 + Math.random() * 20);
    }
  }
}

/** A libSQL server. The client itself has no deadline at all, neither over http nor over ws. */
function openRemoteClient({ url, authToken, timeoutMs }: DatabaseSettings): Client {
  const client = createClient({
    url,
    ...(authToken === undefined ? {} : { authToken }),
    fetch: (input: Request, init?: RequestInit) => fetch(input, { ...init, signal: AbortSignal.timeout(timeoutMs) }),
  });
  const beforeDeadline = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    let timer: Timer | undefined;
    const deadline = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new DatabaseError('DEADLINE_EXCEEDED', true)), timeoutMs);
    });
    try {
      return await Promise.race([work(), deadline]);
    } catch (error) {
      throw toDatabaseError(error);
    } finally {
      clearTimeout(timer);
    }
  };
  return guardClient(client, beforeDeadline);
}

type Guard = <Result>(work: () => Promise<Result>) => Promise<Result>;

function guardClient(client: Client, guard: Guard): Client {
  return {
    execute: (statement: InStatement, args?: Parameters<Client['execute']>[1]) =>
      guard(() => (typeof statement === 'string' ? client.execute(statement, args) : client.execute(statement))),
    batch: (statements, mode) => guard(() => client.batch(statements, mode)),
    migrate: (statements) => guard(() => client.migrate(statements)),
    executeMultiple: (sql) => guard(() => client.executeMultiple(sql)),
    transaction: () => Promise.reject(new Error('Interactive transactions block every other caller; use writeBatch')),
    sync: () => guard(() => client.sync()),
    reconnect: () => client.reconnect(),
    close: () => client.close(),
    get closed() {
      return client.closed;
    },
    get protocol() {
      return client.protocol;
    },
  };
}

/**
 * Runs the statements in one write transaction, all or nothing, and gives each one's rows as the driver returns
 * them. Drizzle's own `batch` opens a DEFERRED transaction, which fails under concurrent writers.
 */
export async function writeBatch(
  db: Database,
  statements: readonly { toSQL(): { sql: string; params: unknown[] } }[],
): Promise<Record<string, unknown>[][]> {
  const results = await db.$client.batch(
    statements.map((statement) => {
      const { sql, params } = statement.toSQL();
      return { sql, args: params.map(toBoundValue) };
    }),
    'write',
  );
  return results.map((result) => result.rows.map((row) => ({ ...row })));
}

function toBoundValue(value: unknown): InValue {
  switch (typeof value) {
    case 'string':
    case 'number':
    case 'bigint':
    case 'boolean':
      return value;
    default:
      if (value === null || value instanceof Uint8Array) return value;
      throw new TypeError('Only text, numbers, booleans, bytes and null can be bound');
  }
}
