import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { copyDatabase, examineCopy } from '../../src/db/backup';
import { type Database, openDatabase, openServiceDatabase } from '../../src/db/client';
import { reasonOf } from '../../src/db/errors';
import { migrateDatabase } from '../../src/db/migrate';
import { createAuditStore } from '../../src/modules/audit/store';
import { createUserStore } from '../../src/modules/users/store';
import {
  auditEventsOf,
  auditLinesOf,
  earlierMigrations,
  explainFirst,
  fillEvents,
  runScript,
  temporaryDatabase,
} from '../support/database';
import { startWorker } from '../support/processes';
import { amount, atEnd, temporaryFolder } from '../support/resources';
import { hasSqld, type Sqld, startSqld } from '../support/servers';

const now = new Date();
const event = { userId: 'ada', action: 'read', actor: 'staff', requestId: 'request-1', now: now.getTime() } as const;
const erasedId = `erased:${'0123456789abcdef'.repeat(2)}`;

async function open(url: string): Promise<Database> {
  const migrating = await openDatabase({ url, timeoutMs: 5000 });
  await migrateDatabase(migrating);
  migrating.$client.close();
  const db = await openServiceDatabase({ url, timeoutMs: 5000 });
  atEnd(() => db.$client.close());
  return db;
}

const places = [
  { place: 'a file', url: async () => `file:${join(temporaryFolder(), 'planning.db')}` },
  ...(hasSqld ? [{ place: 'a libSQL server', url: async () => (await startSqld()).url }] : []),
];

