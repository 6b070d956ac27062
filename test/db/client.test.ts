import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, spyOn, test } from 'bun:test';
import { chmodSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import { SQLiteAsyncDialect } from 'drizzle-orm/sqlite-core';
import Connection from 'libsql';
import { copyDatabase, withExclusiveLock } from '../../src/db/backup';
import { openDatabase, openServiceDatabase, writeBatch } from '../../src/db/client';
import { countParameters } from '../../src/db/connection';
import { driverKey, encryptionOption } from '../../src/db/database-file';
import { migrateDatabase } from '../../src/db/migrate';
import { users } from '../../src/db/schema/people';
import { causeChain } from '../../src/errors';
import { createUserStore } from '../../src/modules/users/store';
import { createTestApp } from '../support/app';
import {
  copyTemplate,
  expectConcurrentWritesMatchModel,
  filesWith,
  keys,
  openFilesWith,
  temporaryDatabase,
} from '../support/database';
import { atEnd, temporaryFolder } from '../support/resources';

const now = new Date('2026-03-10T12:00:00Z');
const save = (userId: string, careCosts: number) =>
  ({ userId, section: 'ltcLifetimeCare', patch: { careCosts }, requestId: null, now }) as const;

const failureOf = (failing: Promise<unknown>) =>
  failing.then(
    () => undefined,
    (error: unknown) => error,
  );

const modeOf = (path: string) => statSync(path).mode & 0o777;

/** The rows that another connection reads. */
function readIn(path: string, query: string): unknown[] {
  const database = new SqliteDatabase(path, { readonly: true });
  const rows = database.query(query).all();
  database.close();
  return rows;
}

describe('a new database file', () => {
  test('can be read only by its owner, as can its folder and its WAL, also where an empty file was', async () => {
    const folder = join(temporaryFolder(), 'a', 'b');
    const empty = join(temporaryFolder(), 'planning.db');
    writeFileSync(empty, '');
    chmodSync(empty, 0o644);
    for (const path of [join(folder, 'planning.db'), empty]) {
      const db = await openDatabase({ url: `file:${path}`, timeoutMs: 1000 });
      await migrateDatabase(db);
      for (const name of [path, `${path}-wal`, `${path}-shm`]) expect(modeOf(name)).toBe(0o600);
      db.$client.close();
    }
    expect(modeOf(folder)).toBe(0o700);
  });

  test.each([
    ['a folder that cannot be created', '/proc/none/planning.db', 'cannot be opened (SQLITE_CANTOPEN)'],
    ['a folder', tmpdir(), 'it is a folder'],
    ['below a device', '/dev/null/planning.db', 'cannot be opened (SQLITE_CANTOPEN)'],
  ])('is refused without its path in the message, and with advice: %s', async (_, path, advice) => {
    await expect(openDatabase({ url: `file:${path}`, timeoutMs: 1000 })).rejects.toMatchObject({
      name: 'DatabaseError',
      code: 'SQLITE_CANTOPEN',
      isUnavailable: true,
      message: expect.not.stringContaining(path),
      advice: expect.stringContaining(advice),
    });
  });
});

describe('a connection to a file', () => {
  const openTemporary = async ({ timeoutMs = 2000, encryptionKey = undefined as string | undefined } = {}) => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path, encryptionKey);
    const db = await openServiceDatabase({ url: `file:${path}`, timeoutMs, encryptionKey });
    atEnd(() => db.$client.close());
    return { path, db };
  };
  /** Opens a file and holds its write lock on another connection. */
  const openLocked = async (timeoutMs?: number) => {
    const { path, db } = await openTemporary({ timeoutMs });
    const store = createUserStore(db);
    // The schema check before the first statement takes part of its deadline.
    await store.find('none');
    const other = new Connection(path, { timeout: 0 });
    other.exec('BEGIN IMMEDIATE');
    const release = () => {
      other.exec('ROLLBACK');
      other.close();
    };
    return { path, db, store, release };
  };

  test.each([
    ['plain', undefined],
    ['encrypted', keys.right],
  ])('uses WAL mode, NORMAL sync, foreign keys and secure delete: %s', async (_, encryptionKey) => {
    const { db, path } = await openTemporary({ encryptionKey });
    const pragma = async (name: string) => (await db.$client.execute(`PRAGMA ${name}`)).rows[0]?.[0];
    // Threads sync the WAL and checkpoint: see file-client.test.ts.
    const values = await Promise.all(['journal_mode', 'synchronous', 'foreign_keys', 'secure_delete'].map(pragma));
    expect(values).toEqual(['wal', 1, 1, 1]);
    expect(await pragma('busy_timeout')).toBeLessThanOrEqual(5);
    await db.$client.execute("INSERT INTO users (id, version, created_at, updated_at) VALUES ('a', 1, 0, 0)");
    expect(statSync(`${path}-wal`).size).toBeGreaterThan(0);
    expect((await db.$client.execute('PRAGMA wal_checkpoint(TRUNCATE)')).rows[0]?.busy).toBe(0);
    expect(statSync(`${path}-wal`).size).toBe(0);
  });

  test('keeps nothing of a migration that fails, and foreign-key checks on, also after one that cannot begin', async () => {
    const { db, path } = await openTemporary();
    expect(await failureOf(db.$client.migrate(['CREATE TABLE more (id)', 'DROP TABLE none']))).toBeInstanceOf(Error);
    expect(readIn(path, "SELECT 1 FROM sqlite_schema WHERE name = 'more'")).toEqual([]);
    expect((await db.$client.execute('PRAGMA foreign_keys')).rows[0]?.[0]).toBe(1);
    await db.$client.execute('PRAGMA query_only = ON');
    expect(await failureOf(db.$client.migrate(['CREATE TABLE more (id)']))).toMatchObject({ code: 'SQLITE_READONLY' });
    await db.$client.execute('PRAGMA query_only = OFF');
    expect((await db.$client.execute('PRAGMA foreign_keys')).rows[0]?.[0]).toBe(1);
  });

  test('fails saves at the deadline while another connection holds the lock, and stores the next one', async () => {
    const { path, db, store, release } = await openLocked(100);
    const busy = { code: 'SQLITE_BUSY', isUnavailable: true };
    for (const attempt of [1, 2]) {
      // Not `rejects`: it delays the statements that must follow in the same turn of the event loop.
      expect(await failureOf(store.saveSection(save('locked', attempt)))).toMatchObject(busy);
      expect(await failureOf(writeBatch(db, [db.delete(users).where(eq(users.id, 'x'))]))).toMatchObject(busy);
      // A statement that follows immediately must not run on the connection that met the lock.
      const [refused, read] = await Promise.allSettled([store.saveSection(save('locked', 9)), store.find('locked')]);
      expect(refused.status).toBe('rejected');
      expect(read).toMatchObject({ status: 'fulfilled', value: undefined });
    }
    release();
    await store.saveSection(save('locked', 4));
    const stored = readIn(path, `SELECT ltc_lifetime_care AS value FROM users WHERE id = 'locked'`);
    expect(stored).toEqual([{ value: '{"careCosts":4}' }]);
    expect((await db.$client.execute('PRAGMA secure_delete')).rows[0]?.[0]).toBe(1);
  });

  test('rejects each waiting save at its own deadline while another connection holds the lock', async () => {
    const deadlineMs = 100;
    const { store, release } = await openLocked(deadlineMs);
    const saves: Promise<unknown>[] = [];
    // Later saves arrive while the first wait for the lock.
    for (let turn = 0; turn < 3; turn += 1) {
      for (let value = 0; value < 10; value += 1) saves.push(failureOf(store.saveSection(save('late', value))));
      await Bun.sleep(1);
    }
    // One after the other, three deadlines would take longer.
    const late = Bun.sleep(2 * deadlineMs).then(() => 'late');
    const unavailable = { isUnavailable: true };
    expect(await Promise.race([Promise.all(saves), late])).toMatchObject(saves.map(() => unavailable));
    release();
  });

  test('serves reads and timers while saves wait for a lock, and then stores the saves in order', async () => {
    const { store, release } = await openLocked();
    let saved = 0;
    const saves = Array.from({ length: 40 }, async (_, value) => {
      const row = await store.saveSection(save('waiting', value));
      saved += 1;
      return row?.version;
    });
    for (let count = 0; count < 20; count += 1) {
      expect(await store.find('waiting')).toBeUndefined();
      await Bun.sleep(1);
    }
    expect(saved).toBe(0);
    release();
    expect(await Promise.all(saves)).toEqual(saves.map((_, index) => index + 1));
  });

  test('rejects every call after it was closed, also when a file that was opened since closes the old WAL index', async () => {
    // The next file takes the descriptors of some of them.
    const closed = await Promise.all(Array.from({ length: 12 }, () => openTemporary()));
    for (const { db, path } of closed) {
      // Otherwise the schema check before the first call finds that the file is closed.
      await db.$client.read('SELECT 1');
      db.$client.close();
      rmSync(`${path}-shm`, { force: true });
    }
    await temporaryDatabase();
    const calls = closed.flatMap(({ db: { $client } }) => [
      $client.read('SELECT 1'),
      $client.write([{ sql: 'DELETE FROM users' }]),
      $client.exec('VACUUM'),
      $client.migrate([]),
    ]);
    const codes = (await Promise.all(calls.map(failureOf))).map((error) => Object(error).code);
    expect(codes).toEqual(calls.map(() => 'CLIENT_CLOSED'));
  });

  test('refuses an interactive transaction', async () => {
    const { db } = await openTemporary();
    await expect(db.$client.transaction('write')).rejects.toThrow('writeBatch');
    await expect(db.transaction(async () => undefined)).rejects.toThrow('writeBatch');
  });

  test('stores a batch completely or not at all', async () => {
    const { db } = await openTemporary();
    const row = (id: string) => ({ id, version: 1, createdAt: 0, updatedAt: 0 });
    const insert = (id: string) => db.insert(users).values(row(id)).returning({ id: users.id });
    await expect(writeBatch(db, [insert('a'), insert('b'), insert('a')])).rejects.toMatchObject({
      code: 'SQLITE_CONSTRAINT',
      isUnavailable: false,
    });
    expect(await db.$count(users)).toBe(0);
    expect(await writeBatch(db, [insert('a'), insert('b')])).toEqual([[{ id: 'a' }], [{ id: 'b' }]]);
  });
});

