import { afterAll } from 'bun:test';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Database, openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { seedDatabase } from '../../src/seed';

let template: Promise<string> | undefined;

/** A folder of this test file's own, gone when the file is done. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'planning-test-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A database file of this test file's own, migrated and seeded with the reference lists. */
export async function temporaryDatabase(): Promise<{ db: Database; url: string }> {
  template ??= makeTemplate();
  const path = join(temporaryFolder(), 'planning.db');
  copyFileSync(await template, path);
  const url = `file:${path}`;
  const db = await openDatabase({ url, timeoutMs: 2000 });
  afterAll(() => db.$client.close());
  return { db, url };
}

async function makeTemplate(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'planning-template-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'template.db');
  const db = await openDatabase({ url: `file:${path}`, timeoutMs: 2000 });
  await migrateDatabase(db);
  await seedDatabase(db, { withDemo: false, now: new Date(0) });
  await db.$client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
  db.$client.close();
  return path;
}
