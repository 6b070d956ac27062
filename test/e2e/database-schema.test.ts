/** The triggers and migrations of the database, in a file and on a libSQL server. */
import { beforeAll, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { type Database, openDatabase, openServiceDatabase } from '../../src/db/client';
import { reasonOf } from '../../src/db/errors';
import { migrateDatabase, reportSchema } from '../../src/db/migrate';
import { requireCompatibleSchema, schemaState } from '../../src/db/schema-check';
import { createAuditStore } from '../../src/modules/audit/store';
import { createUserStore } from '../../src/modules/users/store';
import { createCommandLine } from '../support/command';
import {
  addEarlierRows,
  addOldestRows,
  auditEventsOf,
  auditLinesOf,
  earlierMigrations,
  expectMigratedOnce,
} from '../support/database';
import { atEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, newServerDatabase } from '../support/servers';

const now = new Date();
const timeoutMs = 10_000;

interface Place {
  readonly place: string;
  readonly newUrl: () => string | Promise<string>;
}

const file: Place = { place: 'a file', newUrl: () => `file:${join(temporaryFolder(), 'planning.db')}` };
const server: Place = { place: 'a libSQL server', newUrl: newServerDatabase };
const overWs: Place = {
  place: 'a libSQL server over ws',
  newUrl: async () => (await newServerDatabase()).replace('http', 'ws'),
};
const places = hasSqld ? [file, server] : [file];

/** A new database with the first migrations, or with all. */
async function openNew({ newUrl }: Place, migrations?: number): Promise<{ url: string; db: Database }> {
  const url = await newUrl();
  const db = await openDatabase({ url, timeoutMs });
  atEnd(() => db.$client.close());
  await migrateDatabase(db, migrations === undefined ? undefined : await earlierMigrations(migrations));
  return { url, db };
}

async function openForService(url: string): Promise<Database> {
  const db = await openServiceDatabase({ url, timeoutMs });
  atEnd(() => db.$client.close());
  return db;
}

describe.each(places)('the audit events in $place', (place) => {
  const saved = (sections: readonly string[], actor = 'unknown', request = '-') =>
    sections.map((section) => `saved ${section} ${actor} ${request}`);
  let db: Database;
  beforeAll(async () => {
    db = await openForService((await openNew(place)).url);
  });

  test('cannot be changed, replaced or removed before their retention ends', async () => {
    const store = createAuditStore(db);
    const event = { userId: 'kept', actor: 'staff', requestId: 'request-1', now: now.getTime() } as const;
    await store.record({ ...event, action: 'read' });
    await store.record({ ...event, action: 'exported' });
    const before = await auditEventsOf({ db }, 'kept');
    const [first, second] = before.map(({ id }) => id);
    const erasedId = `erased:${'0123456789abcdef'.repeat(2)}`;
    for (const sql of [
      'DELETE FROM audit_events',
      `DELETE FROM audit_events WHERE id = ${first}`,
      "UPDATE audit_events SET action = 'saved'",
      "UPDATE audit_events SET user_id = 'bob'",
      "UPDATE audit_events SET user_id = 'erased:bob', request_id = NULL",
      `UPDATE audit_events SET user_id = 'erased:${'x'.repeat(32)}', request_id = NULL`,
      `UPDATE audit_events SET user_id = '${erasedId}'`,
      'UPDATE audit_events SET request_id = NULL',
      ...['id = id + 10', 'occurred_at = 0', "actor = 'service'", "actor_id = 'me'", "section = 'all'"].map(
        (change) => `UPDATE audit_events SET user_id = '${erasedId}', request_id = NULL, ${change}`,
      ),
      `INSERT OR REPLACE INTO audit_events (id, occurred_at, user_id, actor, action) VALUES (${second}, 0, 'ada', 'person', 'saved')`,
      `REPLACE INTO audit_events (id, occurred_at, user_id, actor, action) VALUES (${first}, 0, 'ada', 'person', 'saved')`,
      `INSERT INTO audit_events SELECT * FROM audit_events WHERE true ON CONFLICT (id) DO UPDATE SET action = 'saved'`,
      `UPDATE OR REPLACE audit_events SET id = ${second} WHERE id = ${first}`,
    ]) {
      const failure = await db.$client.execute(sql).catch((error: unknown) => error);
      expect([sql, reasonOf(failure)]).toEqual([sql, expect.stringContaining('An audit event is')]);
    }
    expect(await auditEventsOf({ db }, 'kept')).toEqual(before);
    await db.$client.execute(`UPDATE audit_events SET user_id = '${erasedId}', request_id = NULL WHERE id = ${first}`);
    expect(await auditEventsOf({ db }, erasedId)).toMatchObject([{ id: first, action: 'read', actor: 'staff' }]);
  });

  test('name the actor of a change without a request of this build as unknown, dated by the database clock', async () => {
    const store = createUserStore(db);
    const save = (requestId: string, firstName: string) =>
      store.saveSection({ userId: 'ada', section: 'profile', patch: { firstName }, requestId, now });
    const update = (changes: string) => db.$client.execute(`UPDATE users SET ${changes} WHERE id = 'ada'`);
    const from = now.getTime() - 5_000;
    await save('request-1', 'Ada');
    // Saves of a build without the audit log and of a direct database connection.
    await update(`profile = '{"firstName":"Canary"}', version = version + 1`);
    await update(`life_insurance = '{"livingStatus":"rent"}'`);
    await db.$client.execute(`INSERT INTO users (id, ltc_lifetime_care, version, created_at, updated_at)
      VALUES ('ada', '{"careCosts":1}', 1, 5, 5)
      ON CONFLICT (id) DO UPDATE SET ltc_lifetime_care = excluded.ltc_lifetime_care, version = version + 1`);
    await save('request-2', 'Ada');
    for (const column of ['insurance', 'purchase', 'lifetime_care']) {
      await update(`${column} = '{"a":1}', updated_at = 5`);
    }
    expect(await auditLinesOf({ db }, 'ada')).toEqual([
      ...saved(['profile'], 'person', 'request-1'),
      ...saved(['profile', 'lifeInsurance', 'ltc.lifetimeCare']),
      ...saved(['profile'], 'person', 'request-2'),
      ...saved(['insurance.matches', 'purchase.partner', 'lifetimeCare']),
    ]);
    const events = await auditEventsOf({ db }, 'ada');
    for (const { occurredAt } of events) expect(occurredAt).toBeWithin(from, Date.now() + 5_000);
    expect(JSON.stringify(events)).not.toContain('Canary');
  });

  test('are one per section when one statement writes several, and of the section of a newest answer', async () => {
    await db.$client.execute(`INSERT INTO users (id, profile, insurance, ltc_lifetime_care, purchase, life_insurance,
      lifetime_care, version, created_at, updated_at) VALUES ('amy', '{}', '{}', '{}', '{}', '{}', '{}', 1, 5, 5),
      ('bob', NULL, NULL, NULL, NULL, NULL, NULL, 1, 5, 5)`);
    await db.$client.execute(`REPLACE INTO users (id, purchase, life_insurance, version, created_at, updated_at)
      VALUES ('amy', '{}', '{}', 1, 5, 5)`);
    const flows = ['ltc.lifetimeCare', 'purchase.partner', 'lifeInsurance', 'lifetimeCare'];
    const all = ['profile', 'insurance.matches', ...flows];
    expect(await auditLinesOf({ db }, 'amy')).toEqual(saved([...all, 'purchase.partner', 'lifeInsurance']));
    expect(await auditLinesOf({ db }, 'bob')).toEqual(saved(['-']));

    const store = createUserStore(db);
    const turns = ['ltcLifetimeCare', 'lifetimeCare', 'ltcLifetimeCare', 'lifetimeCare', 'lifetimeCare'] as const;
    const same = { userId: 'eve', patch: { careSafety: 1 }, requestId: 'request-1', now };
    for (const section of turns) await store.saveSection({ ...same, section });
    await db.$client.execute(`UPDATE users SET newest_answers = '{"careSafety":"ltcLifetimeCare"}' WHERE id = 'eve'`);
    // The last save changes nothing.
    const changes = ['ltc.lifetimeCare', 'lifetimeCare', 'ltc.lifetimeCare', 'lifetimeCare'];
    expect(await auditLinesOf({ db }, 'eve')).toEqual([
      ...saved(changes, 'person', 'request-1'),
      ...saved(['ltc.lifetimeCare']),
    ]);
  });

  test('match the stored changes when write batches beside them fail', async () => {
    const store = createUserStore(db);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 60 }, (_, index) => {
        const save = { userId: `p${index % 4}`, section: 'profile', requestId: `request-${index}`, now } as const;
        if (index % 3 > 0) return store.saveSection({ ...save, patch: { heightCm: index } });
        // The second statement fails and rolls back the first.
        return db.$client.batch(
          [
            `INSERT INTO users (id, profile, version, created_at, updated_at, request_id, request_version, requested_at)
              VALUES ('p-lost-${index}', '{}', 1, 0, 0, 'lost', 1, 0)`,
            "INSERT INTO users (id, profile, version, created_at, updated_at) VALUES ('p-bad', 'no JSON', 1, 0, 0)",
          ],
          'write',
        );
      }),
    );
    expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(20);
    const { rows } = await db.$client.execute(`SELECT user_id, version, count(*) AS events,
      count(DISTINCT audit_events.request_id) AS requests
      FROM audit_events LEFT JOIN users ON user_id = users.id WHERE user_id GLOB 'p*' GROUP BY user_id`);
    expect(rows.map(({ user_id, version, events, requests }) => `${user_id} ${version} ${events} ${requests}`)).toEqual(
      [0, 1, 2, 3].map((person) => `p${person} 10 10 10`),
    );
  });

  test('do not exist when a filled database is upgraded, whose rows stay unchanged', async () => {
    const { url, db: older } = await openNew(place, 6);
    await addOldestRows(older);
    const stored = async (db: Database) =>
      (
        await db.$client.execute(
          "SELECT id, nullif(profile, '{}') AS profile, insurance, purchase, version, updated_at FROM users ORDER BY id",
        )
      ).rows;
    const before = await stored(older);
    await migrateDatabase(older);
    const upgraded = await openForService(url);
    expect(JSON.stringify(await stored(upgraded))).toBe(JSON.stringify(before));
    expect((await upgraded.$client.execute('SELECT count(*) AS n FROM audit_events')).rows[0]?.n).toBe(0);
    const save = { section: 'profile', patch: { firstName: 'Augusta' }, requestId: 'request-1', now } as const;
    await createUserStore(upgraded).saveSection({ ...save, userId: 'old' });
    expect(await auditLinesOf({ db: upgraded }, 'old')).toEqual(saved(['profile'], 'person', 'request-1'));
  });
});

