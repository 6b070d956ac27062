import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { asc, eq } from 'drizzle-orm';
import fc from 'fast-check';
import journal from '../../drizzle/meta/_journal.json';
import { withExclusiveLock } from '../../src/db/backup';
import { closeDatabase, type Database, openDatabase, openServiceDatabase, toDatabase } from '../../src/db/client';
import { findDatabaseError } from '../../src/db/errors';
import { migrateDatabase } from '../../src/db/migrate';
import { auditEvents } from '../../src/db/schema/people';
import type { SqlStatement } from '../../src/db/sql-client';
import { seedDatabase } from '../../src/seed';
import { atEnd, temporaryFolder } from './resources';

let template: Promise<string> | undefined;

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

/** The query plan of the first query or change that `work` sends, one line for each step. */
export async function explainFirst({ $client }: Database, work: (watched: Database) => Promise<unknown>) {
  const sent: SqlStatement[] = [];
  const watched = toDatabase({
    ...$client,
    read(sql, args) {
      sent.push({ sql, args });
      return $client.read(sql, args);
    },
    write(statements) {
      sent.push(...statements);
      return $client.write(statements);
    },
  });
  await work(watched);
  const [statement] = sent;
  if (statement === undefined) throw new Error('Nothing was sent');
  const { rows } = await $client.exec(`EXPLAIN QUERY PLAN ${statement.sql}`, statement.args);
  return rows.map(({ detail }) => String(detail));
}

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

/** A row in every table that the ninth migration rebuilds or that refers to one of them, by the schema before it. */
const earlierRows = `
  INSERT INTO staff (id, role, first_name, last_name, created_at, updated_at, version) VALUES
    ('boss', 'salesManager', 'Grace', 'Hopper', 0, 0, 1);
  UPDATE users SET counselor_id = 'boss', request_id = 'request-1', request_version = version, requested_at = 5;
  INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state, attempt, attempt_started_at,
    created_at) VALUES ('open', 'old', 'life', 'hash', 0, '{}', 'unknown', 2, 7, 8);
  INSERT INTO application_attempts VALUES ('old-application', 1, 1, 2, 'submitted', '{}'), ('open', 1, 3, 4, 'unavailable', '');
  INSERT INTO idempotency_keys VALUES ('old', '/v2/private/life/totalCoverage', 'key', 'hash', 9);
  INSERT INTO cemeteries VALUES ('0123456789abcdef01234567', 'c-1', 'Rest', 'rest', '', 'Salem', 'OR', '', 'operator', 1, 1, 0);
  INSERT INTO activities VALUES ('a-1', 'boss', 'boss', 'monthlyPlan', 100, 1, 1, 1, 1);
  INSERT INTO leases VALUES ('reconciler', 'me', 1);
  INSERT INTO audit_events (occurred_at, user_id, actor, action) VALUES (1, 'old', 'person', 'read');`;

/** Inserts the users and the application of the oldest builds. */
export async function addOldestRows(db: Database): Promise<void> {
  for (const name of ['users-0000', 'applications-0002']) {
    await runScript(db, await Bun.file(join(import.meta.dirname, `../fixtures/${name}.sql`)).text());
  }
}

/** Inserts rows into a database with the first eight migrations. */
export async function addEarlierRows(db: Database): Promise<void> {
  await addOldestRows(db);
  await runScript(db, earlierRows);
}

/** @throws Error unless each migration of this build is recorded once, in order */
export async function expectMigratedOnce({ $client }: Database): Promise<void> {
  const { rows } = await $client.execute('SELECT created_at FROM __drizzle_migrations ORDER BY created_at');
  const applied = rows.map(({ created_at }) => Number(created_at));
  const expected = journal.entries.map(({ when }) => when);
  if (!Bun.deepEquals(applied, expected)) throw new Error(`Applied are ${applied}, and not ${expected}`);
}

/**
 * Sends groups of writes at once, some of which violate a constraint or are no SQL, and compares the outcome of each and the table with a
 * model: a write fails alone, and the others are stored in their order.
 */
