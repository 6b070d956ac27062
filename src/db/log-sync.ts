import { closeSync, fdatasync, openSync, realpathSync } from 'node:fs';
import { promisify } from 'node:util';

export type LogSync = ReturnType<typeof createLogSync>;

/**
 * Brings the write-ahead log of a local file to the disk, off the thread that serves requests.
 *
 * What was committed with `synchronous=NORMAL` is consistent after a power cut, but may be gone until the log has been
 * synced (https://www.sqlite.org/pragma.html#pragma_synchronous); after that it is as durable as with FULL.
 *
 * @param databasePath of a database that has a connection, so that its log is there and stays the same file
 * @throws when there is no log
 */
export function createLogSync(
  databasePath: string,
  sync: (descriptor: number) => Promise<void> = promisify(fdatasync),
) {
  // SQLite puts the log beside the file itself, not beside a link to it.
  const descriptor = openSync(`${realpathSync(databasePath)}-wal`, 'r');
  let running: Promise<void> | undefined;
  let following: Promise<void> | undefined;

  const start = (): Promise<void> => {
    const started = sync(descriptor).finally(() => {
      if (running === started) running = undefined;
    });
    running = started;
    return started;
  };

  return {
    /** Ends when all that was committed before the call is on the disk; callers that come meanwhile share the next. */
    synced(): Promise<void> {
      if (running === undefined) return start();
      following ??= running
        .catch(() => undefined)
        .then(() => {
          following = undefined;
          return start();
        });
      return following;
    },

    /** The sync that what is committed by now waits for, if any. */
    get pending(): Promise<void> | undefined {
      return following ?? running;
    },

    async close(): Promise<void> {
      await Promise.allSettled([running, following]);
      closeSync(descriptor);
    },
  };
}
