import { type Stats, statSync } from 'node:fs';
import type { DatabaseError } from './errors';
import type { WalIndex, WalState, WalSync } from './wal';

/** What happened to the files of a database beneath a process that has them open. */
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

/** A fault counts only if the state of the log was the same before and after; commits go on meanwhile. */
const maxTries = 5;

/**
 * Compares the files of a database with those that this process has open. A POSIX file that was removed or replaced
 * can still be written, so SQLite itself reports nothing.
 *
 * @param path of a database that this process has open
 */
export function watchFiles(path: string, wal: WalSync, index: WalIndex) {
  const file = statSync(path);
  const logFile = statSync(wal.path);
  const indexFile = statSync(index.path);
  let last: { readonly size: number; readonly mtimeMs: number; readonly checkpointId: string } | undefined;

  const findFault = (state: WalState | undefined): FileFault | undefined => {
    const now = statSync(path, { throwIfNoEntry: false });
    if (now === undefined) return 'FILE_REMOVED';
    if (!isSame(now, file)) return 'FILE_REPLACED';
    const logNow = statSync(wal.path, { throwIfNoEntry: false });
    if (logNow === undefined || !isSame(logNow, logFile)) return 'WAL_REMOVED';
    const indexNow = statSync(index.path, { throwIfNoEntry: false });
    if (indexNow === undefined || !isSame(indexNow, indexFile)) return 'WAL_INDEX_REMOVED';
    if (state === undefined) return undefined;
    if (state.frames > 0 && (logNow.size < logBytes(state) || wal.salts() !== state.salts)) {
      return 'WAL_TRUNCATED';
    }
    // A checkpoint makes the file smaller only to the size that the database has.
    if (last !== undefined && now.size < last.size && now.size < state.pages * state.pageSize) {
      return 'FILE_TRUNCATED';
    }
    // SQLite writes to a database file in WAL mode only within a checkpoint, which changes its id before it writes.
    if (last?.checkpointId === state.checkpointId && last.mtimeMs !== now.mtimeMs && !state.isCheckpointing) {
      return 'FILE_OVERWRITTEN';
    }
    last = { size: now.size, mtimeMs: now.mtimeMs, checkpointId: state.checkpointId };
    return undefined;
  };

  return {
    /** Undefined where all is well. */
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

function logBytes({ frames, pageSize }: WalState): number {
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

/** Each reason for which a database counts as lost, by the code of the failure. */
const losses = {
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

/** The reason for a loss, and the line that the log has for it. */
export function describeLoss(code: string) {
  return losses[isLoss(code) ? code : 'SQLITE_IOERR'];
}

/**
 * @param rescued resolves with the path of a file that has every acknowledged save, where the open descriptors still
 * reach it
 */
export type OnLoss = (failure: DatabaseError, rescued?: Promise<string>) => void;

/** Whether the files were removed or replaced, so that the descriptors of this process still reach every commit. */
function isRescuable(code: string): boolean {
  return ['FILE_REMOVED', 'FILE_REPLACED', 'WAL_REMOVED', 'WAL_INDEX_REMOVED'].includes(code);
}

function isLoss(code: string): code is keyof typeof losses {
  return Object.hasOwn(losses, code);
}

/** An I/O error may pass, as one of a network disk does; one that is met again after this time counts as permanent. */
const passingIoErrorMs = 10_000;
/** An I/O error that is met again later than this is another one. */
const forgottenAfterMs = 600_000;

/** A save succeeds also while each checkpoint fails, so that each kind has its own errors. */
type Work = 'read' | 'write' | 'checkpoint';

export interface LossWatch {
  /** Called once, when the file or its disk is lost: no write is acknowledged until the process is restarted. */
  readonly onLoss?: OnLoss | undefined;
  /** Called when checkpoints start to fail (with a code), and when one succeeds again. */
  readonly onCheckpointChange?: ((code?: string) => void) | undefined;
}

interface LossSettings extends LossWatch {
  /** Copies every commit to another file. */
  readonly rescue: () => Promise<string>;
}

/** Decides when a database counts as lost, and rescues it. */
export function createLossDetector({ onLoss, onCheckpointChange, rescue }: LossSettings) {
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

    /** Notes a failure that a statement or a checkpoint met. */
    failed(kind: Work, failure: DatabaseError): void {
      if (kind === 'checkpoint' && checkpointFault !== failure.code) {
        checkpointFault = failure.code;
        onCheckpointChange?.(failure.code);
      }
      if (failure.code === 'SQLITE_CORRUPT' || failure.code === 'SQLITE_NOTADB') lose(failure);
      if (failure.code !== 'SQLITE_IOERR') return;
      const nowMs = performance.now();
      const sinceMs = nowMs - (firstIoErrorMs[kind] ?? Number.NEGATIVE_INFINITY);
      if (sinceMs > forgottenAfterMs) firstIoErrorMs[kind] = nowMs;
      else if (sinceMs > passingIoErrorMs) lose(failure);
    },

    /** Notes that a write is on the disk, or that a checkpoint is complete. */
    succeeded(kind: Work): void {
      delete firstIoErrorMs[kind];
      if (kind !== 'checkpoint' || checkpointFault === undefined) return;
      checkpointFault = undefined;
      onCheckpointChange?.();
    },
  };
}
