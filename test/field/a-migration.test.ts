import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import * as v from 'valibot';
import { type Database, openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { countParts } from '../../src/db/queries';
import { applications } from '../../src/db/schema/people';
import { earlierMigrations, runScript, temporaryDatabase } from '../support/database';
import { temporaryFolder } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const fixture = (name: string) => Bun.file(new URL(`../fixtures/${name}.sql`, import.meta.url)).text();

/** A row in every table that the migration touches or that refers to one of them, by the schema before it. */
const earlierRows = `
  INSERT INTO staff (id, role, first_name, last_name, created_at, updated_at, version) VALUES
    ('boss', 'salesManager', 'Grace', 'Hopper', 0, 0, 1);
  UPDATE users SET counselor_id = 'boss', request_id = 'request-1', request_version = version, requested_at = 5;
  INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state, attempt, attempt_started_at,
    created_at) VALUES ('open', 'old', 'life', 'hash', 0, '{}', 'unknown', 2, 7, 8);
  INSERT INTO application_attempts VALUES ('old-application', 1, 1, 2, 'submitted', '{}'), ('open', 1, 3, 4, 'unavailable', '');
  INSERT INTO idempotency_keys VALUES ('old', '/v2/private/life/totalCoverage', 'key', 'hash', 9);
  INSERT INTO cemeteries VALUES ('0123456789abcdef01234567', 'c-1', 'Rest', 'rest', '', 'Salem', 'OR', '', 'operator', 1, 1, 0);
  INSERT INTO activities VALUES ('a-1', 'boss', 'boss', 'monthlyPlan', 100, 1, 1, 1, 1);
  INSERT INTO leases VALUES ('reconciler', 'me', 1);
  INSERT INTO audit_events (occurred_at, user_id, actor, action) VALUES (1, 'old', 'person', 'read');`;

async function allRows(db: Database) {
  const { rows: tables } = await db.$client.execute(
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%drizzle%' ORDER BY name",
  );
  const content: Record<string, Record<string, unknown>[]> = {};
  for (const { name } of tables) {
    const { rows } = await db.$client.execute(`SELECT * FROM ${name} ORDER BY rowid`);
    content[String(name)] = rows.map((row) => Object.fromEntries(Object.entries(row).sort()));
  }
  return content;
}

async function schemaObjects(db: Database): Promise<string[]> {
  const { rows } = await db.$client.execute(
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL",
  );
  return rows.map(({ type, name, tbl_name, sql }) => `${type} ${name} ${tbl_name} ${String(sql).replace(/\s+/g, ' ')}`);
}

/** A row of the fixture as the migration stores it: with both lists of a pair, and NULL for a section without answers. */
function withWholeSections(row: Record<string, unknown>) {
  const both: Record<string, string | null> = {
    '{}': null,
    '{"hobbies":{}}': null,
    '{"livingStatus":"upgrade","policySupport":{}}': '{"livingStatus":"upgrade"}',
  };
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => {
      const text = String(value).replace('{"customSelections":[]}', '{"selections":[],"customSelections":[]}');
      return [name, value === null ? null : text in both ? both[text] : typeof value === 'string' ? text : value];
    }),
  );
}

describe.each([
  { place: 'a file', open: async () => `file:${join(temporaryFolder(), 'planning.db')}` },
  ...(hasSqld
    ? [
        { place: 'a libSQL server', open: async () => (await startSqld()).url },
        { place: 'a libSQL server over ws', open: async () => (await startSqld()).url.replace('http', 'ws') },
      ]
    : []),
])('A3 the rebuild of the tables with answers on $place', ({ open }) => {
  test('A3 keeps every row, index and trigger, and gives each record a revision of its own', async () => {
    const db = await openDatabase({ url: await open(), timeoutMs: 10_000 });
    await migrateDatabase(db, await earlierMigrations(8));
    for (const sql of [await fixture('users-0000'), await fixture('applications-0002'), earlierRows]) {
      await runScript(db, sql);
    }
    const [before, objects] = [await allRows(db), await schemaObjects(db)];
    for (const [name, rows] of Object.entries(before)) {
      const isCatalogue = /^(catalog|product|condition|reference)/.test(name);
      expect([name, rows.length > 0]).toEqual([name, !isCatalogue]);
    }

    await migrateDatabase(db, await earlierMigrations(9));

    const { users = [], ...others } = await allRows(db);
    const { users: usersBefore, ...othersBefore } = before;
    expect(others).toEqual(othersBefore);
    expect(users.map(({ revision: _, ...row }) => row)).toEqual((usersBefore ?? []).map(withWholeSections));
    const revisions = users.map(({ revision }) => String(revision));
    for (const revision of revisions) expect(revision).toMatch(/^[0-9a-f]{16}$/);
    expect(new Set(revisions).size).toBe(users.length);
    const normalized = (sql: string) => sql.replaceAll(/\s*([(),;])\s*/g, '$1');
    expect((await schemaObjects(db)).map(normalized).sort()).toEqual(objects.map(normalized).sort());
    expect((await db.$client.execute('PRAGMA foreign_key_check')).rows).toEqual([]);

    await db.$client.batch(
      [`UPDATE users SET profile = '{"a":1}', version = version + 1`, "UPDATE applications SET state = 'submitted'"],
      'write',
    );
    await expect(db.$client.execute("UPDATE users SET profile = 'no JSON'")).rejects.toThrow('CONSTRAINT');
    await expect(db.$client.execute("UPDATE applications SET pricing = 'no JSON'")).rejects.toThrow('CONSTRAINT');
    const { audit_events: audited = [] } = await allRows(db);
    expect(audited).toHaveLength((before.audit_events ?? []).length + users.length);
    const counts = await db.$client.execute(
      "SELECT row_count FROM row_counts WHERE table_name = 'applications:submitted'",
    );
    expect(Number(counts.rows[0]?.row_count)).toBe(2);
    await db.$client.execute("DELETE FROM applications WHERE id = 'open'");
    expect((await db.$client.execute('SELECT * FROM application_attempts')).rows).toHaveLength(1);
    db.$client.close();
  }, 60_000);
});

test('A3 each JSON check on a nullable column accepts NULL in a SQLite whose json_valid(NULL) is 0', async () => {
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

test('G5 an abandoned application has a state of the previous build, which may settle it', async () => {
  const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 10_000 });
  await migrateDatabase(db, await earlierMigrations(8));
  for (const sql of [await fixture('users-0000'), await fixture('applications-0002'), earlierRows]) {
    await runScript(db, sql);
  }
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

test('F1 each trigger is on one line, since the loader of a dump ends a statement at a semicolon that ends a line', async () => {
  const { db } = await temporaryDatabase();
  const { rows } = await db.$client.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'");
  expect(rows.length).toBeGreaterThan(10);
  expect(rows.filter(({ sql }) => String(sql).includes('\n')).map(({ name }) => name)).toEqual([]);
});
