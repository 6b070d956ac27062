import { closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { type Client, createClient, type InStatement, type InValue } from '@libsql/client';
import { drizzle, type LibSQLDatabase } from 'drizzle-orm/libsql';
import { DatabaseError, toDatabaseError } from './errors';
import { groupWrites } from './grouped-client';
import { openLocalClient, overwriteWhatIsDeleted } from './local-client';
import { kindOf } from './statement';

export type Database = LibSQLDatabase & { $client: Client };

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

/** Where the data is, for people: without the credentials that an address may carry. */
export function placeOf(url: string): string {
  const path = localPath(url);
  if (path !== undefined) return resolve(path);
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname === '/' ? '' : pathname}`;
}

/**
 * Opens the database behind any supported address (`file:`, `http(s):`, `ws(s):`, `libsql:`). Each failing
 * statement throws a DatabaseError; a remote that is away shows at the first statement, not here.
 */
export async function openDatabase(settings: DatabaseSettings): Promise<Database> {
  const path = localPath(settings.url);
  const client = path === undefined ? openRemoteClient(settings) : await openFileClient(path, settings);
  return drizzle({ client });
}

/**
 * Opens the database as the service uses it: many callers' writes go in one transaction, and a local file has a client
 * of our own, which does not migrate.
 *
 * @param onSyncFailure called when the disk of a local file has failed, and writes are refused from then on
 */
export function openServiceDatabase(
  settings: DatabaseSettings,
  onSyncFailure?: (failure: DatabaseError) => void,
): Database {
  const path = localPath(settings.url);
  const client =
    path === undefined
      ? groupWrites(openRemoteClient(settings), settings)
      : openLocalClient({ ...settings, path, ...(onSyncFailure === undefined ? {} : { onSyncFailure }) });
  return drizzle({ client });
}

/**
 * A local file in WAL mode; `synchronous` is FULL in this build of libSQL, so an answer that was acknowledged
 * survives a power cut. Statements run one after the other: the driver is synchronous, and after SQLITE_BUSY the
 * connection must be opened anew before any other statement runs on it, or that statement is acknowledged and
 * then rolled back (libsql-client-ts#352).
 *
 * While another process holds the lock, writes wait in their order on a timer, so that reads go on.
 */
async function openFileClient(path: string, { url, timeoutMs }: DatabaseSettings): Promise<Client> {
  let client: Client;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // The log files beside it take their mode from it.
    closeSync(openSync(path, 'a', 0o600));
    client = createClient({ url, timeout: driverWaitMs, concurrency: 1 });
  } catch (error) {
    throw new DatabaseError('SQLITE_CANTOPEN', true, error);
  }

  const reopen = async () => {
    await client.reconnect();
    await client.execute(overwriteWhatIsDeleted);
  };

  let lastStatement: Promise<unknown> = Promise.resolve();
  const inTurn = <Result>(work: () => Promise<Result>, isProbe = false): Promise<Result> => {
    const result = lastStatement.then(work).catch(async (error: unknown) => {
      if (isBusy(error) && !isProbe) await reopen();
      throw toDatabaseError(error);
    });
    lastStatement = result.catch(() => undefined);
    return result;
  };

  /** A BUSY of `exec` leaves no statement behind, so it may be asked again and again on one connection. */
  const untilUnlocked = async (deadlineMs: number): Promise<void> => {
    while (performance.now() < deadlineMs) {
      await Bun.sleep(5 + Math.random() * 15);
      try {
        return await inTurn(() => client.executeMultiple('BEGIN IMMEDIATE; COMMIT'), true);
      } catch (error) {
        if (!isBusy(error)) throw error;
      }
    }
  };

  let lastWrite: Promise<unknown> = Promise.resolve();
  const write: Guard = (work) => {
    const deadlineMs = performance.now() + timeoutMs;
    const attempt = async () => {
      while (performance.now() < deadlineMs) {
        try {
          return await inTurn(work);
        } catch (error) {
          if (!isBusy(error)) throw error;
          await untilUnlocked(deadlineMs);
        }
      }
      throw new DatabaseError('SQLITE_BUSY', true);
    };
    const result = lastWrite.then(attempt);
    lastWrite = result.catch(() => undefined);
    return result;
  };

  const guarded = guardClient(client, inTurn, write, reopen);
  await guarded.execute('PRAGMA journal_mode = WAL');
  await guarded.execute(overwriteWhatIsDeleted);
  return guarded;
}

/** How long the driver itself waits for a lock, with the whole process standing still: as long as a commit takes. */
const driverWaitMs = 5;

function isBusy(error: unknown): boolean {
  return toDatabaseError(error).code === 'SQLITE_BUSY';
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
  /** The server says BUSY of what it has not done, when another transaction came first: the same is asked again. */
  const write: Guard = (work) => {
    const giveUpAtMs = performance.now() + timeoutMs;
    return beforeDeadline(async () => {
      for (;;) {
        try {
          return await work();
        } catch (error) {
          if (!isBusy(error) || performance.now() >= giveUpAtMs) throw error;
          await Bun.sleep(5 + Math.random() * 15);
        }
      }
    });
  };
  return guardClient(client, beforeDeadline, write, () => client.reconnect());
}

/**
 * Empties the log of a local file, which otherwise holds what was deleted until it is written over; waits for readers.
 *
 * @returns false when somebody was still reading after `timeoutMs`
 */
export async function truncateLog(db: Database, { url, timeoutMs }: DatabaseSettings): Promise<boolean> {
  if (localPath(url) === undefined) return true;
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const { rows } = await db.$client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
    if (rows[0]?.busy === 0) return true;
    if (performance.now() >= deadlineMs) return false;
    await Bun.sleep(20);
  }
}

type Guard = <Result>(work: () => Promise<Result>) => Promise<Result>;

function guardClient(client: Client, read: Guard, write: Guard, reconnect: Client['reconnect']): Client {
  return {
    execute: (statement: InStatement, args?: Parameters<Client['execute']>[1]) => {
      const kind = kindOf(statement);
      return (kind === 'read' ? read : write)(() =>
        typeof statement === 'string' ? client.execute(statement, args) : client.execute(statement),
      );
    },
    batch: (statements, mode) => (mode === 'read' ? read : write)(() => client.batch(statements, mode)),
    migrate: (statements) => write(() => client.migrate(statements)),
    executeMultiple: (sql) => write(() => client.executeMultiple(sql)),
    transaction: () => Promise.reject(new Error('Interactive transactions block every other caller; use writeBatch')),
    sync: () => write(() => client.sync()),
    reconnect,
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