describe.each(places)('the audit log in $place', ({ url }) => {
  test('stores events and refuses to change, replace, or remove one before its retention ends', async () => {
    const db = await open(await url());
    const store = createAuditStore(db);
    await store.record(event);
    await store.record({ ...event, action: 'exported' });
    const before = await auditEventsOf({ db }, 'ada');
    const refused = [
      'DELETE FROM audit_events',
      'DELETE FROM audit_events WHERE id = 1',
      "UPDATE audit_events SET action = 'saved'",
      "UPDATE audit_events SET user_id = 'bob'",
      "UPDATE audit_events SET user_id = 'erased:bob', request_id = NULL",
      `UPDATE audit_events SET user_id = 'erased:${'x'.repeat(32)}', request_id = NULL`,
      `UPDATE audit_events SET user_id = '${erasedId}'`,
      'UPDATE audit_events SET request_id = NULL',
      ...['id = id + 10', 'occurred_at = 0', "actor = 'service'", "actor_id = 'me'", "section = 'all'"].map(
        (change) => `UPDATE audit_events SET user_id = '${erasedId}', request_id = NULL, ${change}`,
      ),
      `INSERT OR REPLACE INTO audit_events (id, occurred_at, user_id, actor, action) VALUES (2, 0, 'ada', 'person', 'saved')`,
      `REPLACE INTO audit_events (id, occurred_at, user_id, actor, action) VALUES (1, 0, 'ada', 'person', 'saved')`,
      `INSERT INTO audit_events SELECT * FROM audit_events WHERE true
        ON CONFLICT (id) DO UPDATE SET action = 'saved'`,
      'UPDATE OR REPLACE audit_events SET id = 2 WHERE id = 1',
    ];
    for (const sql of refused) {
      const failure = await db.$client.execute(sql).catch((error: unknown) => error);
      expect([sql, reasonOf(failure)]).toEqual([sql, expect.stringContaining('An audit event is')]);
    }
    expect(await auditEventsOf({ db }, 'ada')).toEqual(before);
    await db.$client.execute(`UPDATE audit_events SET user_id = '${erasedId}', request_id = NULL WHERE id = 1`);
    expect(await auditEventsOf({ db }, erasedId)).toMatchObject([{ id: 1, action: 'read', actor: 'staff' }]);
  });

  test('records the actor of a change without a request of this build as unknown', async () => {
    const db = await open(await url());
    const store = createUserStore(db);
    const save = (requestId: string, firstName: string) =>
      store.saveSection({ userId: 'ada', section: 'profile', patch: { firstName }, requestId, now });
    await save('request-1', 'Ada');
    // Saves of a build without the audit log and of a direct database connection.
    await db.$client.execute(`UPDATE users SET profile = '{"firstName":"Canary"}', version = version + 1`);
    await db.$client.execute(`UPDATE users SET life_insurance = '{"livingStatus":"rent"}'`);
    await db.$client.execute(`INSERT INTO users (id, ltc_lifetime_care, version, created_at, updated_at)
      VALUES ('ada', '{"careCosts":1}', 1, 5, 5)
      ON CONFLICT (id) DO UPDATE SET ltc_lifetime_care = excluded.ltc_lifetime_care, version = version + 1`);
    await save('request-2', 'Ada');
    expect(await auditLinesOf({ db }, 'ada')).toEqual([
      'saved profile person request-1',
      'saved profile unknown -',
      'saved lifeInsurance unknown -',
      'saved ltc.lifetimeCare unknown -',
      'saved profile person request-2',
    ]);
    expect(JSON.stringify(await auditEventsOf({ db }, 'ada'))).not.toContain('Canary');
  });

  test('dates a change without a request by the database clock, also if the record has another time', async () => {
    const db = await open(await url());
    const from = Date.now() - 5_000;
    await db.$client.execute(
      `INSERT INTO users (id, profile, version, created_at, updated_at) VALUES ('ada', '{}', 1, 5, 5)`,
    );
    for (const column of ['profile', 'insurance', 'ltc_lifetime_care', 'purchase', 'life_insurance', 'lifetime_care']) {
      await db.$client.execute(`UPDATE users SET ${column} = '{"a":1}'`);
    }
    const instants = (await auditEventsOf({ db }, 'ada')).map(({ occurredAt }) => occurredAt);
    expect(instants).toHaveLength(7);
    for (const instant of instants) expect(instant).toBeWithin(from, Date.now() + 5_000);
    await expect(db.$client.execute('DELETE FROM audit_events')).rejects.toThrow();
  });

  test('records one event per section when one statement writes several', async () => {
    const db = await open(await url());
    await db.$client.execute(`INSERT INTO users (id, profile, insurance, ltc_lifetime_care, purchase, life_insurance,
      lifetime_care, version, created_at, updated_at) VALUES ('ada', '{}', '{}', '{}', '{}', '{}', '{}', 1, 5, 5),
      ('bob', NULL, NULL, NULL, NULL, NULL, NULL, 1, 5, 5)`);
    await db.$client.execute(`REPLACE INTO users (id, purchase, life_insurance, version, created_at, updated_at)
      VALUES ('ada', '{}', '{}', 1, 5, 5)`);
    const saved = (...sections: string[]) => sections.map((section) => `saved ${section} unknown -`);
    expect(await auditLinesOf({ db }, 'ada')).toEqual([
      ...saved('profile', 'insurance.matches', 'ltc.lifetimeCare', 'purchase.partner', 'lifeInsurance', 'lifetimeCare'),
      ...saved('purchase.partner', 'lifeInsurance'),
    ]);
    expect(await auditLinesOf({ db }, 'bob')).toEqual(saved('-'));
  });

  test('records the section of a save that changes only the newest answer', async () => {
    const db = await open(await url());
    const store = createUserStore(db);
    const patch = { careSafety: 1 };
    for (const section of [
      'ltcLifetimeCare',
      'lifetimeCare',
      'ltcLifetimeCare',
      'lifetimeCare',
      'lifetimeCare',
    ] as const) {
      await store.saveSection({ userId: 'ada', section, patch, requestId: 'request-1', now });
    }
    await db.$client.execute(`UPDATE users SET newest_answers = '{"careSafety":"ltcLifetimeCare"}'`);
    const saved = (section: string, actor: string, request = 'request-1') => `saved ${section} ${actor} ${request}`;
    expect(await auditLinesOf({ db }, 'ada')).toEqual([
      ...['ltc.lifetimeCare', 'lifetimeCare', 'ltc.lifetimeCare', 'lifetimeCare'].map((name) => saved(name, 'person')),
      saved('ltc.lifetimeCare', 'unknown', '-'),
    ]);
  });

  test('starts empty when a filled database is upgraded, and leaves its rows unchanged', async () => {
    const target = await url();
    const older = await openDatabase({ url: target, timeoutMs: 5000 });
    await migrateDatabase(older, await earlierMigrations(6));
    const fixtures = ['users-0000', 'applications-0002'].map((name) =>
      Bun.file(new URL(`../fixtures/${name}.sql`, import.meta.url)).text(),
    );
    for (const sql of await Promise.all(fixtures)) await runScript(older, sql);
    const stored = async (db: Database) =>
      (
        await db.$client.execute(
          "SELECT id, nullif(profile, '{}') AS profile, insurance, purchase, version, updated_at FROM users ORDER BY id",
        )
      ).rows;
    const before = await stored(older);
    older.$client.close();
    const db = await open(target);
    expect(JSON.stringify(await stored(db))).toBe(JSON.stringify(before));
    expect((await db.$client.execute('SELECT count(*) AS n FROM audit_events')).rows[0]?.n).toBe(0);
    await createUserStore(db).saveSection({
      userId: 'old',
      section: 'profile',
      patch: { firstName: 'Augusta' },
      requestId: 'request-1',
      now,
    });
    expect(await auditLinesOf({ db }, 'old')).toEqual(['saved profile person request-1']);
  });

  test('records each stored change, and no other, when write batches beside it fail', async () => {
    const db = await open(await url());
    const store = createUserStore(db);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 60 }, (_, index) => {
        const userId = `p${index % 4}`;
        if (index % 3 > 0) {
          return store.saveSection({
            ...{ userId, section: 'profile', patch: { heightCm: index }, now },
            ...{ requestId: `request-${index}` },
          });
        }
        // The second statement fails and rolls back the first.
        return db.$client.batch(
          [
            `INSERT INTO users (id, profile, version, created_at, updated_at, request_id, request_version, requested_at)
              VALUES ('lost-${index}', '{}', 1, 0, 0, 'lost', 1, 0)`,
            "INSERT INTO users (id, profile, version, created_at, updated_at) VALUES ('bad', 'no JSON', 1, 0, 0)",
          ],
          'write',
        );
      }),
    );
    expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(20);
    await expectExact(db);
    expect(
      (await db.$client.execute("SELECT count(*) AS n FROM audit_events WHERE request_id = 'lost'")).rows[0]?.n,
    ).toBe(0);
  });
});

