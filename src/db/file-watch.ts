import { type Stats, statSync } from 'node:fs';
import { DatabaseError } from './errors';
import type { WalIndex, WalState, WalSync } from './wal';

/** Changes by other programs to the files of an open database. */
type FileFault =
  | 'FILE_REMOVED'
  | 'FILE_REPLACED'
  | 'FILE_TRUNCATED'
  | 'FILE_OVERWRITTEN'
  | 'WAL_REMOVED'
  | 'WAL_TRUNCATED'
  | 'WAL_INDEX_REMOVED';

const walHeaderBytes = 32;
const frameHeaderBytes = 24;

/** A fault counts only if the WAL index is the same before and after the check, since commits go on meanwhile. */
const maxTries = 5;

/**
 * Compares the files of a database with those that this process has open. SQLite does not detect a removed or replaced
 * file, because POSIX lets a process write to it.
 *
 * @param path of a database that this process has open
 */
export function watchFiles(path: string, wal: WalSync, index: WalIndex) {
  const file = statSync(path);
  const walFile = statSync(wal.path);
  const indexFile = statSync(index.path);
  let last: { readonly size: number; readonly mtimeMs: number; readonly checkpointId: string } | undefined;

  const findFault = (state: WalState | undefined): FileFault | undefined => {
    const now = statSync(path, { throwIfNoEntry: false });
    if (now === undefined) return 'FILE_REMOVED';
    if (!isSame(now, file)) return 'FILE_REPLACED';
    const walNow = statSync(wal.path, { throwIfNoEntry: false });
    if (walNow === undefined || !isSame(walNow, walFile)) return 'WAL_REMOVED';
    const indexNow = statSync(index.path, { throwIfNoEntry: false });
    if (indexNow === undefined || !isSame(indexNow, indexFile)) return 'WAL_INDEX_REMOVED';
    if (state === undefined) return undefined;
    if (state.frames > 0 && (walNow.size < walBytes(state) || wal.salts() !== state.salts)) {
      return 'WAL_TRUNCATED';
    }
    // A checkpoint truncates the file only to the size of the database.
    if (last !== undefined && now.size < last.size && now.size < state.pages * state.pageSize) {
      return 'FILE_TRUNCATED';
    }
    // In WAL mode SQLite writes to the file only within a checkpoint, which changes `checkpointId` first.
    if (last?.checkpointId === state.checkpointId && last.mtimeMs !== now.mtimeMs && !state.isCheckpointing) {
      return 'FILE_OVERWRITTEN';
    }
    last = { size: now.size, mtimeMs: now.mtimeMs, checkpointId: state.checkpointId };
    return undefined;
  };

  return {
    /** Returns undefined if the files are those that were opened. */
    fault(): FileFault | undefined {
      for (let tries = 0; tries < maxTries; tries += 1) {
        const state = index.read();
        const fault = findFault(state);
        if (fault === undefined || index.read()?.id === state?.id) return fault;
      }
      return undefined;
    },
  };
}

function walBytes({ frames, pageSize }: WalState): number {
  return walHeaderBytes + frames * (frameHeaderBytes + pageSize);
}

function isSame(a: Stats, b: Stats): boolean {
  return a.ino === b.ino && a.dev === b.dev;
}

const describe = <Reason extends string, Remedy extends string>(reason: Reason, remedy: Remedy) => ({
  reason,
  remedy,
  line: `${reason}: no save is acknowledged until the service is restarted. ${remedy}` as const,
});
const readLog =
  'The service copies every acknowledged save to a rescued file: wait for the next line of the log before you stop it.';
const checkFile = 'Stop the service and run `planning doctor --deep`; restore a backup if it fails.';
const checkOverwritten =
  'A program that sets the time of the file, such as touch, causes this too. Stop the service and run `planning doctor --deep`; restore a backup if it fails.';
const checkDisk = 'Check the disk, then restart the service.';

/** The reasons for which a database counts as lost, by the code of the failure. */
const lossDescriptions = {
  FILE_REMOVED: describe('the database file was removed or moved', readLog),
  FILE_REPLACED: describe('the database file was replaced by another file', readLog),
  FILE_TRUNCATED: describe('the database file was truncated', checkFile),
  FILE_OVERWRITTEN: describe('another program wrote to the database file', checkOverwritten),
  WAL_REMOVED: describe('the write-ahead log (-wal) was removed, moved or replaced', readLog),
  WAL_TRUNCATED: describe('the write-ahead log (-wal) was truncated or overwritten', checkFile),
  WAL_INDEX_REMOVED: describe('the index of the write-ahead log (-shm) was removed or replaced', readLog),
  SYNC_FAILED: describe('the disk failed to sync', checkDisk),
  SQLITE_CORRUPT: describe('the database file is corrupt', checkFile),
  SQLITE_NOTADB: describe('the database file is not a database that the key opens', checkFile),
  SQLITE_IOERR: describe('the disk fails to read or write', checkDisk),
} as const satisfies Record<FileFault | LastingError, object>;

