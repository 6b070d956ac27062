import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Client, InArgs, InStatement, InValue } from '@libsql/client';
import type { LibSQLDatabase } from 'drizzle-orm/libsql';
import { drizzle } from 'drizzle-orm/libsql/sqlite3';
import type { SecretSource } from '../config/secrets';
import type { DatabaseObserver } from '../telemetry/events';
import { createIfMissing, rejectOrphanedWal, removeEmpty } from './database-file';
import { type TokenFault, toDatabaseError } from './errors';
import { openFileClient } from './file-client';
import type { OnLoss } from './file-watch';
import type { RemoteSettings } from './remote-client';
import { requireCompatibleSchema } from './schema-check';
import { kindOf, observeCalls, reportWriteFaults, type SqlClient, type SqlStatement } from './sql-client';

export type Database = LibSQLDatabase & { $client: SqlClient & Client };

export interface DatabaseSettings {
  readonly url: string;
  readonly authToken?: SecretSource;
  /** Encrypts the database file, or the embedded replica of a libSQL server. */
  readonly encryptionKey?: string | undefined;
  /** Rejects a file of another program without changing it. */
  readonly isOwn?: boolean;
  /** The longest time for a statement, waits for locks included. */
  readonly timeoutMs: number;
}

/** Each `onChange` is called with a code when the state becomes bad, and without one when it is good again. */
export interface DatabaseWatch {
  /** Called once when the database file or its disk is lost; from then on writes are rejected. */
  readonly onLoss?: OnLoss;
  readonly onCheckpointChange?: (code?: string) => void;
  /** `objects` are those that are missing or changed. */
  readonly onSchemaChange?: (code?: string, objects?: string[]) => void;
  readonly onWritesChange?: (code?: string) => void;
  readonly onTokenChange?: (fault?: TokenFault) => void;
  readonly observers?: readonly DatabaseObserver[];
}

/** Returns the path of a `file:` URL, or undefined for a remote database. */
export function localPath(url: string): string | undefined {
  return url.startsWith('file:') ? url.slice('file:'.length) : undefined;
}

/** Returns the absolute path or the URL without credentials, for messages. */
export function placeOf(url: string): string {
  const path = localPath(url);
  if (path !== undefined) return resolve(path);
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname === '/' ? '' : pathname}`;
}

/**
 * Returns a sentence if the file of a `file:` URL is missing or empty, else undefined.
 *
 * @throws DatabaseFileError `WAL_ORPHANED` if a missing or empty file has a WAL
 */
export function absenceOf(url: string): string | undefined {
  const path = localPath(url);
  if (path === undefined) return undefined;
  rejectOrphanedWal(path);
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) return `There is no database at ${placeOf(url)}.`;
    return found.isFile() && found.size === 0 ? `The database file ${placeOf(url)} is empty (0 bytes).` : undefined;
  } catch {
    // The open reports the reason.
    return undefined;
  }
}

/** Gives Drizzle the interface of a libSQL client, and passes each statement to the method of its kind. */
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
 * Opens a database by its URL (`file:`, `http(s):`, `ws(s):` or `libsql:`). Creates a missing file. An unreachable server
 * fails at the first statement, not here.
 */
export async function openDatabase(settings: DatabaseSettings): Promise<Database> {
  const path = localPath(settings.url);
  if (path === undefined) return toDatabase(await loadRemoteClient(settings));
  const isNew = createIfMissing(path);
  try {
    return toDatabase(await openFileClient({ ...settings, path }));
  } catch (error) {
    if (isNew) removeEmpty(path);
    throw error;
  }
}

/** Opens the database for the service: with group commit, schema compatibility checks and the callbacks of `watch`. */
export async function openServiceDatabase(settings: DatabaseSettings, watch: DatabaseWatch = {}): Promise<Database> {
  const { onLoss, onCheckpointChange, onSchemaChange, onTokenChange, onWritesChange, observers = [] } = watch;
  const path = localPath(settings.url);
  const client =
    path === undefined
      ? await loadGroupingClient({ ...settings, ...(onTokenChange && { onTokenChange }) }, observers)
      : await openFileClient({ ...settings, path, observers, onLoss, onCheckpointChange });
  const checked = requireCompatibleSchema(onWritesChange ? reportWriteFaults(client, onWritesChange) : client, {
    timeoutMs: settings.timeoutMs,
    ...(onSchemaChange && { onChange: onSchemaChange }),
  });
  return toDatabase(observeCalls(checked, observers));
}

/** Imports the large remote driver only if it is needed. */
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
 * Checkpoints a database file and truncates the WAL, which otherwise contains deleted rows until it is overwritten. Waits
 * for readers of other processes.
 *
 * @returns false if another process is still reading after two seconds
 */
export async function truncateWal({ $client }: Database): Promise<boolean> {
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
 * Checkpoints and closes the database. Removes the WAL if no other process has the file open.
 *
 * @returns undefined if the file has all rows, else the code of the failed checkpoint: `SQLITE_BUSY` if another process was
 * still reading after two seconds
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

/** Returns the warning for a code of `closeDatabase`. */
export function remainingWalWarning(code: string) {
  return code === 'SQLITE_BUSY'
    ? 'the WAL could not be emptied because another process reads: keep the -wal file with the database file'
    : 'the WAL could not be written to the database file: keep the -wal file with the database file';
}

/** A statement built with Drizzle. */
export interface Statement {
  toSQL(): { sql: string; params: unknown[] };
}

/** Runs statements in one write transaction, all or none, and returns the rows of each with the column names of SQL. */
export async function writeBatch(db: Database, statements: readonly Statement[]): Promise<Record<string, unknown>[][]> {
  const results = await db.$client.write(
    statements.map((statement) => {
      const { sql, params } = statement.toSQL();
      return { sql, args: params.map(toBoundValue) };
    }),
  );
  return results.map((result) => result.rows.map((row) => ({ ...row })));
}

export function toBoundValue(value: unknown): InValue {
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
