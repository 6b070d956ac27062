import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { buildBundle } from './bundle';

const root = new URL('../..', import.meta.url).pathname;
const cache = join(root, 'node_modules/.cache/tested-bundle');
const inputs = ['src/**/*', 'drizzle/**/*.{sql,json}', 'package.json', 'bun.lock'];

let bundle: Promise<string> | undefined;

/**
 * What Bun is given to run an entry point of the service as a process of its own: that of the bundle, which starts for
 * about six tenths of what the sources take. It is built once for all tests, and again when anything has changed.
 */
export async function programOf(entryPoint: 'src/main' | 'src/cli/main'): Promise<string> {
  bundle ??= findOrBuild();
  return join(await bundle, `${entryPoint}.js`);
}

async function findOrBuild(): Promise<string> {
  const folder = join(cache, await digestOfInputs());
  if (existsSync(folder)) return folder;
  forgetOlder();
  const building = `${folder}.${process.pid}`;
  await buildBundle(building);
  try {
    renameSync(building, folder);
  } catch (error) {
    // Another process of the tests has been quicker.
    if (!existsSync(folder)) throw error;
    rmSync(building, { recursive: true });
  }
  return folder;
}

/** Those of earlier sources; not what a run that is still on its way may have started. */
function forgetOlder(): void {
  mkdirSync(cache, { recursive: true });
  for (const path of readdirSync(cache).map((name) => join(cache, name))) {
    const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
    if (Date.now() - mtimeMs > 3_600_000) rmSync(path, { recursive: true, force: true });
  }
}

async function digestOfInputs(): Promise<string> {
  const hasher = new Bun.CryptoHasher('sha256').update(Bun.version);
  const paths = inputs.flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)]).sort();
  for (const path of paths) hasher.update(`\0${path}\0`).update(await Bun.file(join(root, path)).bytes());
  return hasher.digest('hex');
}
