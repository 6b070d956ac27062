import { type Client, createClient } from '@libsql/client';
import { type BulkheadPolicy, BulkheadRejectedError, bulkhead } from 'cockatiel';
import { beforeDeadline } from './deadline';
import { DatabaseError, isBusy, toDatabaseError } from './errors';
import { type Guard, guardClient } from './wrap-client';

/** Reads, and as many writes beside them, so that no write waits until many reads are done. */
const maxInFlight = 20;
/** Whoever comes when so many wait already would not be answered before the deadline. */
const maxWaiting = 2_000;

export interface RemoteSettings {
  readonly url: string;
  readonly authToken?: string | undefined;
  /** The longest that a statement may take, waiting for its turn included. */
  readonly timeoutMs: number;
}

/**
 * A libSQL server. The client itself has no deadline at all, neither over http nor over ws.
 *
 * A read is sent once more when its connection breaks, as one that was kept over the server's restart does. A write is
 * not, since nobody knows whether it was stored; only what the server says that it has not done is asked again.
 */
export function openRemoteClient({ url, authToken, timeoutMs }: RemoteSettings): Client {
  const client = createClient({
    url,
    ...(authToken === undefined ? {} : { authToken }),
    concurrency: 2 * maxInFlight,
    fetch: (input: Request, init?: RequestInit) => fetch(input, { ...init, signal: AbortSignal.timeout(timeoutMs) }),
  });
  const readers = bulkhead(maxInFlight, maxWaiting);
  const writers = bulkhead(maxInFlight, maxWaiting);
  const inTime = async <Result>(turns: BulkheadPolicy, work: () => Promise<Result>): Promise<Result> => {
    const giveUpAtMs = performance.now() + timeoutMs;
    const due = async () => {
      // Nobody waits for it any more.
      if (performance.now() >= giveUpAtMs) throw new DatabaseError('DEADLINE_EXCEEDED', true);
      return work();
    };
    try {
      return await beforeDeadline(turns.execute(due), timeoutMs);
    } catch (error) {
      if (error instanceof BulkheadRejectedError) throw new DatabaseError('OVERLOADED', true, error);
      throw toDatabaseError(error);
    }
  };
  const read: Guard = (work) =>
    inTime(readers, async () => {
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
    return inTime(writers, async () => {
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

function isBrokenConnection(error: unknown): boolean {
  return /^(?:ECONN|HRANA_)/.test(toDatabaseError(error).code);
}
