import { cpSync } from 'node:fs';
import { join } from 'node:path';
import journal from '../../drizzle/meta/_journal.json';
import { temporaryFolder } from './database';

/** A Drizzle migrations folder with one migration. */
export async function journalFolder(sql: string): Promise<string> {
  const folder = temporaryFolder();
  const entries = [{ idx: 0, version: '6', when: 1, tag: '0000_only', breakpoints: true }];
  await Bun.write(join(folder, 'meta/_journal.json'), JSON.stringify({ version: '7', dialect: 'sqlite', entries }));
  await Bun.write(join(folder, '0000_only.sql'), sql);
  return folder;
}

/** A migrations folder with the first `count` migrations of this project. */
export async function earlierMigrations(count: number): Promise<string> {
  const folder = temporaryFolder();
  cpSync(join(import.meta.dirname, '../../drizzle'), folder, { recursive: true });
  const entries = journal.entries.slice(0, count);
  await Bun.write(join(folder, 'meta/_journal.json'), JSON.stringify({ ...journal, entries }));
  return folder;
}
