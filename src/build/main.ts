import { existsSync, realpathSync } from 'node:fs';
import { cp, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
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

/** Bun would record the paths of modules on the machine that builds. */
const ownPaths = { 'import.meta.path': 'module.filename', __dirname: 'module.path' };

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
    // Parsing is a quarter of a start. Bun has bytecode for CommonJS only, and ignores that of another version of Bun.
    format: 'cjs',
    bytecode: true,
    sourcemap: 'linked',
    define: { ...ownPaths, BUILD_COMMIT: JSON.stringify(commit) },
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

/**
 * Rewrites the paths of sources as if they were in the bundle, so that they name no folder of this machine. Removes their
 * content, because Bun reads the whole map in each start.
 */
async function mirrorSources(mapPath: string, folder: string): Promise<string[]> {
  const map = v.parse(SourceMap, await Bun.file(mapPath).json());
  const paths = map.sources.map((source) => resolve(folder, source));
  const missing = paths.find((path) => !existsSync(path));
  if (missing !== undefined) throw new Error(`${mapPath} names ${missing}, which does not exist`);
  const sources = paths.map((path) => relative(dirname(mapPath), join(folder, relative(root, path))));
  await Bun.write(mapPath, JSON.stringify({ ...map, sources, sourcesContent: sources.map(() => null) }));
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

/** Builds the bundle, or with `--client` the client package, into the folder that the arguments name or below `dist`. */
async function build(args: readonly string[]): Promise<void> {
  const isClient = args[0] === '--client';
  const dist = join(root, isClient ? 'dist/client' : 'dist');
  const folder = resolve(args[isClient ? 1 : 0] ?? dist);
  // Bun records the paths of modules relative to this folder.
  process.chdir(root);
  // Removes an earlier build, but never a folder that the caller names.
  if (folder === dist && existsSync(dist)) await (isClient ? rm(dist, { recursive: true }) : removeEarlierBundle(dist));
  if (isClient) {
    await buildClient(folder);
    process.stdout.write(`${folder} is a package: npm pack ${folder}\n`);
    return;
  }
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

/**
 * The types of the API as inferred constants, because the compiler writes inferred types out in full. Each is mapped again,
 * so that the declarations name no type of the service.
 */
const flatApi = `
import type { Api as OfApp, Operations as OfClient, ProblemKinds as OfErrors } from ${JSON.stringify(join(root, 'src/client/api'))};

type Flat<Type> = Type extends infer Known ? { [Name in keyof Known]: Flat<Known[Name]> } : never;

declare const flat: { api: Flat<OfApp>; operations: Flat<OfClient>; problemKinds: Flat<OfErrors> };

export const Api = (() => flat.api)();
export const Operations = (() => flat.operations)();
export const ProblemKinds = (() => flat.problemKinds)();
`;

/**
 * Writes the client as a package without dependencies: one module for browsers, Node.js and Bun, the same as CommonJS for
 * `require`, and declarations that contain the service's types.
 */
async function buildClient(folder: string): Promise<void> {
  const commonJs = join(folder, 'commonjs');
  const temporary = realpathSync(await mkdtemp(join(tmpdir(), 'client-types-')));
  try {
    await compile(temporary);
    for (const [target, format] of [
      [folder, 'esm'],
      [commonJs, 'cjs'],
    ] as const) {
      await Bun.build({ entrypoints: [join(root, 'src/client.ts')], outdir: target, target: 'browser', format });
      await writeDeclarations(temporary, target);
    }
  } finally {
    await rm(temporary, { recursive: true });
  }
  await writeJson(join(folder, 'package.json'), clientPackage());
  // This also makes the declarations CommonJS.
  await writeJson(join(commonJs, 'package.json'), { type: 'commonjs' });
}

function writeJson(path: string, value: object): Promise<number> {
  return Bun.write(path, `${JSON.stringify(value, null, 2)}\n`);
}

/** Writes the declarations of `src/client.ts` and `flatApi` to a temporary folder, each under its whole path. */
async function compile(temporary: string): Promise<void> {
  const [config, flat] = [join(temporary, 'tsconfig.json'), join(temporary, 'flat-api.ts')];
  await Bun.write(flat, flatApi);
  await writeJson(config, {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: {
      ...{ noEmit: false, declaration: true, emitDeclarationOnly: true },
      ...{ rootDir: '/', outDir: join(temporary, 'out'), typeRoots: [join(root, 'node_modules/@types')] },
    },
    files: [join(root, 'src/client.ts'), flat],
    include: [],
  });
  // `bun run check` checks the sources. Without the check, the declarations are the same and take half the time.
  const command = [join(root, 'node_modules/typescript/bin/tsc'), '-p', config, '--noCheck'];
  const compiler = Bun.spawn([process.execPath, ...command], { stdout: 'inherit', stderr: 'inherit' });
  if ((await compiler.exited) !== 0) throw new Error('The compiler did not write the declarations of the client');
}

async function writeDeclarations(temporary: string, folder: string): Promise<void> {
  const sources = join(temporary, 'out', root, 'src');
  const paths = (await readdir(join(sources, 'client'))).map((name) => `client/${name}`);
  for (const path of ['client.d.ts', ...paths]) {
    const isApi = path === 'client/api.d.ts';
    const text = await Bun.file(join(sources, path)).text();
    const flat = isApi ? asTypes(await Bun.file(join(temporary, 'out', temporary, 'flat-api.d.ts')).text()) : '';
    await Bun.write(join(folder, path), isApi ? withComments(flat, text) : withExtensions(text));
  }
}

/** Turns the inferred constants into types. */
function asTypes(declaration: string): string {
  const values = [...declaration.matchAll(/^export declare const (\w+): ({[\s\S]*?^}|{});$/gm)];
  return values.map(([, name, type]) => `export type ${name} = ${type};\n`).join('\n');
}

/** Adds the comment of each operation, because an inferred type has none. */
function withComments(types: string, source: string): string {
  const found = source.matchAll(/(\/\*\* .* \*\/)\n\s+(\w+): {/g);
  const comments = new Map([...found].map(([, comment, name]) => [name, comment]));
  return types.replace(/^ {4}(\w+): {$/gm, (line, name) => `    ${comments.get(name)}\n${line}`);
}

/** Adds the file extensions that Node.js needs to relative imports. */
function withExtensions(declaration: string): string {
  return declaration.replace(/(?<=from '\.[^']*)(?=';)/g, '.js');
}

/** Has the name of the whole package, so that imports are the same with either installed. */
function clientPackage() {
  const { name, version, type, exports } = packageJson;
  return {
    name,
    version,
    description: 'Typed client of the personal planning service',
    private: true,
    type,
    sideEffects: false,
    exports: JSON.parse(JSON.stringify(exports).replaceAll('./dist/client/', './')),
  };
}

if (import.meta.main) await build(process.argv.slice(2));
