import { Database as Sqlite } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Connection from 'libsql';
import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json';
import packageJson from '../../package.json';
import { openDatabase } from '../../src/db/client';
import { encryptionOption } from '../../src/db/database-file';
import { migrateDatabase, reportSchema } from '../../src/db/migrate';
import { requireCompatibleSchema, schemaState, unfinishedTables } from '../../src/db/schema-check';
import { findDemoTraces } from '../../src/seed';
import { refusalOf } from '../support/command';
import { earlierMigrations, runScript } from '../support/database';
import { createProduction, failToStart } from '../support/processes';
import { runToEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const Findings = v.object({
  findings: v.array(v.object({ check: v.string(), result: v.string(), detail: v.string() })),
});

/** Changes a database file with SQLite alone, as an operator can. */
function change(path: string, sql: string): void {
  const database = new Sqlite(path);
  database.exec('PRAGMA busy_timeout = 5000');
  database.exec(sql);
  database.close();
}

function rows(path: string, query: string): unknown[] {
  const database = new Sqlite(path, { readonly: true });
  try {
    return database.query(query).all();
  } finally {
    database.close();
  }
}

const repair = 'Make a backup, then run `planning migrate --repair`.';
const backup = 'Restore a backup.';
const newest = journal.entries.at(-1)?.when ?? 0;

/** Damage to the schema, the object that doctor names, and the remedy. */
const damages = [
  {
    what: 'an audit trigger dropped',
    sql: 'DROP TRIGGER users_profile_audited',
    object: 'trigger users_profile_audited is missing',
    remedy: repair,
  },
  {
    what: 'the trigger that keeps audit events dropped',
    sql: 'DROP TRIGGER audit_events_not_removed',
    object: 'trigger audit_events_not_removed is missing',
    remedy: repair,
  },
  {
    what: 'a trigger that counts dropped',
    sql: 'DROP TRIGGER cemeteries_count_added',
    object: 'trigger cemeteries_count_added is missing',
    remedy: repair,
  },
  {
    what: 'an audit trigger replaced by one that does nothing',
    sql: 'DROP TRIGGER users_profile_audited; CREATE TRIGGER users_profile_audited AFTER UPDATE OF profile ON users BEGIN SELECT 1; END',
    object: 'trigger users_profile_audited is changed',
    remedy: repair,
  },
  {
    what: 'a unique index dropped',
    sql: 'DROP INDEX applications_once',
    object: 'index applications_once is missing',
    remedy: repair,
  },
  {
    what: 'a column that may be null dropped',
    sql: 'ALTER TABLE applications DROP COLUMN retry_at',
    object: 'column applications.retry_at is missing',
    remedy: repair,
  },
  {
    what: 'a column with data dropped',
    sql: 'ALTER TABLE cemeteries DROP COLUMN zip',
    object: 'column cemeteries.zip is missing',
    remedy: backup,
  },
  {
    what: 'a table dropped',
    sql: 'DROP TABLE idempotency_keys',
    object: 'table idempotency_keys is missing',
    remedy: backup,
  },
  {
    what: 'the hash of a migration edited',
    sql: `UPDATE __drizzle_migrations SET hash = 'edited' WHERE created_at = ${journal.entries[6]?.when}`,
    object: 'migration 0006_audit was applied with hash edited, but this build has',
    remedy: repair,
  },
  {
    what: 'a migration of another project',
    sql: "INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('other', 1)",
    object: 'the migration dated 1 is unknown to this build',
    remedy: backup,
  },
];

describe('F5 a damaged schema', () => {
  test.each(damages)(
    'F5 stops a start, appears in doctor, and is changed by no command: $what',
    async ({ sql, object, remedy }) => {
      const { databasePath, databaseUrl, planning, settings, cwd } = await createProduction();
      change(databasePath, sql);
      const [started, doctor, refusal] = await Promise.all([
        failToStart({ cwd, environment: settings }),
        planning('doctor', '--json'),
        refusalOf({ ...settings, DATABASE_URL: databaseUrl }, 'migrate'),
      ]);
      expect(started.exitCode).toBe(1);
      const line = started.stderr.trim().split('\n').at(-1) ?? '';
      // The message of the bundle, and that of the sources in this process.
      for (const message of [line, refusal.replace('bun planning', 'planning')]) {
        expect(message).toStartWith('The schema differs from the one that the migrations create: ');
        expect(message).toContain(object);
        expect(message).toEndWith(remedy);
      }
      const { findings } = v.parse(Findings, JSON.parse(doctor.stdout));
      const failed = findings.filter(({ check, result }) => check === 'schema' && result === 'failed');
      expect(failed.map(({ detail }) => detail)).toEqual([expect.stringContaining(object)]);
      expect(failed.every(({ detail }) => detail.endsWith(remedy))).toBe(true);
      expect(doctor.exitCode).toBe(1);
    },
    30_000,
  );

  test('F5 can be repaired by migrate --repair, with counts, sums and the hash of an edited migration', async () => {
    const { databasePath, planning, start } = await createProduction();
    const triggers = 'applications_count_added cemeteries_count_added activities_sums_added users_made_audited'.split(
      ' ',
    );
    change(
      databasePath,
      `${triggers.map((name) => `DROP TRIGGER ${name};`).join('')}
      DROP INDEX applications_open; DROP INDEX applications_once; ALTER TABLE applications DROP COLUMN retry_at;
      UPDATE __drizzle_migrations SET hash = 'edited' WHERE created_at = ${newest};
      INSERT INTO users (id, version, created_at, updated_at) VALUES ('ada', 1, 1, 1);
      INSERT INTO cemeteries VALUES ('0123456789abcdef01234567', 'c-1', 'Rest', 'rest', '', 'Salem', 'OR', '', 'operator', 1, 1, 0);
      INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state, attempt,
        attempt_started_at, created_at) VALUES ('a', 'ada', 'life', 'hash', 0, '{}', 'submitted', 2, 7, 8);`,
    );
    const repaired = await planning('migrate', '--repair', '--json');
    expect(repaired).toMatchObject({ exitCode: 0, stderr: '' });
    const { repaired: objects } = v.parse(v.object({ repaired: v.array(v.string()) }), JSON.parse(repaired.stdout));
    expect(objects.toSorted()).toEqual(
      [
        ...triggers.map((name) => `trigger ${name}`),
        'column applications.retry_at',
        'index applications_once',
        'index applications_open',
        `record of migration ${journal.entries.at(-1)?.tag}`,
      ].toSorted(),
    );
    const counts = "SELECT table_name, row_count FROM row_counts WHERE row_count <> 0 AND table_name <> 'schema'";
    expect(rows(databasePath, `${counts} ORDER BY table_name`)).toEqual([
      { table_name: 'applications:submitted', row_count: 1 },
      { table_name: 'cemeteries', row_count: 1 },
    ]);
    expect(rows(databasePath, 'SELECT summed_up_to FROM activity_sums_progress')).not.toEqual([{ summed_up_to: null }]);
    expect(await planning('migrate', '--repair')).toMatchObject({ stdout: expect.stringContaining('Nothing to do') });
    const service = await start();
    expect(await service.health()).toBe(200);
    const doctor = await planning('doctor', '--json');
    const { findings } = v.parse(Findings, JSON.parse(doctor.stdout));
    expect(findings.filter(({ check }) => check === 'schema')).toMatchObject([{ result: 'ok' }]);
  });

  test('F5 takes a running service out of service with one fatal line, until it is repaired', async () => {
    const { databasePath, planning, start } = await createProduction();
    const service = await start();
    expect(await service.health()).toBe(200);
    const save = () => service.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body: { careSafety: 5 } });
    const saved = await save();
    expect(saved.status).toBe(200);
    change(databasePath, 'DROP TRIGGER users_lifetime_care_audited; DROP INDEX applications_once');
    await until(async () => (await service.health()) === 503);
    expect(await save()).toMatchObject({
      status: 503,
      body: { detail: 'The schema differs from the one that the migrations create.' },
    });
    expect(await service.health('live')).toBe(200);
    const fatal = service.logLines().filter(({ level }) => level === 'fatal');
    expect(fatal).toMatchObject([
      {
        code: 'SCHEMA_DAMAGED',
        schemaObjects: ['trigger users_lifetime_care_audited missing', 'index applications_once missing'],
      },
    ]);
    expect(await planning('migrate', '--repair')).toMatchObject({ exitCode: 0 });
    await until(async () => (await service.health()) === 200);
    expect((await save()).status).toBe(saved.status);
    expect(service.logLines().filter(({ msg }) => msg === 'the schema fits this build')).toHaveLength(1);
  });

  test('F5 causes only a warning when objects are extra or an index for performance is missing', async () => {
    const { databasePath, planning, start } = await createProduction();
    change(
      databasePath,
      `CREATE TABLE notes (id integer); CREATE INDEX users_by_counselor_too ON users (counselor_id);
      ALTER TABLE users ADD COLUMN note text; CREATE VIEW names AS SELECT id FROM users; DROP INDEX applications_open;
      ANALYZE`,
    );
    const expected = [
      'index applications_open is missing',
      'table notes is extra',
      'column users.note is extra',
      'index users_by_counselor_too is extra',
      'view names is extra',
    ];
    const service = await start();
    expect(await service.health()).toBe(200);
    const warned = service.logLines().filter(({ msg }) => msg === 'the schema differs from the migrations');
    expect(warned.map(({ level, schemaObject }) => `${level} ${schemaObject}`).toSorted()).toEqual(
      expected.map((detail) => `warn ${detail}`).toSorted(),
    );
    const doctor = await planning('doctor', '--json');
    const { findings } = v.parse(Findings, JSON.parse(doctor.stdout));
    const schema = findings.filter(({ check }) => check === 'schema');
    expect(schema.map(({ result, detail }) => `${result} ${detail.split('. ')[0]}`).toSorted()).toEqual(
      expected.map((detail) => `warning ${detail}`).toSorted(),
    );
    expect(await planning('migrate', '--dry-run')).toMatchObject({ exitCode: 0 });
    expect(await planning('migrate')).toMatchObject({ exitCode: 0 });
  });

  test('F5 excludes the changes of a newer build, except in what this build needs', async () => {
    const { databasePath, planning, start } = await createProduction();
    change(
      databasePath,
      `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('newer', ${newest + 1000});
      CREATE TABLE newer (id integer); DROP TRIGGER users_profile_audited`,
    );
    const service = await start();
    expect(await service.health()).toBe(200);
    expect(await planning('migrate')).toMatchObject({ exitCode: 0 });
    change(databasePath, 'ALTER TABLE applications DROP COLUMN retry_at');
    await until(async () => (await service.health()) === 503);
    const doctor = await planning('doctor');
    expect(doctor).toMatchObject({
      exitCode: 1,
      stdout: expect.stringContaining('column applications.retry_at is missing'),
    });
  });
});

