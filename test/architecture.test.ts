import { describe, expect, test } from 'bun:test';
import { dirname, join, normalize } from 'node:path';
import { Glob } from 'bun';

const root = join(import.meta.dirname, '..');

interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly imports: readonly { from: string; isTypeOnly: boolean }[];
}

const read = async (pattern: string): Promise<SourceFile[]> =>
  Promise.all(
    [...new Glob(pattern).scanSync(root)]
      .filter((path) => !path.includes('/node_modules/'))
      .sort()
      .map(async (path) => {
        const text = await Bun.file(join(root, path)).text();
        const imports = [...text.matchAll(/^(?:import|export)( type)?\b[^;'"]*?from '([^']+)'/gm)].map(
          ([, type, from = '']) => ({
            isTypeOnly: type !== undefined,
            from: from.startsWith('.') ? normalize(join(dirname(path), from)) : from,
          }),
        );
        return { path, text, imports };
      }),
  );

const source = await read('src/**/*.ts');
const tests = await read('test/**/*.ts');
const programs = await read('{src,test,drizzle}/**/*.{ts,js,mjs}');

const breaking = (files: readonly SourceFile[], isBroken: (file: SourceFile) => boolean) =>
  files.filter(isBroken).map(({ path }) => path);
const moduleOf = (path: string) => /^src\/modules\/([^/]+)\//.exec(path)?.[1];

describe('the source', () => {
  test('is read at all', () => {
    expect(source.length).toBeGreaterThan(30);
    expect(source.flatMap(({ imports }) => imports).length).toBeGreaterThan(100);
  });

  test('uses Elysia only where HTTP is spoken', () => {
    const mayUse =
      /^src\/(app\.ts|http\/|carrier-sandbox\/server\.ts|demo\/page\.ts|modules\/[^/]+\/routes\.ts|modules\/matching\/icons\.ts|modules\/users\/save\.ts)/;
    expect(
      breaking(
        source,
        ({ path, imports }) =>
          imports.some(({ from, isTypeOnly }) => from === 'elysia' && !(isTypeOnly && path === 'src/deps.ts')) &&
          !mayUse.test(path),
      ),
    ).toEqual([]);
  });

  test('uses Drizzle only in the database layer and in stores', () => {
    const mayUse =
      /^src\/(db\/|carrier-sandbox\/server\.ts|modules\/coverage\/outcomes\.ts|modules\/audit\/retention\.ts|modules\/[^/]+\/store(-[a-z]+)?\.ts)/;
    expect(
      breaking(
        source,
        ({ path, imports }) => imports.some(({ from }) => from.startsWith('drizzle-orm')) && !mayUse.test(path),
      ),
    ).toEqual([]);
  });

  test('reads the environment only where the process begins', () => {
    const mayUse = /^src\/(main\.ts|cli\/|build\/main\.ts)/;
    expect(breaking(source, ({ path, text }) => text.includes('process.env') && !mayUse.test(path))).toEqual([]);
  });

  test('has no module that imports another’s routes or service', () => {
    expect(
      breaking(source, ({ path, imports }) =>
        imports.some(({ from }) => {
          const other = moduleOf(from);
          return (
            moduleOf(path) !== undefined &&
            other !== undefined &&
            other !== moduleOf(path) &&
            /\/(routes|service)$/.test(from)
          );
        }),
      ),
    ).toEqual([]);
  });

  test('points one way: http, db and auth know no module, and nothing imports the app but its processes', () => {
    expect(
      breaking(
        source,
        ({ path, imports }) =>
          /^src\/(http|db|auth)\//.test(path) &&
          imports.some(({ from, isTypeOnly }) => moduleOf(from) !== undefined && !isTypeOnly),
      ),
    ).toEqual([]);
    expect(
      breaking(
        source,
        ({ path, imports }) =>
          imports.some(({ from, isTypeOnly }) => from === 'src/app' && !(isTypeOnly && path === 'src/client/api.ts')) &&
          path !== 'src/main.ts',
      ),
    ).toEqual([]);
  });

  test('has a client that holds nothing of the service when it runs, and whose types alone come from it', () => {
    const isClients = (path: string) => /^src\/client(\/|$|\.ts$)/.test(path);
    const ofClient = source.filter(({ path }) => isClients(path));
    expect(ofClient.length).toBeGreaterThan(5);
    expect(
      breaking(
        ofClient,
        ({ path, imports }) =>
          // It runs where the client is built.
          path !== 'src/client/known-slugs.ts' &&
          imports.some(({ from, isTypeOnly }) => !isClients(from) && !(isTypeOnly && path === 'src/client/api.ts')),
      ),
    ).toEqual([]);
    expect(ofClient.flatMap(({ text }) => text.match(/^import .*known-slugs'.*$/gm) ?? [])).toEqual([
      "import { knownSlugs } from './known-slugs' with { type: 'macro' };",
    ]);
  });

  test('has routes that know HTTP alone, without the database’s tables', () => {
    expect(
      breaking(
        source,
        ({ path, imports }) =>
          path.endsWith('/routes.ts') &&
          imports.some(({ from, isTypeOnly }) => from.startsWith('src/db/') && !isTypeOnly),
      ),
    ).toEqual([]);
  });

  test('never batches through Drizzle, whose transactions are deferred', () => {
    expect(breaking(source, ({ text }) => /\bdb\.batch\(|\bdb\.transaction\(/.test(text))).toEqual([]);
  });

  test('has no barrel but the schema’s, no vague file name, and no file over 300 lines', () => {
    expect(breaking(source, ({ path }) => path.endsWith('/index.ts') && path !== 'src/db/schema/index.ts')).toEqual([]);
    expect(breaking(source, ({ path }) => /\/(utils|helpers|common|misc)\b/.test(path))).toEqual([]);
    expect(breaking(source, ({ text }) => text.split('\n').length > 300)).toEqual([]);
  });

  test('casts nothing: Biome refuses `any` and `!`, and `as` stands in imports and before const alone', () => {
    const code = (text: string) =>
      text.replace(/^import [^;]*;|^export {[^}]*}|\/\*\*[\s\S]*?\*\/|\/\/.*$|'[^'\n]*'|`[^`]*`/gm, '');
    expect(breaking(source, ({ text }) => /\sas (?!const\b)/.test(code(text)))).toEqual([]);
  });
});

describe('the tests', () => {
  test('replace no module and skip nothing silently', () => {
    expect(
      breaking(
        tests,
        ({ path, text }) =>
          /mock\.module\(|\btest\.only\(|\btest\.skip\(/.test(text) && path !== 'test/architecture.test.ts',
      ),
    ).toEqual([]);
  });
});

describe('the project', () => {
  test('lies wherever it likes: the path of a file’s address, which writes a space as %20, is never taken for its path', () => {
    const ofFile = 'import\\.meta\\.url|import\\.meta\\.resolve\\([^()]*\\)|pathToFileURL\\([^()]*\\)|packageRoot';
    const taken = new RegExp(`(?:${ofFile})\\)*\\.pathname\\b|\\{[^{}]*\\bpathname\\b[^{}]*\\} = [^;]*(?:${ofFile})`);
    for (const wrong of [
      "new URL('..', import.meta.url).pathname",
      "new URL(import.meta.resolve('axe-core')).pathname",
      "const { pathname } = new URL('x', import.meta.url);",
    ]) {
      expect(wrong).toMatch(taken);
    }
    expect(breaking(programs, ({ path, text }) => taken.test(text) && path !== 'test/architecture.test.ts')).toEqual(
      [],
    );
  });

  test('pins every dependency and names no registry', async () => {
    const { dependencies, devDependencies, optionalDependencies } = await Bun.file(join(root, 'package.json')).json();
    for (const version of Object.values({ ...dependencies, ...devDependencies, ...optionalDependencies })) {
      expect(version).toMatch(/^(npm:[\w-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/);
    }
    expect((await Bun.file(join(root, 'bun.lock')).text()).match(/https?:\/\/[^"]+/g)).toBeNull();
  });
});
