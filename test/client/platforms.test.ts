import { describe, expect, test } from 'bun:test';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Options, parse } from 'acorn';
import packageJson from '../../package.json';
import { testSecret, testToken } from '../support/app';
import { noBrowser, startBrowser } from '../support/browser';
import { startService } from '../support/processes';
import { atEnd, runProgram as run, temporaryFolder } from '../support/resources';
import { createFrontend } from './frontend';
import { journeyOutcome } from './journey';
import { makeOlder } from './older';

const root = join(import.meta.dirname, '../..');
const frontend = await createFrontend();
const installed = join(frontend, 'node_modules', packageJson.name);
const module = await Bun.file(join(installed, 'client.js')).text();
const commonJs = await Bun.file(join(installed, 'commonjs/client.js')).text();
const tokenOf = (id: string) => testToken({ id, now: new Date() });

/** The files of a page on another origin, by path. */
const page = new Map<string, string>();
/** Requests to the page's own host for other paths, with their cookies. */
const ownHostRequests: [path: string, cookie: string | null][] = [];
const pages = Bun.serve({
  port: 0,
  hostname: '127.0.0.1',
  fetch(request) {
    const { pathname } = new URL(request.url);
    if (/^\/(?:here|moved|elsewhere)/.test(pathname)) {
      ownHostRequests.push([pathname, request.headers.get('cookie')]);
      return pathname.startsWith('/moved') ? Response.redirect('/elsewhere') : Response.json({});
    }
    const type = pathname.endsWith('.js') ? 'text/javascript' : 'text/html';
    return new Response(page.get(pathname) ?? '<!doctype html>', { headers: { 'content-type': type } });
  },
});
atEnd(() => pages.stop(true));
// Each journey causes carrier failures, so the circuit breaker must not open.
const service = await startService({
  environment: { AUTH_SECRET: testSecret, CORS_ORIGINS: pages.url.origin, CARRIER_BREAKER_FAILURES: '1000' },
});

async function bundled(path: string, format: 'esm' | 'cjs'): Promise<string> {
  const { outputs } = await Bun.build({ entrypoints: [path], target: 'browser', format });
  return (await outputs[0]?.text()) ?? '';
}
const journey = await bundled(join(root, 'test/client/journey.ts'), 'esm');
const journeyInCommonJs = await bundled(join(root, 'test/client/journey.ts'), 'cjs');
await Bun.write(join(frontend, 'journey.js'), journey);
await Bun.write(join(frontend, 'journey.cjs'), journeyInCommonJs);
await Bun.write(join(frontend, 'older.js'), `(${makeOlder})();`);

const noNode = Bun.which('node') === null ? 'no Node.js is installed' : undefined;
const skipNote = (reason: string | undefined) => (reason === undefined ? '' : ` (${reason})`);

const print = async (id: string) =>
  `.then((outcome) => process.stdout.write(JSON.stringify(outcome)), (error) => { throw error; })`.replace(
    /^/,
    `journey(library, '${service.address}', '${await tokenOf(id)}')`,
  );
const moduleProgram = async (id: string) => `
  import * as library from '${packageJson.name}/client';
  import { journey } from './journey.js';
  ${await print(id)};
`;
const commonJsProgram = async (id: string) => `
  const library = require('${packageJson.name}/client');
  const { journey } = require('./journey.cjs');
  ${await print(id)};
`;
/** Like React Native: a realm with `fetch`, headers and timers, and no other web API. */
const bareProgram = async (id: string) => `
  const { runInNewContext } = require('node:vm');
  const { readFileSync } = require('node:fs');
  const { fetch, Headers, setTimeout, clearTimeout, performance } = globalThis;
  const global = { fetch, Headers, setTimeout, clearTimeout, performance };
  const load = (text) => runInNewContext('(module) => { ' + text + '; return module.exports }', global)({ exports: {} });
  runInNewContext(readFileSync('older.js', 'utf8'), global);
  const library = load(readFileSync(require.resolve('${packageJson.name}/client'), 'utf8'));
  const { journey } = load(readFileSync('journey.cjs', 'utf8'));
  ${await print(id)};
`;

