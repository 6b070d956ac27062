import { closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Client, createClient } from '@libsql/client/sqlite3';
import { encryptionOption, withKeyFault } from './encryption';
import { DatabaseError, isBusy, toDatabaseError } from './errors';
import { overwriteWhatIsDeleted } from './local-client';
import { type Guard, guardClient } from './wrap-client';

interface FileSettings {
  readonly path: string;
  readonly encryptionKey?: string | undefined;
  /** The longest that a write may wait for a lock that another process holds. */
  readonly timeoutMs: number;
}

/**
 * A local file in WAL mode; `synchronous` is FULL in this build of libSQL, so an answer that was acknowledged
 * survives a power cut. Statements run one after the other: the driver is synchronous, and after SQLITE_BUSY the
 * connection must be opened anew before any other statement runs on it, or that statement is acknowledged and
 * then rolled back (libsql-client-ts#352).
 *
 * While another process holds the lock, writes wait in their order on a timer, so that reads go on.
 *
 * @throws DatabaseError with the code of a key fault where the file is not what the key opens
 */
export async function openFileClient({ path, encryptionKey, timeoutMs }: FileSettings): Promise<Client> {
  let client: Client;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // The log files beside it take their mode from it.
    closeSync(openSync(path, 'a', 0o600));
    const encryption = encryptionOption(encryptionKey);
    client = createClient({ url: `file:${path}`, timeout: driverWaitMs, concurrency: 1, ...encryption });
  } catch (error) {
    const isReadOnly = error instanceof Error && 'code' in error && error.code === 'EROFS';
    throw new DatabaseError(isReadOnly ? 'SQLITE_READONLY' : 'SQLITE_CANTOPEN', true, error);
  }

  const reopen = async () => {
    await client.reconnect();
    await client.execute(overwriteWhatIsDeleted);
  };

  let lastStatement: Promise<unknown> = Promise.resolve();
  const inTurn = <Result>(work: () => Promise<Result>, isProbe = false): Promise<Result> => {
    const result = lastStatement.then(work).catch(async (error: unknown) => {
      if (isBusy(error) && !isProbe) await reopen();
      throw toDatabaseError(error);
    });
    lastStatement = result.catch(() => undefined);
    return result;
  };

  /** A BUSY of `exec` leaves no statement behind, so it may be asked again and again on one connection. */
  const untilUnlocked = async (deadlineMs: number): Promise<void> => {
    while (performance.now() < deadlineMs) {
      await Bun.sleep(5 + Math.random() * 15);
      try {
        return await inTurn(() => client.executeMultiple('BEGIN IMMEDIATE; COMMIT'), true);
      } catch (error) {
        if (!isBusy(error)) throw error;
      }
    }
  };

  let lastWrite: Promise<unknown> = Promise.resolve();
  const write: Guard = (work) => {
    const deadlineMs = performance.now() + timeoutMs;
    const attempt = async () => {
      while (performance.now() < deadlineMs) {
        try {
          return await inTurn(work);
        } catch (error) {
          if (!isBusy(error)) throw error;
          await untilUnlocked(deadlineMs);
        }
      }
      throw new DatabaseError('SQLITE_BUSY', true);
    };
    const result = lastWrite.then(attempt);
    lastWrite = result.catch(() => undefined);
    return result;
  };

  const guarded = guardClient(client, inTurn, write, reopen);
  try {
    await guarded.execute('PRAGMA journal_mode = WAL');
    await guarded.execute(overwriteWhatIsDeleted);
  } catch (error) {
    client.close();
    throw withKeyFault(toDatabaseError(error), path, encryptionKey);
  }
  return guarded;
}

/** How long the driver itself waits for a lock, with the whole process standing still: as long as a commit takes. */
const driverWaitMs = 5;
