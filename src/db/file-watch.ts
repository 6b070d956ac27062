import { type Stats, statSync } from 'node:fs';
import type { LogSync } from './log-sync';
import type { WalIndex, WalState } from './wal-index';

/** What happened to the files of a database beneath a process that has them open. */
export type FileFault =
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
export function watchFiles(path: string, log: LogSync, index: WalIndex) {
  const file = statSync(path);
  const logFile = statSync(log.path);
  const indexFile = statSync(index.path);
  let last: { readonly size: number; readonly mtimeMs: number; readonly checkpointId: string } | undefined;

  const findFault = (state: WalState | undefined): FileFault | undefined => {
    const now = statSync(path, { throwIfNoEntry: false });
    if (now === undefined) return 'FILE_REMOVED';
    if (!isSame(now, file)) return 'FILE_REPLACED';
    const logNow = statSync(log.path, { throwIfNoEntry: false });
    if (logNow === undefined || !isSame(logNow, logFile)) return 'WAL_REMOVED';
    const indexNow = statSync(index.path, { throwIfNoEntry: false });
    if (indexNow === undefined || !isSame(indexNow, indexFile)) return 'WAL_INDEX_REMOVED';
    if (state === undefined) return undefined;
    if (state.frames > 0 && (logNow.size < logBytes(state) || log.salts() !== state.salts)) {
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