async function allRows({ $client }: Database) {
  const { rows: tables } = await $client.execute(
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%drizzle%' ORDER BY name",
  );
  const content: Record<string, Record<string, unknown>[]> = {};
  for (const { name } of tables) {
    const { rows } = await $client.execute(`SELECT * FROM ${name} ORDER BY rowid`);
    content[String(name)] = rows.map((row) => Object.fromEntries(Object.entries(row).sort()));
  }
  return content;
}

async function schemaObjects({ $client }: Database): Promise<string[]> {
  const { rows } = await $client.execute(
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL",
  );
  const normalized = (sql: unknown) =>
    String(sql)
      .replace(/\s+/g, ' ')
      .replaceAll(/\s*([(),;])\s*/g, '$1');
  return rows.map(({ type, name, tbl_name, sql }) => `${type} ${name} ${tbl_name} ${normalized(sql)}`).sort();
}

/** A row of the fixture as the migration stores it: with both lists of a pair, and NULL for a section without answers. */
function withWholeSections(row: Record<string, unknown>) {
  const both: Record<string, string | null> = {
    '{}': null,
    '{"hobbies":{}}': null,
    '{"livingStatus":"upgrade","policySupport":{}}': '{"livingStatus":"upgrade"}',
  };
  const whole = (value: unknown) => {
    if (typeof value !== 'string') return value;
    return value in both
      ? both[value]
      : value.replace('{"customSelections":[]}', '{"selections":[],"customSelections":[]}');
  };
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, whole(value)]));
}