type LastingError = 'SYNC_FAILED' | 'SQLITE_CORRUPT' | 'SQLITE_NOTADB' | 'SQLITE_IOERR';

/** Describes a loss: the reason, the remedy, and the log line. */
export function describeLoss(code: string) {
  return lossDescriptions[isLoss(code) ? code : 'SQLITE_IOERR'];
}

/**
 * @param rescued resolves with the path of a copy that has every acknowledged save; undefined where the open descriptors do
 * not reach the data
 */
export type OnLoss = (failure: DatabaseError, rescued?: Promise<string>) => void;

/** Whether the files were removed or replaced, so that the descriptors of this process still reach every commit. */
function isRescuable(code: string): boolean {
  return ['FILE_REMOVED', 'FILE_REPLACED', 'WAL_REMOVED', 'WAL_INDEX_REMOVED'].includes(code);
}

function isLoss(code: string): code is keyof typeof lossDescriptions {
  return Object.hasOwn(lossDescriptions, code);
}

/** An I/O error may be temporary, as on a network disk; if it recurs after this time, it counts as permanent. */
const passingIoErrorMs = 10_000;
/** An I/O error that recurs only after this time counts as a new one. */
const forgottenAfterMs = 600_000;

/** I/O errors are tracked by kind: writes can succeed while checkpoints fail. */
type Work = 'read' | 'write' | 'checkpoint';

export interface LossWatch {
  /** Called once when the file or its disk is lost: no write is acknowledged until the process restarts. */
  readonly onLoss?: OnLoss | undefined;
  /** Called with a code when checkpoints begin to fail, and without one when they succeed again. */
  readonly onCheckpointChange?: ((code?: string) => void) | undefined;
}

interface LossSettings extends LossWatch {
  /** Copies all commits to another file and resolves with its path. */
  readonly rescue: () => Promise<string>;
  readonly fault?: () => FileFault | undefined;
  readonly monotonicMs?: () => number;
}

/** Decides when a database counts as lost, and rescues it. */
export function createLossDetector(settings: LossSettings) {
  const { onLoss, onCheckpointChange, rescue, fault, monotonicMs = () => performance.now() } = settings;
  let lost: DatabaseError | undefined;
  let rescued: Promise<string> | undefined;
  let checkpointFault: string | undefined;
  const firstIoErrorMs: Partial<Record<Work, number>> = {};

  const lose = (failure: DatabaseError): void => {
    if (lost !== undefined) return;
    lost = failure;
    if (onLoss !== undefined && isRescuable(failure.code)) {
      rescued = rescue();
      rescued.catch(() => undefined);
    }
    onLoss?.(failure, rescued);
  };

  return {
    lose,

    /** @throws DatabaseError when the database is lost */
    check(): void {
      if (lost !== undefined) throw lost;
    },

    get isLost(): boolean {
      return lost !== undefined;
    },

    get rescued(): Promise<string> | undefined {
      return rescued;
    },

    /** Records the failure of a statement or a checkpoint. */
    failed(kind: Work, failure: DatabaseError): void {
      if (kind === 'checkpoint' && checkpointFault !== failure.code) {
        checkpointFault = failure.code;
        onCheckpointChange?.(failure.code);
      }
      if (failure.code === 'SQLITE_CORRUPT' || failure.code === 'SQLITE_NOTADB') {
        // A read can meet a truncated or overwritten file before the next check of the files does.
        const cause = fault?.();
        lose(cause === undefined ? failure : new DatabaseError(cause, true, failure));
      }
      if (failure.code !== 'SQLITE_IOERR') return;
      const nowMs = monotonicMs();
      const sinceMs = nowMs - (firstIoErrorMs[kind] ?? Number.NEGATIVE_INFINITY);
      if (sinceMs > forgottenAfterMs) firstIoErrorMs[kind] = nowMs;
      else if (sinceMs > passingIoErrorMs) lose(failure);
    },

    /** Records that a write is on the disk, or that a checkpoint is complete. */
    succeeded(kind: Work): void {
      delete firstIoErrorMs[kind];
      if (kind !== 'checkpoint' || checkpointFault === undefined) return;
      checkpointFault = undefined;
      onCheckpointChange?.();
    },
  };
}