const upsert = 'INSERT INTO t VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING id, v';
const put = (id: string, value: number) => ({ sql: upsert, args: [id, value] });

async function openTable() {
  const { db, url } = await temporaryDatabase();
  const client = db.$client;
  await client.batch([
    'CREATE TABLE t (id TEXT PRIMARY KEY, v INTEGER CHECK (v < 1000))',
    'CREATE TABLE ending (id TEXT)',
    "CREATE TRIGGER ending_rolls_back BEFORE INSERT ON ending BEGIN SELECT RAISE(ROLLBACK, 'ended'); END",
    'CREATE TABLE parent (id TEXT PRIMARY KEY)',
    'CREATE TABLE child (id TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)',
  ]);
  const get = async (id: string) =>
    (await client.execute({ sql: 'SELECT v FROM t WHERE id = ?', args: [id] })).rows[0]?.v;
  return { path: url.slice('file:'.length), client, get };
}

describe('a cached prepared statement', () => {
  test('returns each of two alternating callers their own rows, and none where none exist', async () => {
    const { client, get } = await openTable();
    for (let round = 0; round < 30; round += 1) {
      const [a, b] = await Promise.all([client.execute(put('a', round)), client.execute(put('b', 100 + round))]);
      expect([{ ...a.rows[0] }, { ...b.rows[0] }]).toEqual([
        { id: 'a', v: round },
        { id: 'b', v: 100 + round },
      ]);
      const values = await Promise.all(['a', 'b', 'none', 'a'].map(get));
      expect(values).toEqual([round, 100 + round, undefined, round]);
    }
  });

  test('returns values by index and by name, for any column names', async () => {
    const { client } = await openTable();
    const { rows } = await client.execute('SELECT 1, 2 AS "1", 3 AS "9", 4 AS length, 5 AS a, 6 AS a');
    expect([...Array.from({ length: 6 }, (_, place) => rows[0]?.[place])]).toEqual([1, 2, 3, 4, 5, 6]);
    expect([rows[0]?.length, rows[0]?.['9'], rows[0]?.a]).toEqual([6, 3, 5]);
    expect({ ...rows[0] }).toEqual({ '9': 3, a: 5 });
    expect(Object.entries((await client.execute('SELECT 7')).rows[0] ?? {})).toEqual([['7', 7]]);
  });

  test('returns the columns of the table as it is after a change of the schema', async () => {
    const { client } = await openTable();
    await client.execute(put('a', 1));
    const read = async () => ({ ...(await client.execute('SELECT * FROM t')).rows[0] });
    expect(await read()).toEqual({ id: 'a', v: 1 });
    await client.execute('ALTER TABLE t ADD COLUMN added DEFAULT 2');
    expect(await read()).toEqual({ id: 'a', v: 1, added: 2 });
  });

  test('rejects a wrong number of values', async () => {
    const { client, get } = await openTable();
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
    const { client } = await openTable();
    const { rows } = await client.execute({
      sql: 'SELECT ? AS a, ? AS b, ? AS c, hex(?) AS d',
      args: [true, false, null, new Uint8Array([1, 255])],
    });
    expect({ ...rows[0] }).toEqual({ a: 1, b: 0, c: null, d: '01FF' });
    const [pair] = await client.batch([['SELECT ? AS e', ['pair']]]);
    expect({ ...pair?.rows[0] }).toEqual({ e: 'pair' });
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
      await expect(client.execute({ sql: 'SELECT ?', args: [value] })).rejects.toMatchObject({
        code: 'VALUE_OUT_OF_RANGE',
        isUnavailable: false,
      });
    }
  });
});

