import { describe, expect, test } from 'bun:test';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@libsql/client';
import { eq } from 'drizzle-orm';
import { openDatabase, openServiceDatabase, writeBatch } from '../../src/db/client';
import { users } from '../../src/db/schema/people';
import { createUserStore } from '../../src/modules/users/store';
import { copyTemplate } from '../support/database';
import { runWorker } from '../support/processes';
import { atEnd, temporaryFolder } from '../support/resources';

const now = new Date('2026-03-10T12:00:00Z');
const save = (userId: string, careCosts: number) =>
  ({ userId, section: 'ltcLifetimeCare', patch: { careCosts }, requestId: null, now }) as const;

// A worker thread syncs the WAL: see test/db/durability.test.ts.
const normalSync = 1;

const failureOf = (failing: Promise<unknown>) =>
  failing.then(
    () => undefined,
    (error: unknown) => error,
  );

describe('a local database file', () => {
  test('creates a missing folder that only the owner can read', async () => {
    const folder = join(temporaryFolder(), 'a', 'b');
    const db = await openDatabase({ url: `file:${folder}/planning.db`, timeoutMs: 1000 });
    await db.$client.execute('SELECT 1');
    db.$client.close();
    expect((await Bun.file(folder).stat()).mode & 0o777).toBe(0o700);
  });

  test('restricts itself and its WAL files to the owner in an existing folder', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    const db = await openDatabase({ url: `file:${path}`, timeoutMs: 1000 });
    await db.$client.execute('CREATE TABLE t (id)');
    for (const name of [path, `${path}-wal`, `${path}-shm`]) {
      expect((await Bun.file(name).stat()).mode & 0o777).toBe(0o600);
    }
    db.$client.close();
  });

  test('reports a DatabaseError without the path when it cannot be opened', async () => {
    for (const path of ['/proc/none/planning.db', tmpdir(), '/dev/null/planning.db']) {
      const opening = openDatabase({ url: `file:${path}`, timeoutMs: 1000 });
      await expect(opening).rejects.toMatchObject({
        name: 'DatabaseError',
        code: 'SQLITE_CANTOPEN',
        message: expect.not.stringContaining(path),
      });
    }
  });
});

describe.each([
  ['of the command line', openDatabase],
  ['of the service', openServiceDatabase],
])('a connection %s to a local file', (_, open) => {
  const openTemporary = async (timeoutMs = 2000) => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path);
    const url = `file:${path}`;
    const db = await open({ url, timeoutMs });
    atEnd(() => db.$client.close());
    return { url, db };
  };

  test('uses WAL mode, NORMAL sync, foreign keys and secure delete', async () => {
    const { db } = await openTemporary();
    const pragma = async (name: string) => (await db.$client.execute(`PRAGMA ${name}`)).rows[0]?.[0];
    expect(await pragma('journal_mode')).toBe('wal');
    expect(await pragma('synchronous')).toBe(normalSync);
    expect(await pragma('busy_timeout')).toBeLessThanOrEqual(5);
    expect(await pragma('foreign_keys')).toBe(1);
    expect(await pragma('secure_delete')).toBe(1);
  });

  test('keeps foreign-key checks on after a migration that cannot begin', async () => {
    const { db } = await openTemporary();
    await db.$client.execute('PRAGMA query_only = ON');
    expect(await failureOf(db.$client.migrate(['CREATE TABLE more (id)']))).toMatchObject({ code: 'SQLITE_READONLY' });
    await db.$client.execute('PRAGMA query_only = OFF');
    expect((await db.$client.execute('PRAGMA foreign_keys')).rows[0]?.[0]).toBe(1);
  });

  test('fails saves at the deadline while another process holds the lock, and stores the next one', async () => {
    const { url, db } = await openTemporary(200);
    const store = createUserStore(db);
    // The schema check before the first statement takes part of its deadline.
    await store.find('locked');
    const other = createClient({ url });
    const lock = await other.transaction('write');
    for (const attempt of [1, 2, 3]) {
      // Not `rejects`: it delays the statements that must follow in the same turn of the event loop.
      expect(await failureOf(store.saveSection(save('locked', attempt)))).toMatchObject({
        cause: { code: 'SQLITE_BUSY', isUnavailable: true },
      });
      expect(await failureOf(writeBatch(db, [db.delete(users).where(eq(users.id, 'x'))]))).toMatchObject({
        code: 'SQLITE_BUSY',
      });
      // A statement that follows immediately must not run on the connection that met the lock.
      const [refused, read] = await Promise.allSettled([store.saveSection(save('locked', 9)), store.find('locked')]);
      expect(refused.status).toBe('rejected');
      expect(read).toMatchObject({ status: 'fulfilled', value: undefined });
    }
    await lock.rollback();
    await store.saveSection(save('locked', 4));
    const third = createClient({ url });
    const { rows } = await third.execute(`SELECT ltc_lifetime_care FROM users WHERE id = 'locked'`);
    expect(rows[0]?.[0]).toBe('{"careCosts":4}');
    expect((await db.$client.execute('PRAGMA secure_delete')).rows[0]?.[0]).toBe(1);
    for (const client of [other, third]) client.close();
  });

  test('serves reads and keeps the event loop free while another process holds the lock', async () => {
    const { url, db } = await openTemporary();
    const store = createUserStore(db);
    const other = createClient({ url });
    const lock = await other.transaction('write');
    let ticks = 0;
    const ticking = setInterval(() => {
      ticks += 1;
    }, 10);
    const saves = Array.from({ length: 40 }, (_, value) => store.saveSection(save('waiting', value)));
    const startedAtMs = performance.now();
    for (let count = 0; count < 20; count += 1) {
      expect(await store.find('waiting')).toBeUndefined();
      await Bun.sleep(20);
    }
    expect(performance.now() - startedAtMs).toBeLessThan(1500);
    await lock.rollback();
    const saved = await Promise.all(saves);
    clearInterval(ticking);
    expect(ticks).toBeGreaterThan(15);
    expect(saved.map((row) => row?.version)).toEqual(saves.map((_, index) => index + 1));
    other.close();
  });

  test('gives each waiting save its own deadline while another process holds the lock', async () => {
    const { url, db } = await openTemporary(300);
    const other = createClient({ url });
    const lock = await other.transaction('write');
    const startedAtMs = performance.now();
    const store = createUserStore(db);
    const saves = Array.from({ length: 50 }, (_, value) => store.saveSection(save('late', value)));
    const outcomes = await Promise.allSettled(saves);
    expect(performance.now() - startedAtMs).toBeLessThan(900);
    for (const outcome of outcomes) expect(outcome).toMatchObject({ reason: { cause: { isUnavailable: true } } });
    await lock.rollback();
    other.close();
  });

  test.each([['careSafety'], ['batch']])(
    'loses none of 300 writes from each of two processes: %s',
    async (task) => {
      const { url, db } = await openTemporary();
      const store = createUserStore(db);
      await store.saveSection({ userId: 'shared', section: 'profile', patch: {}, requestId: null, now });
      const outputs = await Promise.all([runWorker(url, 'careCosts', '300'), runWorker(url, task, '300')]);
      expect(outputs).toEqual(['300', '300']);
      expect(await store.findAnswers('shared')).toMatchObject({ version: 601, ltcLifetimeCare: '{"careCosts":300}' });
    },
    30_000,
  );

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
