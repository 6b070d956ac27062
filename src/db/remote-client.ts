import {
  type Client,
  createClient,
  type InArgs,
  type InStatement,
  LibsqlBatchError,
  type ResultSet,
} from '@libsql/client';
import { type BulkheadPolicy, BulkheadRejectedError, bulkhead } from 'cockatiel';
import type { SecretSource } from '../config/secrets';
import { causeChain } from '../errors';
import { jitteredPause } from '../shared/async';
import type { DatabaseObserver } from '../telemetry/events';
import { beforeDeadline, DatabaseError, isBusy, type TokenFault, toDatabaseError } from './errors';
import { type Guard, guardClient, kindOf, toStatement, wrapClient } from './layers';
import { createWriteQueue, type Unit } from './write-queue';

/** Reads, and as many writes beside them, so that no write waits until many reads are done. */
const maxInFlight = 20;
/** Whoever comes when so many wait already would not be answered before the deadline. */
const maxWaiting = 2_000;

export interface RemoteSettings {
  readonly url: string;
  readonly authToken?: SecretSource;
  /** The longest that a statement may take, waiting for its turn included. */
  readonly timeoutMs: number;
  /** Called with a code when the server starts to refuse the token, and without one when it accepts it again. */
  readonly onTokenChange?: (fault?: TokenFault) => void;
}

/**
 * A libSQL server. The client itself has no deadline at all, neither over http nor over ws.
 *
 * A read is sent once more when its connection breaks, as one that was kept over the server's restart does. A write is
 * not, since nobody knows whether it was stored; only what the server says that it has not done is asked again.
 */
export function openRemoteClient({ url, authToken, timeoutMs, onTokenChange }: RemoteSettings): Client {
  const client = withCurrentToken(authToken, timeoutMs, (token) =>
    createClient({
      url,
      ...(token === undefined ? {} : { authToken: token }),
      concurrency: 2 * maxInFlight,
      fetch: (input: Request, init?: RequestInit) => fetch(input, { ...init, signal: AbortSignal.timeout(timeoutMs) }),
    }),
  );
  let tokenFault: TokenFault | undefined;
  const setTokenFault = (fault?: TokenFault) => {
    if (fault === tokenFault) return;
    tokenFault = fault;
    onTokenChange?.(fault);
  };
  const readers = bulkhead(maxInFlight, maxWaiting);
  const writers = bulkhead(maxInFlight, maxWaiting);
  const inTime = async <Result>(kind: 'read' | 'write', work: () => Promise<Result>): Promise<Result> => {
    const turns: BulkheadPolicy = kind === 'read' ? readers : writers;
    const giveUpAtMs = performance.now() + timeoutMs;
    const due = async () => {
      // Nobody waits for it any more.
      if (performance.now() >= giveUpAtMs) throw new DatabaseError('DEADLINE_EXCEEDED', true);
      return work();
    };
    try {
      const result = await beforeDeadline(turns.execute(due), timeoutMs);
      // A token that cannot write can still read.
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
  };
  const read: Guard = (work) =>
    inTime('read', async () => {
      try {
        return await work();
      } catch (error) {
        if (!isBrokenConnection(error)) throw error;
        return work();
      }
    });
  /** The server says BUSY of what it has not done, when another transaction came first: the same is asked again. */
  const write: Guard = (work) => {
    const giveUpAtMs = performance.now() + timeoutMs;
    return inTime('write', async () => {
      for (;;) {
        try {
          return await work();
        } catch (error) {
          if (!isBusy(error) || performance.now() >= giveUpAtMs) throw error;
          await jitteredPause(5, 20);
        }
      }
    });
  };
  return guardClient(client, read, write, () => client.reconnect());
}

/** Over http a server responds with 401 or 403, over ws it sends a code. */
function tokenFaultOf({ code }: DatabaseError, kind: 'read' | 'write'): TokenFault | undefined {
  if (code === 'HTTP_401' || code.startsWith('AUTH_')) return 'TOKEN_REFUSED';
  if (code !== 'HTTP_403') return undefined;
  return kind === 'read' ? 'TOKEN_REFUSED' : 'TOKEN_READ_ONLY';
}

/** A client that is opened again when its token is another; the calls of the one before may end. */
function withCurrentToken(
  source: SecretSource,
  timeoutMs: number,
  open: (token: string | undefined) => Client,
): Client {
  if (typeof source !== 'function') return open(source);
  let token = source();
  let client = open(token);
  const current = (): Client => {
    const next = source();
    if (next !== token && !client.closed) {
      const before = client;
      token = next;
      client = open(token);
      setTimeout(() => before.close(), 2 * timeoutMs).unref();
    }
    return client;
  };
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => current().execute(toStatement(statement, args)),
    batch: (statements, mode) => current().batch(statements, mode),
    executeMultiple: (sql) => current().executeMultiple(sql),
    migrate: (statements) => current().migrate(statements),
    sync: () => current().sync(),
    reconnect: () => current().reconnect(),
    close: () => client.close(),
  });
}

