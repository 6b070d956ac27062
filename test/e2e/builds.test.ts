/** The bundle as a process: its version, its mode and the files that its settings come from. */
import { beforeAll, describe, expect, test } from 'bun:test';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import packageJson from '../../package.json';
import { programOf } from '../support/artifacts';
import { copyTemplate, keys } from '../support/database';
import { createProduction, failToStart, productionSettings, startService } from '../support/processes';
import { atEnd, runToEnd, temporaryFolder } from '../support/resources';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { NODE_ENV, ...withoutMode } = productionSettings;
const [main, cli] = [await programOf('src/main'), await programOf('src/cli/main')];

/** Runs a program with only this environment. */
function run(command: readonly string[], { cwd, env = {} }: { cwd: string; env?: Record<string, string> }) {
  const child = Bun.spawn([process.execPath, ...command], {
    cwd,
    env: { PATH: process.env.PATH, ...env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  });
  atEnd(() => child.kill('SIGKILL'));
  return runToEnd(child);
}

describe('a build', () => {
  const folder = temporaryFolder();
  const build = (BUILD_COMMIT: string) => run(['src/build/main.ts', folder], { cwd: root, env: { BUILD_COMMIT } });
  const { version } = packageJson;

  beforeAll(async () => {
    expect(await build('0123456789ab')).toMatchObject({ exitCode: 0 });
  });

  test('refuses a commit that is none', async () => {
    expect((await build('not a commit')).exitCode).toBe(1);
  });

  test('has the version of the newest entry of the change log, which has entries of each kind of reader', async () => {
    const text = await Bun.file(join(root, 'CHANGELOG.md')).text();
    const versions = [...text.matchAll(/^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$/gm)].map(([, version]) => version);
    expect(versions[0]).toBe(version);
    expect([...text.matchAll(/^## (?!\[Unreleased\]$)/gm)]).toHaveLength(versions.length);
    expect(text.match(/^### (?!(?:Added|Changed|Deprecated|Removed|Fixed|Security)$).*/gm)).toBeNull();
  });

  test('reports its version and commit in --version, in the log, in the metrics and for liveness', async () => {
    const stdout = `${version} (0123456789ab)\n`;
    const programs = ['src/main.js', 'src/cli/main.js'].map((path) => ['--no-install', `${folder}/${path}`]);
    for (const ended of await Promise.all(programs.map((each) => run([...each, '--version'], { cwd: folder }))))
      expect(ended).toEqual({ exitCode: 0, stdout, stderr: '' });
    const { settings, start } = await createProduction({ METRICS_TOKEN: 'Zk3vQ8rTq1LxW5nB7yHc2MdJ9sPfGa4uEo6i' });
    const [program = []] = programs;
    const service = await start({ program });
    const listening = service.logLines().find(({ msg }) => msg === 'listening');
    expect(listening).toMatchObject({ version, commit: '0123456789ab' });
    const live = await fetch(`${service.address}/health/live`);
    expect(await live.json()).toEqual({ status: 'live', version });
    const headers = { authorization: `Bearer ${settings.METRICS_TOKEN}` };
    const metrics = await (await fetch(`${service.address}/metrics`, { headers })).text();
    expect(metrics).toContain(`planning_build_info{version="${version}",commit="0123456789ab",bun="${Bun.version}"} 1`);
  });
});

describe('the bundle', () => {
  test('is in production by default, and the start names the sources of its settings', async () => {
    const production = await createProduction();
    const { cwd, write } = production;
    const { CHAT_ID, ...environment } = withoutMode;
    await write('other.env', `CHAT_ID=${CHAT_ID}\nLOG_LEVEL=debug\n`);
    const bare = await run([main], { cwd, env: { PORT: '0' } });
    expect(bare.exitCode).toBe(1);
    expect(bare.stderr).toContain('AUTH_ISSUER must be set in production');
    expect(bare.stderr).toEndWith(
      `The mode is production. Settings came from the environment; there is no .env file in ${cwd}.\n`,
    );
    const other = temporaryFolder();
    await Bun.write(join(other, '.env'), 'DATABASE_URL=file:data/elsewhere.db\n');
    const fromDotEnv = await run([main], { cwd: other, env: { ...environment, CHAT_ID, PORT: '0' } });
    expect(fromDotEnv.stdout).toContain(
      `"mode":"production","settings":["environment","${join(other, '.env')}"],"folder":"${other}"`,
    );
    expect(fromDotEnv.stderr).toStartWith(`There is no database at ${join(other, 'data/elsewhere.db')}.`);
    expect(readdirSync(other)).toEqual(['.env']);
    // A named file replaces .env, and the environment overrides it.
    const named = { ...environment, NODE_ENV, LOG_LEVEL: 'info' };
    const service = await startService({ cwd, args: ['--env-file', 'other.env'], environment: named });
    const [line = ''] = service.output().split('\n');
    const settings = ['environment', join(cwd, 'other.env')];
    const starting = { level: 'info', mode: 'production', settings, folder: cwd, msg: 'starting' };
    expect(JSON.parse(line)).toMatchObject(starting);
    expect(service.output()).not.toContain('"level":"debug"');
    service.process.kill('SIGKILL');

    await write('.env', 'DATABASE_URL=file:elsewhere.db\n');
    await write('my.env', 'DATABASE_URL=file:data/planning.db\nDATABASE_TIMEOUT_MS=2000 # enough\n');
    const orders = [['seed'], ['seed', '--env-file', 'my.env'], ['--env-file', 'my.env', 'seed']];
    const [unnamed, ...seeds] = await Promise.all(orders.map((args) => run([cli, ...args], { cwd })));
    expect(unnamed?.stderr).toContain(join(cwd, 'elsewhere.db'));
    expect(seeds.map(({ exitCode }) => exitCode)).toEqual([0, 0]);
  });

  test('requires NODE_ENV in the environment where a file of one mode exists', async () => {
    const cwd = temporaryFolder();
    await Bun.write(join(cwd, '.env.production'), 'PORT=0\n');
    const { exitCode, stderr } = await run([main], { cwd, env: withoutMode });
    expect(exitCode).toBe(1);
    expect(stderr).toContain(
      `NODE_ENV must be set in the environment, because ${join(cwd, '.env.production')} is there`,
    );
  });

  test('checks the key of the database of the sandbox carrier too', async () => {
    const cwd = temporaryFolder();
    await copyTemplate(join(cwd, 'data/planning.db'), keys.right);
    await copyTemplate(join(cwd, 'data/carrier-sandbox.db'));
    const { exitCode, stderr } = await failToStart({ cwd, environment: { DATABASE_ENCRYPTION_KEY: keys.right } });
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/SANDBOX_DATABASE_URL cannot be used \(NOT_ENCRYPTED\)/);
  });

  const canDropPrivileges = process.getuid?.() === 0 && Bun.which('setpriv') !== null;
  test.skipIf(!canDropPrivileges)('ends with one line on a privileged port', async () => {
    const cwd = temporaryFolder();
    const drop = ['--bounding-set=-all', '--inh-caps=-all', '--no-new-privs'];
    const child = Bun.spawn(['setpriv', ...drop, process.execPath, main], {
      cwd,
      env: { PATH: process.env.PATH, ...productionSettings, PORT: '81' },
      stdout: 'pipe',
      stderr: 'pipe',
    });
    const message = 'This user may not use that port; set PORT to another one.';
    expect(await runToEnd(child)).toMatchObject({
      exitCode: 1,
      stderr: `The service cannot listen on 127.0.0.1:81 (EACCES). ${message}\n`,
    });
    expect(readdirSync(cwd)).toEqual([]);
  });
});
