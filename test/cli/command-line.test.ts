import { describe, expect, spyOn, test } from 'bun:test';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { decodeJwt } from 'jose';
import Connection from 'libsql';
import { readStartFlags } from '../../src/cli/context';
import { createProgram } from '../../src/cli/main';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { openLogOutput } from '../../src/log';
import { openService } from '../../src/main';
import { createSalesStore } from '../../src/modules/sales/store';
import { canaryApplicant, counselor, createTestApp, manager, startSandbox } from '../support/app';
import { createCommandLine, diagnose, refusalOf } from '../support/command';
import { temporaryDatabase } from '../support/database';
import { amount, atEnd, freePort, temporaryFolder } from '../support/resources';

/** Commands that always print JSON, or run until they are stopped. */
const withoutJsonOption = ['planning user export', 'planning catalog schema', 'planning carrier'];
const unreachable = 'http://127.0.0.1:1';

const success = (stdout: string) => ({ exitCode: 0, stdout, stderr: '' });
const failure = (stderr: string) => ({ exitCode: 1, stdout: '', stderr });
const failureWith = (part: string) => failure(expect.stringContaining(part));

async function openLine(environment: Record<string, string> = {}) {
  const line = await createCommandLine(environment);
  const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 2_000 });
  atEnd(() => db.$client.close());
  return { ...line, db, path: join(line.cwd, 'data/planning.db') };
}

describe('planning', () => {
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

  test('shows help and exits with 0 for --help, and with 1 without a command', async () => {
    const { planning } = await createCommandLine({}, { isEmpty: true });
    const help = await planning('import', 'activities', '--help');
    expect(help).toEqual(success(expect.stringContaining('monthlyPlan or semiAnnualPlan')));
    for (const args of [[], ['import']]) {
      const { exitCode, stdout, stderr } = await planning(...args);
      expect([exitCode, stdout + stderr]).toEqual([1, expect.stringContaining('Usage: planning')]);
    }
  });

  test.each([
    ['nonsense', 'unknown command'],
    ['token', '--sub'],
    ['token --sub ', '1 to 255'],
    ['token --sub a --ttl 5', 's, m, h or d'],
    ['token --sub a --ttl 0s', 's, m, h or d'],
    ['token --sub a --ttl 366d', '365d'],
    ['token --sub a --subject a', 'unknown option'],
    ['import cemeteries', 'missing required argument'],
    ['import staff a.csv b.csv', 'too many arguments'],
    ['user show', 'missing required argument'],
    ['user erase ', '1 to 255'],
    ['user assign a b\n', '1 to 255'],
    ['catalog show 0', 'whole number from 1'],
    ['catalog diff 1', 'missing required argument'],
    ['catalog try --user none.json', 'not a readable file'],
    ['catalog try --user none.json --on 2026-02-30', 'YYYY-MM-DD'],
    ['carrier --port 70000', 'must be a port'],
  ])('exits with 1 and a message for %j', async (args, message) => {
    const { planning } = await createCommandLine();
    expect(await planning(...args.split(' '))).toEqual(failureWith(message));
  });

  test('reports an unavailable database', async () => {
    const { planning } = await createCommandLine({ DATABASE_URL: unreachable }, { isEmpty: true });
    const unavailable = failure('The database is unavailable (ECONNREFUSED).\n');
    for (const command of ['migrate', 'seed']) expect(await planning(command)).toEqual(unavailable);
  });

  test.each(['user erase a --yes', 'import staff nowhere.csv --dry-run', 'seed'])(
    'creates no database at a mistyped path: %s',
    async (args) => {
      const folder = temporaryFolder();
      expect(await refusalOf({ DATABASE_URL: `file:${folder}/planning.db` }, ...args.split(' '))).toStartWith(
        `There is no database at ${folder}/planning.db`,
      );
      expect(readdirSync(folder)).toEqual([]);
    },
  );

  test('does not change a database with a newer, incompatible schema', async () => {
    const { planning, db } = await openLine();
    await db.$client.execute(`UPDATE schema_compatibility SET min_reader = ${Date.now() * 2}`);
    await db.$client.execute('DELETE FROM reference_options');
    for (const command of ['migrate', 'seed']) {
      expect(await planning(command)).toEqual(failureWith('newer than this build'));
    }
    expect((await db.$client.execute('SELECT count(*) AS n FROM reference_options')).rows[0]?.n).toBe(0);
  });
});

