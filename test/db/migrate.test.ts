import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import journal from '../../drizzle/meta/_journal.json';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { schemaFit } from '../../src/db/schema-fit';
import { temporaryFolder } from '../support/database';
import { journalFolder } from '../support/journal-folder';
import { hasSqld, startSqld } from '../support/sqld';
import { runWorker } from '../support/worker';

const cli = new URL('../../src/cli/main.ts', import.meta.url).pathname;

async function migrateAtOnce(databaseUrl: string, count: number) {
  const cwd = temporaryFolder();
  const starters = Array.from({ length: count }, () =>
    Bun.spawn(['bun', cli, 'migrate'], {
      cwd,
      env: { PATH: process.env.PATH, DATABASE_URL: databaseUrl },
      stdout: 'ignore',
      stderr: 'pipe',
    }),
  );
  const codes = await Promise.all(starters.map(({ exited }) => exited));
  const errors = await Promise.all(starters.map(({ stderr }) => new Response(stderr).text()));
  return { codes, errors: errors.filter((text) => text !== '') };
}

async function appliedOnce(databaseUrl: string) {
  const db = await openDatabase({ url: databaseUrl, timeoutMs: 2000 });
  const { rows } = await db.$client.execute('SELECT created_at FROM __drizzle_migrations ORDER BY created_at');
  expect(rows.map(({ created_at }) => Number(created_at))).toEqual(journal.entries.map(({ when }) => when));
  const count = await db.$client.execute('SELECT count(*) FROM reference_options');
  expect(count.rows[0]?.[0]).toBe(147);
  db.$client.close();
}

describe('migrating', () => {
  test('a new file by four processes at once applies each migration once', async () => {
    const url = `file:${join(temporaryFolder(), 'planning.db')}`;
    expect(await migrateAtOnce(url, 4)).toEqual({ codes: [0, 0, 0, 0], errors: [] });
    await appliedOnce(url);
  }, 30_000);

  test.skipIf(!hasSqld)(
    'a libSQL server by four processes at once applies each migration once',
    async () => {
      const { url } = await startSqld();
      expect(await migrateAtOnce(url, 4)).toEqual({ codes: [0, 0, 0, 0], errors: [] });
      await appliedOnce(url);
    },
    30_000,
  );

  test('data by four processes at once changes them once, on a file and on a server', async () => {
    const folder = await journalFolder('UPDATE counter SET n = n + 1');
    const urls = [`file:${join(temporaryFolder(), 'planning.db')}`, ...(hasSqld ? [(await startSqld()).url] : [])];
    for (const url of urls) {
      const db = await openDatabase({ url, timeoutMs: 2000 });
      await db.$client.batch(['CREATE TABLE counter (n integer)', 'INSERT INTO counter VALUES (0)'], 'write');
      const outputs = await Promise.all([1, 2, 3, 4].map(() => runWorker(url, 'migrate', folder)));
      expect(outputs).toEqual(['1', '1', '1', '1']);
      expect((await db.$client.execute('SELECT n FROM counter')).rows[0]?.n).toBe(1);
      expect((await db.$client.execute('SELECT * FROM __drizzle_migrations')).rows).toHaveLength(1);
      db.$client.close();
    }
  }, 30_000);

  test('again changes nothing, and a database without tables is not migrated', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 2000 });
    expect(await schemaFit(db.$client)).toBe('too-old');
    await migrateDatabase(db);
    await migrateDatabase(db);
    expect(await schemaFit(db.$client)).toBe('fit');
    db.$client.close();
  });

  test('over tables that stand in the way fails at once instead of trying on', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 2000 });
    await db.$client.execute('CREATE TABLE users (id text)');
    await expect(migrateDatabase(db)).rejects.toThrow();
    expect(await schemaFit(db.$client)).toBe('too-old');
    db.$client.close();
  });
});
