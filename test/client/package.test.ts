import { describe, expect, test } from 'bun:test';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Glob } from 'bun';
import packageJson from '../../package.json';
import { testSecret, testToken } from '../support/app';
import { noBrowser, startBrowser } from '../support/browser';
import { builtClient } from '../support/built-client';
import { atEnd } from '../support/cleanup';
import { temporaryFolder } from '../support/database';
import { runProgram as run } from '../support/run-to-end';
import { startService } from '../support/service';
import { journeyOutcome } from './journey';

const root = join(import.meta.dirname, '../..');
const tsc = join(root, 'node_modules/typescript/bin/tsc');
const readme = await Bun.file(join(root, 'README.md')).text();

/** A frontend in an empty folder, made as the README says; nothing of this folder can be found from there. */
async function createFrontend() {
  const [built, frontend] = [await builtClient(), temporaryFolder()];
  await run(built, [process.execPath, 'pm', 'pack', '--destination', frontend, '--quiet']);
  await Bun.write(join(frontend, 'package.json'), '{ "name": "frontend", "private": true, "type": "module" }');
  const tarball = `./${packageJson.name}-${packageJson.version}.tgz`;
  expect(readme).toContain(`npm install ../${packageJson.name}/${packageJson.name}-${packageJson.version}.tgz\n`);
  const installers = [
    [Bun.which('npm') ?? '', 'install', '--offline', '--no-audit', '--no-fund', tarball],
    [process.execPath, 'add', tarball],
  ];
  await run(frontend, installers.find(([program]) => program !== '') ?? []);
  return frontend;
}

/** Compiles these files of the tests, as strictly as the service; they import the types by these names. */
async function compileWith(types: Readonly<Record<string, string>>, files: readonly string[]) {
  const paths = Object.fromEntries(Object.entries(types).map(([name, path]) => [name, [path]]));
  const config = { extends: join(root, 'tsconfig.json'), compilerOptions: { paths, types: [] }, files, exclude: [] };
  const project = join(temporaryFolder(), 'tsconfig.json');
  await Bun.write(project, JSON.stringify({ ...config, include: [] }));
  await run(root, [process.execPath, tsc, '-p', project]);
}

const frontend = await createFrontend();
const installed = join(frontend, 'node_modules', packageJson.name);
/** The files of a page that is not this service's, by their paths. */
const page = new Map<string, string>();
/** Requests of the page's own host for what is not a file, with their cookies. */
const asked: [path: string, cookie: string | null][] = [];
const pages = Bun.serve({
  port: 0,
  hostname: '127.0.0.1',
  fetch(request) {
    const { pathname } = new URL(request.url);
    if (/^\/(?:here|moved|elsewhere)/.test(pathname)) {
      asked.push([pathname, request.headers.get('cookie')]);
      return pathname.startsWith('/moved') ? Response.redirect('/elsewhere') : Response.json({});
    }
    const type = pathname.endsWith('.js') ? 'text/javascript' : 'text/html';
    return new Response(page.get(pathname) ?? '<!doctype html>', { headers: { 'content-type': type } });
  },
});
atEnd(() => pages.stop(true));
const service = await startService({ environment: { AUTH_SECRET: testSecret, CORS_ORIGINS: pages.url.origin } });
const module = await Bun.file(join(installed, 'client.js')).text();

