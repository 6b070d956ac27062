import { closeSync, fdatasync, openSync } from 'node:fs';
import { promisify } from 'node:util';

export type LogSync = ReturnType<typeof createLogSync>;

const syncFile = promisify(fdatasync);

/**
 * Brings the write-ahead log of a local file to the disk, off the thread that serves requests.
 *
 * What was committed with `synchronous=NORMAL` is consistent after a power cut, but may be gone until the log has been
 * synced (https://www.sqlite.org/pragma.html#pragma_synchronous); after that it is as durable as with FULL.
 */
export function createLogSync(databasePath: string) {
  let descriptor: number | undefined;
  let last: Promise<void> = Promise.resolve();
  let next: Promise<void> | undefined;

  const begin = async () => {
    last = next ?? last;
    next = undefined;
    // It is there once something was committed, and stays the same file as long as there is a connection.
    descriptor ??= openSync(`${databasePath}-wal`, 'r');
    await syncFile(descriptor);
  };

  return {
    /** Ends when all that was committed before the call is on the disk; callers that come meanwhile share the next. */
    synced(): Promise<void> {
      next ??= last.catch(() => undefined).then(begin);
      return next;
    },

    async close(): Promise<void> {
      await Promise.allSettled([last, next]);
      if (descriptor !== undefined) closeSync(descriptor);
      descriptor = undefined;
    },
  };
}