test.each(places)(
  'the ninth migration rebuilds $place with every row, index and trigger, and a revision of each record',
  async (place) => {
    const { db } = await openNew(place, 8);
    await addEarlierRows(db);
    const [before, objects] = [await allRows(db), await schemaObjects(db)];
    for (const [name, rows] of Object.entries(before)) {
      const isCatalogue = /^(catalog|product|condition|reference)/.test(name);
      expect([name, rows.length > 0]).toEqual([name, !isCatalogue]);
    }

    await migrateDatabase(db, await earlierMigrations(9));

    const { users = [], ...others } = await allRows(db);
    const { users: usersBefore = [], ...othersBefore } = before;
    expect(others).toEqual(othersBefore);
    expect(users.map(({ revision: _, ...row }) => row)).toEqual(usersBefore.map(withWholeSections));
    const revisions = users.map(({ revision }) => String(revision));
    for (const revision of revisions) expect(revision).toMatch(/^[0-9a-f]{16}$/);
    expect(new Set(revisions).size).toBe(users.length);
    expect(await schemaObjects(db)).toEqual(objects);
    expect((await db.$client.execute('PRAGMA foreign_key_check')).rows).toEqual([]);

    await db.$client.batch(
      [`UPDATE users SET profile = '{"a":1}', version = version + 1`, "UPDATE applications SET state = 'submitted'"],
      'write',
    );
    await expect(db.$client.execute("UPDATE users SET profile = 'no JSON'")).rejects.toThrow('CONSTRAINT');
    await expect(db.$client.execute("UPDATE applications SET pricing = 'no JSON'")).rejects.toThrow('CONSTRAINT');
    const { audit_events: audited = [] } = await allRows(db);
    expect(audited).toHaveLength((before.audit_events ?? []).length + users.length);
    const submitted = "SELECT row_count FROM row_counts WHERE table_name = 'applications:submitted'";
    expect(Number((await db.$client.execute(submitted)).rows[0]?.row_count)).toBe(2);
    await db.$client.execute("DELETE FROM applications WHERE id = 'open'");
    expect((await db.$client.execute('SELECT * FROM application_attempts')).rows).toHaveLength(1);
  },
);