describe('F5 migrate', () => {
  test('F5 lists the pending migrations, then the applied ones, then that there is nothing to do', async () => {
    const { planning, cwd } = await createProduction({}, { isEmpty: true });
    const all = journal.entries.map(({ tag }) => tag);
    const dryRun = await planning('migrate', '--dry-run', '--json');
    expect(JSON.parse(dryRun.stdout)).toEqual({ pending: all, differences: [] });
    expect(dryRun.exitCode).toBe(2);
    expect([...new Bun.Glob('data/*').scanSync(cwd)]).toEqual([]);
    const migrated = await planning('migrate');
    expect([...migrated.stdout.matchAll(/^Applied (\w+) in \d+ ms\.$/gm)].map(([, name]) => name ?? '')).toEqual(all);
    expect(await planning('migrate')).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('Nothing to do') });
    const again = await planning('migrate', '--dry-run', '--json');
    expect([again.exitCode, JSON.parse(again.stdout)]).toEqual([0, { pending: [], differences: [] }]);
  });

  test('F5 upgrades a database with an earlier form of a migration, after a repair if that form created less', async () => {
    const { planning, databasePath, cwd } = await createProduction({}, { isEmpty: true });
    const db = await openDatabase({ url: `file:${databasePath}`, timeoutMs: 2000 });
    await migrateDatabase(db, await earlierMigrations(11));
    db.$client.close();
    const setHash = (index: number, hash: string) =>
      `UPDATE __drizzle_migrations SET hash = '${hash}' WHERE created_at = ${journal.entries[index]?.when};`;
    change(
      databasePath,
      `${setHash(7, '36fbf6ce95c524d797a73cff82ceae30e103f8049383ca07c66741fbfe106af5')}
      ${setHash(10, 'c3272e55bfc63c8d1d4f4f9287f1e27a527bfa4d399872f58335558da199f1fd')}
      DROP TRIGGER applications_count_added; DROP TRIGGER applications_count_moved; DROP TRIGGER applications_count_removed;
      ALTER TABLE applications DROP COLUMN abandoned_at; ALTER TABLE applications DROP COLUMN reconcile_at;
      DROP INDEX applications_by_number; CREATE UNIQUE INDEX applications_by_number ON applications (application_number, carrier);
      DROP TRIGGER users_newest_answers_audited`,
    );
    expect(await planning('migrate')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringMatching(
        /trigger users_newest_answers_audited is missing; .*column applications.abandoned_at is missing/,
      ),
    });
    const repaired = await planning('migrate', '--repair');
    expect(repaired).toMatchObject({ exitCode: 0, stderr: '' });
    expect(repaired.stdout).toContain('Restored column applications.abandoned_at.');
    expect(repaired.stdout).toContain('Applied 0011_development_mark');
    expect(await planning('doctor')).toMatchObject({
      stdout: expect.stringMatching(/ok +schema +compatible with this build/),
    });
    expect(cwd).not.toBe('');
  });
});

