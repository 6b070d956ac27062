import { closeSync, fsyncSync, lstatSync, openSync, rmSync, type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';

/** What SQLite may put beside a database; a stale one would be taken for a part of the file that it lies beside. */
export const companionSuffixes = ['-wal', '-shm', '-journal'] as const;

/**
 * Brings a file's content, or a folder's names, to the disk. Never of a database that this process has open: closing
 * any descriptor of a file gives up every lock that the process holds on it.
 */
export function syncToDisk(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Makes the new, renamed and removed names of a file's folder last. */
export function syncFolderOf(path: string): void {
  syncToDisk(dirname(path));
}

/** A new and empty file beside another, readable by its owner alone: `<path>.<random>.partial`. */
export function createPartial(path: string): string {
  const partial = `${path}.${crypto.randomUUID()}.partial`;
  closeSync(openSync(partial, 'wx', 0o600));
  return partial;
}

/** Removes an unfinished file, if it is still there. */
export function removePartial(partial: string): void {
  for (const suffix of ['', ...companionSuffixes]) rmSync(`${partial}${suffix}`, { force: true });
}

/** What is behind a name, a link followed; undefined for nothing. */
export function statOrNothing(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false });
}

/** Whether there is anything of this name, a link that leads nowhere included. */
export function isTaken(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Whether two names lead to one file. */
export function isSameFile(a: Stats | undefined, b: Stats | undefined): boolean {
  return a !== undefined && b !== undefined && a.dev === b.dev && a.ino === b.ino;
}
