import type { Client, InArgs, InStatement } from '@libsql/client';
import type { CallKind, DatabaseObserver } from '../telemetry/events';
import { findDatabaseError } from './errors';

/** Whether a statement reads, writes, or is neither, such as a PRAGMA, and stands alone. */
export function kindOf(statement: InStatement): 'read' | 'write' | 'other' {
  const sql = typeof statement === 'string' ? statement : statement.sql;
  if (/^\s*select\b/i.test(sql)) return 'read';
  if (/^\s*with\b/i.test(sql)) return /\b(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'read';
  return /^\s*(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'other';
}

/** One statement of any of the forms that a client of libSQL takes. */
export function toStatement(statement: InStatement | readonly [string, InArgs?], args?: InArgs): InStatement {
  if (isPair(statement)) return toStatement(...statement);
  return typeof statement === 'string' && args !== undefined ? { sql: statement, args } : statement;
}

function isPair(statement: InStatement | readonly [string, InArgs?]): statement is readonly [string, InArgs?] {
  return Array.isArray(statement);
}

type Replaced = {
  readonly execute: (statement: InStatement, args?: InArgs) => ReturnType<Client['execute']>;
} & Partial<Pick<Client, 'batch' | 'executeMultiple' | 'migrate' | 'sync' | 'transaction' | 'reconnect' | 'close'>>;

/** The client with some of its methods replaced; the others are its own. */
export function wrapClient(client: Client, replaced: Replaced): Client {
  return {
    batch: (statements, mode) => client.batch(statements, mode),
    executeMultiple: (sql) => client.executeMultiple(sql),
    migrate: (statements) => client.migrate(statements),
    sync: () => client.sync(),
    transaction: () => client.transaction('write'),
    reconnect: () => client.reconnect(),
    close: () => client.close(),
    get closed() {
      return client.closed;
    },
    get protocol() {
      return client.protocol;
    },
    ...replaced,
  };
}

/** What a statement, or several together, are run inside of. */
export type Guard = <Result>(work: () => Promise<Result>) => Promise<Result>;

/** The client with its reads and its writes run inside of guards; it has no interactive transactions. */
export function guardClient(client: Client, read: Guard, write: Guard, reconnect: Client['reconnect']): Client {
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      return (kindOf(whole) === 'read' ? read : write)(() => client.execute(whole));
    },
    batch: (statements, mode) => (mode === 'read' ? read : write)(() => client.batch(statements, mode)),
    migrate: (statements) => write(() => client.migrate(statements)),
    executeMultiple: (sql) => write(() => client.executeMultiple(sql)),
    transaction: () => Promise.reject(new Error('Interactive transactions block every other caller; use writeBatch')),
    sync: () => write(() => client.sync()),
    reconnect,
  });
}

/** The client with its calls run by observers, the first of them outermost; the client itself where nobody observes. */
export function observeClient(client: Client, observers: readonly DatabaseObserver[]): Client {
  if (observers.length === 0) return client;
  const observe = <Result>(kind: CallKind, work: () => Promise<Result>): Promise<Result> =>
    observers.reduceRight<() => Promise<Result>>((inner, observer) => () => observer.observe(kind, inner), work)();
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      return observe(kindOf(whole), () => client.execute(whole));
    },
    batch: (statements, mode) => observe(mode === 'read' ? 'read' : 'write', () => client.batch(statements, mode)),
    executeMultiple: (sql) => observe('other', () => client.executeMultiple(sql)),
  });
}

const describe = <Reason extends string, Remedy extends string>(reason: Reason, remedy: Remedy) => ({
  reason,
  remedy,
  line: `the database takes no writes: ${reason}. ${remedy}` as const,
});
const serverIsAway = describe('its server cannot be reached', 'Start the server, or check the network.');

const writeFaults = {
  SQLITE_FULL: describe('its disk is full', 'Free space on the disk.'),
  SQLITE_BUSY: describe('another process holds the write lock', 'Wait for that process, or stop it.'),
  SQLITE_READONLY: describe('its file or its disk is read-only', 'Make both writable.'),
  SQLITE_CANTOPEN: describe('its file or its log cannot be opened', 'Check their owner and mode.'),
  SQLITE_IOERR: describe('its disk fails to read or write', 'Check the disk.'),
  DEADLINE_EXCEEDED: describe('no row could be written within DATABASE_TIMEOUT_MS', 'Check its load and its disk.'),
  ECONNREFUSED: serverIsAway,
  ECONNRESET: serverIsAway,
  ENOTFOUND: serverIsAway,
  ConnectionRefused: serverIsAway,
  ConnectionClosed: serverIsAway,
  FailedToOpenSocket: serverIsAway,
  HRANA_WEBSOCKET_ERROR: describe(
    'its server closes the connection',
    'Check the server, and that DATABASE_AUTH_TOKEN may write.',
  ),
} as const;

/** Why no row can be written, what an operator can do, and the line that the log has for it. */
export function describeWriteFault(code: string) {
  return isWriteFault(code) ? writeFaults[code] : undefined;
}

function isWriteFault(code: string): code is keyof typeof writeFaults {
  return Object.hasOwn(writeFaults, code);
}

/** A database that writes again counts as available once no write has failed for this time. */
const recoveredAfterMs = 1_000;

/**
 * Returns the client and reports when its writes begin to fail, with the code, and when they work again.
 *
 * A write that is refused for itself does not count, nor does one beyond what the database can take.
 */
export function watchWrites(client: Client, onChange: (code?: string) => void): Client {
  let isFailing = false;
  let failedAtMs = 0;
  const watch = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      const result = await work();
      if (isFailing && performance.now() - failedAtMs > recoveredAfterMs) {
        isFailing = false;
        onChange();
      }
      return result;
    } catch (error) {
      const code = findDatabaseError(error)?.code;
      if (code === undefined || describeWriteFault(code) === undefined) throw error;
      failedAtMs = performance.now();
      if (!isFailing) onChange(code);
      isFailing = true;
      throw error;
    }
  };
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      const run = () => client.execute(whole);
      return kindOf(whole) === 'write' ? watch(run) : run();
    },
    batch: (statements, mode) => {
      const run = () => client.batch(statements, mode);
      return mode === 'read' ? run() : watch(run);
    },
  });
}
