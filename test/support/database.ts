import { copyFileSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { withExclusiveLock } from '../../src/db/backup';
import { closeDatabase, type Database, openDatabase, openServiceDatabase, toDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { seedDatabase } from '../../src/seed';
import { atEnd } from './cleanup';

let template: Promise<string> | undefined;

/** A new folder that is removed after the tests. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'planning-test-'));
  atEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A new database file, migrated and seeded with the reference lists. */
export async function temporaryDatabase(): Promise<{ db: Database; url: string }> {
  const path = join(temporaryFolder(), 'planning.db');
  await copyTemplate(path);
  const url = `file:${path}`;
  const db = await openServiceDatabase({ url, timeoutMs: 2000 });
  atEnd(() => db.$client.close());
  return { db, url };
}

/** Creates a migrated and seeded database file, encrypted if a key is given. */
export async function copyTemplate(path: string, encryptionKey?: string): Promise<void> {
  template ??= makeTemplate();
  mkdirSync(dirname(path), { recursive: true });
  copyFileSync(await template, path);
  if (encryptionKey === undefined) return;
  const encrypted = `${path}.encrypted`;
  await withExclusiveLock(path, undefined, (copyTo) => copyTo(encrypted, encryptionKey));
  renameSync(encrypted, path);
}

async function makeTemplate(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'planning-template-'));
  atEnd(() => {
    template = undefined;
    rmSync(folder, { recursive: true, force: true });
  });
  const path = join(folder, 'template.db');
  const db = await openDatabase({ url: `file:${path}`, timeoutMs: 20_000 });
  await migrateDatabase(db);
  await seedDatabase(db, { withDemo: false, now: new Date(0) });
  await closeDatabase(db);
  return path;
}

/** Returns the same database with a function that runs before each query and each change of rows. */
export function beforeStatements({ $client }: Database, before: (sql: string) => unknown): Database {
  return toDatabase({
    ...$client,
    async read(sql, args) {
      await before(sql);
      return $client.read(sql, args);
    },
    async write(statements) {
      for (const { sql } of statements) await before(sql);
      return $client.write(statements);
    },
  });
}

/** Runs statements that end with a semicolon at the end of a line, in one transaction. */
export async function runScript({ $client }: Database, script: string): Promise<void> {
  const statements = script.split(/;\s*$/m).filter((sql) => sql.trim() !== '');
  await $client.write(statements.map((sql) => ({ sql })));
}
