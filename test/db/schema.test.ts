import { Database as Sqlite } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import Connection from 'libsql';
import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json';
import { openDatabase, openServiceDatabase, toDatabase } from '../../src/db/client';
import { encryptionOption } from '../../src/db/database-file';
import { migrateDatabase } from '../../src/db/migrate';
import { neededMigration, requireCompatibleSchema } from '../../src/db/schema-check';
import { createLog } from '../../src/log';
import { watchDatabase } from '../../src/start/databases';
import { createTestApp } from '../support/app';
import { diagnose } from '../support/command';
import { copyTemplate, keys, temporaryDatabase } from '../support/database';
import { createDeployment } from '../support/processes';
import { atEnd, temporaryFolder } from '../support/resources';

/** Changes a database file with the driver alone, as an operator can. */
function change(path: string, sql: string, encryptionKey?: string, whileOpen = () => {}): void {
  const connection = new Connection(path, { timeout: 5000, ...encryptionOption(encryptionKey) });
  connection.exec(sql);
  whileOpen();
  connection.close();
}

function rows(path: string, query: string): unknown[] {
  const database = new Sqlite(path, { readonly: true });
  try {
    return database.query(query).all();
  } finally {
    database.close();
  }
}

const repair = 'Make a backup, then run `bun planning migrate --repair`.';
const backup = 'Restore a backup.';
const newest = journal.entries.at(-1)?.when ?? 0;
const makeIncompatible = `UPDATE schema_compatibility SET min_reader = ${neededMigration + 1}`;

type Deployment = Awaited<ReturnType<typeof createDeployment>>;

async function schemaFindingsOf(deployment: Deployment) {
  const { exitCode, findings } = await diagnose(deployment);
  return { exitCode, findings: findings.filter(({ check }) => check === 'schema') };
}

const record = (hash: string, createdAt: number) =>
  `INSERT INTO __drizzle_migrations (hash, created_at) VALUES ('${hash}', ${createdAt})`;
const editHash = (createdAt?: number) =>
  `UPDATE __drizzle_migrations SET hash = 'edited' WHERE created_at = ${createdAt}`;
const newer = record('newer', newest + 1000);
const emptyTrigger = 'CREATE TRIGGER users_profile_audited AFTER UPDATE OF profile ON users BEGIN SELECT 1; END';

