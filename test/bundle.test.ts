import { Database } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { existsSync, symlinkSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { Glob } from 'bun';
import * as v from 'valibot';
import packageJson from '../package.json';
import { removeEarlierBundle } from '../src/build/main';
import { callerOf, testSecret } from './support/app';
import { buildMovedBundle } from './support/artifacts';
import { walkContract } from './support/contract';
import { startService } from './support/processes';
import { runToEnd, temporaryFolder, until } from './support/resources';
import { hasSqld, startPrimary } from './support/servers';
import { metricsToken, startReceiver } from './support/telemetry';

const root = join(import.meta.dirname, '..');
const nowhere = temporaryFolder();
const { built, bundle } = await buildMovedBundle();
const files = [...new Glob('**').scanSync({ cwd: bundle, dot: true })].sort();

/** A machine with only Bun: nothing else in PATH, and no home folder with packages. */
const environment = {
  PATH: onlyBun(),
  HOME: nowhere,
  BUN_INSTALL: nowhere,
  NODE_ENV: 'development',
  AUTH_SECRET: testSecret,
};
const program = ['--no-install', join(bundle, 'src/main.js')];

function onlyBun(): string {
  const folder = temporaryFolder();
  symlinkSync(process.execPath, join(folder, 'bun'));
  return folder;
}

function planning(cwd: string, ...args: string[]) {
  const command = Bun.spawn([process.execPath, '--no-install', join(bundle, 'src/cli/main.js'), ...args], {
    cwd,
    env: environment,
    stdout: 'pipe',
    stderr: 'pipe',
  });
  return runToEnd(command);
}

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
  });

  test('contains no path of the build machine', async () => {
    expect(files.length).toBeGreaterThan(25);
    for (const file of files) {
      const content = Buffer.from(await Bun.file(join(bundle, file)).bytes());
      for (const folder of [root, dirname(built), process.execPath]) {
        expect(content.includes(folder) ? `${file} names ${folder}` : '').toBe('');
      }
    }
  });

  test('has a source map for each module with sources that exist in this package', async () => {
    const isCopied = (path: string) => existsSync(join(root, path));
    const modules = files.filter((path) => path.startsWith('src/') && path.endsWith('.js') && !isCopied(path));
    expect(modules).toContain('src/main.js');
    expect(modules).toContain('src/cli/main.js');
    for (const module of modules) {
      const { sources } = await Bun.file(join(bundle, `${module}.map`)).json();
      const missing = v
        .parse(v.array(v.string()), sources)
        .map((source) => normalize(join(dirname(module), source)))
        .filter((source) => !existsSync(join(root, source)));
      expect(missing).toEqual([]);
    }
  });

  test('contains the licences of its dependencies', async () => {
    const text = await Bun.file(join(bundle, 'THIRD-PARTY-LICENSES')).text();
    for (const name of [
      'elysia',
      'drizzle-orm',
      '@libsql/client',
      '@scalar/api-reference',
      'libsql',
      'prom-client',
      'valibot',
    ]) {
      expect(text).toMatch(new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\(MIT|Apache-2.0\\)$`, 'm'));
    }
    expect(text).toMatch(/^@libsql\/\S+ \d/m);
    expect(text).toContain('Permission is hereby granted');
  });
});

test('build removes an earlier bundle except for the client', async () => {
  const dist = temporaryFolder();
  for (const path of ['src/older.js', 'client/client.js', '.hidden']) await Bun.write(join(dist, path), '');
  await removeEarlierBundle(dist);
  expect([...new Glob('**').scanSync({ cwd: dist, dot: true })]).toEqual(['client/client.js']);
});

const cwd = temporaryFolder();
const service = await startService({ program, cwd, environment });

describe('service of the bundle', () => {
  walkContract(callerOf(service.address));

  test('logs stack frames with source paths', async () => {
    const broken = temporaryFolder();
    const other = await startService({ program, cwd: broken, environment });
    const call = callerOf(other.address);
    await call('POST', '/v2/private/user/profile', { as: 'ada', body: { gender: 'female' } });
    const database = new Database(join(broken, 'data/planning.db'));
    database.run(`UPDATE users SET profile = '{"gender":7}', version = version + 1`);
    database.close();
    expect((await call('POST', '/v2/private/engine/matches', { as: 'ada' })).status).toBe(500);
    while (!other.output().includes('"frames"')) await Bun.sleep(10);
    expect(other.output()).toContain('src/modules/answers/sections.ts:');
  });

  test('exports metrics and traces when they are on', async () => {
    const receiver = startReceiver();
    const watched = await startService({
      program,
      environment: { ...environment, METRICS_TOKEN: metricsToken, OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url },
    });
    const call = callerOf(watched.address);
    expect((await call('GET', '/v2/private/cemetery/all', { as: 'ada' })).status).toBe(200);
    const { text } = await call('GET', '/metrics', { headers: { authorization: `Bearer ${metricsToken}` } });
    expect(text).toContain('route="/v2/private/cemetery/all",status="200"} 1\n');
    expect(text).toContain(`planning_build_info{version="${packageJson.version}"`);
    await until(() => receiver.spans.some(({ name }) => name === 'GET /v2/private/cemetery/all'));
  });

  test.skipIf(!hasSqld)('syncs an embedded replica', async () => {
    const primary = await startPrimary();
    const replicating = await startService({
      program,
      environment: { ...environment, DATABASE_URL: primary.url, DATABASE_REPLICA_PATH: 'replica.db' },
    });
    const deadlineMs = performance.now() + 10_000;
    while (!replicating.output().includes('the replica follows') && performance.now() < deadlineMs) await Bun.sleep(10);
    expect(replicating.output()).toContain('the replica follows the primary');
    await primary.kill();
    expect((await callerOf(replicating.address)('GET', '/v2/private/cemetery/all', { as: 'ada' })).status).toBe(200);
  });

  test('exits with 0 on SIGTERM and has the saved data after a restart', async () => {
    const path = '/v2/private/ltc/lifetimeCare';
    expect((await callerOf(service.address)('POST', path, { as: 'ada', body: { careCosts: 7 } })).status).toBe(200);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    const again = await startService({ program, cwd, environment });
    expect(await callerOf(again.address)('GET', '/v2/private/user', { as: 'ada' })).toMatchObject({
      status: 200,
      body: { user: { ltc: { lifetimeCare: { careCosts: 7 } } } },
    });
    again.process.kill('SIGTERM');
    expect(await again.process.exited).toBe(0);
  });
});

describe('command line of the bundle', () => {
  test('migrates a new database, and doctor succeeds', async () => {
    const fresh = temporaryFolder();
    expect((await planning(fresh, 'doctor')).exitCode).toBe(1);
    expect(await planning(fresh, 'migrate')).toMatchObject({ exitCode: 0, stderr: '' });
    const { stdout, exitCode } = await planning(fresh, 'doctor', '--json');
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout).findings).toContainEqual(expect.objectContaining({ check: 'schema', result: 'ok' }));
  });

  test('runs through the package script', () => {
    const env = { ...environment, PATH: `${environment.PATH}:/usr/bin:/bin` };
    const help = Bun.spawnSync([process.execPath, 'planning', '--version'], { cwd: bundle, env });
    expect(help.stdout.toString()).toMatch(`${packageJson.version} (`);
    expect(files).not.toContain('bun.lock');
    expect(existsSync(join(bundle, 'bun.lock'))).toBeFalse();
  });
});
