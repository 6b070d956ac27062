import { describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import Connection from 'libsql';
import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json';
import shipped from '../../drizzle/meta/_schema.json';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createSchema, hashesOf, readMigrations } from '../../src/db/migrations';
import { countParts } from '../../src/db/queries';
import { applications } from '../../src/db/schema/people';
import { findDemoTraces } from '../../src/seed';
import { createTestApp } from '../support/app';
import {
  addEarlierRows,
  earlierMigrations,
  expectMigratedOnce,
  journalFolder,
  temporaryDatabase,
} from '../support/database';
import { createSaveHistory } from '../support/disks';
import { createDeployment } from '../support/processes';
import { temporaryFolder } from '../support/resources';

const openNew = () => openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 10_000 });

describe('planning migrate', () => {
  test('lists the pending migrations, then the applied ones, then that there is nothing to do', async () => {
    const { planning, cwd } = await createDeployment({}, { isEmpty: true });
    const all = journal.entries.map(({ tag }) => tag);
    const dryRun = await planning('migrate', '--dry-run', '--json');
    expect(JSON.parse(dryRun.stdout)).toEqual({ pending: all, differences: [] });
    expect(dryRun.exitCode).toBe(2);
    expect(existsSync(join(cwd, 'data'))).toBe(false);
    const migrated = await planning('migrate');
    expect([...migrated.stdout.matchAll(/^Applied (\w+) in \d+ ms\.$/gm)].map(([, name]) => name ?? '')).toEqual(all);
    expect(await planning('migrate')).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('Nothing to do') });
    const again = await planning('migrate', '--dry-run', '--json');
    expect([again.exitCode, JSON.parse(again.stdout)]).toEqual([0, { pending: [], differences: [] }]);
  });

  test('upgrades a database with an earlier form of a migration, after a repair if that form created less', async () => {
    const { planning, databasePath, write } = await createDeployment({}, { isEmpty: true });
    await write('data/planning.db', '');
    const db = await openDatabase({ url: `file:${databasePath}`, timeoutMs: 2000 });
    await migrateDatabase(db, await earlierMigrations(11));
    db.$client.close();
    const setHash = (index: number, hash: string) =>
      `UPDATE __drizzle_migrations SET hash = '${hash}' WHERE created_at = ${journal.entries[index]?.when};`;
    const file = new Connection(databasePath);
    file.exec(
      `${setHash(7, '36fbf6ce95c524d797a73cff82ceae30e103f8049383ca07c66741fbfe106af5')}
      ${setHash(10, 'c3272e55bfc63c8d1d4f4f9287f1e27a527bfa4d399872f58335558da199f1fd')}
      DROP TRIGGER applications_count_added; DROP TRIGGER applications_count_moved; DROP TRIGGER applications_count_removed;
      ALTER TABLE applications DROP COLUMN abandoned_at; ALTER TABLE applications DROP COLUMN reconcile_at;
      DROP INDEX applications_by_number; CREATE UNIQUE INDEX applications_by_number ON applications (application_number, carrier);
      DROP TRIGGER users_newest_answers_audited`,
    );
    file.close();
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
    const { stdout } = await planning('doctor');
    expect(stdout).toMatch(/ok +schema +compatible with this build/);
  });
});

