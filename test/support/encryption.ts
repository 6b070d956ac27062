import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Two keys that begin alike, as far as the driver looks at one. */
export const keys = {
  right: 'correct horse battery staple, and then some: the right one',
  wrong: 'correct horse battery staple, and then some: the wrong one',
} as const;

/** The names of files in a folder, at any depth, in which one of the texts can be read. */
export function filesWith(folder: string, texts: readonly string[]): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.isFile())
    .filter((name) => holdsAny(join(folder, name), texts));
}

/** The open files of a process in which one of the texts can be read, those included that have no name any more. */
export function openFilesWith(processId: number, texts: readonly string[]): string[] {
  const folder = `/proc/${processId}/fd`;
  return readdirSync(folder)
    .map((name) => join(folder, name))
    .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile() && holdsAny(path, texts))
    .map((path) => readlinkSync(path));
}

function holdsAny(path: string, texts: readonly string[]): boolean {
  const bytes = readIfThere(path);
  return bytes !== undefined && texts.some((text) => bytes.includes(text));
}

/** A log or a journal may go while the files are looked through. */
function readIfThere(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}