describe.each(
  [
    {
      place: 'an encrypted file',
      open: async () => ({ url: `file:${'PATH'}`, encryptionKey: 'k'.repeat(40) }),
      isThere: true,
    },
    { place: 'a libSQL server', open: async () => ({ url: (await startSqld()).url }), isThere: hasSqld },
    {
      place: 'a libSQL server over ws',
      open: async () => ({ url: (await startSqld()).url.replace('http', 'ws') }),
      isThere: hasSqld,
    },
  ].filter(({ isThere }) => isThere),
)('F5 on $place', ({ open }) => {
  test('F5 the schema matches the migrations, and a dropped trigger is detected while the database is open', async () => {
    const { url, ...key } = await open();
    const settings = { ...key, url: url.replace('PATH', `${temporaryFolder()}/planning.db`), timeoutMs: 5000 };
    const db = await openDatabase(settings);
    await migrateDatabase(db);
    expect(await reportSchema(db)).toMatchObject({ pending: [], blocking: [], warnings: [] });
    const changes: unknown[] = [];
    const checked = requireCompatibleSchema(db.$client, {
      timeoutMs: 5000,
      checkIntervalMs: 0,
      onChange: (...change) => changes.push(change),
    });
    expect(await schemaState(checked)).toBe('compatible');
    await db.$client.execute('DROP TRIGGER audit_events_not_changed');
    await until(async () => (await schemaState(checked)) === 'damaged');
    expect(changes).toEqual([['SCHEMA_DAMAGED', ['trigger audit_events_not_changed missing']]]);
    await expect(checked.read('SELECT 1')).rejects.toMatchObject({ code: 'SCHEMA_DAMAGED' });
    await migrateDatabase(db, undefined, { repair: true });
    await until(async () => (await schemaState(checked)) === 'compatible');
    db.$client.close();
  });
});

