import { closeSync, fdatasync, fstatSync, openSync, readSync, realpathSync, statSync } from 'node:fs';
import { promisify } from 'node:util';
import { DatabaseError } from './errors';

export type WalSync = ReturnType<typeof createWalSync>;

/** The two salts in the header of the WAL (https://www.sqlite.org/walformat.html). */
const walSalts = { offset: 16, bytes: 8 } as const;

/**
 * Runs fdatasync on the write-ahead log (WAL) of a database file, on a thread of the pool.
 *
 * A commit with `synchronous=NORMAL` is consistent after a power cut but may be lost until the WAL is synced
 * (https://www.sqlite.org/pragma.html#pragma_synchronous); afterwards it is as durable as with FULL.
 *
 * @param databasePath of a database that has a connection, so that its WAL exists and stays the same file
 * @throws when there is no WAL
 */
export function createWalSync(
  databasePath: string,
  sync: (descriptor: number) => Promise<void> = promisify(fdatasync),
) {
  // SQLite puts the WAL beside the file itself, not beside a link to it.
  const path = `${realpathSync(databasePath)}-wal`;
  // SQLite has no locks on the WAL, so its descriptor may be closed.
  const descriptor = openSync(path, 'r');
  const saltBytes = Buffer.alloc(walSalts.bytes);
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

    /** Reads the salts in the header of the WAL, as Latin-1. */
    salts(): string {
      return saltBytes.toString('latin1', 0, readSync(descriptor, saltBytes, 0, walSalts.bytes, walSalts.offset));
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

    /** The fsync that the latest commit waits for, if any. */
    get pending(): Promise<void> | undefined {
      return following ?? running;
    },

    async close(): Promise<void> {
      await Promise.allSettled([running, following]);
      closeSync(descriptor);
    },
  };
}

/** The state of a write-ahead log. */
export interface WalState {
  /** Frames of the current generation of the WAL. */
  readonly frames: number;
  /** Of those, the frames that a checkpoint has written to the database file. */
  readonly checkpointed: number;
  /** A checkpoint is writing to the database file, or was killed while it did. */
  readonly isCheckpointing: boolean;
  /** Pages of the database after the last commit. */
  readonly pages: number;
  readonly pageSize: number;
  /** The salts of this generation, as in the header of the WAL. */
  readonly salts: string;
  /** Changes with each commit and each checkpoint. */
  readonly id: string;
  /** Changes with each checkpoint, before it writes to the database file. */
  readonly checkpointId: string;
}

/** Offsets of https://www.sqlite.org/walformat.html, section 2.1; the format is the same since SQLite 3.7.0. */
const header = { bytes: 48, isInitialized: 12, pageSize: 14, frames: 16, pages: 20, salts: 32, saltBytes: 8 } as const;
const checkpoint = { done: 96, attempted: 128 } as const;
const indexBytes = 136;

/** How many reads may collide with a commit before the state counts as unknown. */
const maxTries = 10;

/**
 * Descriptors of the WAL indexes that this process has opened. SQLite has its locks on this file, and a process that
 * closes any descriptor of a file loses all of its POSIX locks on it, so none is closed before the file is unlinked.
 */
const opened = new Map<string, number>();

/**
 * Opens the WAL index of a database, which SQLite keeps in shared memory (`-shm`).
 *
 * @param databasePath of a database in WAL mode that this process has open and has read
 * @throws when there is no index
 */
export function openWalIndex(databasePath: string) {
  const path = `${realpathSync(databasePath)}-shm`;
  const descriptor = descriptorOf(path);
  const bytes = Buffer.alloc(indexBytes);
  const numbers = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const numberAt = (offset: number) => numbers.getUint32(offset, isLittleEndian);
  const readBytes = () => {
    try {
      return readSync(descriptor, bytes, 0, indexBytes, 0);
    } catch (error) {
      throw new DatabaseError('SQLITE_IOERR', true, error);
    }
  };

  /**
   * Returns undefined while SQLite rebuilds the index, as after another process was killed within a commit.
   *
   * @throws DatabaseError `SQLITE_IOERR`
   */
  const read = (): WalState | undefined => {
    for (let tries = 0; tries < maxTries; tries += 1) {
      if (readBytes() !== indexBytes) return undefined;
      const first = bytes.subarray(0, header.bytes);
      if (bytes[header.isInitialized] !== 1) return undefined;
      if (!first.equals(bytes.subarray(header.bytes, 2 * header.bytes))) continue;
      const pageSize = numbers.getUint16(header.pageSize, isLittleEndian);
      const checkpointed = numberAt(checkpoint.done);
      const attempted = numberAt(checkpoint.attempted);
      const salts = bytes.toString('latin1', header.salts, header.salts + header.saltBytes);
      const checkpointId = `${salts}${checkpointed}/${attempted}`;
      return {
        frames: numberAt(header.frames),
        checkpointed,
        isCheckpointing: attempted !== checkpointed,
        pages: numberAt(header.pages),
        // 65,536 does not fit in its two bytes.
        pageSize: pageSize === 1 ? 65_536 : pageSize,
        salts,
        id: `${bytes.toString('latin1', 0, header.bytes)}${checkpointId}`,
        checkpointId,
      };
    }
    return undefined;
  };

  return {
    path,
    descriptor,
    read,

    /** Undefined also if the index cannot be read: the next write reports that. */
    framesIfReadable(): number | undefined {
      try {
        return read()?.frames;
      } catch {
        return undefined;
      }
    },
  };
}

export type WalIndex = ReturnType<typeof openWalIndex>;

const isLittleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

function descriptorOf(path: string): number {
  for (const [file, descriptor] of opened) {
    if (fstatSync(descriptor).nlink > 0) continue;
    closeSync(descriptor);
    opened.delete(file);
  }
  const { dev, ino } = statSync(path);
  const file = `${dev}:${ino}`;
  const descriptor = opened.get(file) ?? openSync(path, 'r');
  opened.set(file, descriptor);
  return descriptor;
}
