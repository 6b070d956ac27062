import { chownSync, closeSync, fsyncSync, lstatSync, openSync, rmSync, type Stats, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { OperatorError } from '../errors';
import { createSteps, type Steps } from './output';

/** What SQLite may put beside a database; a stale one would be taken for a part of the file that it lies beside. */
export const companionSuffixes = ['-wal', '-shm', '-journal'] as const;

/**
 * Calls fsync on a file, off the event loop. Never on a database that this process has open: closing any descriptor of a
 * file releases every lock that the process holds on it.
 */
export async function syncToDisk(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Calls fsync on the folder of a file, so that new, renamed and removed names survive a power cut. */
export function syncFolderOf(path: string): void {
  const descriptor = openSync(dirname(path), 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Writes a file under a temporary name, which is removed when the work fails or a signal ends it. */
export async function withPartial(path: string, work: (partial: string, steps: Steps) => Promise<void>): Promise<void> {
  const partial = `${path}.${crypto.randomUUID()}.partial`;
  const steps = createSteps(() => removePartial(partial));
  try {
    // Readable by its owner alone; SQLite gives its journal the same mode.
    closeSync(openSync(partial, 'wx', 0o600));
    await work(partial, steps);
  } finally {
    steps.stop();
    removePartial(partial);
  }
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

/** The service must be able to open a file that replaces another, also if another user runs the command. */
export function keepOwner(partial: string, database: string): void {
  const before = statOrNothing(database);
  const now = statOrNothing(partial);
  if (before !== undefined && (before.uid !== now?.uid || before.gid !== now.gid)) {
    chownSync(partial, before.uid, before.gid);
  }
}

/** Reads a file of one JSON value in UTF-8. */
export async function readJsonFile(path: string): Promise<unknown> {
  const file = Bun.file(path);
  if (!(await file.exists())) throw new OperatorError(`${path} is not a file that can be read.`);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.bytes());
  } catch {
    throw new OperatorError(`${path} is not UTF-8 text.`);
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new OperatorError(`${path} is not well-formed JSON.`);
  }
}
