import type { InValue, ResultSet } from '@libsql/client';
import type { CallKind, DatabaseObserver } from '../telemetry/events';
import { findDatabaseError } from './errors';

export interface SqlStatement {
  readonly sql: string;
  readonly args?: readonly InValue[] | undefined;
}

/** The interface that every layer between Drizzle and a driver implements and wraps. All failures are DatabaseErrors. */
export interface SqlClient {
  /** Runs a query. */
  read(sql: string, args?: readonly InValue[]): Promise<ResultSet>;
  /** Runs statements in one write transaction, all or none. */
  write(statements: readonly SqlStatement[]): Promise<ResultSet[]>;
  /** Runs a statement that is neither a query nor a change of rows, such as DDL or a PRAGMA. */
  exec(sql: string, args?: readonly InValue[]): Promise<ResultSet>;
  /** Runs statements in one write transaction, without foreign-key checks. */
  migrate(statements: readonly SqlStatement[]): Promise<ResultSet[]>;
  /** Writes the whole WAL to the database file, so that `close` can remove it. Only a file has a checkpoint. */
  checkpoint?(): Promise<void>;
  close(): void;
}

/** Quotes the name of a table or a column. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Classifies a statement; `other` is neither a query nor a change of rows. */
export function kindOf(sql: string): CallKind {
  if (/^\s*select\b/i.test(sql)) return 'read';
  if (/^\s*with\b/i.test(sql)) return /\b(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'read';
  return /^\s*(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'other';
}

/** Runs one call of a client, and may delay, repeat, count or reject it. */
type Interceptor = <Result>(kind: CallKind, call: () => Promise<Result>) => Promise<Result>;

/** Returns a client whose calls run inside the interceptor. */
export function intercept(client: SqlClient, interceptor: Interceptor): SqlClient {
  return {
    ...client,
    read: (sql, args) => interceptor('read', () => client.read(sql, args)),
    write: (statements) => interceptor('write', () => client.write(statements)),
    exec: (sql, args) => interceptor('other', () => client.exec(sql, args)),
    migrate: (statements) => interceptor('other', () => client.migrate(statements)),
  };
}

/** Returns a client whose calls run inside the observers, the first of them outermost. */
export function observeCalls(client: SqlClient, observers: readonly DatabaseObserver[]): SqlClient {
  return observers.reduceRight<SqlClient>(
    (inner, observer) => intercept(inner, (kind, call) => observer.observe(kind, call)),
    client,
  );
}

const describe = <Reason extends string, Remedy extends string>(reason: Reason, remedy: Remedy) => ({
  reason,
  remedy,
  line: `the database takes no writes: ${reason}. ${remedy}` as const,
});
const serverUnreachable = describe('its server cannot be reached', 'Start the server, or check the network.');

const writeFaults = {
  SQLITE_FULL: describe('its disk is full', 'Free space on the disk.'),
  SQLITE_BUSY: describe('another process holds the write lock', 'Wait for that process, or stop it.'),
  SQLITE_READONLY: describe('its file or its disk is read-only', 'Make both writable.'),
  SQLITE_CANTOPEN: describe('its file or its WAL cannot be opened', 'Check their owner and mode.'),
  SQLITE_IOERR: describe('its disk fails to read or write', 'Check the disk.'),
  DEADLINE_EXCEEDED: describe('no row could be written within DATABASE_TIMEOUT_MS', 'Check its load and its disk.'),
  ECONNREFUSED: serverUnreachable,
  ECONNRESET: serverUnreachable,
  ENOTFOUND: serverUnreachable,
  ConnectionRefused: serverUnreachable,
  ConnectionClosed: serverUnreachable,
  FailedToOpenSocket: serverUnreachable,
  HRANA_WEBSOCKET_ERROR: describe(
    'its server closes the connection',
    'Check the server, and that DATABASE_AUTH_TOKEN may write.',
  ),
} as const;

/** Describes why writes fail: the reason, the remedy, and the log line. */
export function describeWriteFault(code: string) {
  return isWriteFault(code) ? writeFaults[code] : undefined;
}

function isWriteFault(code: string): code is keyof typeof writeFaults {
  return Object.hasOwn(writeFaults, code);
}

/** Writes count as working again after this time without a failure. */
const recoveryMs = 1_000;

/**
 * Returns a client that reports when writes begin to fail, with the code, and when they succeed again. A failure of one
 * statement, such as a constraint, and a full queue do not count.
 */
export function reportWriteFaults(client: SqlClient, onChange: (code?: string) => void): SqlClient {
  let isFailing = false;
  let failedAtMs = 0;
  return intercept(client, async (kind, call) => {
    if (kind !== 'write') return call();
    try {
      const result = await call();
      if (isFailing && performance.now() - failedAtMs > recoveryMs) {
        isFailing = false;
        onChange();
      }
      return result;
    } catch (error) {
      const code = findDatabaseError(error)?.code;
      if (code === undefined || !isWriteFault(code)) throw error;
      failedAtMs = performance.now();
      if (!isFailing) onChange(code);
      isFailing = true;
      throw error;
    }
  });
}

const probeIntervalMs = 2_000;
/** How long a caller waits for a running probe before it gets the result of the previous one. */
const patienceMs = 250;
const probeStatement = `INSERT INTO leases (name, holder, expires_at) VALUES ('write-probe', '', unixepoch())
  ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at`;

/**
 * Returns a function that resolves with the code of the failure if rows cannot be written, else with undefined. It
 * writes one row at most every two seconds, because only a write reveals a full or read-only disk.
 *
 * A probe has the time limit of the database. Callers wait for the end of the first probe only.
 */
export function createWriteProbe(client: Pick<SqlClient, 'write'>): () => Promise<string | undefined> {
  let probing: Promise<string | undefined> | undefined;
  let startedAtMs = Number.NEGATIVE_INFINITY;
  let last: { readonly code: string | undefined } | undefined;

  const probe = async () => {
    const code = await client.write([{ sql: probeStatement }]).then(
      () => undefined,
      (error: unknown) => findDatabaseError(error)?.code ?? 'UNKNOWN',
    );
    last = { code };
    probing = undefined;
    return code;
  };
  return async () => {
    const nowMs = performance.now();
    if (probing === undefined && nowMs - startedAtMs >= probeIntervalMs) {
      startedAtMs = nowMs;
      probing = probe();
    }
    if (probing === undefined) return last?.code;
    if (last === undefined) return probing;
    return Promise.race([probing, Bun.sleep(patienceMs).then(() => last?.code)]);
  };
}