describe('planning token', () => {
  test('signs with AUTH_SECRET, issuer, audience, the configured claim and the time to live', async () => {
    const claim = { AUTH_ISSUER: 'issuer', AUTH_AUDIENCE: 'audience', AUTH_ROLES_CLAIM: 'groups' };
    const { planning } = await createCommandLine({ AUTH_SECRET: 'x'.repeat(32), ...claim }, { isEmpty: true });
    const signed = await planning('token', '--sub', 'ada', '--roles', 'manager, other', '--ttl', '2h', '--json');
    const { iat = 0, exp, ...claims } = decodeJwt(JSON.parse(signed.stdout).token);
    expect(claims).toMatchObject({ sub: 'ada', iss: 'issuer', aud: 'audience', groups: ['manager', 'other'] });
    expect(exp).toBe(iat + 7200);
  });

  test('fails when AUTH_JWKS_URL is set, because the private key is elsewhere', async () => {
    expect(await refusalOf({ AUTH_JWKS_URL: 'https://issuer.example/jwks' }, 'token', '--sub', 'ada')).toContain(
      'private key',
    );
  });
});

describe('planning catalog', () => {
  const rule = { id: 'r', when: { fact: 'age', atLeast: 5 }, points: 1.5, list: 'highlights', text: 'T', reason: 'R' };
  const product = (id: number) => ({
    ...{ id, productName: `Product ${id}`, productWrapper: 'W', productIcon: '/icons/hybrid.svg' },
    ...{ disqualifiers: [], rules: [rule] },
  });
  const catalog = (count: number) =>
    JSON.stringify({ conditions: [], products: Array.from({ length: count }, (_, id) => product(id)) });

  test('imports a file as a new version once, which seed keeps, and the output of show unchanged', async () => {
    const { planning, write } = await createCommandLine();
    const shown = await planning('catalog', 'show', '--json');
    for (const [name, content, message] of [
      ['catalog.json', catalog(2), 'Version 2 of the catalogue is current, with 2 products.'],
      ['catalog.json', catalog(2), 'Version 2 of the catalogue is the same already.'],
      [
        'copy.json',
        shown.stdout,
        `Version 3 of the catalogue is current, with ${JSON.parse(shown.stdout).products.length} products.`,
      ],
    ] as const) {
      expect(await planning('import', 'products', await write(name, content))).toEqual(success(`${message}\n`));
      expect(await planning('seed')).toMatchObject({ exitCode: 0, stderr: '' });
    }
    expect(JSON.parse((await planning('catalog', 'show', '2', '--json')).stdout).products).toHaveLength(2);
    expect(await planning('catalog', 'diff', '1', '3')).toEqual(success('The versions are the same.\n'));
    expect(await planning('catalog', 'show', '--json')).toEqual(shown);
  });

  test('reports the errors of a file and stores nothing', async () => {
    const { planning, write } = await createCommandLine();
    const wrong = { ...product(2), rules: [{ ...rule, points: 1.005 }] };
    const files: [string | Uint8Array, string][] = [
      [
        JSON.stringify({ conditions: [], products: [product(1), wrong, product(1)] }),
        'product 2, rule r, points must have at most two decimals\n1 error in bad.json; nothing was stored.\n',
      ],
      ['{', 'bad.json is not well-formed JSON.\n'],
      [Buffer.from('"caf\u00e9"', 'latin1'), 'bad.json is not UTF-8 text.\n'],
    ];
    for (const [content, message] of files) {
      expect(await planning('import', 'products', await write('bad.json', content))).toEqual(failure(message));
    }
    const missing = 'There is no version 2 of the catalogue. Existing versions: 1.\n';
    expect(await planning('catalog', 'show', '2')).toEqual(failure(missing));
  });

  test('imports thousands of products, whose first match leaves the event loop to other requests', async () => {
    const { planning, write, db } = await openLine();
    const count = amount({ long: 10_000, short: 2_000 });
    const result = await planning('import', 'products', await write('large.json', catalog(count)), '--json');
    expect(JSON.parse(result.stdout)).toEqual({ version: 2, products: count, isNew: true });
    expect(JSON.parse((await planning('catalog', 'show', '--json')).stdout).products).toHaveLength(count);
    const testApp = await createTestApp({ db });
    // With a millisecond for each step, every fifth product must wait for the next turn, when loaded and when compiled.
    let nowMs = performance.now();
    const clock = spyOn(performance, 'now').mockImplementation(() => ++nowMs);
    const turns = spyOn(globalThis, 'setImmediate');
    try {
      const { text } = await testApp.call('POST', '/v2/private/engine/matches', { as: 'ada' });
      expect(text.match(/"productName"/g)).toHaveLength(count);
      expect(turns.mock.calls.length).toBeGreaterThan((2 * count) / 6);
    } finally {
      for (const spy of [clock, turns]) spy.mockRestore();
    }
  });

  test('explains the matches of a person in a file', async () => {
    const { planning, write } = await createCommandLine();
    const cover = { insuranceCover: ['payingFuneral'] };
    const person = { profile: { dateOfBirth: '1940-01-01' }, ltc: { lifetimeCare: cover } };
    const tried = async (name: string, content: object, ...args: string[]) => {
      const file = await write(name, JSON.stringify(content));
      return planning('catalog', 'try', '--user', file, '--on', '2026-03-10', ...args);
    };
    const { stdout, exitCode } = await tried('person.json', person);
    expect(exitCode).toBe(0);
    expect(stdout).toStartWith('Version 1, on 2026-03-10. Best match: ');
    expect(stdout).toMatch(/disqualified +-\d+\.\d\d +age80Plus/);
    expect(stdout).toMatch(/Pays for your funeral.* 24\.00 +funeral/);
    const record = { user: { ...person, id: 'x', insurance: {}, purchase: {} } };
    expect((await tried('record.json', record)).stdout).toBe(stdout);
    const json = await tried('person.json', person, '--json');
    expect(JSON.parse(json.stdout)).toHaveProperty('bestMatch.explanation.rules');
    const unknown = await tried('unknown.json', { profile: { birthDate: '1940-01-01' } });
    expect(unknown).toEqual(failureWith('profile.birthDate is not a known field'));
  });

  test('prints the JSON Schema without a database', async () => {
    const { planning } = await createCommandLine({ DATABASE_URL: unreachable }, { isEmpty: true });
    expect(JSON.parse((await planning('catalog', 'schema')).stdout)).toHaveProperty('$defs.Comparison');
  });
});

