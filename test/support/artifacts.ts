import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
} from 'node:fs';
import { join } from 'node:path';
import { runProgram, temporaryFolder } from './resources';

const root = join(import.meta.dirname, '../..');

/** The inputs of every build artifact. */
const inputs = ['src/**/*', 'drizzle/**/*.{sql,json}', 'package.json', 'bun.lock', 'tsconfig.json'];

/**
 * Returns a function that yields the folder of a build artifact. The artifact is built once for all test processes, and
 * again when an input changes.
 */
export function cachedFolder(
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
  removeOutdated(cache);
  const making = `${folder}.${process.pid}`;
  await make(making);
  try {
    renameSync(making, folder);
  } catch (error) {
    // Another test process built it first.
    if (!existsSync(folder)) throw error;
    rmSync(making, { recursive: true });
  }
  return folder;
}

/** Marks a folder as in use. */
function touch(folder: string): void {
  utimesSync(folder, new Date(), new Date());
}

/** Removes folders that were unused for an hour; a parallel run may still use a younger one. */
function removeOutdated(cache: string): void {
  mkdirSync(cache, { recursive: true });
  for (const path of readdirSync(cache).map((name) => join(cache, name))) {
    const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
    if (Date.now() - mtimeMs > 3_600_000) rmSync(path, { recursive: true, force: true });
  }
}

/** Hashes size and modification time, because reading all inputs takes each process 40 ms. */
function digestOf(patterns: readonly string[]): string {
  const hasher = new Bun.CryptoHasher('sha256').update(Bun.version);
  const paths = patterns.flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)]).sort();
  for (const path of paths) {
    const { size, mtimeMs } = statSync(join(root, path));
    hasher.update(`\0${path}\0${size}\0${mtimeMs}`);
  }
  return hasher.digest('hex');
}

const buildProgram = join(import.meta.dirname, '../../src/build/main.ts');

async function buildBundle(folder: string): Promise<void> {
  const child = Bun.spawn([process.execPath, buildProgram, folder], {
    cwd: temporaryFolder(),
    stdout: 'ignore',
    stderr: 'pipe',
  });
  const stderr = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`The build failed:\n${stderr}`);
}

/** The folder of the client package built by `bun run build:client`. */
export const builtClient = cachedFolder('tested-client', {
  async make(folder) {
    await runProgram(temporaryFolder(), [process.execPath, buildProgram, '--client', folder]);
  },
});

/** A copy of the examples in a package with the built client, before the first start of the service. */
export async function examplesFolder(): Promise<string> {
  const folder = temporaryFolder();
  cpSync(join(root, 'package.json'), join(folder, 'package.json'));
  cpSync(join(root, 'test/examples'), join(folder, 'test/examples'), { recursive: true });
  mkdirSync(join(folder, 'dist'));
  symlinkSync(await builtClient(), join(folder, 'dist/client'));
  return folder;
}

/** Bundles a module for a browser, or for another runtime without a module loader. */
export async function bundleForBrowser(path: string, format: 'esm' | 'cjs'): Promise<string> {
  const { outputs } = await Bun.build({ entrypoints: [path], target: 'browser', format });
  return (await outputs[0]?.text()) ?? '';
}

const bundle = cachedFolder('tested-bundle', { make: buildBundle });

/**
 * The path of an entry point in the bundle, which starts in about 60 % of the time that the sources take.
 */
export async function programOf(entryPoint: 'src/main' | 'src/cli/main'): Promise<string> {
  return join(await bundle(), `${entryPoint}.js`);
}
