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
    const kinds = [...text.matchAll(/^### (.+)$/gm)].map(([, kind = '']) => kind);
    expect(kinds.filter((kind) => !/^(?:Added|Changed|Deprecated|Removed|Fixed|Security)$/.test(kind))).toEqual([]);
  });

  test('reports its version and commit in --version, in the log, in the metrics and for liveness', async () => {
    const stdout = `${version} (0123456789ab)\n`;
    for (const program of ['src/main.js', 'src/cli/main.js']) {
      const ended = await run(['--no-install', `${folder}/${program}`, '--version'], { cwd: folder });
      expect(ended).toEqual({ exitCode: 0, stdout, stderr: '' });
    }
    const { settings, start } = await createProduction({ METRICS_TOKEN: 'Zk3vQ8rTq1LxW5nB7yHc2MdJ9sPfGa4uEo6i' });
    const service = await start({ program: ['--no-install', `${folder}/src/main.js`] });
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
    await write('.env', 'DATABASE_URL=file:elsewhere.db\n');
    const fromDotEnv = await run([main], { cwd, env: { ...environment, CHAT_ID, PORT: '0' } });
    expect(fromDotEnv.stdout).toContain(
      `"mode":"production","settings":["environment","${join(cwd, '.env')}"],"folder":"${cwd}"`,
    );
    expect(fromDotEnv.stderr).toStartWith(`There is no database at ${join(cwd, 'elsewhere.db')}.`);
    // A named file replaces .env, and the environment overrides it.
    const named = { ...environment, NODE_ENV, LOG_LEVEL: 'info' };
    const service = await startService({ cwd, args: ['--env-file', 'other.env'], environment: named });
    const [line = ''] = service.output().split('\n');
    const settings = ['environment', join(cwd, 'other.env')];
    expect(JSON.parse(line)).toMatchObject({
      level: 'info',
      mode: 'production',
      settings,
      folder: cwd,
      msg: 'starting',
    });
    expect(service.output()).not.toContain('"level":"debug"');
    service.process.kill('SIGKILL');

    const seed = (...args: string[]) => run([cli, ...args], { cwd });
    await write('my.env', 'DATABASE_URL=file:data/planning.db\nDATABASE_TIMEOUT_MS=2000 # enough\n');
    await write('bad.env', 'DATABASE_URL="file:data\n');
    expect((await seed('seed')).stderr).toContain(join(cwd, 'elsewhere.db'));
    expect(await seed('seed', '--env-file', 'my.env')).toMatchObject({ exitCode: 0 });
    expect(await seed('--env-file', 'my.env', 'seed')).toMatchObject({ exitCode: 0 });
    const stderr = expect.stringContaining('DATABASE_URL in bad.env is not read as it is written');
    expect(await seed('seed', '--env-file', 'bad.env')).toMatchObject({ exitCode: 1, stderr });
  });

  test.each<[string, string[], Record<string, string>]>([
    ['NODE_ENV=development', [], { NODE_ENV: 'development' }],
    ['--demo', ['--demo'], {}],
  ])('is in development with %s', async (_, args, environment) => {
    const child = Bun.spawn([process.execPath, main, ...args], {
      cwd: temporaryFolder(),
      env: { PATH: process.env.PATH, PORT: '0', ...environment },
      stdout: 'pipe',
    });
    atEnd(() => child.kill('SIGKILL'));
    let output = '';
    for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
      output += chunk;
      if (output.includes('Try it')) break;
    }
    child.kill('SIGKILL');
    expect(output).toContain('mode     development, with settings from the environment\n');
    if (args.length > 0) expect(output).not.toContain('"level":"warn"');
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

  test('names the path and creates nothing when it starts in a wrong folder', async () => {
    const cwd = temporaryFolder();
    const { exitCode, stdout, stderr } = await failToStart({ cwd, environment: productionSettings });
    expect(exitCode).toBe(1);
    expect(stdout).toContain(`"folder":"${cwd}"`);
    expect(stderr).toStartWith(`There is no database at ${join(cwd, 'data/planning.db')}.`);
    expect(readdirSync(cwd)).toEqual([]);
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
