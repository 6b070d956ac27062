import { type Client, createClient, type InArgs, type InStatement } from '@libsql/client';
import { type BulkheadPolicy, BulkheadRejectedError, bulkhead } from 'cockatiel';
import type { SecretSource } from '../secret-files';
import { beforeDeadline } from './deadline';
import { DatabaseError, isBusy, type TokenFault, toDatabaseError } from './errors';
import { toStatement } from './statement';
import { type Guard, guardClient, wrapClient } from './wrap-client';

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
          await Bun.sleep(5 + Math.random() * 15);
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