describe('concurrent writes', () => {
  test('match a model when some of them fail', async () => {
    await expectConcurrentWritesMatchModel((await temporaryDatabase()).db);
  });

  test.each([
    ['one statement ends the transaction', "INSERT INTO ending VALUES ('x')"],
    ['the commit fails', "INSERT INTO child VALUES ('no such parent')"],
  ])('fail only the responsible write when %s, and store the next one', async (_, sql) => {
    const { client, path, get } = await openTable();
    // The last cannot be stored twice.
    const writes = [client.execute(put('a', 1)), client.execute(sql), client.execute("INSERT INTO t VALUES ('b', 2)")];
    const outcomes = await Promise.allSettled(writes);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect([await get('a'), await get('b')]).toEqual([1, 2]);
    await client.execute(put('c', 3));
    expect(readIn(path, 'SELECT id FROM t')).toEqual([{ id: 'a' }, { id: 'b' }, { id: 'c' }]);
    const other = new Connection(path);
    other.exec("INSERT INTO t VALUES ('by another', 1)");
    other.close();
    expect(await get('by another')).toBe(1);
  });

  test('build their statements on the first request, not at start', async () => {
    // Creates the template database.
    await temporaryDatabase();
    const built = spyOn(SQLiteAsyncDialect.prototype, 'sqlToQuery');
    try {
      const testApp = await createTestApp();
      // A service that another file started may build statements meanwhile.
      const own = Reflect.get(testApp.db, 'dialect');
      const countBuilt = () => built.mock.contexts.filter((dialect) => dialect === own).length;
      expect(own).toBeInstanceOf(SQLiteAsyncDialect);
      expect(countBuilt()).toBe(0);
      for (const as of ['first', 'second']) {
        await testApp.call('GET', '/v2/private/user', { as });
        expect(countBuilt()).toBe(1);
      }
    } finally {
      built.mockRestore();
    }
  });
});