describe('B11 client journey', () => {
  const bun = process.execPath;
  const runs = [
    { where: 'in Bun', program: [bun, 'a.mjs'], text: moduleProgram, missing: undefined },
    { where: 'in Bun by require', program: [bun, 'b.cjs'], text: commonJsProgram, missing: undefined },
    {
      where: 'in Bun without newer features',
      program: [bun, '--preload', './older.js', 'c.mjs'],
      text: moduleProgram,
      missing: undefined,
    },
    { where: 'in Node.js', program: ['node', 'd.mjs'], text: moduleProgram, missing: noNode },
    { where: 'in Node.js by require', program: ['node', 'e.cjs'], text: commonJsProgram, missing: noNode },
    { where: 'in a realm with only fetch and timers', program: ['node', 'f.cjs'], text: bareProgram, missing: noNode },
  ].map((one) => ({ ...one, note: skipNote(one.missing) }));

  for (const { where, program, text, missing, note } of runs) {
    test.skipIf(missing !== undefined)(`succeeds ${where}${note}`, async () => {
      await Bun.write(join(frontend, program.at(-1) ?? ''), await text(where.replaceAll(/\W/g, '-')));
      expect(JSON.parse(await run(frontend, program))).toEqual(journeyOutcome);
    });
  }
});

describe('B11 client in workerd', () => {
  function findWorkerd(): string | undefined {
    try {
      return createRequire(createRequire(import.meta.url).resolve('workerd')).resolve(
        `@cloudflare/workerd-${process.platform}-${process.arch === 'x64' ? '64' : process.arch}/bin/workerd`,
      );
    } catch {
      return undefined;
    }
  }
  const workerd = findWorkerd();
  const runs = workerd !== undefined && Bun.spawnSync([workerd, '--version']).success;
  const noWorkerd = runs ? undefined : 'no workerd runs here';

  /** Starts a worker that responds with the value of `expression`. */
  async function startWorker(expression: string): Promise<string> {
    const folder = temporaryFolder();
    const text = `
      import * as library from './client.js';
      import { journey } from './journey.js';
      export default { fetch: async () => Response.json(await ${expression}) };
    `;
    const config = `
      using Workerd = import "/workerd/workerd.capnp";
      const config :Workerd.Config = (
        services = [(name = "main", worker = .worker), (name = "net", network = (allow = ["private", "public"]))],
        sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
      );
      const worker :Workerd.Worker = (
        modules = [
          (name = "worker.js", esModule = embed "worker.js"),
          (name = "client.js", esModule = embed "client.js"),
          (name = "journey.js", esModule = embed "journey.js"),
        ],
        compatibilityDate = "2022-03-01",
        globalOutbound = "net",
      );
    `;
    const files = { 'config.capnp': config, 'worker.js': text, 'client.js': module, 'journey.js': journey };
    for (const [name, content] of Object.entries(files)) await Bun.write(join(folder, name), content);
    const child = Bun.spawn([workerd ?? '', 'serve', '--control-fd=1', 'config.capnp'], {
      cwd: folder,
      stdout: 'pipe',
      stderr: 'inherit',
    });
    atEnd(() => child.kill());
    const { value } = await child.stdout.pipeThrough(new TextDecoderStream()).getReader().read();
    return `http://127.0.0.1:${JSON.parse(value ?? '{}').port}`;
  }

  test.skipIf(!runs)(`completes the journey${skipNote(noWorkerd)}`, async () => {
    const address = await startWorker(`journey(library, '${service.address}', '${await tokenOf('in-workerd')}')`);
    expect(await (await fetch(address)).json()).toEqual(journeyOutcome);
  });

  test.skipIf(!runs)(`follows no redirect${skipNote(noWorkerd)}`, async () => {
    ownHostRequests.length = 0;
    const settings = `{ baseUrl: '${pages.url.origin}/moved', token: 'token', attempts: 1 }`;
    const address = await startWorker(`library.createClient(${settings}).saveProfile({ firstName: 'Ada' })`);
    expect(await (await fetch(address)).json()).toMatchObject({ error: { slug: 'network-failure' } });
    expect(ownHostRequests).toEqual([['/moved/v2/private/user/profile', null]]);
  });
});

describe.skipIf(noBrowser !== undefined)(`B11 client in Chromium${skipNote(noBrowser)}`, () => {
  page.set('/client.js', module).set('/journey.js', journey);

  async function openPage(...first: (() => void)[]) {
    const opened = await (await startBrowser()).newPage();
    for (const script of first) await opened.addInitScript(script);
    await opened.goto(pages.url.origin);
    return opened;
  }
  type Page = Awaited<ReturnType<typeof openPage>>;
  const goJourney = async (opened: Page, id: string) =>
    opened.evaluate(
      async ({ address, token }) => {
        const load = (path: string) => import(path);
        return (await load('/journey.js')).journey(await load('/client.js'), address, token);
      },
      { address: service.address, token: await tokenOf(id) },
    );

  test('completes the journey on a page of another host', async () => {
    expect(await goJourney(await openPage(), 'in-chromium')).toEqual(journeyOutcome);
  });

  test('completes the journey on a page without newer browser features', async () => {
    expect(await goJourney(await openPage(makeOlder), 'in-older-chromium')).toEqual(journeyOutcome);
  });

  test('sends no cookie and follows no redirect on its own host', async () => {
    ownHostRequests.length = 0;
    const opened = await openPage();
    const results = await opened.evaluate(async () => {
      // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store API does not exist on plain http pages
      document.cookie = 'session=kept';
      await fetch('/here/by-fetch');
      const { createClient } = await import(String('/client.js'));
      const read = (baseUrl: string) => createClient({ baseUrl, token: 'token', attempts: 1 }).getUser();
      return [(await read('/here')).error?.slug, (await read('/moved')).error?.slug];
    });
    expect(results).toEqual([undefined, 'network-failure']);
    expect(ownHostRequests).toEqual([
      ['/here/by-fetch', 'session=kept'],
      ['/here/v2/private/user', null],
      ['/moved/v2/private/user', null],
    ]);
  });
});

