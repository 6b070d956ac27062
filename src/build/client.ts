import { realpathSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import packageJson from '../../package.json' with { type: 'json' };
import { packageRoot } from '../shared/build';

const root = fileURLToPath(packageRoot);

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

const dist = join(root, 'dist/client');
const folder = resolve(process.argv[2] ?? dist);
// Bun records the paths of modules relative to this folder.
process.chdir(root);
// Removes an earlier build, but never a folder that the caller names.
if (folder === dist) await rm(dist, { recursive: true, force: true });
await buildClient(folder);
process.stdout.write(`${folder} is a package: npm pack ${folder}\n`);
