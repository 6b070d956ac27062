import { Database } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { cpSync, existsSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { Glob } from 'bun';
import * as v from 'valibot';
import packageJson from '../../package.json';
import { removeEarlierBundle } from '../../src/build/main';
import { callerOf, testSecret } from '../support/app';
import { programOf } from '../support/artifacts';
import { walkContract } from '../support/contract';
import { startService } from '../support/processes';
import { runToEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, startPrimary } from '../support/servers';
import { metricsToken, startReceiver } from '../support/telemetry';

const root = join(import.meta.dirname, '../..');
/** A copy outside of the package, so that nothing can depend on its modules. */
const bundle = join(temporaryFolder(), 'copied');
cpSync(join(await programOf('src/main'), '../..'), bundle, { recursive: true });
const files = [...new Glob('**').scanSync({ cwd: bundle, dot: true })].sort();
const program = ['--no-install', join(bundle, 'src/main.js')];

/** A machine with only Bun: nothing else in PATH, and no home folder with packages. */
const [onlyBun, nowhere] = [temporaryFolder(), temporaryFolder()];
symlinkSync(process.execPath, join(onlyBun, 'bun'));
const environment = {
  PATH: onlyBun,
  HOME: nowhere,
  BUN_INSTALL: nowhere,
  NODE_ENV: 'development',
  AUTH_SECRET: testSecret,
};

describe('bundle', () => {
  test('contains only the native package of this platform and the documentation script', () => {
    const platform = `${process.platform}-${process.arch}`;
    const names = files.filter((path) => path.startsWith('node_modules/'));
    expect(names.map((name) => name.replace(new RegExp(`(?<=/${platform})-[a-z]+`), ''))).toEqual([
      `node_modules/@libsql/${platform}/index.node`,
      `node_modules/@libsql/${platform}/package.json`,
      'node_modules/@scalar/api-reference/dist/browser/standalone.js',
      'node_modules/@scalar/api-reference/package.json',
    ]);
    expect(files).not.toContain('bun.lock');
  });

  test('contains no path of the build machine', async () => {
    expect(files.length).toBeGreaterThan(25);
    for (const file of files) {
      const content = Buffer.from(await Bun.file(join(bundle, file)).bytes());
      // The bundle was built in a folder of this package.
      expect([file, content.includes(root), content.includes(process.execPath)]).toEqual([file, false, false]);
    }
  });

  test('has a source map for each module with sources that exist in this package', async () => {
    const isCopied = (path: string) => existsSync(join(root, path));
    const modules = files.filter((path) => path.startsWith('src/') && path.endsWith('.js') && !isCopied(path));
    expect(modules).toEqual(['src/cli/main.js', 'src/db/replica-sync.js', 'src/main.js']);
    expect(files).toEqual(expect.arrayContaining(modules.map((module) => `${module}.jsc`)));
    for (const module of modules) {
      const { sources } = await Bun.file(join(bundle, `${module}.map`)).json();
      const paths = v.parse(v.array(v.string()), sources).map((source) => normalize(join(dirname(module), source)));
      expect(paths.filter((path) => !isCopied(path))).toEqual([]);
    }
  });

  test('contains the licences of its dependencies', async () => {
    const text = await Bun.file(join(bundle, 'THIRD-PARTY-LICENSES')).text();
    const listed = [...text.matchAll(/^(\S+) \d+\.\d+\.\d+ \([\w.-]+\)$/gm)].map(([, name]) => name);
    expect(listed).toEqual(expect.arrayContaining(Object.keys(packageJson.dependencies)));
    expect(text).toMatch(/^@libsql\/[a-z]+-\S+ \d/m);
    expect(text).toContain('Permission is hereby granted');
  });
});

test('removeEarlierBundle keeps the client', async () => {
  const dist = temporaryFolder();
  for (const path of ['src/older.js', 'client/client.js', '.hidden']) await Bun.write(join(dist, path), '');
  await removeEarlierBundle(dist);
  expect([...new Glob('**').scanSync({ cwd: dist, dot: true })]).toEqual(['client/client.js']);
});

describe('service of the bundle', async () => {
  const cwd = temporaryFolder();
  const receiver = startReceiver();
  const telemetry = { METRICS_TOKEN: metricsToken, OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
  const service = await startService({ program, cwd, environment: { ...environment, ...telemetry } });
  const call = callerOf(service.address);

  walkContract(call);

  test('exports metrics and traces when they are on', async () => {
    expect((await call('GET', '/v2/private/cemetery/all', { as: 'ada' })).status).toBe(200);
    const { text } = await call('GET', '/metrics', { headers: { authorization: `Bearer ${metricsToken}` } });
    expect(text).toMatch(/route="\/v2\/private\/cemetery\/all",status="200"} [1-9]/);
    expect(text).toContain(`planning_build_info{version="${packageJson.version}"`);
    await until(() => receiver.spans.some(({ name }) => name === 'GET /v2/private/cemetery/all'));
  });

  test('is in development with NODE_ENV=development, and has no demo page with AUTH_SECRET', async () => {
    expect(service.output()).toContain('mode     development, with settings from the environment\n');
    expect((await call('GET', '/')).status).toBe(404);
    expect(service.output()).not.toMatch(/^ +page /m);
  });

  test('logs stack frames with source paths', async () => {
    await call('POST', '/v2/private/user/profile', { as: 'broken', body: { gender: 'female' } });
    const database = new Database(join(cwd, 'data/planning.db'));
    database.run(`UPDATE users SET profile = '{"gender":7}', version = version + 1 WHERE id = 'broken'`);
    database.close();
    expect((await call('POST', '/v2/private/engine/matches', { as: 'broken' })).status).toBe(500);
    await until(() => service.output().includes('src/modules/answers/sections.ts:'));
  });

  test.skipIf(!hasSqld)('syncs an embedded replica', async () => {
    const primary = await startPrimary();
    const replica = { DATABASE_URL: primary.url, DATABASE_REPLICA_PATH: 'replica.db' };
    const replicating = await startService({ program, environment: { ...environment, ...replica } });
    await until(() => replicating.output().includes('the replica follows the primary'));
    await primary.kill();
    expect((await callerOf(replicating.address)('GET', '/v2/private/cemetery/all', { as: 'ada' })).status).toBe(200);
    replicating.process.kill('SIGTERM');
    expect(await replicating.process.exited).toBe(0);
  });
});

describe('command line of the bundle', () => {
  const run = (cwd: string, command: readonly string[], env: Record<string, string> = environment) =>
    runToEnd(Bun.spawn([process.execPath, ...command], { cwd, env, stdout: 'pipe', stderr: 'pipe' }));

  test('migrates a new database, and doctor succeeds', async () => {
    const cwd = temporaryFolder();
    const main = ['--no-install', join(bundle, 'src/cli/main.js')];
    expect(await run(cwd, [...main, 'migrate'])).toMatchObject({ exitCode: 0, stderr: '' });
    const { stdout, exitCode } = await run(cwd, [...main, 'doctor', '--json']);
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout).findings).toContainEqual(expect.objectContaining({ check: 'schema', result: 'ok' }));
  });

  test('runs without bytecode, as after an update of Bun', async () => {
    const other = join(temporaryFolder(), 'other');
    cpSync(bundle, other, { recursive: true });
    const bytecode = join(other, 'src/cli/main.js.jsc');
    expect(existsSync(bytecode)).toBeTrue();
    for (const make of [() => Bun.write(bytecode, 'of another version'), () => rmSync(bytecode)]) {
      await make();
      const ended = await run(temporaryFolder(), ['--no-install', join(other, 'src/cli/main.js'), '--version']);
      expect(ended).toMatchObject({ exitCode: 0, stderr: '' });
    }
  });

  test('runs through the package script and installs nothing', async () => {
    const withShell = { ...environment, PATH: `${environment.PATH}:/usr/bin:/bin` };
    const { stdout } = await run(bundle, ['planning', '--version'], withShell);
    expect(stdout).toMatch(`${packageJson.version} (`);
    expect(existsSync(join(bundle, 'bun.lock'))).toBeFalse();
  });
});