describe('the package of the client', () => {
  test('is all that a frontend gets, with no other package', async () => {
    expect([...new Glob('*').scanSync({ cwd: join(frontend, 'node_modules'), onlyFiles: false })]).toEqual([
      packageJson.name,
    ]);
    const files = [...new Glob('**').scanSync(installed)];
    expect(files.filter((path) => !path.endsWith('.d.ts')).sort()).toEqual(['client.js', 'package.json']);
    for (const file of files) {
      const text = await Bun.file(join(installed, file)).text();
      expect(text).not.toContain(root);
      // Bun heads each module with its address, seen from where the build ran.
      expect(text.match(/^\/\/ (?!src\/).*/gm)).toBeNull();
      expect(text.match(/from ['"](?!\.\/)[^'"]+/g)).toBeNull();
      expect(text).not.toMatch(/elysia|valibot|drizzle|libsql|\bBun\b|node:/i);
    }
  });

  test('is as small as the README says', () => {
    const minified = new Bun.Transpiler({ minifyWhitespace: true, target: 'browser' }).transformSync(module);
    expect(Bun.gzipSync(module).byteLength).toBeLessThan(4000);
    expect(Bun.gzipSync(minified).byteLength).toBeLessThan(3500);
    expect(readme).toContain('is 3 kB minified and gzipped');
  });

  test('has every operation’s types written out, none of them loose', async () => {
    const api = await Bun.file(join(installed, 'client/api.d.ts')).text();
    expect(api).toContain('"assistedLiving" | "inHome"');
    expect(api).toMatch(/readonly 'carrier-declined': \{\s+readonly code: 313;/);
    expect(api).not.toMatch(/\b(any|unknown|never|import)\b(?!")/);
  });
});

const examples = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, block = '']) => block).join('\n');
const exampleFor = (token: string) =>
  examples.replace('http://127.0.0.1:3000', service.address).replace('TOKEN', token);
const tokenOf = (id: string) => testToken({ id, now: new Date() });

describe('in a frontend', () => {
  const resolutions = [
    { module: 'preserve', moduleResolution: 'bundler' },
    { module: 'nodenext', moduleResolution: 'nodenext' },
  ];
  const strict = { target: 'es2023', strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false, types: [] };
  const compile = async (name: string, text: string, options: object) => {
    await Bun.write(join(frontend, `${name}.ts`), text);
    const config = { compilerOptions: { ...strict, lib: ['es2023', 'dom'], ...options }, files: [`${name}.ts`] };
    await Bun.write(join(frontend, `${name}.json`), JSON.stringify(config));
    return run(frontend, [process.execPath, tsc, '-p', `${name}.json`]).then(
      () => '',
      (error: Error) => error.message,
    );
  };

  test.each(resolutions)('the README’s code compiles, strictly, with $moduleResolution', async (options) => {
    expect(await compile('readme', exampleFor('TOKEN'), { ...options, noEmit: true })).toBe('');
    expect(examples).toContain('createClient(');
  });

  test.each(resolutions)('what must not compile does not, with $moduleResolution', async (options) => {
    const text = `
      import { type ClientError, createClient } from '${packageJson.name}/client';
      const client = createClient({ baseUrl: 'http://127.0.0.1', token: '' });
      void client.saveLtcLifetimeCare({ careFacilityType: 'atHome' });
      void client.startLtcApplication({ firstName: 'Ada' });
      export function unhandled(error: ClientError): string {
        switch (error.slug) { case 'invalid-input': return error.detail; }
      }
    `;
    const refusal = await compile('refused', text, { ...options, noEmit: true });
    const lines = [...refusal.matchAll(/refused\.ts\((\d+),\d+\): error/g)].map(([, line]) => Number(line));
    expect(lines).toEqual([4, 5, 6]);
  });

  test('of which the service’s folder is a workspace, the same import finds the client that is built there', async () => {
    const workspace = temporaryFolder();
    const linked = join(workspace, 'node_modules', packageJson.name);
    await Bun.write(join(linked, 'package.json'), JSON.stringify(packageJson));
    await mkdir(join(linked, 'dist'));
    await symlink(installed, join(linked, 'dist/client'));
    const imported = `import { createClient } from '${packageJson.name}/client';`;
    await Bun.write(join(workspace, 'main.ts'), `${imported} process.stdout.write(typeof createClient);`);
    expect(await run(workspace, [process.execPath, 'main.ts'])).toBe('function');
    const options = ['--ignoreConfig', '--noEmit', '--strict', '--module', 'nodenext', 'main.ts'];
    await Bun.write(join(workspace, 'main.ts'), `${imported}\n// @ts-expect-error: no token\ncreateClient({});`);
    await run(workspace, [process.execPath, tsc, ...options]);
  });

  const expectedOutput = [/^Ada$/, /^\S.+$/, /^true$/, /^undefined$/];
  const isAsExpected = (output: string) => {
    const lines = output.trim().split('\n');
    expect(lines.length).toBe(expectedOutput.length);
    for (const [index, line] of lines.entries()) expect(line).toMatch(expectedOutput[index] ?? /^$/);
  };

  test('the README’s code runs in Bun, and in Node.js where there is one', async () => {
    await Bun.write(join(frontend, 'in-bun.ts'), exampleFor(await tokenOf('readme-in-bun')));
    isAsExpected(await run(frontend, [process.execPath, 'in-bun.ts']));
    const node = Bun.which('node');
    if (node === null) return;
    const options = { ...resolutions[1], outDir: 'out' };
    expect(await compile('in-node', exampleFor(await tokenOf('readme-in-node')), options)).toBe('');
    isAsExpected(await run(frontend, [node, 'out/in-node.js']));
  });
});

describe('what openapi-typescript makes of the document', () => {
  const [agreements, program] = [
    join(root, 'test/client/generated/types.test-d.ts'),
    join(root, 'test/client/generated/walk.ts'),
  ] as const;

  test('compiles strictly, refuses what must not be sent, and is what this client has', async () => {
    const generate = [process.execPath, join(root, 'test/client/generate-types.ts'), `${service.address}/swagger/json`];
    const generated = join(temporaryFolder(), 'types.ts');
    await Bun.write(generated, await run(root, generate));
    const ofClient = join(installed, 'client/api.d.ts');
    await compileWith({ 'types-of-document': generated, 'api-of-client': ofClient }, [agreements, program]);
  });

  test('lets a frontend walk from a profile to an application', async () => {
    const load = (path: string) => import(path);
    expect(await (await load(program)).walk(service.address, await tokenOf('walking'))).toEqual({
      firstName: 'Ada',
      relationshipStatus: ['married'],
      isMatched: true,
      terms: 1,
      glance: 220,
      fault: '/careCosts',
    });
  });
});

describe('a whole journey', async () => {
  const { outputs } = await Bun.build({ entrypoints: [join(root, 'test/client/journey.ts')], target: 'browser' });
  const journey = (await outputs[0]?.text()) ?? '';
  await Bun.write(join(frontend, 'journey.js'), journey);
  const noNode = Bun.which('node') === null ? 'no Node.js is installed' : undefined;
  const skipNote = (reason: string | undefined) => (reason === undefined ? '' : ` (${reason})`);
  const programFor = async (id: string) => `
    import * as library from '${packageJson.name}/client';
    import { journey } from './journey.js';
    process.stdout.write(JSON.stringify(await journey(library, '${service.address}', '${await tokenOf(id)}')));
  `;

  test('goes well in Bun', async () => {
    await Bun.write(join(frontend, 'bun.mjs'), await programFor('in-bun'));
    expect(JSON.parse(await run(frontend, [process.execPath, 'bun.mjs']))).toEqual(journeyOutcome);
  });

  test.skipIf(noNode !== undefined)(`goes well in Node.js${skipNote(noNode)}`, async () => {
    await Bun.write(join(frontend, 'node.mjs'), await programFor('in-node'));
    expect(JSON.parse(await run(frontend, ['node', 'node.mjs']))).toEqual(journeyOutcome);
  });

  test.skipIf(noBrowser !== undefined)(
    `goes well on a page of another host in Chromium${skipNote(noBrowser)}`,
    async () => {
      page.set('/client.js', module).set('/journey.js', journey);
      const opened = await (await startBrowser()).newPage();
      await opened.goto(pages.url.origin);
      const outcome = await opened.evaluate(
        async ({ address, token }) => {
          const load = (path: string) => import(path);
          return (await load('/journey.js')).journey(await load('/client.js'), address, token);
        },
        { address: service.address, token: await tokenOf('in-chromium') },
      );
      expect(outcome).toEqual(journeyOutcome);
    },
  );

  test.skipIf(noBrowser !== undefined)(
    `brings no cookie along and follows no redirect, even on its own host, in Chromium${skipNote(noBrowser)}`,
    async () => {
      page.set('/client.js', module);
      const opened = await (await startBrowser()).newPage();
      await opened.goto(pages.url.origin);
      const slugs = await opened.evaluate(async () => {
        // biome-ignore lint/suspicious/noDocumentCookie: the newer way is missing where a page came over plain http
        document.cookie = 'session=kept';
        await fetch('/here/by-fetch');
        const { createClient } = await import(String('/client.js'));
        const read = (baseUrl: string) => createClient({ baseUrl, token: 'token', attempts: 1 }).getUser();
        return [(await read('/here')).error?.slug, (await read('/moved')).error?.slug];
      });
      expect(slugs).toEqual([undefined, 'network-failure']);
      expect(asked).toEqual([
        ['/here/by-fetch', 'session=kept'],
        ['/here/v2/private/user', null],
        ['/moved/v2/private/user', null],
      ]);
    },
  );
});
