import { existsSync } from 'node:fs';
import { cp, readdir, rm } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import 'libsql';
import * as v from 'valibot';
import packageJson from '../../package.json' with { type: 'json' };
import { packageRoot } from '../shared/build';

const LicensedPackage = v.object({
  name: v.string(),
  version: v.string(),
  license: v.optional(v.string(), 'not stated'),
});

/** Lists the licences of the packages of these files, with the licence text where the package has one. */
async function thirdPartyLicenses(paths: readonly string[]): Promise<string> {
  const folders = new Set(paths.map(packageFolder).filter((folder) => folder !== undefined));
  const entries = await Promise.all([...folders].map(entryOf));
  return `${[...new Set(entries)].sort().join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

/** Undefined for a file of this package itself. */
function packageFolder(path: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0];
}

async function entryOf(folder: string): Promise<string> {
  const { name, version, license } = v.parse(LicensedPackage, await Bun.file(join(folder, 'package.json')).json());
  const names = (await readdir(folder)).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file)).sort();
  const texts = await Promise.all(names.map((file) => Bun.file(join(folder, file)).text()));
  return [`${name} ${version} (${license})`, ...texts.map((text) => text.trim())].join('\n\n');
}

/** The programs of the bundle, each at its own path with `.js`. */
const entryPoints = ['src/main.ts', 'src/cli/main.ts', 'src/db/replica-sync.ts'];

/** The files that are read at run time. */
const files = ['drizzle/*.sql', 'drizzle/meta/_journal.json', 'src/demo/*.html'];

/** Served as a file, so no module imports it. */
const scalar = { name: '@scalar/api-reference', main: 'dist/browser/standalone.js' };

const root = fileURLToPath(packageRoot);
const NativePackage = v.object({ main: v.string() });
const SourceMap = v.looseObject({ sources: v.array(v.string()) });

/**
 * Writes a bundle that needs only Bun, for this platform, in the layout of this package. It is not minified, because Elysia
 * reads the text of handlers to find the values that they use, and fails on minified text (elysia#1711).
 *
 * @param folder is created if needed; other files in it stay
 * @param commit is part of the identity of the build
 */
async function buildBundle(folder: string, commit = 'unknown'): Promise<void> {
  const { outputs } = await Bun.build({
    entrypoints: entryPoints.map((path) => join(root, path)),
    root,
    outdir: folder,
    target: 'bun',
    splitting: true,
    naming: { chunk: 'src/shared/[name]-[hash].[ext]' },
    sourcemap: 'linked',
    // Bun would record the path of a package on the machine that builds.
    define: { __dirname: 'import.meta.dirname', BUILD_COMMIT: JSON.stringify(commit) },
  });
  const maps = outputs.filter(({ kind }) => kind === 'sourcemap').map(({ path }) => path);
  const sources = await Promise.all(maps.map((path) => mirrorSources(path, folder)));
  await copyFiles(folder);
  const native = await nativePackage();
  const shipped = [native, scalar];
  for (const { name, main } of shipped) {
    for (const file of ['package.json', main]) {
      await cp(join(root, 'node_modules', name, file), join(folder, 'node_modules', name, file));
    }
  }
  const used = [...sources.flat(), ...shipped.map(({ name, main }) => join(root, 'node_modules', name, main))];
  await Bun.write(join(folder, 'THIRD-PARTY-LICENSES'), await thirdPartyLicenses(used));
  await Bun.write(join(folder, 'package.json'), `${JSON.stringify(bundlePackage(), null, 2)}\n`);
}

/** Rewrites the paths of sources as if they were in the bundle, so that they name no folder of this machine. */
async function mirrorSources(mapPath: string, folder: string): Promise<string[]> {
  const map = v.parse(SourceMap, await Bun.file(mapPath).json());
  const paths = map.sources.map((source) => resolve(folder, source));
  const missing = paths.find((path) => !existsSync(path));
  if (missing !== undefined) throw new Error(`${mapPath} names ${missing}, which does not exist`);
  const sources = paths.map((path) => relative(dirname(mapPath), join(folder, relative(root, path))));
  await Bun.write(mapPath, JSON.stringify({ ...map, sources }));
  return paths;
}

async function copyFiles(folder: string): Promise<void> {
  for (const pattern of files) {
    const paths = [...new Bun.Glob(pattern).scanSync(root)];
    if (paths.length === 0) throw new Error(`No file matches ${pattern}`);
    for (const path of paths) await cp(join(root, path), join(folder, path));
  }
}

/** The package of the binary that the loader of libSQL has chosen for this platform. */
async function nativePackage() {
  const loaded = Object.keys(require.cache).find((path) => path.endsWith('.node'));
  if (loaded === undefined) throw new Error('libSQL has loaded no native module');
  const folder = dirname(loaded);
  const { main } = v.parse(NativePackage, await Bun.file(join(folder, 'package.json')).json());
  return { name: relative(join(root, 'node_modules'), folder), main };
}

function bundlePackage() {
  const { name, version, type, engines } = packageJson;
  const scripts = {
    start: 'exec bun --no-install src/main.js',
    planning: 'exec bun --no-install src/cli/main.js',
  };
  return { name, version, private: true, type, engines, scripts };
}

/** Keeps the client of `bun run build:client`, because a frontend may use this folder as a workspace. */
export async function removeEarlierBundle(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name !== 'client');
  for (const name of names) await rm(join(folder, name), { recursive: true });
}

if (import.meta.main) await build();

async function build(): Promise<void> {
  const dist = fileURLToPath(new URL('dist', packageRoot));
  const folder = resolve(process.argv[2] ?? dist);
  // Bun records the paths of modules relative to this folder.
  process.chdir(fileURLToPath(packageRoot));
  // Removes an earlier build, but never a folder that the caller names.
  if (folder === dist && existsSync(dist)) await removeEarlierBundle(dist);
  const commit = commitToBuild(process.env.BUILD_COMMIT);
  await buildBundle(folder, commit);
  process.stdout.write(`Built ${commit}: ${folder} runs with \`bun --no-install src/main.js\`\n`);
}

/** The commit from BUILD_COMMIT, else from git if this folder is a repository. */
function commitToBuild(named: string | undefined): string {
  if (named !== undefined && named !== '') {
    if (/^[0-9a-f]{7,40}$|^unknown$/.test(named)) return named;
    throw new Error('BUILD_COMMIT must be a commit: 7 to 40 hexadecimal digits');
  }
  if (Bun.which('git') === null) return 'unknown';
  const { exitCode, stdout } = Bun.spawnSync(['git', 'rev-parse', '--short=12', 'HEAD'], { stderr: 'ignore' });
  return exitCode === 0 ? stdout.toString().trim() : 'unknown';
}