test.skipIf(noBrowser !== undefined)(
  `C2 client completes the journey on a page with Sentry${skipNote(noBrowser)}`,
  async () => {
    const entry = join(temporaryFolder(), 'sentry.ts');
    await Bun.write(
      entry,
      `import { browserTracingIntegration, createTransport, init } from '${Bun.resolveSync('@sentry/browser', import.meta.dirname)}';
     init({
       dsn: 'http://key@127.0.0.1:1/1',
       integrations: [browserTracingIntegration()],
       tracesSampleRate: 1,
       tracePropagationTargets: ['${service.address}'],
       transport: (options) => createTransport(options, async () => ({ statusCode: 200 })),
     });`,
    );
    page
      .set('/client.js', module)
      .set('/journey.js', journey)
      .set('/sentry.js', await bundled(entry, 'esm'));
    const opened = await (await startBrowser()).newPage();
    const traced: string[] = [];
    opened.on('request', (request) => {
      const { 'sentry-trace': trace, baggage } = request.headers();
      if (trace !== undefined && baggage !== undefined) traced.push(new URL(request.url()).pathname);
    });
    await opened.goto(pages.url.origin);
    const outcome = await opened.evaluate(
      async ({ address, token }) => {
        const load = (path: string) => import(path);
        await load('/sentry.js');
        return (await load('/journey.js')).journey(await load('/client.js'), address, token);
      },
      { address: service.address, token: await tokenOf('beside-sentry') },
    );
    expect(outcome).toEqual(journeyOutcome);
    expect(traced).toContain('/v2/private/user/profile');
  },
);

describe('B11 built client', () => {
  const forms: [name: string, text: string, options: Options][] = [
    ['module', module, { ecmaVersion: 2020, sourceType: 'module' }],
    ['CommonJS', commonJs, { ecmaVersion: 2021, sourceType: 'script' }],
  ];
  test.each(forms)('has no newer syntax as %s', (_, text, options) => {
    expect(() => parse('class A { a = 1 }', options)).toThrow();
    parse(text, options);
  });

  test('uses only features of the oldest platforms', async () => {
    const folder = temporaryFolder();
    const types = await Bun.file(join(installed, 'client/api.d.ts')).text();
    const own: Record<string, string> = {
      'src/client/api.ts': `${types}\nexport declare const operations: Operations;\n`,
      'src/shared/problems.ts': 'export const knownSlugs = (): string[] => [];',
    };
    const sources = [...new Bun.Glob('src/client/*.ts').scanSync(root)];
    for (const path of new Set(['src/client.ts', ...sources, ...Object.keys(own)]))
      await Bun.write(join(folder, path), own[path] ?? Bun.file(join(root, path)));
    const compilerOptions = { lib: ['es2020'], types: [], rootDir: folder };
    const files = ['src/client.ts', join(import.meta.dirname, 'platform.d.ts')];
    const project = { extends: join(root, 'tsconfig.json'), compilerOptions, files, include: [] };
    await Bun.write(join(folder, 'tsconfig.json'), JSON.stringify(project));
    const compile = () => run(root, [process.execPath, join(root, 'node_modules/typescript/bin/tsc'), '-p', folder]);
    await compile();
    await Bun.write(
      join(folder, 'src/shared/problems.ts'),
      `export const knownSlugs = (): string[] => [
         [''].findLast(Boolean), structuredClone(''), URL.canParse(''), AbortSignal.timeout(1), Object.hasOwn({}, ''),
         new AbortController(), crypto.randomUUID(),
       ].map(String);`,
    );
    const { message } = await compile().then(
      () => new Error(),
      (error: Error) => error,
    );
    const names = ['findLast', 'structuredClone', 'canParse', 'AbortSignal', 'hasOwn', 'AbortController', 'randomUUID'];
    for (const name of names) expect(message).toContain(name);
  });
});
