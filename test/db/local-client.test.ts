import { Database as SqliteDatabase } from 'bun:sqlite';
import { beforeEach, describe, expect, test } from 'bun:test';
import type { InStatement } from '@libsql/client';
import { createClient } from '@libsql/client';
import fc from 'fast-check';
import { countParameters } from '../../src/db/kept-statements';
import { createUserStore } from '../../src/modules/users/store';
import { temporaryDatabase } from '../support/database';

const { db, url } = await temporaryDatabase();
const client = db.$client;
await client.execute('CREATE TABLE t (id TEXT PRIMARY KEY, v INTEGER CHECK (v < 1000), log TEXT)');
await client.executeMultiple(`
  CREATE TABLE ending (id TEXT);
  CREATE TRIGGER ending_rolls_back BEFORE INSERT ON ending BEGIN SELECT RAISE(ROLLBACK, 'ended'); END;
  CREATE TABLE parent (id TEXT PRIMARY KEY);
  CREATE TABLE child (id TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
`);
beforeEach(() => client.executeMultiple('DELETE FROM t'));

const upsert = 'INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING id, v';
const put = (id: string, value: number): InStatement => ({ sql: upsert, args: [id, value, ''] });
const get = async (id: string) =>
  (await client.execute({ sql: 'SELECT v FROM t WHERE id = ?', args: [id] })).rows[0]?.v;

describe('a statement that is kept', () => {
  test('gives each of two alternating callers what is theirs, and nothing where there is nothing', async () => {
    for (let round = 0; round < 50; round += 1) {
      const [a, b] = await Promise.all([client.execute(put('a', round)), client.execute(put('b', 100 + round))]);
      expect([{ ...a.rows[0] }, { ...b.rows[0] }]).toEqual([
        { id: 'a', v: round },
        { id: 'b', v: 100 + round },
      ]);
      expect(await Promise.all([get('a'), get('b'), get('nobody'), get('a')])).toEqual([
        round,
        100 + round,
        undefined,
        round,
      ]);
    }
  });

  test('is never run with another number of values than it has parameters', async () => {
    await client.execute(put('a', 1));
    for (const args of [[], ['a', 'b']]) {
      await expect(client.execute({ sql: 'SELECT v FROM t WHERE id = ?', args })).rejects.toMatchObject({
        name: 'DatabaseError',
      });
    }
    expect(await get('a')).toBe(1);
  });

  test('counts as parameters neither quoted question marks nor those of comments', () => {
    expect(countParameters(`SELECT '?', "a?", \`?\` -- ?\n, 'it''s ?' /* ? */ FROM t WHERE a = ? AND b = ?`)).toBe(2);
    for (const sql of ['SELECT ?1', 'SELECT :name', 'SELECT @name', 'SELECT $name']) {
      expect(() => countParameters(sql)).toThrow('written as ?');
    }
  });

  test('takes booleans, bytes and null, and refuses what the driver would end the process for', async () => {
    const { rows } = await client.execute({
      sql: 'SELECT ? AS a, ? AS b, ? AS c, hex(?) AS d',
      args: [true, false, null, new Uint8Array([1, 255])],
    });
    expect({ ...rows[0] }).toEqual({ a: 1, b: 0, c: null, d: '01FF' });
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
      await expect(client.execute({ sql: 'SELECT ?', args: [value] })).rejects.toMatchObject({
        code: 'VALUE_OUT_OF_RANGE',
        isUnavailable: false,
      });
    }
  });
});

describe('writes of many callers', () => {
  test('of which one must fail leave the others stored, each with its own outcome', async () => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: 64 }, (_, index) =>
        index === 30
          ? client.batch([put(`u${index}`, 1), put('bad', 5000)], 'write')
          : client.execute(put(`u${index}`, index)),
      ),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(63);
    expect(outcomes[30]).toMatchObject({
      status: 'rejected',
      reason: { name: 'DatabaseError', code: 'SQLITE_CONSTRAINT', isUnavailable: false },
    });
    expect([await get('u29'), await get('u30'), await get('bad'), await get('u31')]).toEqual([
      29,
      undefined,
      undefined,
      31,
    ]);
    const third = createClient({ url });
    expect((await third.execute('SELECT count(*) AS n FROM t')).rows[0]?.n).toBe(63);
    third.close();
  });

  test('cost one commit together', async () => {
    const store = createUserStore(db);
    const watcher = new SqliteDatabase(url.slice('file:'.length), { readonly: true });
    const stored = () => watcher.query("SELECT count(*) AS n FROM users WHERE id LIKE 'saver-%'").get();
    const seen = await Promise.all(
      Array.from({ length: 64 }, async (_, index) => {
        await store.saveSection({ userId: `saver-${index}`, section: 'profile', patch: {}, now: new Date(0) });
        return stored();
      }),
    );
    // The first of them that is acknowledged finds all of them stored.
    expect(seen[0]).toEqual({ n: 64 });
    watcher.close();
  });

  test.each([
    ['one of them ends the transaction', "INSERT INTO ending VALUES ('x')"],
    ['the commit fails', "INSERT INTO child VALUES ('no such parent')"],
  ])('all fail where %s, and the next is really stored', async (_, sql) => {
    const outcomes = await Promise.allSettled([
      client.execute(put('a', 1)),
      client.execute(sql),
      client.execute(put('b', 2)),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    expect([await get('a'), await get('b')]).toEqual([undefined, undefined]);
    await client.execute(put('c', 3));
    const third = createClient({ url });
    expect((await third.execute('SELECT id FROM t')).rows.map(({ id }) => id)).toEqual(['c']);
    await third.execute("INSERT INTO t VALUES ('by another', 1, '')");
    third.close();
    expect(await get('by another')).toBe(1);
  });

  test('are what a model says, whatever fails between them, in the order of each caller', async () => {
    const write = fc.record({ id: fc.constantFrom('a', 'b', 'c'), value: fc.integer({ min: 0, max: 1100 }) });
    const unit = fc.array(write, { minLength: 1, maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(fc.array(unit, { minLength: 1, maxLength: 30 }), async (units) => {
        await client.executeMultiple('DELETE FROM t');
        const stored = new Map<string, number>();
        const expected = units.map((writes) => {
          if (writes.some(({ value }) => value >= 1000)) return 'rejected';
          for (const { id, value } of writes) stored.set(id, value);
          return 'fulfilled';
        });
        const outcomes = await Promise.allSettled(
          units.map((writes) =>
            client.batch(
              writes.map(({ id, value }) => put(id, value)),
              'write',
            ),
          ),
        );
        expect(outcomes.map(({ status }) => status)).toEqual(expected);
        for (const [index, outcome] of outcomes.entries()) {
          if (outcome.status === 'rejected') continue;
          expect(outcome.value.map(({ rows }) => ({ ...rows[0] }))).toEqual(
            units[index]?.map(({ id, value }) => ({ id, v: value })) ?? [],
          );
        }
        const { rows } = await client.execute('SELECT id, v FROM t');
        expect(new Map(rows.map(({ id, v }) => [String(id), Number(v)]))).toEqual(stored);
      }),
      { numRuns: 100 },
    );
  });
});
