import { type Client, createClient, LibsqlBatchError, type ResultSet } from '@libsql/client';
import { BulkheadRejectedError, bulkhead } from 'cockatiel';
import { currentSecret, type SecretSource } from '../config/secrets';
import { causeChain } from '../errors';
import { jitteredPause } from '../shared/async';
import type { DatabaseObserver } from '../telemetry/events';
import { beforeDeadline, DatabaseError, isBusy, type TokenFault, toDatabaseError } from './errors';
import { intercept, type SqlClient, type SqlStatement } from './sql-client';
import { createWriteQueue, type WriteBatch } from './write-queue';

/** Reads, and as many writes, so that a write need not wait for many reads. */
const maxInFlight = 20;
/** A call behind more than this many others would miss its deadline. */
const maxWaiting = 2_000;

export interface RemoteSettings {
  readonly url: string;
  readonly authToken?: SecretSource;
  /** The longest time for a call, its wait in the bulkhead included. */
  readonly timeoutMs: number;
  /** Called with a code when the server starts to refuse the token, and without one when it accepts it again. */
  readonly onTokenChange?: (fault?: TokenFault) => void;
}

/**
 * Connects to a libSQL server, with a deadline for each call: the driver has none.
 *
 * A read is sent again once if its connection breaks, as a pooled one does when the server restarts. A write is not,
 * because its outcome is unknown. A write that the server rejects with SQLITE_BUSY has no effect and is sent again.
 */
export function openRemoteClient(settings: RemoteSettings): SqlClient {
  const { timeoutMs, onTokenChange } = settings;
  let tokenFault: TokenFault | undefined;
  const setTokenFault = (fault?: TokenFault) => {
    if (fault === tokenFault) return;
    tokenFault = fault;
    onTokenChange?.(fault);
  };
  const bulkheads = { read: bulkhead(maxInFlight, maxWaiting), write: bulkhead(maxInFlight, maxWaiting) };
  return intercept(fromDriver(currentClient(settings)), async (callKind, call) => {
    const kind = callKind === 'read' ? 'read' : 'write';
    const deadlineMs = performance.now() + timeoutMs;
    const isLate = () => performance.now() >= deadlineMs;
    const run = async () => {
      // The caller has its error already.
      if (isLate()) throw new DatabaseError('DEADLINE_EXCEEDED', true);
      return kind === 'read' ? repeatIfBroken(call) : repeatWhileBusy(call, isLate);
    };
    try {
      const result = await beforeDeadline(bulkheads[kind].execute(run), timeoutMs);
      // A token without write permission can still read.
      if (kind === 'write' || tokenFault === 'TOKEN_REFUSED') setTokenFault();
      return result;
    } catch (error) {
      if (error instanceof BulkheadRejectedError) throw new DatabaseError('OVERLOADED', true, error);
      const failure = toDatabaseError(error);
      const fault = tokenFaultOf(failure, kind);
      if (fault === undefined) throw failure;
      setTokenFault(fault);
      throw new DatabaseError(fault, true, failure);
    }
  });
}

async function repeatIfBroken<Result>(call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    if (!isBrokenConnection(error)) throw error;
    return call();
  }
}

async function repeatWhileBusy<Result>(call: () => Promise<Result>, isLate: () => boolean): Promise<Result> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!isBusy(error) || isLate()) throw error;
      await jitteredPause(5, 20);
    }
  }
}

/** Over http a server rejects a token with 401 or 403, over ws with a code. */
function tokenFaultOf({ code }: DatabaseError, kind: 'read' | 'write'): TokenFault | undefined {
  if (code === 'HTTP_401' || code.startsWith('AUTH_')) return 'TOKEN_REFUSED';
  if (code !== 'HTTP_403') return undefined;
  return kind === 'read' ? 'TOKEN_REFUSED' : 'TOKEN_READ_ONLY';
}

