import { describe, expect, test } from 'bun:test';
import { dirname, join, normalize } from 'node:path';
import { Glob } from 'bun';

const root = join(import.meta.dirname, '..');

interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly imports: readonly { from: string; isTypeOnly: boolean }[];
}

const importPattern = /^(?:import|export)( type)?\b[^;'"]*?from '([^']+)'|\bimport\('([^']+)'\)/gm;

function parse(path: string, text: string): SourceFile {
  const imports = [...text.matchAll(importPattern)].map(([, type, from = '', dynamic = from]) => ({
    isTypeOnly: type !== undefined,
    from: dynamic.startsWith('.') ? normalize(join(dirname(path), dynamic)) : dynamic,
  }));
  return { path, text, imports };
}

const read = async (pattern: string): Promise<SourceFile[]> =>
  Promise.all(
    [...new Glob(pattern).scanSync(root)]
      .filter((path) => !path.includes('/node_modules/'))
      .sort()
      .map(async (path) => parse(path, await Bun.file(join(root, path)).text())),
  );

const source = await read('src/**/*.ts');
const tests = await read('test/**/*.ts');
const programs = await read('{src,test,drizzle}/**/*.{ts,js,mjs}');

const breaking = (files: readonly SourceFile[], isBroken: (file: SourceFile) => boolean) =>
  files.filter(isBroken).map(({ path }) => path);
const moduleOf = (path: string) => /^src\/modules\/([^/]+)\//.exec(path)?.[1];

/**
 * The layers of `src`, lowest first. A file may import from its own layer and lower ones, types included.
 * The client is separate: it runs in browsers and imports only types from the service.
 */
const layers: readonly (readonly [name: string, members: RegExp])[] = [
  ['shared', /^src\/(errors|shared\/)/],
  ['log and settings', /^src\/(log|log-fields|config\/|telemetry\/events)/],
  ['database and tokens', /^src\/(db|auth)\//],
  ['dependencies of the app', /^src\/deps\b/],
  ['HTTP', /^src\/http\//],
  ['modules', /^src\/modules\//],
  ['telemetry, seed and demo page', /^src\/(telemetry\/|seed|demo\/(page|answers))\b/],
  ['app', /^src\/app\b/],
  ['processes', /^src\/(main|start\/|demo\/|cli\/|carrier-sandbox\/|build\/|client)/],
];
const layerOf = (path: string) => layers.findIndex(([, members]) => members.test(path));

/** Each import of a file in a higher layer, as `importer -> imported`. */
function upwardImports(files: readonly SourceFile[]): string[] {
  return files.flatMap(({ path, imports }) =>
    imports
      .filter(({ from }) => from.startsWith('src/') && layerOf(from) > layerOf(path))
      .map(({ from }) => `${path} -> ${from}`),
  );
}

/** Each import cycle once, as the path that leads back to its first file. */
function importCycles(files: readonly SourceFile[]): string[] {
  const byName = new Map(files.map((file) => [file.path.replace(/\.ts$/, ''), file]));
  const state = new Map<string, 'open' | 'done'>();
  const cycles: string[] = [];
  const visit = (name: string, trail: readonly string[]): void => {
    const file = byName.get(name);
    if (file === undefined || state.get(name) === 'done') return;
    if (state.get(name) === 'open') {
      cycles.push([...trail.slice(trail.indexOf(name)), name].join(' -> '));
      return;
    }
    state.set(name, 'open');
    for (const { from } of file.imports) visit(from.replace(/\.ts$/, ''), [...trail, name]);
    state.set(name, 'done');
  };
  for (const name of byName.keys()) visit(name, []);
  return cycles;
}

describe('import graph', () => {
  test('includes every source file in one layer, and has no import of a higher layer and no cycle', () => {
    expect(source.length).toBeGreaterThan(30);
    expect(source.flatMap(({ imports }) => imports).length).toBeGreaterThan(100);
    expect(breaking(source, ({ path }) => layerOf(path) === -1)).toEqual([]);
    expect(upwardImports(source)).toEqual([]);
    expect(importCycles(source)).toEqual([]);
  });

  test('shows a planted upward import and a planted cycle, with type imports and lazy imports', () => {
    for (const planted of [
      "import { matchProducts } from '../modules/matching/match';",
      "import type { Condition } from '../modules/matching/catalog-model';",
      "const lazy = () => import('../modules/matching/match');",
    ]) {
      expect(upwardImports([parse('src/db/planted.ts', planted)])).toHaveLength(1);
    }
    const cycle = [
      parse('src/db/one.ts', "import { two } from './two';"),
      parse('src/db/two.ts', "import type { Three } from './three';"),
      parse('src/db/three.ts', "export const load = () => import('./one');"),
    ];
    expect(importCycles(cycle)).toEqual(['src/db/one -> src/db/two -> src/db/three -> src/db/one']);
  });
});

const importsOf = ({ imports }: SourceFile, isSuch: (from: string, isTypeOnly: boolean) => boolean) =>
  imports.some(({ from, isTypeOnly }) => isSuch(from, isTypeOnly));
const withoutText = (text: string) =>
  text.replace(/^import [^;]*;|^export {[^}]*}|\/\*\*[\s\S]*?\*\/|\/\/.*$|'[^'\n]*'|`[^`]*`/gm, '');

describe('source code', () => {
  const handlesHttp =
    /^src\/(app\.ts|http\/|carrier-sandbox\/server\.ts|demo\/page\.ts|modules\/[^/]+\/routes\.ts|modules\/users\/save\.ts)/;
  const handlesSql =
    /^src\/(db\/|carrier-sandbox\/server\.ts|modules\/coverage\/outcomes\.ts|modules\/[^/]+\/([a-z]+-)?store(-[a-z]+)?\.ts)/;
  const ofProcess = /\bprocess\.(?:env|std|argv|cwd|exit|on\(|once\(|off\()/;
  const ofOtherModule = (path: string, from: string) =>
    moduleOf(path) !== undefined && moduleOf(from) !== undefined && moduleOf(path) !== moduleOf(from);

  test.each<[rule: string, isBroken: (file: SourceFile) => boolean]>([
    [
      'imports Elysia only where it handles HTTP',
      (file) =>
        !handlesHttp.test(file.path) &&
        importsOf(file, (from, isTypeOnly) => from === 'elysia' && !(isTypeOnly && file.path === 'src/deps.ts')),
    ],
    [
      'imports Drizzle only in the database layer and in stores',
      (file) => !handlesSql.test(file.path) && importsOf(file, (from) => from.startsWith('drizzle-orm')),
    ],
    [
      'reads the environment only in entry points',
      ({ path, text }) => text.includes('process.env') && !/^src\/(main|cli\/main|build\/main)\.ts$/.test(path),
    ],
    [
      'passes commands their environment, streams and signals, which only cli/main.ts takes from the process',
      ({ path, text }) => /^src\/cli\/(?!main\.ts$)/.test(path) && ofProcess.test(text),
    ],
    [
      'imports no routes or service of another module',
      (file) => importsOf(file, (from) => ofOtherModule(file.path, from) && /\/(routes|service)$/.test(from)),
    ],
    [
      'has routes that do not use the database layer',
      (file) =>
        file.path.endsWith('/routes.ts') &&
        importsOf(file, (from, isTypeOnly) => from.startsWith('src/db/') && !isTypeOnly),
    ],
    [
      'never batches through Drizzle, which begins deferred transactions',
      ({ text }) => /\bdb\.batch\(|\bdb\.transaction\(/.test(text),
    ],
    [
      'has no barrel and no vague file name',
      ({ path }) => path.endsWith('/index.ts') || /\/(utils|helpers|common|misc)\b/.test(path),
    ],
    [
      'contains no cast: `as` stands only in imports and before const',
      ({ text }) => /\sas (?!const\b)/.test(withoutText(text)),
    ],
  ])('%s', (_, isBroken) => {
    expect(breaking(source, isBroken)).toEqual([]);
  });

  test('imports the app only in main.ts, and its type in the client', () => {
    const importers = source.flatMap(({ path, imports }) =>
      imports.filter(({ from }) => from === 'src/app').map(({ isTypeOnly }) => ({ path, isTypeOnly })),
    );
    expect(importers).toEqual([
      { path: 'src/client/api.ts', isTypeOnly: true },
      { path: 'src/main.ts', isTypeOnly: false },
    ]);
  });

  test('has a client that imports only types from the service', () => {
    const isClient = (path: string) => /^src\/client(\/|$|\.ts$)/.test(path);
    const client = source.filter(({ path }) => isClient(path));
    expect(client.length).toBeGreaterThan(4);
    const values = client.flatMap(({ path, imports }) =>
      imports
        .filter(({ from, isTypeOnly }) => !isClient(from) && !(isTypeOnly && path === 'src/client/api.ts'))
        .map(({ from }) => from),
    );
    expect([...new Set(values)]).toEqual(['src/shared/problems']);
    expect(client.flatMap(({ text }) => text.match(/^import (?!type ).*shared\/problems'.*$/gm) ?? [])).toEqual([
      // The bundler evaluates this macro at build time.
      "import { knownSlugs } from '../shared/problems' with { type: 'macro' };",
    ]);
  });

  test('stays small: 9 in the root, none over 300 lines, 10 under 40 lines', async () => {
    const all = [...new Glob('src/**/*').scanSync(root)];
    expect(all.length).toBeLessThanOrEqual(130);
    expect(all.filter((path) => dirname(path) === 'src').length).toBeLessThanOrEqual(9);
    const lines = new Map(source.map(({ path, text }) => [path, text.split('\n').length - 1]));
    expect(breaking(source, ({ path }) => (lines.get(path) ?? 0) > 300)).toEqual([]);
    expect(breaking(source, ({ path }) => (lines.get(path) ?? 0) < 40).length).toBeLessThanOrEqual(10);
  });
});

test('tests mock no module and use neither test.only nor test.skip', () => {
  const isForbidden = ({ text }: SourceFile) => /mock\.module\(|\btest\.only\(|\btest\.skip\(/.test(text);
  expect(breaking(tests, isForbidden)).toEqual([]);
});

describe('project', () => {
  test('uses no pathname of a file URL as a file path, because it encodes spaces as %20', () => {
    const ofFile = 'import\\.meta\\.url|import\\.meta\\.resolve\\([^()]*\\)|pathToFileURL\\([^()]*\\)|packageRoot';
    const taken = new RegExp(`(?:${ofFile})\\)*\\.pathname\\b|\\{[^{}]*\\bpathname\\b[^{}]*\\} = [^;]*(?:${ofFile})`);
    const wrong = [
      "new URL('..', import.meta.url).pathname",
      "new URL(import.meta.resolve('axe-core')).pathname",
      "const { pathname } = new URL('x', import.meta.url);",
    ];
    expect(wrong.filter((each) => !taken.test(each))).toEqual([]);
    expect(breaking(programs, ({ text }) => taken.test(text))).toEqual(['test/architecture.test.ts']);
  });

  test('pins every dependency and names no registry', async () => {
    const { dependencies, devDependencies, optionalDependencies } = await Bun.file(join(root, 'package.json')).json();
    for (const version of Object.values({ ...dependencies, ...devDependencies, ...optionalDependencies })) {
      expect(version).toMatch(/^(npm:[\w-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/);
    }
    expect((await Bun.file(join(root, 'bun.lock')).text()).match(/https?:\/\/[^"]+/g)).toBeNull();
  });
});
