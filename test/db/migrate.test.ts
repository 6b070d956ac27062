import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import journal from '../../drizzle/meta/_journal.json';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { referenceOptions } from '../../src/db/schema/lists';
import { schemaState } from '../../src/db/schema-check';
import { programOf } from '../support/artifacts';
import { earlierMigrations, journalFolder, temporaryDatabase } from '../support/database';
import { runWorker } from '../support/processes';
import { amount, temporaryFolder } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const cli = await programOf('src/cli/main');
const seededOptions = await (await temporaryDatabase()).db.$count(referenceOptions);

async function migrateAtOnce(databaseUrl: string, count: number) {
  const cwd = temporaryFolder();
  const starters = Array.from({ length: count }, () =>
    Bun.spawn(['bun', cli, 'migrate'], {
      cwd,
      env: { PATH: process.env.PATH, NODE_ENV: 'development', DATABASE_URL: databaseUrl },
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
  expect(await db.$count(referenceOptions)).toBe(seededOptions);
  db.$client.close();
}

/** A release may start this many instances at once. */
const starters = amount({ long: 10, short: 4 });

describe('migrate', () => {
  test.each([
    { place: 'a file', open: async () => `file:${join(temporaryFolder(), 'planning.db')}` },
    ...(hasSqld ? [{ place: 'a libSQL server', open: async () => (await startSqld()).url }] : []),
  ])(
    'applies each migration to $place once when many processes run it, with and without rows',
    async ({ open }) => {
      const empty = await open();
      expect(await migrateAtOnce(empty, starters)).toEqual({ codes: Array(starters).fill(0), errors: [] });
      await appliedOnce(empty);

      const filled = await open();
      const db = await openDatabase({ url: filled, timeoutMs: 10_000 });
      await migrateDatabase(db, await earlierMigrations(2));
      const people = Array.from({ length: 500 }, (_, id) => `('person-${id}', 1, ${id}, ${id})`).join();
      await db.$client.execute(`INSERT INTO users (id, version, created_at, updated_at) VALUES ${people}`);
      expect(await migrateAtOnce(filled, starters)).toEqual({ codes: Array(starters).fill(0), errors: [] });
      await appliedOnce(filled);
      const { rows } = await db.$client.execute('SELECT count(*), sum(created_at) FROM users WHERE version = 1');
      expect([rows[0]?.[0], rows[0]?.[1]]).toEqual([500, (499 * 500) / 2]);
      db.$client.close();
    },
    120_000,
  );

  test('changes data once when four processes run it, on a file and on a server', async () => {
    const statements = [
      // Identifies a database of this service.
      'CREATE TABLE IF NOT EXISTS reference_lists (id)',
      'CREATE TABLE IF NOT EXISTS counter (n integer)',
      'INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter)',
      'UPDATE counter SET n = n + 1',
    ];
    const folder = await journalFolder(statements.join(';--> statement-breakpoint '));
    const urls = [`file:${join(temporaryFolder(), 'planning.db')}`, ...(hasSqld ? [(await startSqld()).url] : [])];
    for (const url of urls) {
      const db = await openDatabase({ url, timeoutMs: 2000 });
      const outputs = await Promise.all([1, 2, 3, 4].map(() => runWorker(url, 'migrate', folder)));
      expect(outputs).toEqual(['1', '1', '1', '1']);
      expect((await db.$client.execute('SELECT n FROM counter')).rows[0]?.n).toBe(1);
      expect((await db.$client.execute('SELECT * FROM __drizzle_migrations')).rows).toHaveLength(1);
      db.$client.close();
    }
  }, 30_000);

  test('changes nothing when run again, and leaves an empty database empty until then', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 2000 });
    expect(await schemaState(db.$client)).toBe('empty');
    await migrateDatabase(db);
    await migrateDatabase(db);
    expect(await schemaState(db.$client)).toBe('compatible');
    db.$client.close();
  });

  test('fails without a retry when a table of another schema exists', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 2000 });
    await db.$client.execute('CREATE TABLE users (id text)');
    await expect(migrateDatabase(db)).rejects.toThrow();
    expect(await schemaState(db.$client)).toBe('foreign');
    db.$client.close();
  });
});
