import { beforeEach, describe, expect, test } from 'bun:test';
import type { InStatement } from '@libsql/client';
import { createClient } from '@libsql/client';
import { countParameters } from '../../src/db/connection';
import { temporaryDatabase } from '../support/database';

const { db, url } = await temporaryDatabase();
const client = db.$client;
await client.execute('CREATE TABLE t (id TEXT PRIMARY KEY, v INTEGER CHECK (v < 1000), log TEXT)');
await client.batch([
  'CREATE TABLE ending (id TEXT)',
  "CREATE TRIGGER ending_rolls_back BEFORE INSERT ON ending BEGIN SELECT RAISE(ROLLBACK, 'ended'); END",
  'CREATE TABLE parent (id TEXT PRIMARY KEY)',
  'CREATE TABLE child (id TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)',
]);
beforeEach(() => client.execute('DELETE FROM t'));

const upsert = 'INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING id, v';
const put = (id: string, value: number): InStatement => ({ sql: upsert, args: [id, value, ''] });
const get = async (id: string) =>
  (await client.execute({ sql: 'SELECT v FROM t WHERE id = ?', args: [id] })).rows[0]?.v;

describe('a cached prepared statement', () => {
  test('returns each of two alternating callers their own rows, and none where none exist', async () => {
    for (let round = 0; round < 50; round += 1) {
      const [a, b] = await Promise.all([client.execute(put('a', round)), client.execute(put('b', 100 + round))]);
      expect([{ ...a.rows[0] }, { ...b.rows[0] }]).toEqual([
        { id: 'a', v: round },
        { id: 'b', v: 100 + round },
      ]);
      expect(await Promise.all([get('a'), get('b'), get('none'), get('a')])).toEqual([
        round,
        100 + round,
        undefined,
        round,
      ]);
    }
  });

  test('returns values by index and by name, for any column names', async () => {
    const { rows } = await client.execute('SELECT 1, 2 AS "1", 3 AS "9", 4 AS length, 5 AS a, 6 AS a');
    expect([...Array.from({ length: 6 }, (_, place) => rows[0]?.[place])]).toEqual([1, 2, 3, 4, 5, 6]);
    expect([rows[0]?.length, rows[0]?.['9'], rows[0]?.a]).toEqual([6, 3, 5]);
    expect({ ...rows[0] }).toEqual({ '9': 3, a: 5 });
    expect(Object.entries((await client.execute('SELECT 7')).rows[0] ?? {})).toEqual([['7', 7]]);
  });

  test('rejects a wrong number of values', async () => {
    await client.execute(put('a', 1));
    for (const args of [[], ['a', 'b']]) {
      await expect(client.execute({ sql: 'SELECT v FROM t WHERE id = ?', args })).rejects.toMatchObject({
        name: 'DatabaseError',
      });
    }
    expect(await get('a')).toBe(1);
  });

  test('ignores question marks in quotes and comments when it counts parameters', () => {
    expect(countParameters(`SELECT '?', "a?", \`?\` -- ?\n, 'it''s ?' /* ? */ FROM t WHERE a = ? AND b = ?`)).toBe(2);
    for (const sql of ['SELECT ?1', 'SELECT :name', 'SELECT @name', 'SELECT $name']) {
      expect(() => countParameters(sql)).toThrow('written as ?');
    }
  });

  test('accepts booleans, bytes and null, and rejects numbers that would crash the driver', async () => {
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

describe('a group commit', () => {
  test.each([
    ['one statement ends the transaction', "INSERT INTO ending VALUES ('x')"],
    ['the commit fails', "INSERT INTO child VALUES ('no such parent')"],
  ])('fails only the responsible write when %s, and stores the next one', async (_, sql) => {
    const outcomes = await Promise.allSettled([
      client.execute(put('a', 1)),
      client.execute(sql),
      client.execute(put('b', 2)),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect([await get('a'), await get('b')]).toEqual([1, 2]);
    await client.execute(put('c', 3));
    const third = createClient({ url });
    expect((await third.execute('SELECT id FROM t')).rows.map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    await third.execute("INSERT INTO t VALUES ('by another', 1, '')");
    third.close();
    expect(await get('by another')).toBe(1);
  });
});
