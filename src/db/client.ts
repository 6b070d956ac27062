import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Client, InArgs, InStatement, InValue } from '@libsql/client';
import type { LibSQLDatabase } from 'drizzle-orm/libsql';
import { drizzle } from 'drizzle-orm/libsql/sqlite3';
import type { SecretSource } from '../config/secrets';
import type { DatabaseObserver } from '../telemetry/events';
import { createIfMissing, removeEmpty, requireOwnLog } from './database-file';
import type { TokenFault } from './errors';
import { toDatabaseError } from './errors';
import { openFileClient } from './file-client';
import type { OnLoss } from './file-watch';
import type { RemoteSettings } from './remote-client';
import { gateBySchema } from './schema-gate';
import { kindOf, observeCalls, type SqlClient, type SqlStatement } from './sql-client';
import { reportWriteFaults } from './write-health';

export type Database = LibSQLDatabase & { $client: SqlClient & Client };

export interface DatabaseSettings {
  readonly url: string;
  readonly authToken?: SecretSource;
  /** With which a local file is encrypted; of a libSQL server, what is kept of it beside this process. */
  readonly encryptionKey?: string | undefined;
  /** Refuses a file of another program, and does not change it. */
  readonly isOwn?: boolean;
  /** The longest that any statement may take, waiting for a lock included. */
  readonly timeoutMs: number;
}

export interface DatabaseWatch {
  readonly onLoss?: OnLoss;
  readonly onCheckpointChange?: (code?: string) => void;
  readonly onSchemaChange?: (code?: string, objects?: string[]) => void;
  /** Called with a code when writes begin to fail, and without one when they work again. */
  readonly onWritesChange?: (code?: string) => void;
  readonly onTokenChange?: (fault?: TokenFault) => void;
  readonly observers?: readonly DatabaseObserver[];
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
 * Says that a `file:` address leads to no file or to one of 0 bytes; undefined for any other database.
 *
 * @throws DatabaseFileError `WAL_ORPHANED` when a log lies beside a file that is missing or empty
 */
export function absenceOf(url: string): string | undefined {
  const path = localPath(url);
  if (path === undefined) return undefined;
  requireOwnLog(path);
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) return `There is no database at ${placeOf(url)}.`;
    return found.isFile() && found.size === 0 ? `The database file ${placeOf(url)} is empty (0 bytes).` : undefined;
  } catch {
    // Opening it tells the reason.
    return undefined;
  }
}

/** Gives Drizzle the interface of a libSQL client. This is the only place that classifies statements. */
export function toDatabase(client: SqlClient): Database {
  const refuse = () => Promise.reject(new TypeError('Not supported: use writeBatch for a transaction'));
  const $client: Database['$client'] = {
    ...client,
    async execute(statement: InStatement, args?: InArgs) {
      const { sql, args: values } = toStatement(statement, args);
      const kind = kindOf(sql);
      if (kind === 'read') return client.read(sql, values);
      if (kind === 'other') return client.exec(sql, values);
      const [result] = await client.write([{ sql, args: values }]);
      if (result === undefined) throw new TypeError('A statement has no result');
      return result;
    },
    batch: (statements) => client.write(statements.map((statement) => toStatement(statement))),
    migrate: (statements: readonly (InStatement | SqlStatement)[]) =>
      client.migrate(statements.map((statement) => toStatement(statement))),
    transaction: refuse,
    executeMultiple: refuse,
    sync: refuse,
    reconnect: () => undefined,
    closed: false,
    protocol: client.checkpoint === undefined ? 'http' : 'file',
  };
  return Object.assign(drizzle({ client: $client }), { $client });
}

function toStatement(statement: InStatement | SqlStatement | readonly [string, InArgs?], args?: InArgs): SqlStatement {
  if (typeof statement === 'string') return { sql: statement, args: toList(args) };
  return 'sql' in statement
    ? { sql: statement.sql, args: toList(statement.args) }
    : { sql: statement[0], args: toList(statement[1]) };
}

function toList(args: InArgs | readonly InValue[] | undefined): readonly InValue[] | undefined {
  if (args !== undefined && !Array.isArray(args)) throw new TypeError('Arguments must be a list');
  return args;
}

/**
 * Opens the database behind any supported address (`file:`, `http(s):`, `ws(s):`, `libsql:`), and makes a file that is
 * missing. Each failed statement throws a DatabaseError; a server that is away shows at the first statement.
 */