describe('a damaged schema', () => {
  test.each([
    ['trigger users_profile_audited is missing', 'DROP TRIGGER users_profile_audited', repair],
    ['trigger users_profile_audited is changed', `DROP TRIGGER users_profile_audited; ${emptyTrigger}`, repair],
    ['index applications_once is missing', 'DROP INDEX applications_once', repair],
    ['column applications.retry_at is missing', 'ALTER TABLE applications DROP COLUMN retry_at', repair],
    ['column applications.refusals is missing', 'ALTER TABLE applications DROP COLUMN refusals', repair],
    ['column cemeteries.zip is missing', 'ALTER TABLE cemeteries DROP COLUMN zip', backup],
    ['table idempotency_keys is missing', 'DROP TABLE idempotency_keys', backup],
    ['migration 0006_audit was applied with hash edited, but', editHash(journal.entries[6]?.when), repair],
    ['the migration dated 1 is unknown to this build', record('other', 1), backup],
  ])('is reported by start, migrate and doctor with the remedy: %s', async (object, sql, remedy) => {
    const deployment = await createDeployment();
    change(deployment.databasePath, sql);
    const migrated = await deployment.planning('migrate');
    expect(migrated.exitCode).toBe(1);
    for (const message of [await deployment.refusedStart(), migrated.stderr.trimEnd()]) {
      expect(message).toStartWith('The schema differs from the one that the migrations create: ');
      expect(message).toContain(object);
      expect(message).toEndWith(remedy);
    }
    const { exitCode, findings } = await schemaFindingsOf(deployment);
    expect(exitCode).toBe(1);
    expect(findings).toEqual([{ check: 'schema', result: 'failed', detail: expect.stringContaining(object) }]);
    expect(findings[0]?.detail).toEndWith(remedy);
  });

  test('is repaired by migrate --repair, with counts, sums and the hash of an edited migration', async () => {
    const deployment = await createDeployment();
    const { databasePath, planning } = deployment;
    const names = 'applications_count_added,cemeteries_count_added,activities_sums_added,users_made_audited';
    const triggers = names.split(',');
    change(
      databasePath,
      `${triggers.map((name) => `DROP TRIGGER ${name};`).join('')}
      DROP INDEX applications_open; DROP INDEX applications_once; ALTER TABLE applications DROP COLUMN retry_at;
      ${editHash(newest)};
      CREATE VIEW names AS SELECT id FROM users;
      INSERT INTO users (id, version, created_at, updated_at) VALUES ('ada', 1, 1, 1);
      INSERT INTO cemeteries VALUES ('0123456789abcdef01234567', 'c-1', 'Rest', 'rest', '', 'Salem', 'OR', '', 'operator', 1, 1, 0);
      INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state, attempt,
        attempt_started_at, created_at) VALUES ('a', 'ada', 'life', 'hash', 0, '{}', 'submitted', 2, 7, 8);`,
    );
    const repaired = await planning('migrate', '--repair', '--json');
    expect(repaired).toMatchObject({ exitCode: 0, stderr: '' });
    const { repaired: objects } = v.parse(v.object({ repaired: v.array(v.string()) }), JSON.parse(repaired.stdout));
    const others = ['column applications.retry_at', 'index applications_once', 'index applications_open'];
    const restored = [...triggers.map((name) => `trigger ${name}`), ...others];
    expect(objects.toSorted()).toEqual([`record of migration ${journal.entries.at(-1)?.tag}`, ...restored].toSorted());
    const counts = "SELECT table_name, row_count FROM row_counts WHERE row_count <> 0 AND table_name <> 'schema'";
    expect(rows(databasePath, `${counts} ORDER BY table_name`)).toEqual([
      { table_name: 'applications:submitted', row_count: 1 },
      { table_name: 'cemeteries', row_count: 1 },
    ]);
    expect(rows(databasePath, 'SELECT summed_up_to FROM activity_sums_progress')).not.toEqual([{ summed_up_to: null }]);
    expect(await planning('migrate', '--repair')).toMatchObject({ stdout: expect.stringContaining('Nothing to do') });
    expect(await (await deployment.start()).health()).toBe(200);
    // An extra object does not prevent the correction of the hash.
    expect((await schemaFindingsOf(deployment)).findings).toMatchObject([{ result: 'warning' }]);
  });

  test('is only a warning when objects are extra or an index for performance is missing', async () => {
    const deployment = await createDeployment();
    change(
      deployment.databasePath,
      `CREATE TABLE notes (id integer); CREATE INDEX users_by_counselor_too ON users (counselor_id);
      ALTER TABLE users ADD COLUMN note text; CREATE VIEW names AS SELECT id FROM users; DROP INDEX applications_open;
      ANALYZE`,
    );
    const expected = [
      'column users.note is extra',
      'index applications_open is missing',
      'index users_by_counselor_too is extra',
      'table notes is extra',
      'view names is extra',
    ];
    const service = await deployment.start();
    expect(await service.health()).toBe(200);
    const warned = service.logLines().filter(({ msg }) => msg === 'the schema differs from the migrations');
    expect(warned.map(({ level, schemaObject }) => `${level} ${schemaObject}`).toSorted()).toEqual(
      expected.map((detail) => `warn ${detail}`),
    );
    const { findings } = await schemaFindingsOf(deployment);
    expect(findings.map(({ result, detail }) => `${result} ${detail.split('. ')[0]}`).toSorted()).toEqual(
      expected.map((detail) => `warning ${detail}`),
    );
    for (const args of [['--dry-run'], []]) {
      expect(await deployment.planning('migrate', ...args)).toMatchObject({ exitCode: 0 });
    }
    expect(readdirSync(join(deployment.cwd, 'data'))).not.toContainEqual(expect.stringContaining('.before-migration-'));
  });

  test('excludes the changes of a newer build, except in what this build needs', async () => {
    const deployment = await createDeployment();
    const changes = [newer, 'CREATE TABLE newer (id integer)', 'DROP TRIGGER users_profile_audited'];
    change(deployment.databasePath, changes.join(';'));
    expect(await deployment.refusedStart()).toBe('the service is open');
    expect(await deployment.planning('migrate')).toMatchObject({ exitCode: 0 });
    change(deployment.databasePath, 'ALTER TABLE applications DROP COLUMN retry_at');
    const damaged = 'column applications.retry_at is missing';
    expect(await deployment.refusedStart()).toContain(damaged);
    expect(await deployment.planning('doctor')).toMatchObject({
      exitCode: 1,
      stdout: expect.stringContaining(damaged),
    });
    const { db, ready } = await createWatchedApp(0);
    await db.$client.batch(changes, 'write');
    expect((await ready()).status).toBe(200);
    await db.$client.execute('ALTER TABLE applications DROP COLUMN retry_at');
    expect((await ready()).status).toBe(503);
  });
});