describe('planning user', () => {
  /** A command line with a database that has a person with an application, and a counselor. */
  async function setUp() {
    const line = await openLine({ DATABASE_TIMEOUT_MS: '100' });
    const testApp = await createTestApp({ db: line.db, carrier: (await startSandbox()).carrier() });
    const team = [manager('boss'), counselor('c1', 'boss', 'Noether', 'Emmy')];
    await createSalesStore(line.db).upsertStaff(team, testApp.now);
    const save = (path: string, body: object, as = 'ada') => testApp.call('POST', `/v2/private/${path}`, { as, body });
    expect((await save('ltc/lifetimeCare', { careCosts: 4500 })).status).toBe(200);
    expect((await save('ltc/totalCoverage', canaryApplicant)).status).toBe(200);
    const bytesOf = (...suffixes: string[]) =>
      // Reading in this process would release the POSIX locks of its connections.
      Bun.spawnSync(['cat', ...suffixes.map((suffix) => `${line.path}${suffix}`)]).stdout.toString('latin1');
    return { ...line, testApp, save, bytesOf };
  }

  test('shows and exports a user and assigns a counselor', async () => {
    const { planning, testApp, save, cwd } = await setUp();
    expect(await planning('user', 'assign', 'ada', 'c1')).toEqual(success('From now on c1 is credited.\n'));
    expect((await save('life/totalCoverage', canaryApplicant)).status).toBe(200);
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
    const first = { applicant: canaryApplicant, applicationNumber: 100_001, createdAt: testApp.now.toISOString() };
    expect(await file.json()).toMatchObject({
      user: { id: 'ada', ltc: { lifetimeCare: { careCosts: 4500 } } },
      counselor: { id: 'c1' },
      applications: [{ ...first, attempts: [{ attempt: 1 }] }, { flow: 'life' }],
    });
    const exists = `${cwd}/ada.json: the file exists already: name a new one (EEXIST).\n`;
    expect(await planning('user', 'export', 'ada', '--to', 'ada.json')).toEqual(failure(exists));
    const none = `${JSON.stringify({ user: 'ada', counselor: null }, null, 2)}\n`;
    expect(await planning('user', 'assign', 'ada', '--none', '--json')).toEqual(success(none));
  });

  test('erases a person with --yes, also from every byte of the database file', async () => {
    const { planning, testApp, bytesOf } = await setUp();
    const unasked = 'Nothing was erased: use --yes where there is no terminal.\n';
    expect(await planning('user', 'erase', 'ada')).toEqual(failure(unasked));
    expect(bytesOf('', '-wal')).toContain('Canary');
    const erased = await planning('user', 'erase', 'ada', '--yes', '--json');
    expect(JSON.parse(erased.stdout)).toEqual({
      record: true,
      applications: [{ reference: expect.any(String), applicationNumber: 100_001 }],
      attempts: 1,
      idempotencyKeys: 0,
      events: 5,
      keptAs: expect.stringMatching(/^erased:/),
    });
    expect(bytesOf('', '-wal')).not.toMatch(/canary/i);
    expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).status).toBe(404);
    const nothing = 'There is no data to erase of this user.\n';
    expect(await planning('user', 'erase', 'ada', '--yes')).toEqual(success(nothing));
  });

  test('erases during an open read transaction and reports that the WAL still has the data', async () => {
    const { planning, bytesOf, path } = await setUp();
    const reader = new Connection(path, { timeout: 0 });
    reader.exec('BEGIN; SELECT count(*) FROM users');
    const erased = await planning('user', 'erase', 'ada', '--yes');
    expect(erased.exitCode).toBe(1);
    expect(erased.stdout).toContain('Erased: the record, 1 application');
    expect(erased.stdout).toMatch(/The partner carrier has these applications:\nnumber +reference\n100001 +\S+\n/);
    expect(erased.stderr).toContain('keep the -wal file with the database file');
    expect(erased.stderr).toEndWith(
      'Another process was reading the database, so its log still contains the erased data: run this command again.\n',
    );
    expect(bytesOf('-wal')).toContain('Canary');
    reader.exec('COMMIT');
    reader.close();
    expect(await planning('user', 'erase', 'ada', '--yes')).toMatchObject({ exitCode: 0, stderr: '' });
    expect(bytesOf('-wal')).not.toContain('Canary');
  });

  test('keeps the staff entry when the record of a counselor is erased', async () => {
    const { planning, save } = await setUp();
    await save('user/profile', { firstName: 'Emmy' }, 'c1');
    const { exitCode, stdout } = await planning('user', 'erase', 'c1', '--yes');
    expect({ exitCode, lines: stdout.replace(/[0-9a-f]{32}/, '…').split('\n') }).toEqual({
      exitCode: 0,
      lines: [
        'Erased: the record, 0 applications, 0 attempts, 0 idempotency keys.',
        'The audit log keeps 1 event and this one as erased:….',
        'The entry in staff stays: counselor, Emmy Noether.',
        '',
      ],
    });
    expect((await planning('user', 'show', 'c1')).stdout).toContain('staff         counselor (Emmy Noether)\n');
  });

  test('fails with a message for unknown users, unknown counselors and missing arguments', async () => {
    const { planning } = await setUp();
    for (const [args, message] of [
      ['show unknown', 'There is no data of this user.'],
      ['export unknown', 'There is no data of this user.'],
      ['assign ada', 'Name a counselor, or use --none.'],
      ['assign ada c1 --none', 'Name a counselor, or use --none.'],
      ['assign ada c9', 'The staff have no member with this id: run `bun planning import staff` first.'],
      ['assign unknown c1', 'This user has no record yet: the first save creates it.'],
    ] as const) {
      expect(await planning('user', ...args.split(' '))).toEqual(failure(`${message}\n`));
    }
  });
});