export async function openDatabase(settings: DatabaseSettings): Promise<Database> {
  const path = localPath(settings.url);
  if (path === undefined) return toDatabase(await loadRemoteClient(settings));
  const isMade = createIfMissing(path);
  try {
    return toDatabase(await openFileClient({ ...settings, path }));
  } catch (error) {
    if (isMade) removeEmpty(path);
    throw error;
  }
}

/**
 * Opens the database as the service uses it: the writes of many callers share one transaction, and nothing is sent
 * while the schema does not fit this build.
 *
 * @param watch.onLoss called when a local file or its disk is lost, and writes are refused from then on
 * @param watch.onCheckpointChange called when checkpoints of a local file start to fail (with a code), and when one
 * succeeds again
 * @param watch.onTokenChange called when a server starts to refuse the token (with a code), and when it accepts it again
 * @param watch.onSchemaChange called when the schema does not fit any more (with a code), and when it does again
 */
export async function openServiceDatabase(settings: DatabaseSettings, watch: DatabaseWatch = {}): Promise<Database> {
  const { onLoss, onCheckpointChange, onSchemaChange, onTokenChange, onWritesChange, observers = [] } = watch;
  const path = localPath(settings.url);
  const client =
    path === undefined
      ? await loadGroupingClient({ ...settings, ...(onTokenChange && { onTokenChange }) }, observers)
      : await openFileClient({ ...settings, path, observers, onLoss, onCheckpointChange });
  const gated = gateBySchema(onWritesChange ? reportWriteFaults(client, onWritesChange) : client, {
    timeoutMs: settings.timeoutMs,
    ...(onSchemaChange && { onChange: onSchemaChange }),
  });
  return toDatabase(observeCalls(gated, observers));
}

/** What speaks to a server is large, and a start on a file needs none of it. */
async function loadRemoteClient(settings: RemoteSettings): Promise<SqlClient> {
  const { openRemoteClient } = await import('./remote-client');
  return openRemoteClient(settings);
}

async function loadGroupingClient(
  settings: RemoteSettings,
  observers: readonly DatabaseObserver[],
): Promise<SqlClient> {
  const { groupWrites } = await import('./remote-client');
  return groupWrites(await loadRemoteClient(settings), { ...settings, observers });
}

/**
 * Brings all of a local file's log into the file and cuts the log, which otherwise holds deleted rows until it is
 * overwritten. Waits for readers of other processes.
 *
 * @returns false when another process was still reading after two seconds
 */
export async function truncateLog({ $client }: Database): Promise<boolean> {
  try {
    await $client.checkpoint?.();
    return true;
  } catch (error) {
    const { code } = toDatabaseError(error);
    if (code !== 'SQLITE_BUSY' && code !== 'LOG_IN_USE') throw error;
    return false;
  }
}

/**
 * Closes the database. The log of a local file is checkpointed, and removed where no other process has the file open.
 *
 * @returns why rows may be in the log alone, as a code: `SQLITE_BUSY` where another process was still reading after two
 * seconds; undefined where the file holds all rows
 */
export async function closeDatabase({ $client }: Database): Promise<string | undefined> {
  try {
    await $client.checkpoint?.();
    return undefined;
  } catch (error) {
    const { code } = toDatabaseError(error);
    return code === 'LOG_IN_USE' ? undefined : code;
  } finally {
    $client.close();
  }
}

/** What to do after `closeDatabase` has returned a code. */
export function keptLogWarning(code: string) {
  return code === 'SQLITE_BUSY'
    ? 'the log could not be emptied because another process reads: keep the -wal file with the database file'
    : 'the log could not be written to the database file: keep the -wal file with the database file';
}

/** What Drizzle has put together. */
export interface Statement {
  toSQL(): { sql: string; params: unknown[] };
}

/**
 * Runs the statements in one write transaction, all or nothing, and gives each one's rows as the driver returns
 * them. Drizzle's own `batch` opens a DEFERRED transaction, which fails under concurrent writers.
 */
export async function writeBatch(db: Database, statements: readonly Statement[]): Promise<Record<string, unknown>[][]> {
  const results = await db.$client.write(
    statements.map((statement) => {
      const { sql, params } = statement.toSQL();
      return { sql, args: params.map(toBoundValue) };
    }),
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
