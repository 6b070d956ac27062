import { describe, expect, test } from 'bun:test';
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Options, parse } from 'acorn';
import createFetchClient from 'openapi-fetch';
import packageJson from '../../package.json';
import { operations } from '../../src/client/api';
import { journeyOutcome, makeOlder } from '../client/journey';
import { listenWithDemoData, startSandbox } from '../support/app';
import { builtClient, bundleForBrowser } from '../support/artifacts';
import { atEnd, runProgram as run, temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const { name: packageName, version } = packageJson;
const read = (path: string) => Bun.file(path).text();
const pages = await Promise.all(['README.md', 'docs/frontend.md'].map((path) => read(join(root, path))));
// Each journey causes carrier failures, so the circuit breaker must not open.
const carrier = (await startSandbox()).carrier({ attempts: 1, breakerFailures: 1000 });
const { address, tokenOf } = await listenWithDemoData({ carrier });

/** A frontend in an empty folder, created by the documented steps, without access to this folder. */
const frontend = temporaryFolder();
const installed = join(frontend, 'node_modules', packageName);
const tarball = `${packageName}-${version}.tgz`;
await run(await builtClient(), [process.execPath, 'pm', 'pack', '--destination', frontend, '--quiet']);
await Bun.write(join(frontend, 'package.json'), '{ "name": "frontend", "private": true, "type": "module" }');
const install = ['install', '--offline', '--no-audit', '--no-fund', `./${tarball}`];
const npm = Bun.which('npm');
await run(frontend, npm === null ? [process.execPath, 'add', `./${tarball}`] : [npm, ...install]);

const write = (path: string, text: string) => Bun.write(join(frontend, path), text);
const runHere = (...command: string[]) => run(frontend, command);
const strict = { strict: true, exactOptionalPropertyTypes: true, target: 'es2023' };

/** Compiles files of the frontend; rejects with the errors of the compiler. */
async function compile(name: string, compilerOptions: object, files: readonly string[]): Promise<void> {
  await write(name, JSON.stringify({ compilerOptions: { ...strict, ...compilerOptions }, files }));
  await runHere(process.execPath, join(root, 'node_modules/typescript/bin/tsc'), '-p', name);
}

const blocks = pages.flatMap((page) => [...page.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, block = '']) => block));
const examples = blocks.join('\n').replace('http://127.0.0.1:3000', address);
await write('readme.ts', examples.replace('TOKEN', await tokenOf('readme')));
await write(
  'refused.ts',
  `import { type ClientError, createClient } from '${packageName}/client';
   const client = createClient({ baseUrl: 'http://127.0.0.1', token: '' });
   // @ts-expect-error: a wrong value of an enum
   void client.saveLtcLifetimeCare({ careFacilityType: 'atHome' });
   // @ts-expect-error: an incomplete applicant
   void client.startLtcApplication({ firstName: 'Ada' });
   // @ts-expect-error: a kind of error is missing
   export function unhandled(error: ClientError): string {
     switch (error.slug) { case 'invalid-input': return error.detail; }
   }`,
);