describe('planning doctor', () => {
  async function examine(settings: Record<string, string>) {
    const line = await createCommandLine({ PORT: String(await freePort()), ...settings }, { isEmpty: true });
    const diagnosis = await diagnose(line);
    return { ...diagnosis, results: diagnosis.findings.map(({ check, result }) => `${check} ${result}`) };
  }

  test('changes nothing and reports missing parts', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    const settings = { DATABASE_URL: `file:${path}` };
    const results = ['settings warning', 'database failed', 'service ok', 'token keys warning', 'carrier warning'];
    expect(await examine(settings)).toMatchObject({ exitCode: 1, stderr: '1 check failed.\n', results });
    expect(existsSync(path)).toBeFalse();
    const db = await openDatabase({ url: settings.DATABASE_URL, timeoutMs: 2_000 });
    expect((await examine(settings)).results).toContain('schema failed');
    await migrateDatabase(db);
    expect((await examine(settings)).results).toContain('catalogue failed');
    db.$client.close();
  });

  const databaseWithCarrier = async () => ({
    DATABASE_URL: (await temporaryDatabase()).url,
    DATABASE_TIMEOUT_MS: '100',
    AUTH_SECRET: 'a secret of thirty-two bytes or more',
    CARRIER_URL: (await startSandbox()).url,
    CARRIER_API_KEY: 'test-key',
  });

  test('reports ok for a healthy installation, and a write lock of another process', async () => {
    const settings = await databaseWithCarrier();
    const writer = new Connection(settings.DATABASE_URL.slice('file:'.length), { timeout: 0 });
    writer.exec('BEGIN IMMEDIATE');
    expect((await examine(settings)).findings).toContainEqual({
      check: 'writes',
      result: 'failed',
      detail: expect.stringContaining('holds the write lock (SQLITE_BUSY). Wait for that process, or stop it.'),
    });
    writer.exec('ROLLBACK');
    writer.close();
    const files = ['database', 'clock', 'sqlite', 'schema', 'writes', 'catalogue', 'log', 'service'];
    const checks = [...files, 'token keys', 'carrier', 'clock'];
    expect(await examine(settings)).toMatchObject({
      exitCode: 0,
      stderr: '',
      results: ['settings warning', ...checks.map((check) => `${check} ok`)],
    });
  });

  test('reports each failure without secrets', async () => {
    const healthy = await databaseWithCarrier();
    const text = join(temporaryFolder(), 'notes.txt');
    await Bun.write(text, 'This is no database. '.repeat(100));
    const refused = 'http://127.0.0.1:2 cannot be used (ECONNREFUSED)';
    const needsKey = 'It is encrypted, and DATABASE_ENCRYPTION_KEY is not set; or it is no database.';
    const remote = { DATABASE_URL: unreachable };
    const replica = (path: string) => ({ ...remote, DATABASE_REPLICA_PATH: path });
    const failures: [Record<string, string>, string, string][] = [
      [{ CARRIER_API_KEY: 'wrong-key' }, 'carrier', 'the carrier rejects CARRIER_API_KEY'],
      [{ CARRIER_URL: unreachable }, 'carrier', 'CARRIER_URL cannot be reached (ECONNREFUSED)'],
      [remote, 'database', `${unreachable} cannot be used (ECONNREFUSED)`],
      [replica(`${text}/r.db`), 'replica', `${text}/r.db is in a folder that is not writable (ENOTDIR)`],
      [replica(text), 'replica', `${text} is not a replica: move it away, or set another path`],
      [{ ...remote, DATABASE_READ_URL: 'http://127.0.0.1:2' }, 'replica', refused],
      [{ DATABASE_URL: `file:${text}` }, 'database', `${text} cannot be used (ENCRYPTION_KEY_NEEDED). ${needsKey}`],
    ];
    for (const [settings, check, detail] of failures) {
      const { exitCode, findings, stderr } = await examine({ ...healthy, ...settings });
      expect(exitCode).toBe(1);
      expect(findings).toContainEqual({ check, result: 'failed', detail });
      expect(JSON.stringify(findings) + stderr).not.toMatch(/thirty-two|wrong-key|test-key/);
    }
  });
});

