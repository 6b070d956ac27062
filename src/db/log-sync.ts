import { closeSync, fdatasync, openSync, readSync, realpathSync } from 'node:fs';
import { promisify } from 'node:util';

export type LogSync = ReturnType<typeof createLogSync>;

/** The two salts in the header of a log (https://www.sqlite.org/walformat.html). */
const salts = { offset: 16, bytes: 8 } as const;

/**
 * Runs fdatasync on the write-ahead log of a local file, on a thread of its own.
 *
 * A commit with `synchronous=NORMAL` is consistent after a power cut but may be lost until the log is synced
 * (https://www.sqlite.org/pragma.html#pragma_synchronous); afterwards it is as durable as with FULL.
 *
 * @param databasePath of a database that has a connection, so that its log exists and stays the same file
 * @throws when there is no log
 */
export function createLogSync(
  databasePath: string,
  sync: (descriptor: number) => Promise<void> = promisify(fdatasync),
) {
  // SQLite puts the log beside the file itself, not beside a link to it.
  const path = `${realpathSync(databasePath)}-wal`;
  // The log holds no locks, so that its descriptor may be closed.
  const descriptor = openSync(path, 'r');
  const header = Buffer.alloc(salts.bytes);
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
    path,

    /** The salts in the header of the log, as Latin-1. */
    salts(): string {
      return header.toString('latin1', 0, readSync(descriptor, header, 0, salts.bytes, salts.offset));
    },

    /** Resolves when all earlier commits are on the disk. Calls during a running sync share the next one. */
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

    /** The sync that the latest commit waits for, if any. */
    get pending(): Promise<void> | undefined {
      return following ?? running;
    },

    async close(): Promise<void> {
      await Promise.allSettled([running, following]);
      closeSync(descriptor);
    },
  };
}