function isBrokenConnection(error: unknown): boolean {
  return /^(?:ECONN|HRANA_)/.test(toDatabaseError(error).code);
}

/** A server refuses an answer of more than 10 MB, and a record has at most a tenth of a MB as a rule. */
const maxStatementsABatch = 64;

/**
 * A client of a libSQL server that sends the writes of many callers in one batch, one after the other: a server takes
 * as long for one as for all of them.
 */
export function groupWrites(
  client: Client,
  { timeoutMs, observers = [] }: { timeoutMs: number; observers?: readonly DatabaseObserver[] },
): Client {
  const queue = createWriteQueue({
    observers,
    commit: (units) => commitBatch(client, units),
    timeoutMs,
    maxStatements: maxStatementsABatch,
  });
  return wrapClient(client, {
    execute: async (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      return kindOf(whole) === 'write' ? queue.addOne(whole) : client.execute(whole);
    },
    batch: (statements, mode) =>
      mode === 'read' ? client.batch(statements, mode) : queue.add(statements.map((each) => toStatement(each))),
  });
}

/**
 * A unit that the server refuses is taken out, and the others are sent again: a refused batch has stored nothing. After
 * a timeout or a broken connection it is not known what was stored, so nobody's is sent again.
 */
async function commitBatch(client: Client, units: readonly Unit[]): Promise<void> {
  for (;;) {
    const due = units.filter(({ isWaiting }) => isWaiting);
    if (due.length === 0) return;
    try {
      const results = await client.batch(
        due.flatMap(({ statements }) => statements),
        'write',
      );
      for (const [unit, own] of share(due, results)) unit.settle({ results: own });
    } catch (error) {
      const failure = toDatabaseError(error);
      const refused = isRefusal(failure) ? refusedOf(due, error) : due;
      for (const unit of refused) unit.settle({ error: failure });
      // Where the server does not say which it is, one of them alone will.
      if (refused.length === 0) for (const unit of due) await commitBatch(client, [unit]);
    }
  }
}

/** Whether a server has said that it stored nothing. Of any other failure, such as an answer that cannot be read, it may have. */
function isRefusal({ code, isUnavailable }: DatabaseError): boolean {
  return !isUnavailable && /^(?:SQLITE_|SQL_|HTTP_4|RESPONSE_TOO_LARGE$)/.test(code);
}

/** The results of a batch, each unit's own. */
function share(units: readonly Unit[], results: readonly ResultSet[]): [Unit, ResultSet[]][] {
  let next = 0;
  return units.map((unit) => {
    const first = next;
    next += unit.statements.length;
    return [unit, results.slice(first, next)];
  });
}

/** The unit whose statement a server has refused: the only one there is, or the one it names; else none. */
function refusedOf(units: readonly Unit[], error: unknown): readonly Unit[] {
  if (units.length === 1) return units;
  const named = [...causeChain(error)].find((cause) => cause instanceof LibsqlBatchError);
  if (named === undefined) return [];
  let next = 0;
  return units.filter(({ statements }) => {
    const first = next;
    next += statements.length;
    return named.statementIndex >= first && named.statementIndex < next;
  });
}
