import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createSalesStore } from '../../src/modules/sales/store';
import { canaryApplicant as applicant, counselor, createTestApp, manager, startSandbox } from '../support/app';
import { type CommandLine, createCommandLine, refusalOf } from '../support/command';
import { temporaryFolder } from '../support/resources';

/** A command line with a database that has a person with an application, and a counselor. */
async function setUp({ isProcess = false } = {}) {
  const line = await createCommandLine({}, { isProcess });
  const sandbox = await startSandbox();
  const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 2000 });
  const testApp = await createTestApp({ db, carrier: sandbox.carrier() });
  await createSalesStore(db).upsertStaff([manager('boss'), counselor('c1', 'boss', 'Noether', 'Emmy')], testApp.now);
  const body = { careCosts: 4500 };
  expect((await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body })).status).toBe(200);
  const start = (flow: string) =>
    testApp.call('POST', `/v2/private/${flow}/totalCoverage`, { as: 'ada', body: applicant });
  expect((await start('ltc')).status).toBe(200);
  return { ...line, db, testApp, start };
}

const failure = (stderr: string) => ({ exitCode: 1, stdout: '', stderr: `${stderr}\n` });

describe('planning user', () => {
  test('shows and exports a user and assigns a counselor', async () => {
    const { planning, testApp, start, cwd } = await setUp();
    expect(await planning('user', 'assign', 'ada', 'c1')).toMatchObject({
      exitCode: 0,
      stdout: 'From now on c1 is credited.\n',
    });
    expect((await start('life')).status).toBe(200);
    const glance = await testApp.call('GET', '/v2/private/user/salesManager/monthly-glance?month=3', {
      as: 'boss',
      roles: ['salesManager'],
    });
    expect(glance.body).toMatchObject({ data: { teamGlance: { glance: { qoutes: 1, applications: 1 } } } });

    const { stdout } = await planning('user', 'show', 'ada');
    expect(stdout).toContain('sections      profile, ltc.lifetimeCare, purchase.partner\n');
    expect(stdout).toContain('counselor     c1 (Emmy Noether)\n');
    expect(stdout).toMatch(/^100001 +ltc +submitted /m);
    expect(stdout).not.toContain('Canary');

    const shown = JSON.parse((await planning('user', 'show', 'ada', '--json')).stdout);
    expect(shown.user).toEqual(JSON.parse((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).text).user);

    expect(await planning('user', 'export', 'ada', '--to', 'ada.json')).toMatchObject({ exitCode: 0 });
    const file = Bun.file(join(cwd, 'ada.json'));
    expect((await file.stat()).mode & 0o777).toBe(0o600);
    expect(await file.json()).toMatchObject({
      user: { id: 'ada', ltc: { lifetimeCare: { careCosts: 4500 } } },
      counselor: { id: 'c1' },
      applications: [
        { applicant, applicationNumber: 100_001, createdAt: testApp.now.toISOString(), attempts: [{ attempt: 1 }] },
        { flow: 'life' },
      ],
    });
    expect(await planning('user', 'export', 'ada', '--to', 'ada.json')).toEqual(
      failure(`${cwd}/ada.json: the file exists already: name a new one (EEXIST).`),
    );
    expect(await planning('user', 'assign', 'ada', '--none', '--json')).toMatchObject({
      exitCode: 0,
      stdout: `${JSON.stringify({ user: 'ada', counselor: null }, null, 2)}\n`,
    });
  }, 15_000);

  test('erases a person with --yes, also from every byte of the database file', async () => {
    const { planning, databaseUrl, testApp } = await setUp();
    const bytes = async () => {
      const path = databaseUrl.slice('file:'.length);
      // Reading in this process would release the POSIX locks of its connections.
      const parts = Bun.spawnSync(['cat', path, `${path}-wal`], { stderr: 'ignore' }).stdout;
      return parts.toString('latin1').toLowerCase();
    };
    expect(await planning('user', 'erase', 'ada')).toEqual(
      failure('Nothing was erased: use --yes where there is no terminal.'),
    );
    expect(await bytes()).toContain('canary');
    const erased = await planning('user', 'erase', 'ada', '--yes', '--json');
    expect(JSON.parse(erased.stdout)).toEqual({
      record: true,
      applications: [{ reference: expect.any(String), applicationNumber: 100_001 }],
      attempts: 1,
      idempotencyKeys: 0,
      events: 5,
      keptAs: expect.stringMatching(/^erased:/),
    });
    expect(await bytes()).not.toContain('canary');
    expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).status).toBe(404);
    expect(await planning('user', 'erase', 'ada', '--yes')).toEqual({
      exitCode: 0,
      stdout: 'There is no data to erase of this user.\n',
      stderr: '',
    });
  }, 15_000);

  test('erases during an open read transaction and reports that the WAL still has the data', async () => {
    // SQLite in bun:sqlite and in libsql do not see each other's locks within one process.
    const line = await setUp({ isProcess: true });
    const path = line.databaseUrl.slice('file:'.length);
    const log = () => Bun.spawnSync(['cat', `${path}-wal`], { stderr: 'ignore' }).stdout.toString('latin1');
    const reader = new SqliteDatabase(path, { readonly: true });
    reader.run('BEGIN');
    reader.query('SELECT count(*) FROM users').all();
    const erased = await line.planning('user', 'erase', 'ada', '--yes');
    expect(erased.exitCode).toBe(1);
    expect(erased.stdout).toContain('Erased: the record, 1 application');
    expect(erased.stdout).toMatch(/The partner carrier has these applications:\nnumber +reference\n100001 +\S+\n/);
    expect(erased.stderr).toContain('keep the -wal file with the database file');
    expect(erased.stderr).toEndWith(
      'Another process was reading the database, so its log still contains the erased data: run this command again.\n',
    );
    expect(await log()).toContain('Canary');
    reader.close();
    expect(await line.planning('user', 'erase', 'ada', '--yes')).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await log()).not.toContain('Canary');
  }, 15_000);

  test('keeps the staff entry when the record of a counselor is erased', async () => {
    const { planning, testApp } = await setUp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'c1', body: { firstName: 'Emmy' } });
    const { exitCode, stdout } = await planning('user', 'erase', 'c1', '--yes');
    expect({ exitCode, stdout: stdout.replace(/erased:[0-9a-f]{32}/, 'erased:…') }).toEqual({
      exitCode: 0,
      stdout:
        'Erased: the record, 0 applications, 0 attempts, 0 idempotency keys.\n' +
        'The audit log keeps 1 event and this one as erased:….\n' +
        'The entry in staff stays: counselor, Emmy Noether.\n',
    });
    expect((await planning('user', 'show', 'c1')).stdout).toContain('staff         counselor (Emmy Noether)\n');
  }, 15_000);

  test('fails with a message for unknown users, unknown counselors and missing arguments', async () => {
    const { planning, databaseUrl } = await setUp();
    const cases: [string[], string][] = [
      [['show', 'unknown'], 'There is no data of this user.'],
      [['export', 'unknown'], 'There is no data of this user.'],
      [['assign', 'ada'], 'Name a counselor, or use --none.'],
      [['assign', 'ada', 'c1', '--none'], 'Name a counselor, or use --none.'],
      [['assign', 'ada', 'c9'], 'The staff have no member with this id: run `bun planning import staff` first.'],
      [['assign', 'unknown', 'c1'], 'This user has no record yet: the first save creates it.'],
    ];
    for (const [args, message] of cases) {
      expect(await refusalOf({ DATABASE_URL: databaseUrl }, 'user', ...args)).toBe(message);
    }
    expect(await planning('user', 'show', 'unknown')).toEqual(failure('There is no data of this user.'));
  }, 15_000);
});

