import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import type { Command } from 'commander';
import { decodeJwt } from 'jose';
import packageJson from '../../package.json' with { type: 'json' };
import { createProgram } from '../../src/cli/main';
import { openDatabase } from '../../src/db/client';
import { createCommandLine } from '../support/command';

/** Commands that always print JSON, or run until they are stopped. */
const withoutJsonOption = ['planning user export', 'planning catalog schema', 'planning carrier'];

describe('planning', () => {
  test.each([[[]], [['import']]])('shows help and exits with 1 for %p without a command', async (args) => {
    const { exitCode, stdout, stderr } = await (await createCommandLine()).planning(...args);
    expect(exitCode).toBe(1);
    expect(stdout + stderr).toContain('Usage: planning');
  });

  test('has help for every command, and --json for each that prints data', () => {
    const find = (command: Command, path: string): [string, string][] => [
      [path, command.helpInformation()],
      ...command.commands.flatMap((each) => find(each, `${path} ${each.name()}`)),
    ];
    const commands = find(createProgram(), 'planning');
    expect(commands.length).toBeGreaterThan(15);
    for (const [path, help] of commands) {
      expect(help).toStartWith(`Usage: ${path}`);
      const isGroup = help.includes('Commands:');
      expect([path, isGroup || help.includes('--json') || withoutJsonOption.includes(path)]).toEqual([path, true]);
    }
  });

  test('runs through the package script', () => {
    const { exitCode, stdout } = Bun.spawnSync([process.execPath, 'run', '--silent', 'planning', '--version'], {
      cwd: join(import.meta.dirname, '../..'),
    });
    expect([exitCode, stdout.toString()]).toEqual([0, expect.stringContaining(`${packageJson.version} (`)]);
  });

  test('shows help and exits with 0 for --help', async () => {
    expect(await (await createCommandLine()).planning('import', 'activities', '--help')).toMatchObject({
      exitCode: 0,
      stderr: '',
      stdout: expect.stringContaining('monthlyPlan or semiAnnualPlan'),
    });
  });

  test.each([
    [['nonsense'], 'unknown command'],
    [['token'], '--sub'],
    [['token', '--sub', ''], '1 to 255'],
    [['token', '--sub', 'a', '--ttl', '5'], 's, m, h or d'],
    [['token', '--sub', 'a', '--ttl', '0s'], 's, m, h or d'],
    [['token', '--sub', 'a', '--ttl', '366d'], '365d'],
    [['token', '--sub', 'a', '--subject', 'a'], 'unknown option'],
    [['import', 'cemeteries'], 'missing required argument'],
    [['import', 'staff', 'a.csv', 'b.csv'], 'too many arguments'],
    [['user', 'show'], 'missing required argument'],
    [['user', 'erase', ''], '1 to 255'],
    [['user', 'assign', 'a', 'b\n'], '1 to 255'],
    [['catalog', 'show', '0'], 'whole number from 1'],
    [['carrier', '--port', '70000'], 'must be a port'],
  ])('%p exits with 1 and a message', async (args, message) => {
    const { planning } = await createCommandLine({}, { isEmpty: true });
    expect(await planning(...args)).toMatchObject({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringContaining(message),
    });
  });

  test.each([
    [['nonsense'], 'unknown command'],
    [['import', 'cemeteries', 'nowhere.csv'], 'not a readable file'],
    [['user', 'show', 'unknown'], 'There is no data of this user'],
  ])('%p exits with 1, without a stack trace or standard output', async (args, message) => {
    const { exitCode, stdout, stderr } = await (await createCommandLine({}, { isProcess: true })).planning(...args);
    expect(exitCode).toBe(1);
    expect(stdout).toBe('');
    expect(stderr).toContain(message);
    expect(stderr).not.toMatch(/^\s+at /m);
  });

  test('lists every invalid setting', async () => {
    const { planning } = await createCommandLine({ DATABASE_TIMEOUT_MS: 'x', SEED_DEMO: '' }, { isProcess: true });
    expect(await planning('migrate')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringMatching(
        /^These settings cannot be used:\n {2}DATABASE_TIMEOUT_MS .*\n {2}SEED_DEMO .*\nThe mode is development\. .*\n$/,
      ),
    });
  });

  test('reports an unavailable database', async () => {
    const { planning } = await createCommandLine({ DATABASE_URL: 'http://127.0.0.1:1' });
    for (const command of [['migrate'], ['seed']]) {
      expect(await planning(...command)).toMatchObject({
        exitCode: 1,
        stderr: 'The database is unavailable (ECONNREFUSED).\n',
      });
    }
  });

  test.each([[['user', 'erase', 'a', '--yes']], [['import', 'staff', 'nowhere.csv', '--dry-run']], [['seed']]])(
    '%p creates no database at a mistyped path',
    async (args) => {
      const { planning, cwd } = await createCommandLine({}, { isEmpty: true });
      const { exitCode, stderr } = await planning(...args);
      expect(exitCode).toBe(1);
      expect(stderr).toStartWith('There is no database at ');
      expect(await Bun.file(`${cwd}/data/planning.db`).exists()).toBeFalse();
    },
  );

  test('does not change a database with a newer, incompatible schema', async () => {
    const { planning, databaseUrl } = await createCommandLine();
    const db = await openDatabase({ url: databaseUrl, timeoutMs: 2000 });
    await db.$client.execute(`UPDATE schema_compatibility SET min_reader = ${Date.now() * 2}`);
    await db.$client.execute('DELETE FROM reference_options');
    for (const command of ['migrate', 'seed']) {
      expect(await planning(command)).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining('newer than this build'),
      });
    }
    expect((await db.$client.execute('SELECT count(*) AS n FROM reference_options')).rows[0]?.n).toBe(0);
    db.$client.close();
  });

  test('migrate and seed can be repeated', async () => {
    const { planning } = await createCommandLine();
    for (const command of ['migrate', 'migrate', 'seed', 'seed']) {
      expect(await planning(command)).toMatchObject({ exitCode: 0, stderr: '' });
    }
  });
});

describe('planning token', () => {
  test('signs with the development key', async () => {
    const { planning } = await createCommandLine({}, { isProcess: true });
    const { stdout } = await planning('token', '--sub', 'ada', '--roles', 'salesManager, other', '--ttl', '2h');
    const claims = decodeJwt(stdout.trim());
    expect(claims).toMatchObject({ sub: 'ada', roles: ['salesManager', 'other'] });
    expect((claims.exp ?? 0) - (claims.iat ?? 0)).toBe(7200);
  });

  test('signs with AUTH_SECRET, issuer, audience and the configured claim', async () => {
    const { planning } = await createCommandLine({
      AUTH_SECRET: 'x'.repeat(32),
      AUTH_ISSUER: 'issuer',
      AUTH_AUDIENCE: 'audience',
      AUTH_ROLES_CLAIM: 'groups',
    });
    const { stdout } = await planning('token', '--sub', 'ada', '--roles', 'a', '--json');
    const { token } = JSON.parse(stdout);
    expect(decodeJwt(token)).toMatchObject({ sub: 'ada', iss: 'issuer', aud: 'audience', groups: ['a'] });
  });

  test('fails when AUTH_JWKS_URL is set, because the private key is elsewhere', async () => {
    const { planning } = await createCommandLine({ AUTH_JWKS_URL: 'https://issuer.example/jwks' });
    expect(await planning('token', '--sub', 'ada')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('private key'),
    });
  });
});