test('F20 a database is marked for development by its first migration, and never later', async () => {
  const isMarked = async (applied: number) => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 5_000 });
    if (applied > 0) await migrateDatabase(db, await earlierMigrations(applied));
    await migrateDatabase(db, undefined, { forDevelopment: true });
    const { isMarked } = await findDemoTraces(db);
    db.$client.close();
    return isMarked;
  };
  expect([await isMarked(0), await isMarked(11)]).toEqual([true, false]);
});

describe('F19 a build', () => {
  test('F19 has the version of the newest entry of the change log, which has entries of each kind of reader', async () => {
    const text = await Bun.file(new URL('../../CHANGELOG.md', import.meta.url)).text();
    const versions = [...text.matchAll(/^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$/gm)].map(([, version]) => version);
    expect(versions[0]).toBe(packageJson.version);
    expect([...text.matchAll(/^## (?!\[Unreleased\]$)/gm)]).toHaveLength(versions.length);
    const kinds = [...text.matchAll(/^### (.+)$/gm)].map(([, kind = '']) => kind);
    expect(kinds.filter((kind) => !/^(?:Added|Changed|Deprecated|Removed|Fixed|Security)$/.test(kind))).toEqual([]);
  });

  test('F19 reports its version and commit in --version, in the log, in the metrics and for liveness', async () => {
    const folder = temporaryFolder();
    const build = (BUILD_COMMIT: string) =>
      runToEnd(
        Bun.spawn([process.execPath, 'src/build/main.ts', folder], {
          cwd: fileURLToPath(new URL('../..', import.meta.url)),
          env: { PATH: process.env.PATH, BUILD_COMMIT },
          stdin: 'ignore',
          stdout: 'pipe',
          stderr: 'pipe',
        }),
      );
    expect((await build('not a commit')).exitCode).toBe(1);
    expect(await build('0123456789ab')).toMatchObject({ exitCode: 0 });
    const { settings, start } = await createProduction({ METRICS_TOKEN: 'Zk3vQ8rTq1LxW5nB7yHc2MdJ9sPfGa4uEo6i' });
    const { version } = packageJson;
    for (const program of ['src/main.js', 'src/cli/main.js']) {
      const child = Bun.spawn([process.execPath, '--no-install', `${folder}/${program}`, '--version'], {
        cwd: folder,
        env: { PATH: process.env.PATH },
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
      });
      expect(await runToEnd(child)).toEqual({ exitCode: 0, stdout: `${version} (0123456789ab)\n`, stderr: '' });
    }
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

const encryptionKey = 'correct-horse-battery-staple-2026';
const otherProgram = 'CREATE TABLE orders (id);\nINSERT INTO orders VALUES (1)';

describe('H4 a database of another program', () => {
  const kinds = ['file', 'file in WAL mode', 'encrypted file', 'server'] as const;

  test.each(kinds.filter((kind) => kind !== 'server' || hasSqld))(
    'H4 stops start, migrate, seed and doctor, and stays unchanged: %s',
    async (kind) => {
      const key: Record<string, string> = kind === 'encrypted file' ? { DATABASE_ENCRYPTION_KEY: encryptionKey } : {};
      const server = kind === 'server' ? await startSqld() : undefined;
      const { planning, settings, cwd, databasePath } = await createProduction(
        { ...key, ...(server && { DATABASE_URL: server.url }) },
        { isEmpty: true },
      );
      const place = server?.url ?? databasePath;
      let contents: () => Promise<unknown>;
      if (server === undefined) {
        mkdirSync(join(cwd, 'data'));
        const foreign = new Connection(databasePath, {
          timeout: 0,
          ...encryptionOption(key.DATABASE_ENCRYPTION_KEY),
        });
        if (kind === 'file in WAL mode') foreign.exec('PRAGMA journal_mode = WAL');
        foreign.exec(otherProgram);
        foreign.close();
        contents = () => Bun.file(databasePath).bytes();
      } else {
        const db = await openDatabase({ url: server.url, timeoutMs: 5000 });
        await runScript(db, otherProgram);
        contents = async () => (await db.$client.execute('SELECT name, sql FROM sqlite_schema')).toJSON();
      }
      const before = await contents();
      const refusal = `The database ${place} belongs to another program. Nothing was changed. Correct DATABASE_URL.\n`;
      expect(await failToStart({ cwd, environment: settings })).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining(refusal),
      });
      for (const args of [['migrate'], ['migrate', '--dry-run'], ['migrate', '--repair'], ['seed']]) {
        expect(await planning(...args)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(refusal) });
      }
      const doctor = await planning('doctor');
      expect(doctor.exitCode).toBe(1);
      expect(doctor.stdout).toContain(refusal.trim());
      expect(await contents()).toEqual(before);
    },
    60_000,
  );

  test('H4 stops migrate when it has its own table of migrations', async () => {
    const { planning, databasePath, cwd } = await createProduction({}, { isEmpty: true });
    mkdirSync(join(cwd, 'data'));
    change(databasePath, 'CREATE TABLE users (id); CREATE TABLE __drizzle_migrations (id, hash, created_at)');
    const before = await Bun.file(databasePath).bytes();
    expect((await planning('migrate')).stderr).toContain('belongs to another program');
    expect(await Bun.file(databasePath).bytes()).toEqual(before);
  });

  test('H4 excludes a database of this service without its table of migrations', async () => {
    const { planning, databasePath, settings, cwd } = await createProduction();
    change(databasePath, 'DROP TABLE __drizzle_migrations');
    const refusal = `The database ${databasePath} has tables of this service, but no record of its migrations. Restore a backup.`;
    expect((await failToStart({ cwd, environment: settings })).stderr).toContain(refusal);
    expect((await planning('migrate')).stderr).toContain(refusal);
    expect((await planning('doctor')).stdout).toContain(refusal);
    expect(rows(databasePath, "SELECT name FROM sqlite_schema WHERE name = '__drizzle_migrations'")).toEqual([]);
  });
});

describe.skipIf(!hasSqld)('M2 a libSQL server', () => {
  test('M2 causes an error in start, doctor and commands when it has no tables', async () => {
    const { url } = await startSqld();
    const { planning, settings, cwd } = await createProduction({ DATABASE_URL: url }, { isEmpty: true });
    const refusal = `The database ${url} has no tables. Run \`planning migrate\` to create it, or correct DATABASE_URL.`;
    expect((await failToStart({ cwd, environment: settings })).stderr).toContain(refusal);
    expect((await planning('doctor')).stdout).toContain(refusal);
    expect((await planning('seed')).stderr).toContain(refusal);
  }, 30_000);

  test.each(['copy', 'restore'] as const)(
    'M2 causes an error that names the command to finish an interrupted %s',
    async (command) => {
      const { url } = await startSqld();
      const db = await openDatabase({ url, timeoutMs: 5000 });
      await db.$client.batch([
        `CREATE TABLE ${unfinishedTables[command]} (source_id text)`,
        'CREATE TABLE reference_lists (id)',
        'CREATE TABLE users (id)',
      ]);
      const { planning, settings, cwd } = await createProduction({ DATABASE_URL: url }, { isEmpty: true });
      const refusal = `The database ${url} is an unfinished ${command}. Run \`planning ${command}\` again, or remove the database and begin with an empty one.`;
      expect((await failToStart({ cwd, environment: settings })).stderr).toContain(refusal);
      for (const args of [['migrate'], ['migrate', '--dry-run'], ['seed']]) {
        expect(await planning(...args)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(refusal) });
      }
      expect((await planning('doctor')).stdout).toContain(refusal);
    },
    30_000,
  );
});

describe('M1 a schema that is lost while the service runs', () => {
  const losses = [
    { what: 'a table dropped', sql: 'DROP TABLE cemeteries' },
    { what: 'a column dropped', sql: 'ALTER TABLE cemeteries DROP COLUMN zip' },
  ];

  test.each(losses)('M1 causes 503 at once, with one fatal line: $what', async ({ sql }) => {
    const { start, databasePath } = await createProduction();
    const service = await start();
    const list = () => service.call('GET', '/v2/private/cemetery/all', { as: 'ada' });
    expect((await list()).status).toBe(200);
    change(databasePath, sql);
    const statuses = (await Promise.all(Array.from({ length: 20 }, list))).map(({ status }) => status);
    expect(new Set(statuses)).toEqual(new Set([503]));
    await until(() => service.logLines().some(({ level }) => level === 'fatal'));
    expect(service.logLines().filter(({ level }) => level === 'fatal')).toHaveLength(1);
  });

  test.skipIf(!hasSqld)('M1 causes 503 when a libSQL server restarts on an empty folder', async () => {
    const server = await startSqld();
    const { planning, start } = await createProduction({ DATABASE_URL: server.url }, { isEmpty: true });
    await planning('migrate');
    const service = await start();
    const list = () => service.call('GET', '/v2/private/cemetery/all', { as: 'ada' });
    const save = () => service.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body: { careCosts: 1 } });
    expect([(await list()).status, (await save()).status]).toEqual([200, 200]);
    await server.kill();
    rmSync(server.folder, { recursive: true });
    await server.start();
    const responses = await Promise.all(Array.from({ length: 10 }, () => [list(), save()]).flat());
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([503]));
    await until(() => service.logLines().some(({ level }) => level === 'fatal'));
    expect(service.logLines().filter(({ level }) => level === 'fatal')).toMatchObject([{ code: 'SCHEMA_EMPTY' }]);
  });
});

describe('M6 writes that fail', () => {
  test('M6 log one line when another process holds the lock, and one when they succeed again', async () => {
    const { start, databasePath, planning } = await createProduction({ DATABASE_TIMEOUT_MS: '1000' });
    const service = await start();
    const save = () => service.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body: { careCosts: 1 } });
    const writeLines = () => service.logLines().filter(({ msg }) => msg.startsWith('the database takes '));
    const holder = new Sqlite(databasePath);
    holder.exec('PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE');
    expect((await Promise.all([save(), save()])).map(({ status }) => status)).toEqual([503, 503]);
    expect((await save()).status).toBe(503);
    const busy = {
      level: 'error',
      code: 'SQLITE_BUSY',
      database: databasePath,
      msg: 'the database takes no writes: another process holds the write lock. Wait for that process, or stop it.',
    };
    await until(() => writeLines().length > 0);
    expect(writeLines()).toMatchObject([busy]);
    expect((await planning('doctor')).stdout).toContain(
      `${databasePath}: another process holds the write lock (SQLITE_BUSY). Wait for that process, or stop it.`,
    );
    holder.exec('ROLLBACK');
    holder.close();
    await until(async () => (await save()).status === 200 && writeLines().length === 2);
    expect(writeLines()).toMatchObject([busy, { level: 'info', msg: 'the database takes writes again' }]);
  });

  test.skipIf(!hasSqld)('M6 log one line when the server is unreachable, and one when they succeed again', async () => {
    const server = await startSqld();
    const { planning, start } = await createProduction({ DATABASE_URL: server.url }, { isEmpty: true });
    await planning('migrate');
    const service = await start();
    const save = () => service.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body: { careCosts: 1 } });
    const writeLines = () => service.logLines().filter(({ msg }) => msg.startsWith('the database takes '));
    expect((await save()).status).toBe(200);
    await server.kill();
    expect((await save()).status).toBe(503);
    await until(() => writeLines().length > 0);
    await server.start();
    await until(async () => (await save()).status === 200 && writeLines().length === 2);
    expect(writeLines().map(({ msg }) => msg)).toEqual([
      'the database takes no writes: its server cannot be reached. Start the server, or check the network.',
      'the database takes writes again',
    ]);
  });
});