/** Checks that each version of a record has exactly one event, with its own request id. Returns the request ids. */
async function expectExact(db: Database): Promise<ReadonlySet<string>> {
  const { rows } = await db.$client.execute(`SELECT users.id, version, count(*) AS events,
    count(DISTINCT audit_events.request_id) AS requests
    FROM users LEFT JOIN audit_events ON user_id = users.id GROUP BY users.id`);
  expect(rows.length).toBeGreaterThan(0);
  for (const { id, version, events, requests } of rows) {
    expect({ id, version, requests }).toEqual({ id, version: events, requests: events });
  }
  const strays = await db.$client.execute(
    'SELECT count(*) AS n FROM audit_events WHERE user_id NOT IN (SELECT id FROM users)',
  );
  expect(strays.rows[0]?.n).toBe(0);
  const ids = await db.$client.execute('SELECT request_id FROM audit_events');
  return new Set(ids.rows.map(({ request_id }) => String(request_id)));
}

const kills = amount({ long: 20, short: 3 });

describe('the audit log after a crash', () => {
  /** Runs writers, kills something under load, and returns the acknowledged request ids. */
  const crash = async (url: string, round: number, kill?: () => Promise<void>) => {
    const worker = startWorker(url, 'requests', `round-${round}`);
    await worker.until(40 + round * 7);
    await kill?.();
    const acknowledged = await worker.stop();
    expect(acknowledged.length).toBeGreaterThan(30);
    return acknowledged;
  };

  test('matches the stored changes when the service was killed', async () => {
    const url = await places[0]?.url();
    if (url === undefined) throw new Error('There is no file');
    const db = await open(url);
    for (let round = 0; round < kills; round += 1) {
      const acknowledged = await crash(url, round);
      const recorded = await expectExact(db);
      expect(acknowledged.filter((requestId) => !recorded.has(requestId))).toEqual([]);
    }
  }, 120_000);

  test.skipIf(!hasSqld)(
    'matches the stored changes when the libSQL server was killed',
    async () => {
      const sqld: Sqld = await startSqld();
      (await open(sqld.url)).$client.close();
      for (let round = 0; round < kills; round += 1) {
        const acknowledged = await crash(sqld.url, round, () => sqld.kill());
        await sqld.start();
        const db = await openServiceDatabase({ url: sqld.url, timeoutMs: 5000 });
        const recorded = await expectExact(db);
        expect(acknowledged.filter((requestId) => !recorded.has(requestId))).toEqual([]);
        db.$client.close();
      }
    },
    120_000,
  );
});

describe('audit events of a user', () => {
  test('come from an index, newest first, each once across pages', async () => {
    const { db } = await temporaryDatabase();
    const rows = amount({ long: 50_000, short: 3_500 });
    await fillEvents(db, rows, 'value / 3');
    const store = createAuditStore(db);
    const read = async (which?: { sinceMs?: number; limit?: number }) =>
      (await Array.fromAsync(store.pages({ userId: 'ada', ...which }))).flat();
    const all = await read();
    expect(all).toHaveLength(rows / 2);
    expect(all).toEqual(all.toSorted((a, b) => b.occurredAt - a.occurredAt || b.id - a.id));
    expect(await read({ limit: 1_700 })).toEqual(all.slice(0, 1_700));
    const sinceMs = all[1_200]?.occurredAt ?? 0;
    expect(await read({ sinceMs })).toEqual(all.filter(({ occurredAt }) => occurredAt >= sinceMs));
    const plan = await explainFirst(db, (watched) =>
      createAuditStore(watched).pages({ userId: 'ada', sinceMs: 1 }).next(),
    );
    expect(plan).toEqual(['SEARCH audit_events USING INDEX audit_events_by_user (user_id=? AND occurred_at>?)']);
  });

  test('remain in a backup, which also refuses changes', async () => {
    const { db, url } = await temporaryDatabase();
    await createAuditStore(db).record(event);
    const copy = join(temporaryFolder(), 'copy.db');
    await Bun.write(copy, '');
    await copyDatabase(url.slice('file:'.length), copy, undefined);
    expect((await examineCopy(copy, undefined)).schema).not.toBeUndefined();
    const restored = new SqliteDatabase(copy);
    expect(restored.query('SELECT user_id FROM audit_events').values()).toEqual([['ada']]);
    expect(() => restored.run('DELETE FROM audit_events')).toThrow('An audit event is kept');
    restored.close();
  });
});
