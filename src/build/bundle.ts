import { existsSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import 'libsql';
import * as v from 'valibot';
import packageJson from '../../package.json' with { type: 'json' };
import { packageRoot } from '../package-root';
import { thirdPartyLicenses } from './licenses';

/** What is started by itself; each comes out under its own path, with `.js`. */
const entryPoints = ['src/main.ts', 'src/cli/main.ts', 'src/db/replica-sync.ts'];

/** What is read at run time, beside the modules. */
const files = ['drizzle/*.sql', 'drizzle/meta/_journal.json', 'src/demo/*.{css,html,js,json}'];

/** Served by its address, so nothing imports it. */
const scalar = { name: '@scalar/api-reference', main: 'dist/browser/standalone.js' };

const root = fileURLToPath(packageRoot);
const NativePackage = v.object({ main: v.string() });
const SourceMap = v.looseObject({ sources: v.array(v.string()) });

/**
 * Writes what runs with Bun alone, for this platform, in the layout of this package. Nothing is minified: Elysia reads
 * the text of handlers to see what they use, and sees less in minified text (elysia#1711).
 *
 * @param folder is made if needed; what is in it already stays, unless it has the same name
 * @param commit is part of the identity of the build
 */
export async function buildBundle(folder: string, commit = 'unknown'): Promise<void> {
  const { outputs } = await Bun.build({
    entrypoints: entryPoints.map((path) => join(root, path)),
    root,
    outdir: folder,
    target: 'bun',
    splitting: true,
    naming: { chunk: 'src/shared/[name]-[hash].[ext]' },
    sourcemap: 'linked',
    // Bun would write down where a package lies on the machine that builds.
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

/** Bun names sources from the output folder; named as if they lay in the bundle, they tell nothing of this machine. */
async function mirrorSources(mapPath: string, folder: string): Promise<string[]> {
  const map = v.parse(SourceMap, await Bun.file(mapPath).json());
  const paths = map.sources.map((source) => resolve(folder, source));
  const missing = paths.find((path) => !existsSync(path));
  if (missing !== undefined) throw new Error(`${mapPath} names ${missing}, which is not there`);
  const sources = paths.map((path) => relative(dirname(mapPath), join(folder, relative(root, path))));
  await Bun.write(mapPath, JSON.stringify({ ...map, sources }));
  return paths;
}

async function copyFiles(folder: string): Promise<void> {
  for (const pattern of files) {
    const paths = [...new Bun.Glob(pattern).scanSync(root)];
    if (paths.length === 0) throw new Error(`Nothing is there that ${pattern} could mean`);
    for (const path of paths) await cp(join(root, path), join(folder, path));
  }
}

/** The binary that libSQL has just chosen for this platform: its own loader knows best. */
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