/** Parses flags that end the process, and returns its exit code and what it writes. */
function endedBy(args: readonly string[]) {
  const written: string[] = [];
  const exit = spyOn(process, 'exit').mockImplementation((code) => {
    throw new Error(`exit ${code}`);
  });
  const outputs = [process.stdout, process.stderr].map((stream) =>
    spyOn(stream, 'write').mockImplementation((text: unknown) => written.push(String(text)) > 0),
  );
  try {
    return { exit: readStartFlags(args), written: written.join('') };
  } catch (error) {
    return { exit: error, written: written.join('') };
  } finally {
    for (const spy of [exit, ...outputs]) spy.mockRestore();
  }
}

describe('a start of the service', () => {
  test.each([
    ['--now 2026-01-15', 'exit 1', '--now requires --demo'],
    ['--demo --now 2026-02-30', 'exit 1', 'must be a valid date'],
    ['--demo --now 1999-12-31', 'exit 1', 'must be between 2000 and 2045'],
    ['--demo --now', 'exit 1', 'argument missing'],
    ['--dmeo', 'exit 1', "unknown option '--dmeo'"],
    ['demo', 'exit 1', 'too many arguments'],
    ['--help', 'exit 0', '--demo '],
  ])('with %s prints its usage and ends with %s', (args, code, reason) => {
    const { exit, written } = endedBy(args.split(' '));
    expect(exit).toEqual(new Error(code));
    expect(written).toContain(reason);
    expect(written).toMatch(/--now <time> +with --demo/);
  });

  test.each(['demo', 'now'])('fails with a hint when npm has taken --%s', async (flag) => {
    const environment = { [`npm_config_${flag}`]: 'true' };
    await expect(openService({ args: [], environment, output: openLogOutput(1) })).rejects.toThrow(
      `npm has taken --${flag} for itself. Its own flags end with --: npm start -- --${flag}`,
    );
  });
});
