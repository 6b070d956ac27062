import type { InValue, ResultSet } from '@libsql/client';
import type { CallKind, DatabaseObserver } from '../telemetry/events';

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

/** Classifies a statement; `other` is neither a query nor a change of rows. */
export function kindOf(sql: string): CallKind {
  if (/^\s*select\b/i.test(sql)) return 'read';
  if (/^\s*with\b/i.test(sql)) return /\b(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'read';
  return /^\s*(?:insert|update|delete|replace)\b/i.test(sql) ? 'write' : 'other';
}

/** Runs one call of a client, and may delay, repeat, count or reject it. */
export type Interceptor = <Result>(kind: CallKind, call: () => Promise<Result>) => Promise<Result>;

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