/** Returns a function that gives the driver's client, and a new one when the token has changed. */
function currentClient({ url, authToken, timeoutMs }: RemoteSettings): () => Client {
  const open = (token: string | undefined) =>
    createClient({
      url,
      ...(token === undefined ? {} : { authToken: token }),
      concurrency: 2 * maxInFlight,
      fetch: (input: Request, init?: RequestInit) => fetch(input, { ...init, signal: AbortSignal.timeout(timeoutMs) }),
    });
  let token = currentSecret(authToken);
  let client = open(token);
  return () => {
    const next = currentSecret(authToken);
    if (next === token || client.closed) return client;
    const replaced = client;
    token = next;
    client = open(token);
    // Running calls of the previous client end before that.
    setTimeout(() => replaced.close(), 2 * timeoutMs).unref();
    return client;
  };
}

function fromDriver(client: () => Client): SqlClient {
  return {
    read: (sql, args) => client().execute(toDriver({ sql, args })),
    write: (statements) => client().batch(statements.map(toDriver), 'write'),
    exec: (sql, args) => client().execute(toDriver({ sql, args })),
    migrate: (statements) => client().migrate(statements.map(toDriver)),
    close: () => client().close(),
  };
}

function toDriver({ sql, args = [] }: SqlStatement) {
  return { sql, args: [...args] };
}

function isBrokenConnection(error: unknown): boolean {
  return /^(?:ECONN|HRANA_)/.test(toDatabaseError(error).code);
}

/** The response of a server is limited to 10 MB, and a record rarely has more than a tenth of a MB. */
const maxStatementsPerBatch = 64;

/** Returns a client that sends concurrent writes in one batch: the server takes as long for one as for many. */
export function groupWrites(
  client: SqlClient,
  { timeoutMs, observers = [] }: { timeoutMs: number; observers?: readonly DatabaseObserver[] },
): SqlClient {
  const queue = createWriteQueue({
    observers,
    commit: (batches) => commitGroup(client, batches),
    timeoutMs,
    maxStatements: maxStatementsPerBatch,
  });
  return { ...client, write: queue.add };
}

/**
 * Removes a batch that the server rejects and sends the others again: a rejected group has stored nothing. After a timeout
 * or a broken connection the outcome is unknown, so no batch is sent again.
 */
async function commitGroup(client: SqlClient, batches: readonly WriteBatch[]): Promise<void> {
  for (;;) {
    const due = batches.filter(({ isPending }) => isPending);
    if (due.length === 0) return;
    try {
      const results = await client.write(due.flatMap(({ statements }) => statements));
      for (const [batch, own] of split(due, results)) batch.settle({ results: own });
    } catch (error) {
      const failure = toDatabaseError(error);
      const rejected = isRejection(failure) ? rejectedOf(due, error) : due;
      for (const batch of rejected) batch.settle({ error: failure });
      // The server does not name the batch, so each is sent alone.
      if (rejected.length === 0) for (const batch of due) await commitGroup(client, [batch]);
    }
  }
}

/** Whether the server reports that it stored nothing. Other failures, such as an unreadable response, leave that open. */
function isRejection({ code, isUnavailable }: DatabaseError): boolean {
  return !isUnavailable && /^(?:SQLITE_|SQL_|HTTP_4|RESPONSE_TOO_LARGE$)/.test(code);
}

/** Pairs each batch with its own results. */
function split(batches: readonly WriteBatch[], results: readonly ResultSet[]): [WriteBatch, ResultSet[]][] {
  let next = 0;
  return batches.map((batch) => {
    const first = next;
    next += batch.statements.length;
    return [batch, results.slice(first, next)];
  });
}

/** Returns the batch with the statement that the server rejected: the only batch, or the one that the error names; else none. */
function rejectedOf(batches: readonly WriteBatch[], error: unknown): readonly WriteBatch[] {
  if (batches.length === 1) return batches;
  const named = [...causeChain(error)].find((cause) => cause instanceof LibsqlBatchError);
  if (named === undefined) return [];
  let next = 0;
  return batches.filter(({ statements }) => {
    const first = next;
    next += statements.length;
    return named.statementIndex >= first && named.statementIndex < next;
  });
}