const Findings = v.object({
  findings: v.array(v.object({ check: v.string(), result: v.string(), detail: v.string() })),
});

describe('planning doctor', () => {
  const examine = async (line: Pick<CommandLine, 'planning'>) => {
    const { exitCode, stdout, stderr } = await line.planning('doctor', '--json');
    const { findings } = v.parse(Findings, JSON.parse(stdout));
    return { exitCode, stderr, findings, results: findings.map(({ check, result }) => `${check} ${result}`) };
  };

  test('changes nothing and reports missing parts', async () => {
    const line = await createCommandLine({}, { isEmpty: true });
    expect(await examine(line)).toMatchObject({
      exitCode: 1,
      stderr: '1 check failed.\n',
      results: ['settings warning', 'database failed', 'service ok', 'token keys warning', 'carrier warning'],
    });
    expect(await Bun.file(line.databaseUrl.slice('file:'.length)).exists()).toBeFalse();
    const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 2000 });
    expect((await examine(line)).results).toContain('schema failed');
    await migrateDatabase(db);
    expect((await examine(line)).results).toContain('catalogue failed');
    db.$client.close();
  }, 15_000);

  test('reports ok for a healthy installation, and each failure without secrets', async () => {
    const { databaseUrl } = await createCommandLine();
    const sandbox = await startSandbox();
    const secret = 'a secret of thirty-two bytes or more';
    const set = (more: Record<string, string>) =>
      createCommandLine(
        {
          DATABASE_URL: databaseUrl,
          AUTH_SECRET: secret,
          CARRIER_URL: sandbox.url,
          CARRIER_API_KEY: 'test-key',
          ...more,
        },
        { isProcess: true },
      );
    const beside = new SqliteDatabase(databaseUrl.slice('file:'.length));
    beside.run('PRAGMA journal_mode = WAL');
    beside.run('BEGIN IMMEDIATE');
    const { findings } = await examine(await set({}));
    expect(findings).toContainEqual({
      check: 'writes',
      result: 'failed',
      detail: expect.stringContaining('another process holds the write lock (SQLITE_BUSY)'),
    });
    beside.run('ROLLBACK');
    beside.close();
    const healthy = await examine(await set({}));
    expect(healthy).toMatchObject({ exitCode: 0, stderr: '' });
    expect(healthy.results).toEqual([
      'settings warning',
      'database ok',
      'clock ok',
      'sqlite ok',
      'schema ok',
      'writes ok',
      'catalogue ok',
      'log ok',
      'service ok',
      'token keys ok',
      'carrier ok',
      'clock ok',
    ]);
    const notDatabase = join(temporaryFolder(), 'notes.txt');
    await Bun.write(notDatabase, 'This is no database. '.repeat(100));
    const failures: [Record<string, string>, string, string][] = [
      [{ CARRIER_API_KEY: 'wrong-key' }, 'carrier', 'the carrier rejects CARRIER_API_KEY'],
      [{ CARRIER_URL: 'http://127.0.0.1:1' }, 'carrier', 'CARRIER_URL cannot be reached (ECONNREFUSED)'],
      [{ DATABASE_URL: 'http://127.0.0.1:1' }, 'database', 'http://127.0.0.1:1 cannot be used (ECONNREFUSED)'],
      [
        { DATABASE_URL: 'http://127.0.0.1:1', DATABASE_REPLICA_PATH: `${notDatabase}/replica.db` },
        'replica',
        `${notDatabase}/replica.db is in a folder that is not writable (ENOTDIR)`,
      ],
      [
        { DATABASE_URL: 'http://127.0.0.1:1', DATABASE_REPLICA_PATH: notDatabase },
        'replica',
        `${notDatabase} is not a replica: move it away, or set another path`,
      ],
      [
        { DATABASE_URL: 'http://127.0.0.1:1', DATABASE_READ_URL: 'http://127.0.0.1:2' },
        'replica',
        'http://127.0.0.1:2 cannot be used (ECONNREFUSED)',
      ],
      [
        { DATABASE_URL: `file:${notDatabase}` },
        'database',
        `${notDatabase} cannot be used (ENCRYPTION_KEY_NEEDED). ` +
          'It is encrypted, and DATABASE_ENCRYPTION_KEY is not set; or it is no database.',
      ],
    ];
    for (const [settings, check, detail] of failures) {
      const { exitCode, findings, stderr } = await examine(await set(settings));
      expect(exitCode).toBe(1);
      expect(findings).toContainEqual({ check, result: 'failed', detail });
      expect(JSON.stringify(findings) + stderr).not.toMatch(/thirty-two|wrong-key|test-key/);
    }
  }, 15_000);
});