const foreign = 'belongs to another program. Nothing was changed. Correct DATABASE_URL.';
const orders = 'CREATE TABLE orders (id); INSERT INTO orders VALUES (1)';
const own = 'CREATE TABLE reference_lists (id); CREATE TABLE users (id)';
const migrations = 'CREATE TABLE users (id); CREATE TABLE __drizzle_migrations (id, hash, created_at)';

describe('a database without the schema of this service', () => {
  test.each<[what: string, sql: string, state: string]>([
    [
      'no tables',
      'CREATE TABLE t (id); DROP TABLE t',
      'has no tables. Run `bun planning migrate` to create it, or correct DATABASE_URL.',
    ],
    ['tables of another program', orders, foreign],
    ['tables of another program, with a WAL', `PRAGMA journal_mode = WAL; ${orders}`, foreign],
    ['tables of another program, encrypted', orders, foreign],
    ['tables of another program with its own table of migrations', migrations, foreign],
    [
      'tables of this service without its table of migrations',
      own,
      'has tables of this service, but no record of its migrations. Restore a backup.',
    ],
    ...['copy', 'restore'].map((command): [string, string, string] => [
      `an unfinished ${command}`,
      `CREATE TABLE __unfinished_${command} (source_id text); ${own}`,
      `is an unfinished ${command}. Run \`bun planning ${command}\` again, or remove the database and begin with an empty one.`,
    ]),
  ])('stops start, commands and doctor, and keeps its content: %s', async (what, sql, state) => {
    const key = what.endsWith('encrypted') ? keys.right : undefined;
    const environment: Record<string, string> = key === undefined ? {} : { DATABASE_ENCRYPTION_KEY: key };
    const { databasePath, ...deployment } = await createDeployment(environment, { isEmpty: true });
    mkdirSync(join(deployment.cwd, 'data'));
    const other = join(temporaryFolder(), 'other.db');
    change(other, sql, key, () => {
      for (const suffix of ['', '-wal'].filter((each) => existsSync(`${other}${each}`))) {
        copyFileSync(`${other}${suffix}`, `${databasePath}${suffix}`);
      }
    });
    const content = () =>
      state === foreign
        ? ['', '-wal'].map(
            (suffix) => existsSync(`${databasePath}${suffix}`) && readFileSync(`${databasePath}${suffix}`),
          )
        : rows(databasePath, 'SELECT name, sql FROM sqlite_schema ORDER BY name');
    const before = content();
    const message = `The database ${databasePath} ${state}`;
    expect(await deployment.refusedStart()).toBe(message);
    const commands = ['seed', 'migrate', 'migrate --dry-run', 'migrate --repair'];
    for (const command of what === 'no tables' ? ['seed'] : commands) {
      const refused = { exitCode: 1, stderr: expect.stringContaining(message) };
      expect(await deployment.planning(...command.split(' '))).toMatchObject(refused);
    }
    expect(await deployment.planning('doctor')).toMatchObject({
      exitCode: 1,
      stdout: expect.stringContaining(message),
    });
    expect(content()).toEqual(before);
  });
});

/** The app on a database file whose schema is checked at an interval, with the log of the service. */
async function createWatchedApp(checkIntervalMs: number) {
  const url = `file:${join(temporaryFolder(), 'planning.db')}`;
  await copyTemplate(url.slice('file:'.length));
  const db = await openDatabase({ url, timeoutMs: 5000 });
  atEnd(() => db.$client.close());
  const lines: string[] = [];
  const log = createLog('info', { write: (line) => lines.push(line) });
  const lifecycle = { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined };
  const { onSchemaChange } = watchDatabase(url, log, lifecycle);
  const settings = { timeoutMs: 5000, checkIntervalMs, ...(onSchemaChange && { onChange: onSchemaChange }) };
  const testApp = await createTestApp({ db: toDatabase(requireCompatibleSchema(db.$client, settings)) });
  return {
    db,
    ready: () => testApp.call('GET', '/health/ready'),
    list: () => testApp.call('GET', '/v2/private/cemetery/all', { as: 'ada' }),
    save: () => testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body: { careSafety: 5 } }),
    lines: (): unknown[] => lines.map((line) => JSON.parse(line)),
  };
}

