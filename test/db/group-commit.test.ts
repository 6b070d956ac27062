import { Database as SqliteDatabase } from 'bun:sqlite';
import { beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import { LibsqlError } from '@libsql/client';
import fc from 'fast-check';
import { type Database, openDatabase, openServiceDatabase } from '../../src/db/client';
import { DatabaseError } from '../../src/db/errors';
import { migrateDatabase } from '../../src/db/migrate';
import { groupWrites } from '../../src/db/remote-client';
import { parseAnswers } from '../../src/modules/answers/sections';
import { createUserStore } from '../../src/modules/users/store';
import { temporaryDatabase } from '../support/database';
import { atEnd } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const upsert = 'INSERT INTO t VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING id, v';
const put = (id: string, value: number) => ({ sql: upsert, args: [id, value] });

const places = [
  { name: 'a local file', open: async () => (await temporaryDatabase()).db },
  ...(hasSqld ? [{ name: 'a libSQL server', open: async () => (await openServer()).db }] : []),
];

async function openServer() {
  const sqld = await startSqld();
  const migrating = await openDatabase({ url: sqld.url, timeoutMs: 10_000 });
  await migrateDatabase(migrating);
  migrating.$client.close();
  const db = await openServiceDatabase({ url: sqld.url, timeoutMs: 5000 });
  atEnd(() => db.$client.close());
  return { sqld, db };
}

describe.each(places)('concurrent writes to $name', ({ open }) => {
  let db: Database;
  const get = async (id: string) =>
    (await db.$client.execute({ sql: 'SELECT v FROM t WHERE id = ?', args: [id] })).rows[0]?.v;

  beforeAll(async () => {
    db = await open();
    await db.$client.execute('CREATE TABLE t (id TEXT PRIMARY KEY, v INTEGER CHECK (v < 1000))');
  });
  beforeEach(() => db.$client.execute('DELETE FROM t'));

  test.each([
    ['violates a constraint', put('bad', 5000), 'SQLITE_CONSTRAINT'],
    ['is not valid SQL', 'INSERT INTO t SELEC', /ERROR/],
  ])('keep the other batches when one %s, each with its own outcome', async (_, bad, code) => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: 64 }, (_, index) =>
        index === 30 ? db.$client.batch([put('u30', 1), bad], 'write') : db.$client.execute(put(`u${index}`, index)),
      ),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(63);
    expect(outcomes[30]).toMatchObject({
      status: 'rejected',
      reason: { name: 'DatabaseError', code: expect.stringMatching(code), isUnavailable: false },
    });
    expect([await get('u29'), await get('u30'), await get('bad'), await get('u31')]).toEqual([
      29,
      undefined,
      undefined,
      31,
    ]);
    expect((await db.$client.execute('SELECT count(*) AS n FROM t')).rows[0]?.n).toBe(63);
  });

  test('keep the order of each caller', async () => {
    const saves = Array.from({ length: 200 }, (_, index) => db.$client.execute(put(`u${index % 4}`, index)));
    await Promise.all(saves);
    expect(await Promise.all([0, 1, 2, 3].map((index) => get(`u${index}`)))).toEqual([196, 197, 198, 199]);
  });

  test('match a model when some of them fail', async () => {
    const write = fc.record({ id: fc.constantFrom('a', 'b', 'c'), value: fc.integer({ min: 0, max: 1100 }) });
    const batch = fc.array(write, { minLength: 1, maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(fc.array(batch, { minLength: 1, maxLength: 20 }), async (batches) => {
        await db.$client.execute('DELETE FROM t');
        const stored = new Map<string, number>();
        const expected = batches.map((writes) => {
          if (writes.some(({ value }) => value >= 1000)) return 'rejected';
          for (const { id, value } of writes) stored.set(id, value);
          return 'fulfilled';
        });
        const outcomes = await Promise.allSettled(
          batches.map((writes) =>
            db.$client.batch(
              writes.map(({ id, value }) => put(id, value)),
              'write',
            ),
          ),
        );
        expect(outcomes.map(({ status }) => status)).toEqual(expected);
        for (const [index, outcome] of outcomes.entries()) {
          if (outcome.status === 'rejected') continue;
          expect(outcome.value.map(({ rows }) => ({ ...rows[0] }))).toEqual(
            batches[index]?.map(({ id, value }) => ({ id, v: value })) ?? [],
          );
        }
        const { rows } = await db.$client.execute('SELECT id, v FROM t');
        expect(new Map(rows.map(({ id, v }) => [String(id), Number(v)]))).toEqual(stored);
      }),
      { numRuns: 40 },
    );
  });
});

test('concurrent writes to a local file share one commit', async () => {
  const { db, url } = await temporaryDatabase();
  const store = createUserStore(db);
  const watcher = new SqliteDatabase(url.slice('file:'.length), { readonly: true });
  const stored = () => watcher.query("SELECT count(*) AS n FROM users WHERE id LIKE 'saver-%'").get();
  const seen = await Promise.all(
    Array.from({ length: 64 }, async (_, index) => {
      await store.saveSection({
        userId: `saver-${index}`,
        section: 'profile',
        patch: {},
        requestId: null,
        now: new Date(0),
      });
      return stored();
    }),
  );
  // When the first is acknowledged, all are stored.
  expect(seen[0]).toEqual({ n: 64 });
  watcher.close();
});

test.each([
  ['an unreadable response', new SyntaxError('cut off'), 1],
  ['a number out of range', new RangeError('too large'), 1],
  ['a deadline', new DatabaseError('DEADLINE_EXCEEDED', true), 1],
  ['a refusal of the whole group', new LibsqlError('no', 'RESPONSE_TOO_LARGE'), 4],
])(
  'a batch to a server that fails with %s is retried only when nothing can have been stored',
  async (_, error, sent) => {
    const { db } = await temporaryDatabase();
    let batches = 0;
    const write = () => {
      batches += 1;
      return Promise.reject(error);
    };
    const grouped = groupWrites({ ...db.$client, write }, { timeoutMs: 1000 });
    const outcomes = await Promise.allSettled(['a', 'b', 'c'].map((id) => grouped.write([put(id, 1)])));
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    expect(batches).toBe(sent);
  },
);

describe.skipIf(!hasSqld)('a libSQL server killed under 64 writers', () => {
  test('has every acknowledged write after its restart', async () => {
    const { sqld, db } = await openServer();
    const store = createUserStore(db);
    const acknowledged = new Map<string, number>();
    let isKilled = false;
    const saver = async (userId: string) => {
      for (let value = 1; !isKilled; value += 1) {
        const patch = { careCosts: value };
        const saving = store.saveSection({
          userId,
          section: 'ltcLifetimeCare',
          patch,
          requestId: null,
          now: new Date(0),
        });
        const isStored = await saving.then(
          () => true,
          () => false,
        );
        if (isStored) acknowledged.set(userId, value);
      }
    };
    const saving = Promise.all(Array.from({ length: 64 }, (_, index) => saver(`saver-${index}`)));
    while (acknowledged.size < 64) await Bun.sleep(5);
    await sqld.kill();
    isKilled = true;
    await saving;
    await sqld.start();
    for (const [userId, value] of acknowledged) {
      const record = await store.findAnswers(userId);
      const stored = (record && parseAnswers(record).ltcLifetimeCare?.careCosts) ?? 0;
      expect(stored).toBeGreaterThanOrEqual(value);
    }
  });
});