describe('an encrypted database file', () => {
  test.skipIf(process.platform !== 'linux')('has no plain text in a temporary file of a large statement', () => {
    const folder = temporaryFolder();
    const spilt = (key: string | undefined) => {
      const path = join(folder, `${key === undefined ? 'plain' : 'encrypted'}.db`);
      const connection = new Connection(path, { timeout: 0, ...encryptionOption(key) });
      connection.exec(`PRAGMA journal_mode = DELETE; PRAGMA cache_size = 10; CREATE TABLE t (id INTEGER PRIMARY KEY, a);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
          INSERT INTO t SELECT i, 'canary-spilt ' || i || hex(zeroblob(300)) FROM n;
        BEGIN; SAVEPOINT s; UPDATE t SET a = 'canary-spilt again ' || a; CREATE INDEX i ON t (a)`);
      const open = openFilesWith(process.pid, ['canary-spilt']).map((file) => file.replace(`${folder}/`, ''));
      connection.exec('ROLLBACK; VACUUM');
      connection.close();
      return open;
    };
    expect(spilt(keys.right)).toEqual([]);
    expect(spilt(undefined)).toContain('plain.db-journal');
    expect(filesWith(folder, ['canary-spilt'])).toEqual(['plain.db']);
  });

  test('has no key in the error, at any depth, when a copy cannot be written', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path, keys.right);
    for (const copy of [
      (target: string) => copyDatabase(path, target, keys.right),
      (target: string) => withExclusiveLock(path, keys.right, (copyTo) => copyTo(target, keys.wrong)),
    ]) {
      const failure = await Promise.try(copy, join(temporaryFolder(), 'none/copy.db')).catch((error: unknown) => error);
      expect(failure).toMatchObject({ code: 'SQLITE_CANTOPEN', isUnavailable: true });
      const shown = [...causeChain(failure)].map(({ message, stack }) => `${message} ${stack}`).join('\n');
      for (const key of [keys.right, keys.wrong]) {
        expect(shown).not.toContain(key);
        expect(shown).not.toContain(driverKey(key));
      }
    }
  });
});
