import { describe, expect, test } from 'bun:test';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@libsql/client';
import { eq } from 'drizzle-orm';
import { openDatabase, writeBatch } from '../../src/db/client';
import { users } from '../../src/db/schema';
import { createUserStore } from '../../src/modules/users/store';
import { temporaryDatabase, temporaryFolder } from '../support/database';

const now = new Date('2026-03-10T12:00:00Z');
const save = (userId: string, careCosts: number) =>
  ({ userId, section: 'ltcLifetimeCare', patch: { careCosts }, now }) as const;

describe('a local file', () => {
  test('is opened in WAL mode with full sync, which an acknowledged answer depends on', async () => {
    const { db } = await temporaryDatabase();
    const pragma = async (name: string) => (await db.$client.execute(`PRAGMA ${name}`)).rows[0]?.[0];
    expect(await pragma('journal_mode')).toBe('wal');
    expect(await pragma('synchronous')).toBe(2);
    expect(await pragma('busy_timeout')).toBe(2000);
    expect(await pragma('foreign_keys')).toBe(1);
  });

  test('has its folder made, readable by the owner alone', async () => {
    const folder = join(temporaryFolder(), 'a', 'b');
    const db = await openDatabase({ url: `file:${folder}/planning.db`, timeoutMs: 1000 });
    await db.$client.execute('SELECT 1');
    db.$client.close();
    expect((await Bun.file(folder).stat()).mode & 0o777).toBe(0o700);
  });

  test('that cannot be opened is a database error without its path', async () => {
    for (const path of ['/proc/none/planning.db', tmpdir(), '/dev/null/planning.db']) {
      const opening = openDatabase({ url: `file:${path}`, timeoutMs: 1000 });
      await expect(opening).rejects.toMatchObject({
        name: 'DatabaseError',
        code: 'SQLITE_CANTOPEN',
        message: expect.not.stringContaining(path),
      });
    }
  });

  test('that another process locks fails after the deadline, and the next save is really stored', async () => {
    const { url, db: opened } = await temporaryDatabase();
    opened.$client.close();
    const db = await openDatabase({ url, timeoutMs: 50 });
    const store = createUserStore(db);
    const other = createClient({ url });
    const lock = await other.transaction('write');
    for (const attempt of [1, 2, 3]) {
      await expect(store.saveSection(save('locked', attempt))).rejects.toMatchObject({
        cause: { code: 'SQLITE_BUSY', isUnavailable: true },
      });
      await expect(writeBatch(db, [db.delete(users).where(eq(users.id, 'x'))])).rejects.toMatchObject({
        code: 'SQLITE_BUSY',
      });
      // A statement that follows right behind must not run on the connection that met the lock.
      const [refused, read] = await Promise.allSettled([store.saveSection(save('locked', 9)), store.find('locked')]);
      expect(refused.status).toBe('rejected');
      expect(read).toMatchObject({ status: 'fulfilled', value: undefined });
    }
    await lock.rollback();
    await store.saveSection(save('locked', 4));
    const third = createClient({ url });
    const { rows } = await third.execute(`SELECT ltc_lifetime_care FROM users WHERE id = 'locked'`);
    expect(rows[0]?.[0]).toBe('{"careCosts":4}');
    for (const client of [db.$client, other, third]) client.close();
  });

  test('takes 300 saves from each of two processes and loses none', async () => {
    const { url, db } = await temporaryDatabase();
    const saver = new URL('../support/saver.ts', import.meta.url).pathname;
    const savers = ['a', 'b'].map((name) =>
      Bun.spawn(['bun', saver, url, name, '300'], { stdout: 'pipe', stderr: 'inherit' }),
    );
    const outputs = await Promise.all(savers.map(async ({ stdout }) => (await new Response(stdout).text()).trim()));
    expect(outputs).toEqual(['300', '300']);
    const row = await createUserStore(db).find('shared');
    expect(row).toMatchObject({ version: 600, ltcLifetimeCare: { careCosts: 300 }, lifetimeCare: { careSafety: 300 } });
  }, 30_000);

  test('refuses an interactive transaction, which would hold up every other caller', async () => {
    const { db } = await temporaryDatabase();
    await expect(db.$client.transaction('write')).rejects.toThrow('writeBatch');
    await expect(db.transaction(async () => undefined)).rejects.toThrow('writeBatch');
  });
});

describe('writeBatch', () => {
  test('stores all or nothing', async () => {
    const { db } = await temporaryDatabase();
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
