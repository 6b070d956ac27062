import { LibsqlError } from '@libsql/client/sqlite3';
import Connection from 'libsql';
import { causeChain } from '../errors';
import { withTimeout } from '../shared/async';

/** Codes after which the same statement may well succeed later: locks, I/O, a server that is away or overloaded. */
const unavailableCodes = new Set([
  'SQLITE_BUSY',
  'SQLITE_LOCKED',
  'SQLITE_IOERR',
  'SQLITE_FULL',
  'SQLITE_CANTOPEN',
  'SQLITE_READONLY',
  'SQLITE_CORRUPT',
  'SQLITE_NOTADB',
  'SQLITE_NOMEM',
  'SQLITE_PROTOCOL',
  'SQLITE_INTERRUPT',
  'CLIENT_CLOSED',
  'TRANSACTION_CLOSED',
  'TRANSACTION_TIMEOUT',
  'STREAM_CLOSED',
  'STREAM_EXPIRED',
  'SERVER_ERROR',
  'HRANA_WEBSOCKET_ERROR',
  'HRANA_CLOSED_ERROR',
  'DEADLINE_EXCEEDED',
]);

/**
 * Any failure of the database, made at the one place where the client is called. Its message holds neither SQL
 * nor bound values, unlike those of Drizzle and of the driver, which stay below it as `cause`.
 */
export class DatabaseError extends Error {
  override readonly name = 'DatabaseError';
  readonly code: string;
  /** The statement may succeed when it is sent again later. */
  readonly isUnavailable: boolean;

  constructor(code: string, isUnavailable: boolean, cause?: unknown) {
    super(`The database failed with ${code}`, { cause });
    this.code = code;
    this.isUnavailable = isUnavailable;
  }
}

/** The database error behind `error`, however deeply Drizzle has wrapped it. */
export function findDatabaseError(error: unknown): DatabaseError | undefined {
  for (const cause of causeChain(error)) if (cause instanceof DatabaseError) return cause;
  return undefined;
}

/** The driver's own words, for an operator who changes the schema. They may hold SQL, and never go to a caller or a log. */
export function reasonOf(error: unknown): string {
  const innermost = [...causeChain(error)].at(-1);
  return innermost?.message ?? 'an unknown reason';
}

/**
 * Gives whatever the client threw one shape. A LibsqlError tells its code; everything else that is not a
 * programming error (a bind of `undefined`, a number out of range) comes from the network.
 */
export function toDatabaseError(error: unknown): DatabaseError {
  if (error instanceof DatabaseError) return error;
  for (const cause of causeChain(error)) {
    if (isRefusal(cause)) return new DatabaseError(`HTTP_${cause.status}`, false, error);
  }
  for (const cause of causeChain(error)) {
    if (cause instanceof LibsqlError) return new DatabaseError(cause.code, unavailableCodes.has(cause.code), error);
  }
  for (const cause of causeChain(error)) {
    if (!(cause instanceof Connection.SqliteError)) continue;
    // The driver's codes are extended, such as SQLITE_BUSY_SNAPSHOT.
    const code = /^SQLITE_[A-Z]+/.exec(cause.code)?.[0] ?? cause.code;
    return new DatabaseError(code, unavailableCodes.has(code), error);
  }
  if (error instanceof RangeError) return new DatabaseError('VALUE_OUT_OF_RANGE', false, error);
  const code = networkCode(error);
  return code === undefined ? new DatabaseError('UNKNOWN', false, error) : new DatabaseError(code, true, error);
}

/** Whether another connection held a lock: nothing was done, and the same may be asked again. */
export function isBusy(error: unknown): boolean {
  return toDatabaseError(error).code === 'SQLITE_BUSY';
}

/** A server that answers 4xx refuses this client or this statement, and will again. */
function isRefusal(error: Error): error is Error & { status: number } {
  return (
    'status' in error &&
    typeof error.status === 'number' &&
    error.status >= 400 &&
    error.status < 500 &&
    error.status !== 408 &&
    error.status !== 429
  );
}

/** `fetch` reports a peer that is away by a string `code` (ECONNREFUSED) and a deadline by the name TimeoutError. */
function networkCode(error: unknown): string | undefined {
  for (const cause of causeChain(error)) {
    if (cause.name === 'TimeoutError' || cause.name === 'AbortError') return 'DEADLINE_EXCEEDED';
    if ('code' in cause && typeof cause.code === 'string' && cause.code !== '') return cause.code;
  }
  return undefined;
}

/** The server does not accept the token, or does not let it write. */
export type TokenFault = 'TOKEN_REFUSED' | 'TOKEN_READ_ONLY';

/** Rejects with DatabaseError `DEADLINE_EXCEEDED` after `timeoutMs`. Does not cancel `work`. */
export function beforeDeadline<Result>(work: Promise<Result>, timeoutMs: number): Promise<Result> {
  return withTimeout(work, timeoutMs, () => {
    throw new DatabaseError('DEADLINE_EXCEEDED', true);
  });
}

/**
 * Waits for the end of something, good or bad.
 *
 * @throws DatabaseError `DEADLINE_EXCEEDED` once it has taken too long
 */
export async function endOf(work: Promise<unknown>, timeoutMs: number): Promise<void> {
  await beforeDeadline(
    work.catch(() => undefined),
    timeoutMs,
  );
}