describe('client package', () => {
  test('is installed as the README says, needs no other package and contains no code or path of the service', async () => {
    expect(pages[0]).toContain(`npm install ../${packageName}/${tarball}\n`);
    const packages = [...new Bun.Glob('*').scanSync({ cwd: join(frontend, 'node_modules'), onlyFiles: false })];
    expect(packages).toEqual([packageName]);
    const files = [...new Bun.Glob('**').scanSync(installed)];
    expect(files.filter((path) => !path.endsWith('.d.ts')).sort()).toEqual(
      ['client.js', 'commonjs/client.js', 'commonjs/package.json', 'package.json'].sort(),
    );
    for (const file of files) {
      const text = await read(join(installed, file));
      expect(text).not.toContain(root);
      // Bun adds a comment with the path of each module, relative to the build folder.
      expect(text.match(/^\/\/ (?!src\/).*/gm)).toBeNull();
      expect(text.match(/from ['"](?!\.\/)[^'"]+/g)).toBeNull();
      expect(text).not.toMatch(/elysia|valibot|drizzle|libsql|\bBun\b|node:/i);
    }
  });

  test('has the size that docs/frontend.md states', async () => {
    const { outputs } = await Bun.build({ entrypoints: [join(installed, 'client.js')], minify: true });
    expect(Bun.gzipSync((await outputs[0]?.text()) ?? '').byteLength).toBeLessThan(4750);
    expect(pages[1]).toContain('is 4.5 kB minified and gzipped');
  });

  test('has inlined types and a comment for every operation, without any or unknown', async () => {
    const api = await read(join(installed, 'client/api.d.ts'));
    expect(api).toContain('"assistedLiving" | "inHome"');
    expect(api).toMatch(/readonly 'carrier-declined': \{\s+readonly code: 313;/);
    expect(api).not.toMatch(/\b(any|unknown|never|import)\b(?!")/);
    for (const name of Object.keys(operations)) expect(api).toMatch(new RegExp(`/\\*\\* .+ \\*/\\n    ${name}: {`));
  });

  test.each<[path: string, options: Options]>([
    ['client.js', { ecmaVersion: 2020, sourceType: 'module' }],
    ['commonjs/client.js', { ecmaVersion: 2021, sourceType: 'script' }],
  ])('has no newer syntax in %s', async (path, options) => {
    expect(() => parse('class A { a = 1 }', options)).toThrow();
    parse(await read(join(installed, path)), options);
  });

  test('uses only features of the oldest platforms', async () => {
    const types = await read(join(installed, 'client/api.d.ts'));
    const [array, url, controller] = ["['']", "URL.canParse('')", 'new AbortController()'];
    const newer = [`${array}.findLast(Boolean)`, url, controller, 'crypto.randomUUID()', "structuredClone('')"];
    const uses = [...newer, 'AbortSignal.timeout(1)', "Object.hasOwn({}, '')"].map(
      (use, index) => `// @ts-expect-error: newer\nexport const used${index} = () => ${use};`,
    );
    const stubs: Record<string, string> = {
      'api.ts': `${types}\nexport declare const operations: Operations;`,
      '../shared/problems.ts': ['export const knownSlugs = (): string[] => [];', ...uses].join('\n'),
    };
    for (const path of new Bun.Glob('*.ts').scanSync(join(root, 'src/client')))
      await write(join('oldest/client', path), await read(join(root, 'src/client', path)));
    for (const [path, text] of Object.entries(stubs)) await write(join('oldest/client', path), text);
    await write('oldest/client.ts', await read(join(root, 'src/client.ts')));
    const options = { target: 'esnext', module: 'preserve', lib: ['es2020'], types: [] };
    await compile('oldest.json', options, ['oldest/client.ts', join(root, 'test/client/platform.d.ts')]);
  });
});

describe('client in a frontend', () => {
  test('compiles with nodenext, from CommonJS and as a workspace, and runs in Bun and Node.js', async () => {
    await write(
      'old.cts',
      `import { createClient, type Result, type User } from '${packageName}/client';
       const client = createClient({ baseUrl: '${address}', token: '${await tokenOf('commonjs')}' });
       // @ts-expect-error: a wrong value of an enum
       export const wrong = () => client.saveLtcLifetimeCare({ careFacilityType: 'atHome' });
       const saved: Promise<Result<{ readonly user: User }>> = client.saveProfile({ firstName: 'Ada' });
       void saved.then(({ data }) => console.log(data?.user.profile?.firstName));`,
    );
    const linked = join('workspace/node_modules', packageName);
    await write(join(linked, 'package.json'), JSON.stringify(packageJson));
    mkdirSync(join(frontend, linked, 'dist'));
    symlinkSync(installed, join(frontend, linked, 'dist/client'));
    const imported = `import { createClient } from '${packageName}/client';`;
    await write('workspace/refused.ts', `${imported}\n// @ts-expect-error: no token\nexport default createClient({});`);
    await write('workspace/main.ts', `${imported}\nconsole.log(typeof createClient);`);

    const files = ['readme.ts', 'refused.ts', 'old.cts', 'workspace/main.ts', 'workspace/refused.ts'];
    const options = { module: 'nodenext', lib: ['es2023', 'dom'], types: [], skipLibCheck: false, rootDir: '.' };
    await compile('nodenext.json', { ...options, outDir: 'out' }, files);
    const printed = /^Ada\n\S.+\ntrue\nundefined\n$/;
    expect(await runHere(process.execPath, 'readme.ts')).toMatch(printed);
    expect(await runHere(process.execPath, 'workspace/main.ts')).toBe('function\n');
    const node = Bun.which('node');
    if (node === null) return;
    expect(await runHere(node, 'out/readme.js')).toMatch(printed);
    expect(await runHere(node, 'out/old.cjs')).toBe('Ada\n');
  });

  test('compiles with a bundler, as do the examples and a client of openapi-typescript, which also runs', async () => {
    cpSync(installed, join(frontend, 'beside'), { recursive: true });
    const copied = ['journey.mjs', 'page.js'].map((name) => join('beside', name));
    for (const path of copied) cpSync(join(root, 'test/examples', path.slice('beside/'.length)), join(frontend, path));
    const generator = [process.execPath, join(root, 'test/support/child.ts'), 'document-types'];
    await write('document.ts', await run(root, [...generator, `${address}/swagger/json`]));
    const types = join(root, 'test/client/generated.test-d.ts');
    const options = {
      ...{ module: 'preserve', noEmit: true, allowJs: true, checkJs: true, skipLibCheck: true },
      ...{ lib: ['es2023', 'dom', 'dom.iterable'], types: ['bun'], typeRoots: [join(root, 'node_modules/@types')] },
      paths: { 'types-of-document': ['./document.ts'], 'api-of-client': [join(installed, 'client/api.d.ts')] },
    };
    await compile('bundler.json', options, ['readme.ts', 'refused.ts', ...copied, types]);
    const { allowed } = await import(types);
    const headers = { authorization: `Bearer ${await tokenOf('with-openapi-fetch')}` };
    const outcome = await allowed(createFetchClient({ baseUrl: address, headers }));
    expect(outcome).toEqual({ pointer: '/careCosts', countRules: expect.any(Number), countTerms: expect.any(Number) });
  });
});

describe('client journey', async () => {
  for (const [format, name] of [
    ['esm', 'journey.js'],
    ['cjs', 'journey.cjs'],
  ] as const)
    await write(name, await bundleForBrowser(join(root, 'test/client/journey.ts'), format));
  await write('older.js', `(${makeOlder})();`);

  /** Runs the journey with the client that each expression loads, and returns the outcomes. */
  async function outcomesIn(runtime: readonly string[], clients: Readonly<Record<string, string>>) {
    const calls = Object.entries(clients).map(async ([name, run]) => {
      const token = await tokenOf(`${runtime[0]}-${name}`);
      return `${name}: await ${run}, '${address}', '${token}')`;
    });
    const program = `
      import { createRequire } from 'node:module';
      import { journey } from './journey.js';
      import * as imported from '${packageName}/client';
      const require = createRequire(import.meta.url);
      console.log(JSON.stringify({ ${await Promise.all(calls)} }));`;
    await write('journeys.mjs', program);
    return JSON.parse(await runHere(...runtime, 'journeys.mjs'));
  }
  const clients = { imported: 'journey(imported', required: `journey(require('${packageName}/client')` };
  /** Like React Native: a realm with `fetch`, headers and timers, and no other web API. */
  const bare = `(() => {
    const { runInNewContext } = require('node:vm');
    const { readFileSync } = require('node:fs');
    const { fetch, Headers, setTimeout, clearTimeout, performance } = globalThis;
    const global = { fetch, Headers, setTimeout, clearTimeout, performance };
    const load = (path) =>
      runInNewContext('(module) => { ' + readFileSync(path) + '; return module.exports }', global)({ exports: {} });
    runInNewContext(readFileSync('older.js', 'utf8'), global);
    const client = load(require.resolve('${packageName}/client'));
    return (...args) => load('journey.cjs').journey(client, ...args);
  })()(...[]`;

  test('succeeds in Bun without newer features, by import and by require', async () => {
    const outcomes = await outcomesIn([process.execPath, '--preload', './older.js'], clients);
    expect(outcomes).toEqual({ imported: journeyOutcome, required: journeyOutcome });
  });

  const hasNode = Bun.which('node') !== null;
  test.skipIf(!hasNode)('succeeds in Node.js by import and by require, and in a realm with only fetch', async () => {
    const outcomes = await outcomesIn(['node'], { ...clients, bare });
    expect(outcomes).toEqual({ imported: journeyOutcome, required: journeyOutcome, bare: journeyOutcome });
  });

  const workerd = findWorkerd();
  test.skipIf(workerd === undefined)('succeeds in workerd, and a save follows no redirect', async () => {
    const paths: string[] = [];
    const moved = Bun.serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch({ url }) {
        paths.push(new URL(url).pathname);
        return Response.redirect('/elsewhere');
      },
    });
    atEnd(() => moved.stop(true));
    const names = ['client.js', 'journey.js', 'worker.js'];
    const settings = `{ baseUrl: '${moved.url.origin}', token: 'token', attempts: 1 }`;
    const files: Record<string, string> = {
      'client.js': await read(join(installed, 'client.js')),
      'journey.js': await read(join(frontend, 'journey.js')),
      'worker.js': `
        import * as library from './client.js';
        import { journey } from './journey.js';
        export default {
          fetch: async () => Response.json([
            await journey(library, '${address}', '${await tokenOf('in-workerd')}'),
            (await library.createClient(${settings}).saveProfile({ firstName: 'Ada' })).error?.slug,
          ]),
        };`,
      'config.capnp': `
        using Workerd = import "/workerd/workerd.capnp";
        const config :Workerd.Config = (
          services = [(name = "main", worker = .worker), (name = "net", network = (allow = ["private", "public"]))],
          sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
        );
        const worker :Workerd.Worker = (
          modules = [${names.toReversed().map((name) => `(name = "${name}", esModule = embed "${name}")`)}],
          compatibilityDate = "2022-03-01",
          globalOutbound = "net",
        );`,
    };
    for (const [path, text] of Object.entries(files)) await write(join('worker', path), text);
    const command = [workerd ?? '', 'serve', '--control-fd=1', 'config.capnp'];
    const child = Bun.spawn(command, { cwd: join(frontend, 'worker'), stdout: 'pipe', stderr: 'inherit' });
    atEnd(() => child.kill());
    const { value } = await child.stdout.pipeThrough(new TextDecoderStream()).getReader().read();
    const response = await fetch(`http://127.0.0.1:${JSON.parse(value ?? '{}').port}`);
    expect(await response.json()).toEqual([journeyOutcome, 'network-failure']);
    expect(paths).toEqual(['/v2/private/user/profile']);
  });
});

/** The program of the package `workerd`, if it runs on this machine. */
function findWorkerd(): string | undefined {
  try {
    const architecture = process.arch === 'x64' ? '64' : process.arch;
    const program = `@cloudflare/workerd-${process.platform}-${architecture}/bin/workerd`;
    const path = createRequire(createRequire(import.meta.url).resolve('workerd')).resolve(program);
    return Bun.spawnSync([path, '--version']).success ? path : undefined;
  } catch {
    return undefined;
  }
}
