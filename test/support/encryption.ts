import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Two keys with a common prefix that is longer than a 32-byte key. */
export const keys = {
  right: 'correct horse battery staple, and then some: the right one',
  wrong: 'correct horse battery staple, and then some: the wrong one',
} as const;

/** The files in a folder, at any depth, that contain one of the texts. */
export function filesWith(folder: string, texts: readonly string[]): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.isFile())
    .filter((name) => holdsAny(join(folder, name), texts));
}

/** The open files of a process, also deleted ones, that contain one of the texts. */
export function openFilesWith(processId: number, texts: readonly string[]): string[] {
  const folder = `/proc/${processId}/fd`;
  return (
    readdirSync(folder)
      .map((name) => join(folder, name))
      .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile() && holdsAny(path, texts))
      // The process may have closed a file meanwhile.
      .flatMap((path) => (existsSync(path) ? [readlinkSync(path)] : []))
  );
}

function holdsAny(path: string, texts: readonly string[]): boolean {
  const bytes = readIfThere(path);
  return bytes !== undefined && texts.some((text) => bytes.includes(text));
}

/** Returns undefined for a file that was removed meanwhile, such as a journal. */
function readIfThere(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}
