import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** All that something could be made of; the client is compiled as `tsconfig.json` says. */
export const inputs = ['src/**/*', 'drizzle/**/*.{sql,json}', 'package.json', 'bun.lock', 'tsconfig.json'];

/**
 * A function that gives a folder of what is made of the sources, and of these other files: it is made once for all
 * tests, and again when anything has changed.
 */
export function keptFolder(
  name: string,
  { make, alsoOf = [] }: { make: (folder: string) => Promise<void>; alsoOf?: readonly string[] },
): () => Promise<string> {
  const cache = join(root, 'node_modules/.cache', name);
  let found: Promise<string> | undefined;
  return async () => {
    found ??= findOrMake(cache, digestOf([...inputs, ...alsoOf]), make);
    const folder = await found;
    touch(folder);
    return folder;
  };
}

async function findOrMake(cache: string, digest: string, make: (folder: string) => Promise<void>): Promise<string> {
  const folder = join(cache, digest);
  if (existsSync(folder)) return folder;
  forgetOlder(cache);
  const making = `${folder}.${process.pid}`;
  await make(making);
  try {
    renameSync(making, folder);
  } catch (error) {
    // Another process of the tests has been quicker.
    if (!existsSync(folder)) throw error;
    rmSync(making, { recursive: true });
  }
  return folder;
}

/** Says that a folder is in use. */
function touch(folder: string): void {
  utimesSync(folder, new Date(), new Date());
}

/** Those that nobody has asked for in the last hour: another run may be on its way with what an earlier one made. */
function forgetOlder(cache: string): void {
  mkdirSync(cache, { recursive: true });
  for (const path of readdirSync(cache).map((name) => join(cache, name))) {
    const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
    if (Date.now() - mtimeMs > 3_600_000) rmSync(path, { recursive: true, force: true });
  }
}

/** By when each was written: to read them all takes each process forty milliseconds. */
function digestOf(patterns: readonly string[]): string {
  const hasher = new Bun.CryptoHasher('sha256').update(Bun.version);
  const paths = patterns.flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)]).sort();
  for (const path of paths) {
    const { size, mtimeMs } = statSync(join(root, path));
    hasher.update(`\0${path}\0${size}\0${mtimeMs}`);
  }
  return hasher.digest('hex');
}