export async function expectConcurrentWritesMatchModel({ $client }: Database, numRuns = 40): Promise<void> {
  await $client.execute('CREATE TABLE model (id TEXT PRIMARY KEY, v INTEGER CHECK (v < 1000))');
  const upsert = 'INSERT INTO model VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING id, v';
  const toStatement = ({ id, v }: { id: string; v: number }) =>
    v < 1050 ? { sql: upsert, args: [id, v] } : 'INSERT INTO model SELEC';
  const write = fc.record({ id: fc.constantFrom('a', 'b', 'c'), v: fc.integer({ min: 0, max: 1100 }) });
  const batches = fc.array(fc.array(write, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 64 });
  const check = fc.asyncProperty(batches, async (groups) => {
    await $client.execute('DELETE FROM model');
    const stored = new Map<string, number>();
    const expected = groups.map((writes) => {
      if (writes.some(({ v }) => v >= 1000)) return 'rejected';
      for (const { id, v } of writes) stored.set(id, v);
      return writes;
    });
    const send = async (writes: readonly { id: string; v: number }[]) => {
      try {
        const results = await $client.batch(writes.map(toStatement), 'write');
        return results.map(({ rows }) => ({ ...rows[0] }));
      } catch (error) {
        const { code = '', isUnavailable } = findDatabaseError(error) ?? {};
        return isUnavailable === false && /CONSTRAINT|ERROR/.test(code) ? 'rejected' : error;
      }
    };
    const outcomes = await Promise.all(groups.map(send));
    const { rows } = await $client.execute('SELECT id, v FROM model');
    const found = new Map(rows.map(({ id, v }) => [String(id), Number(v)]));
    return Bun.deepEquals([outcomes, found], [expected, stored]);
  });
  await fc.assert(check, { numRuns });
}

/** Two keys with a common prefix that is longer than a 32-byte key. */
export const keys = {
  right: 'correct horse battery staple, and then some: the right one',
  wrong: 'correct horse battery staple, and then some: the wrong one',
} as const;

/** The files in a folder, at any depth, that contain one of the texts. */
export function filesWith(folder: string, texts: readonly string[]): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.isFile())
    .filter((name) => holdsAny(join(folder, name), texts));
}

/** The open files of a process, also deleted ones, that contain one of the texts. */
export function openFilesWith(processId: number, texts: readonly string[]): string[] {
  const folder = `/proc/${processId}/fd`;
  return (
    readdirSync(folder)
      .map((name) => join(folder, name))
      .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile() && holdsAny(path, texts))
      // The process may have closed a file meanwhile.
      .flatMap((path) => (existsSync(path) ? [readlinkSync(path)] : []))
  );
}

function holdsAny(path: string, texts: readonly string[]): boolean {
  const bytes = readIfThere(path);
  return bytes !== undefined && texts.some((text) => bytes.includes(text));
}

/** Returns undefined for a file that was removed meanwhile, such as a journal. */
function readIfThere(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

/** The audit events of a user, oldest first. */
export function auditEventsOf({ db }: { readonly db: Database }, userId: string) {
  return db.select().from(auditEvents).where(eq(auditEvents.userId, userId)).orderBy(asc(auditEvents.id));
}

/** The audit events of a user as lines: `action section actor request`. */
export async function auditLinesOf(testApp: { readonly db: Database }, userId: string): Promise<string[]> {
  const events = await auditEventsOf(testApp, userId);
  return events.map(
    ({ action, section, actor, requestId }) => `${action} ${section ?? '-'} ${actor} ${requestId ?? '-'}`,
  );
}

/** Inserts events of `ada` and `bob` alternately; `instant` is an SQL expression over `value`, which counts from 1. */
export async function fillEvents({ $client }: Database, rows: number, instant: string): Promise<void> {
  const batchSize = 10_000;
  for (let from = 1; from <= rows; from += batchSize) {
    const to = Math.min(rows, from + batchSize - 1);
    await $client.execute(`WITH RECURSIVE numbers(value) AS (SELECT ${from} UNION ALL SELECT value + 1 FROM numbers
        WHERE value < ${to})
      INSERT INTO audit_events (occurred_at, user_id, actor, action, request_id)
      SELECT ${instant}, iif(value % 2, 'bob', 'ada'), 'person', 'saved', 'request-' || value FROM numbers`);
  }
}