describe('a schema that is damaged while the service runs', () => {
  test('stops every statement with one fatal line, until it is repaired', async () => {
    const { db, save, ready, lines } = await createWatchedApp(0);
    expect((await save()).status).toBe(200);
    await db.$client.batch(['DROP TRIGGER users_lifetime_care_audited', 'DROP INDEX applications_once'], 'write');
    const detail = 'The schema differs from the one that the migrations create.';
    for (const response of [await save(), await save(), await ready()]) {
      expect(response).toMatchObject({ status: 503, body: { detail } });
    }
    expect(lines()).toMatchObject([
      {
        level: 'fatal',
        code: 'SCHEMA_DAMAGED',
        schemaObjects: ['trigger users_lifetime_care_audited missing', 'index applications_once missing'],
      },
    ]);
    await migrateDatabase(db, undefined, { repair: true });
    expect([(await save()).status, (await ready()).status]).toEqual([200, 200]);
    expect(lines().slice(1)).toMatchObject([{ level: 'info', msg: 'the schema fits this build' }]);
  });

  test.each(['DROP TABLE cemeteries', 'ALTER TABLE cemeteries DROP COLUMN zip'])(
    'stops every statement at once, before the next check is due, with one fatal line: %s',
    async (sql) => {
      const { db, list, lines } = await createWatchedApp(60_000);
      expect((await list()).status).toBe(200);
      await db.$client.execute(sql);
      const statuses = (await Promise.all(Array.from({ length: 20 }, list))).map(({ status }) => status);
      expect(new Set(statuses)).toEqual(new Set([503]));
      expect(lines()).toMatchObject([{ level: 'fatal', code: 'SCHEMA_DAMAGED' }]);
    },
  );
});

describe('the schema check', () => {
  test('rejects every statement until the schema is migrated', async () => {
    const settings = { url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 2000 };
    const migrating = await openDatabase(settings);
    const db = await openServiceDatabase(settings);
    const unfit = { code: 'SCHEMA_EMPTY', isUnavailable: true };
    await expect(db.$client.execute('SELECT 1')).rejects.toMatchObject(unfit);
    await expect(db.$client.batch(['CREATE TABLE t (id)'], 'write')).rejects.toMatchObject(unfit);
    await expect(db.$client.migrate(['CREATE TABLE t (id)'])).rejects.toMatchObject(unfit);
    await migrateDatabase(migrating);
    expect((await db.$client.execute('SELECT 1 AS one')).rows[0]?.one).toBe(1);
    migrating.$client.close();
    db.$client.close();
  });

  test('notices an incompatible migration before the first statement after a pause', async () => {
    const { url } = await temporaryDatabase();
    const other = await openDatabase({ url, timeoutMs: 2000 });
    const checked = requireCompatibleSchema(other.$client, { timeoutMs: 2000, checkIntervalMs: 20 });
    const count = () => checked.read('SELECT count(*) AS n FROM users');
    await other.$client.execute(newer);
    expect((await count()).rows[0]?.n).toBe(0);
    await other.$client.execute(makeIncompatible);
    await Bun.sleep(50);
    await expect(count()).rejects.toMatchObject({ code: 'SCHEMA_TOO_NEW' });
    await other.$client.execute('UPDATE schema_compatibility SET min_reader = 0');
    expect((await count()).rows[0]?.n).toBe(0);
    other.$client.close();
  });

  test('rejects a replica of another database', async () => {
    const [{ db: primary }, { db: other }] = [await temporaryDatabase(), await temporaryDatabase()];
    const codes: unknown[] = [];
    const settings = { timeoutMs: 2000, onChange: (code?: string) => codes.push(code), replicaOf: primary.$client };
    const same = requireCompatibleSchema(primary.$client, settings);
    expect((await same.read('SELECT 1 AS one')).rows[0]?.one).toBe(1);
    expect(codes).toEqual([]);
    await other.$client.execute("UPDATE schema_compatibility SET database_id = 'other'");
    const foreign = requireCompatibleSchema(other.$client, settings);
    for (const _ of ['first', 'second']) {
      const failure = { code: 'REPLICA_OF_ANOTHER', isUnavailable: true };
      await expect(foreign.read('SELECT 1')).rejects.toMatchObject(failure);
    }
    expect(codes).toEqual(['REPLICA_OF_ANOTHER']);
  });

  test('keeps its result while the database is unavailable', async () => {
    const { db } = await temporaryDatabase();
    const checked = requireCompatibleSchema(db.$client, { timeoutMs: 2000, checkIntervalMs: 0 });
    await checked.read('SELECT 1');
    db.$client.close();
    for (let count = 0; count < 3; count += 1) {
      await expect(checked.read('SELECT 1')).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
      await Bun.sleep(1);
    }
  });

  test('takes an instance out of service, with the reason, when the schema is too new for this build', async () => {
    const { db, ready, save } = await createWatchedApp(0);
    const readableBy = `UPDATE schema_compatibility SET min_reader = ${neededMigration}`;
    await db.$client.batch([newer, readableBy], 'write');
    expect((await ready()).status).toBe(200);
    await db.$client.execute(makeIncompatible);
    const body = { detail: 'The schema is newer than this build can read.' };
    for (const response of [await ready(), await ready(), await save()]) {
      expect(response).toMatchObject({ status: 503, body });
    }
  });
});
