import { LibsqlError } from '@libsql/client/sqlite3';
import Connection from 'libsql';
import { causeChain } from '../errors';
import { withTimeout } from '../shared/async';

/** Codes after which a retry may succeed: locks, I/O errors, an unreachable or overloaded server. */
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
 * Any failure of the database. Its message contains no SQL and no bound values, unlike the messages of Drizzle and of the
 * driver, which are in its `cause`.
 */
export class DatabaseError extends Error {
  override readonly name = 'DatabaseError';
  readonly code: string;
  /** A retry of the statement may succeed. */
  readonly isUnavailable: boolean;

  constructor(code: string, isUnavailable: boolean, cause?: unknown) {
    super(`The database failed with ${code}`, { cause });
    this.code = code;
    this.isUnavailable = isUnavailable;
  }
}

/** Finds the DatabaseError in the causes of `error`. */
export function findDatabaseError(error: unknown): DatabaseError | undefined {
  for (const cause of causeChain(error)) if (cause instanceof DatabaseError) return cause;
  return undefined;
}

/** Returns the driver's message. It may contain SQL: show it to operators only, never in a response or the log. */
export function reasonOf(error: unknown): string {
  const innermost = [...causeChain(error)].at(-1);
  return innermost?.message ?? 'an unknown reason';
}

/** Converts any error of the driver, of libSQL's client or of the network to a DatabaseError with a code. */
export function toDatabaseError(error: unknown): DatabaseError {
  if (error instanceof DatabaseError) return error;
  for (const cause of causeChain(error)) {
    if (isClientError(cause)) return new DatabaseError(`HTTP_${cause.status}`, false, error);
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

/** Classifies a failure for metrics and traces: a server may send any code. */
export function databaseOutcome(error: unknown): 'busy' | 'deadline' | 'overloaded' | 'unavailable' | 'error' {
  const failure = findDatabaseError(error);
  switch (failure?.code) {
    case 'SQLITE_BUSY':
    case 'SQLITE_LOCKED':
      return 'busy';
    case 'DEADLINE_EXCEEDED':
      return 'deadline';
    case 'QUEUE_FULL':
    case 'OVERLOADED':
      return 'overloaded';
    default:
      return failure?.isUnavailable === true ? 'unavailable' : 'error';
  }
}

/** Whether another connection held a lock: the statement had no effect and can be retried. */
export function isBusy(error: unknown): boolean {
  return toDatabaseError(error).code === 'SQLITE_BUSY';
}

/** A 4xx response: a retry gets the same. 408 and 429 are temporary. */
function isClientError(error: Error): error is Error & { status: number } {
  return (
    'status' in error &&
    typeof error.status === 'number' &&
    error.status >= 400 &&
    error.status < 500 &&
    error.status !== 408 &&
    error.status !== 429
  );
}

/** `fetch` reports an unreachable peer by a string `code` (ECONNREFUSED) and a timeout by the name TimeoutError. */
function networkCode(error: unknown): string | undefined {
  for (const cause of causeChain(error)) {
    if (cause.name === 'TimeoutError' || cause.name === 'AbortError') return 'DEADLINE_EXCEEDED';
    if ('code' in cause && typeof cause.code === 'string' && cause.code !== '') return cause.code;
  }
  return undefined;
}

/** The server rejects the token, or the token has no write permission. */
export type TokenFault = 'TOKEN_REFUSED' | 'TOKEN_READ_ONLY';

/** Rejects with DatabaseError `DEADLINE_EXCEEDED` after `timeoutMs`. Does not cancel `work`. */
export function beforeDeadline<Result>(work: Promise<Result>, timeoutMs: number): Promise<Result> {
  return withTimeout(work, timeoutMs, () => {
    throw new DatabaseError('DEADLINE_EXCEEDED', true);
  });
}

/** A transaction that failed after its begin and was rolled back. */
export class RolledBackError extends Error {
  override readonly name = 'RolledBackError';
  readonly failure: DatabaseError;

  constructor(failure: DatabaseError) {
    super('The transaction was rolled back', { cause: failure });
    this.failure = failure;
  }
}

/** Whether one batch may have caused the failure of the group, so that the others can be stored without it. */
export function isPossiblyOfOneBatch({ code, isUnavailable }: DatabaseError): boolean {
  return !isUnavailable || code === 'SQLITE_FULL';
}