test.each([...places, ...(hasSqld ? [overWs] : [])])(
  'the schema of $place matches the migrations, and a dropped trigger is noticed while the database is open',
  async (place) => {
    const { db } = await openNew(place);
    expect(await reportSchema(db)).toMatchObject({ pending: [], blocking: [], warnings: [] });
    const changes: unknown[] = [];
    const onChange = (...change: unknown[]) => changes.push(change);
    const checked = requireCompatibleSchema(db.$client, { timeoutMs, checkIntervalMs: 0, onChange });
    expect(await schemaState(checked)).toBe('compatible');
    await db.$client.execute('DROP TRIGGER audit_events_not_changed');
    await until(async () => (await schemaState(checked)) === 'damaged');
    expect(changes).toEqual([['SCHEMA_DAMAGED', ['trigger audit_events_not_changed missing']]]);
    await expect(checked.read('SELECT 1')).rejects.toMatchObject({ code: 'SCHEMA_DAMAGED' });
    await migrateDatabase(db, undefined, { repair: true });
    await until(async () => (await schemaState(checked)) === 'compatible');
  },
);

async function openFilled(place: Place) {
  const opened = await openNew(place, 2);
  const people = Array.from({ length: 500 }, (_, id) => `('person-${id}', 1, ${id + 1}, 0)`).join();
  await opened.db.$client.execute(`INSERT INTO users (id, version, created_at, updated_at) VALUES ${people}`);
  return opened.url;
}

test.each([
  ['two processes', 'no file', async () => file.newUrl(), true, 0],
  ['two processes', 'a filled file', () => openFilled(file), true, 500],
  ...(hasSqld ? [['four commands', 'a filled libSQL server', () => openFilled(server), false, 500] as const] : []),
] as const)('%s that migrate %s at once apply each migration once', async (_, __, open, isProcess, people) => {
  const url = await open();
  const { planning } = await createCommandLine({ DATABASE_URL: url }, { isEmpty: true, isProcess });
  const ended = await Promise.all(Array.from({ length: isProcess ? 2 : 4 }, () => planning('migrate')));
  for (const each of ended) expect(each).toMatchObject({ exitCode: 0, stderr: '' });
  const db = await openForService(url);
  await expectMigratedOnce(db);
  const { rows } = await db.$client.execute('SELECT count(*), total(created_at) FROM users WHERE version = 1');
  expect([rows[0]?.[0], rows[0]?.[1]]).toEqual([people, (people * (people + 1)) / 2]);
});
