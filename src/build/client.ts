import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import packageJson from '../../package.json' with { type: 'json' };
import { packageRoot } from '../shared/build';

const root = fileURLToPath(packageRoot);

/**
 * Writes the client as a package without dependencies: one module for browsers, Node.js and Bun, the same as CommonJS for
 * `require`, and declarations that contain the service's types.
 */
async function buildClient(folder: string): Promise<void> {
  const commonJs = join(folder, 'commonjs');
  const declarations = await mkdtemp(join(tmpdir(), 'client-types-'));
  try {
    await compile(declarations);
    for (const [target, format] of [
      [folder, 'esm'],
      [commonJs, 'cjs'],
    ] as const) {
      await Bun.build({ entrypoints: [join(root, 'src/client.ts')], outdir: target, target: 'browser', format });
      await writeDeclarations(declarations, target);
    }
  } finally {
    await rm(declarations, { recursive: true });
  }
  await writeJson(join(folder, 'package.json'), clientPackage());
  // This also makes the declarations CommonJS.
  await writeJson(join(commonJs, 'package.json'), { type: 'commonjs' });
}

function writeJson(path: string, value: object): Promise<number> {
  return Bun.write(path, `${JSON.stringify(value, null, 2)}\n`);
}

async function writeDeclarations(declarations: string, folder: string): Promise<void> {
  const paths = (await readdir(join(declarations, 'client'))).map((name) => `client/${name}`);
  for (const path of ['client.d.ts', ...paths]) {
    const text = await Bun.file(join(declarations, path)).text();
    const isApi = path === 'client/api.d.ts';
    const flat = isApi ? asTypes(await Bun.file(join(declarations, 'build/flat-api.d.ts')).text()) : '';
    await Bun.write(join(folder, path), isApi ? withComments(flat, text) : withExtensions(text));
  }
}

async function compile(folder: string): Promise<void> {
  const command = [join(root, 'node_modules/typescript/bin/tsc'), '-p', join(root, 'src/build/client.tsconfig.json')];
  // The sources are checked by themselves; what is written is the same without, in less than half the time.
  const compiler = Bun.spawn([process.execPath, ...command, '--noCheck', '--outDir', folder], {
    stdout: 'inherit',
    stderr: 'inherit',
  });
  if ((await compiler.exited) !== 0) throw new Error('The declarations of the client could not be made');
}

/** The compiler writes out the types of values alone. */
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

/** As Node.js resolves modules, a relative address has its file's extension. */
function withExtensions(declaration: string): string {
  return declaration.replace(/(?<=from '\.[^']*)(?=';)/g, '.js');
}

/** Under the name of the whole package, so that an import is the same whether it or the client alone is installed. */
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
// Bun writes down where modules lie, seen from here.
process.chdir(root);
// What an earlier build left; never a folder that somebody names, which may hold anything.
if (folder === dist) await rm(dist, { recursive: true, force: true });
await buildClient(folder);
process.stdout.write(`${folder} is a package: npm pack ${folder}\n`);
