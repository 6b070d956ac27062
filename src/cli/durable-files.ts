import { chownSync, closeSync, fsyncSync, lstatSync, openSync, rmSync, type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { createSteps, type Steps } from './steps';

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

/**
 * Makes a file under a name that nobody takes for it, in steps between which an interrupt ends the work. What is not
 * put in its place by the end is removed.
 */
export async function withPartial(path: string, work: (partial: string, steps: Steps) => Promise<void>): Promise<void> {
  const steps = createSteps();
  const partial = createPartial(path);
  try {
    await work(partial, steps);
  } finally {
    steps.stop();
    removePartial(partial);
  }
}

/** A new and empty file beside another, readable by its owner alone: `<path>.<random>.partial`. */
function createPartial(path: string): string {
  const partial = `${path}.${crypto.randomUUID()}.partial`;
  closeSync(openSync(partial, 'wx', 0o600));
  return partial;
}

/** Removes an unfinished file, if it is still there. */
function removePartial(partial: string): void {
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

/** Whoever runs a command, the service must be able to open the file that takes the place of another. */
export function keepOwner(partial: string, database: string): void {
  const before = statOrNothing(database);
  const now = statOrNothing(partial);
  if (before !== undefined && (before.uid !== now?.uid || before.gid !== now.gid)) {
    chownSync(partial, before.uid, before.gid);
  }
}