describe('migrateDatabase', () => {
  test('applies each migration and changes data once when four connections run it at once', async () => {
    const folder = await journalFolder(
      [
        // Identifies a database of this service.
        'CREATE TABLE IF NOT EXISTS reference_lists (id)',
        'CREATE TABLE IF NOT EXISTS counter (n integer)',
        'INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter)',
        'UPDATE counter SET n = n + 1',
      ].join(';--> statement-breakpoint '),
    );
    const [counter, full] = [join(temporaryFolder(), 'planning.db'), join(temporaryFolder(), 'planning.db')];
    const migrateAtOnce = (path: string, folder?: string) =>
      Promise.all(
        [1, 2, 3, 4].map(async () => {
          const db = await openDatabase({ url: `file:${path}`, timeoutMs: 10_000 });
          await migrateDatabase(db, folder);
          return db;
        }),
      );
    const [db, ...others] = await migrateAtOnce(counter, folder);
    expect((await db?.$client.execute('SELECT n FROM counter'))?.rows[0]?.n).toBe(1);
    expect((await db?.$client.execute('SELECT * FROM __drizzle_migrations'))?.rows).toHaveLength(1);
    const [whole, ...more] = await migrateAtOnce(full);
    if (whole !== undefined) await expectMigratedOnce(whole);
    for (const each of [db, whole, ...others, ...more]) each?.$client.close();
  });

  test('marks a database for development by its first migration, and never later', async () => {
    const isMarked = async (applied: number) => {
      const db = await openNew();
      if (applied > 0) await migrateDatabase(db, await earlierMigrations(applied));
      await migrateDatabase(db, undefined, { forDevelopment: true });
      const { isMarked } = await findDemoTraces(db);
      db.$client.close();
      return isMarked;
    };
    expect([await isMarked(0), await isMarked(11)]).toEqual([true, false]);
  });

  test('keeps an application in a state of the previous build, which may settle an abandoned one', async () => {
    const db = await openNew();
    await migrateDatabase(db, await earlierMigrations(8));
    await addEarlierRows(db);
    await migrateDatabase(db);
    const counts = async () =>
      Object.fromEntries(Object.entries(await countParts(db, 'applications')).filter(([, count]) => count !== 0));
    expect(await counts()).toEqual({ submitted: 1, unknown: 1 });
    await db.update(applications).set({ abandonedAt: 9 }).where(eq(applications.id, 'open'));
    expect(await counts()).toEqual({ submitted: 1, abandoned: 1 });
    const earlierStates = v.picklist(['submitting', 'submitted', 'declined', 'unknown']);
    const { rows } = await db.$client.execute('SELECT state FROM applications');
    for (const { state } of rows) expect(v.is(earlierStates, state)).toBe(true);
    await db.$client.execute(
      "UPDATE applications SET state = 'submitting', attempt = attempt + 1 WHERE state = 'unknown'",
    );
    expect(await counts()).toEqual({ submitted: 1, abandoned: 1 });
    await db.$client.execute("UPDATE applications SET state = 'submitted', application_number = 5 WHERE id = 'open'");
    expect(await counts()).toEqual({ submitted: 2 });
    db.$client.close();
  });
});

describe('the audit events of a user', () => {
  test('are one for each version when two flows answer one question in turn', async () => {
    const { call, db, url } = await createTestApp();
    const history = createSaveHistory();
    const flows = [
      { path: '/v2/private/ltc/lifetimeCare', section: 'ltc.lifetimeCare', kind: 'inHome', safety: 2 },
      { path: '/v2/private/deepDives/lifetimeCare', section: 'lifetimeCare', kind: 'nursingHome', safety: 4 },
    ];
    const expected: string[] = [];
    for (const headers of [{}, { 'if-match': '*' }]) {
      const changed = Object.keys(headers).length;
      // The second turn repeats the answers of the first: it changes the newest answers alone. The third changes both.
      for (const turn of ['first', 'repeated', 'changed', 'alone']) {
        for (const { path, section, kind, safety } of flows) {
          const careSafety = turn === 'changed' ? changed : safety;
          const body = { careSafety, ...(turn !== 'alone' && { careFacilityType: kind }) };
          const response = await call('POST', path, { as: 'ada', body, headers });
          expect(response.status).toBe(200);
          history.note('ada', response);
          expected.push(`${section} ${response.headers.get('x-request-id')} person`);
        }
      }
    }
    expect(history.faultsOf(url.slice('file:'.length))).toEqual([]);
    const { rows } = await db.$client.execute('SELECT section, request_id, actor FROM audit_events ORDER BY id');
    expect(rows.map(({ section, request_id, actor }) => `${section} ${request_id} ${actor}`)).toEqual(expected);
  });
});

describe('the schema', () => {
  test('equals drizzle/meta/_schema.json, which drizzle/write-schema.ts writes', () => {
    const migrations = readMigrations();
    expect(shipped).toEqual({ hashes: hashesOf(migrations), objects: [...createSchema(migrations)] });
  });

  test('accepts NULL in each JSON check on a nullable column, also where json_valid(NULL) is 0', async () => {
    const { db } = await temporaryDatabase();
    const { rows } = await db.$client.execute(`SELECT t.name || '.' || c.name AS place, c.name AS name, t.sql AS sql
      FROM sqlite_schema AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table' AND NOT c."notnull" AND NOT c.pk`);
    const checksOf = ({ name, sql }: Record<string, unknown>) =>
      String(sql).match(new RegExp(`.*json_valid\\("\\w+"\\."${name}"\\).*`, 'g')) ?? [];
    const checked = rows.filter((row) => checksOf(row).length > 0);
    expect(checked).toHaveLength(7);
    const refusing = checked.filter((row) =>
      checksOf(row).some((check) => !check.includes(`."${row.name}" IS NULL OR `)),
    );
    expect(refusing.map(({ place }) => place)).toEqual([]);
  });

  test('has each trigger on one line, since the loader of a dump ends a statement at a semicolon that ends a line', async () => {
    const { db } = await temporaryDatabase();
    const { rows } = await db.$client.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'");
    expect(rows.length).toBeGreaterThan(10);
    expect(rows.filter(({ sql }) => String(sql).includes('\n')).map(({ name }) => name)).toEqual([]);
  });
});
