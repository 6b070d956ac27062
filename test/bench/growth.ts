import { Database as SqliteDatabase } from 'bun:sqlite';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getTableColumns, sql } from 'drizzle-orm';
import { closeDatabase, openDatabase, toDatabase } from '../../src/db/client';
import { openFileClient } from '../../src/db/file-client';
import { users } from '../../src/db/schema/people';
import { createWalSync } from '../../src/db/wal';
import { createUserStore } from '../../src/modules/users/store';
import { copyTemplate } from '../support/database';
import { temporaryFolder } from '../support/resources';
import {
  alternate,
  authorizationOf,
  type Figure,
  measure,
  median,
  type Request,
  ratio,
  ratioOf,
  type Settings,
} from './load';
import { addLargeCatalog, type Server, startOn, storePerson } from './servers';

/** Saves of one section by the store alone, with 16 and 256 waiting, beside the same upsert of the built-in SQLite. */
export async function compareUnits({ rounds, seconds, report }: Settings): Promise<Figure[]> {
  const measureSaves = async (waiting: number, isSynced: boolean) => {
    const path = join(temporaryFolder(), 'planning.db');
    await copyTemplate(path);
    const openWal = (file: string) => createWalSync(file, isSynced ? undefined : () => Promise.resolve());
    const db = toDatabase(await openFileClient({ path, timeoutMs: 5_000, openWal }));
    const store = createUserStore(db);
    const endsAtMs = performance.now() + seconds * 1000;
    let saves = 0;
    const saving = Array.from({ length: waiting }, async (_, saver) => {
      for (; performance.now() < endsAtMs; saves += 1) {
        const ids = { userId: `s${saver}`, requestId: Bun.randomUUIDv7() };
        await store.saveSection({ ...ids, section: 'lifeInsurance', patch: patchOf(saves), now: new Date() });
      }
    });
    await Promise.all(saving);
    db.$client.close();
    return saves / seconds;
  };
  const upserts = {
    'synced, 16 waiting': () => measureSaves(16, true),
    'synced, 256 waiting': () => measureSaves(256, true),
    'not synced, 16 waiting': () => measureSaves(16, false),
    'not synced, 256 waiting': () => measureSaves(256, false),
    limit: () => measureUpserts(seconds),
  };
  const { limit, ...own } = await alternate(upserts, rounds, (measureOne) => measureOne(), report);
  const beside = 'upserts of bun:sqlite in transactions of 256, without sync';
  return Object.entries(own).map(([name, rates]) => ratio(`saves without HTTP, ${name}`, rates, beside, limit));
}

const patchOf = (count: number) => ({
  livingStatus: 'stayHome',
  policySupport: { customSelections: [`niece ${count}`] },
});

/** The fastest store of the same patches: one table, no audit event, no precondition. */
async function measureUpserts(seconds: number): Promise<number> {
  const db = new SqliteDatabase(join(temporaryFolder(), 'limit.db'));
  db.run('PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE users (id TEXT PRIMARY KEY, answers TEXT)');
  const upsert = db.query<object, [string, string]>(`INSERT INTO users VALUES (?1, json_patch('{}', ?2))
    ON CONFLICT DO UPDATE SET answers = json_patch(answers, ?2) RETURNING *`);
  const saveMany = db.transaction((from: number) => {
    for (let count = from; count < from + 256; count += 1)
      upsert.get(`s${count % 256}`, JSON.stringify(patchOf(count)));
  });
  const endsAtMs = performance.now() + seconds * 1000;
  let saves = 0;
  for (; performance.now() < endsAtMs; saves += 256) saveMany.immediate(saves);
  db.close();
  return saves / seconds;
}

/** Reads and saves of random users among many with complete records, beside the same among few. */
export async function compareGrowth({ rounds, seconds, report }: Settings): Promise<Figure[]> {
  const counts = seconds > 1 ? { few: 20_000, many: 500_000 } : { few: 200, many: 5_000 };
  const tokens = Array.from({ length: counts.few }, (_, index) => index);
  const startWith = async (count: number) => {
    report(`storing ${count} users`);
    const server = await startWithUsers(count);
    const authorizations = join(temporaryFolder(), 'authorizations');
    const step = count / tokens.length;
    const lines = await Promise.all(tokens.map((index) => authorizationOf(`user-${index * step}`)));
    await Bun.write(authorizations, lines.join('\n'));
    return { server, authorizations };
  };
  const subjects = { few: await startWith(counts.few), many: await startWith(counts.many) };
  const read = { path: '/v2/private/user', headers: {} };
  const save = {
    path: '/v2/private/deepDives/lifeInsurance',
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"livingStatus":"stayHome","customSelections":[{"title":"My niece %d"}]}',
  } as const;
  const figures: Figure[] = [];
  for (const [name, request] of Object.entries({ read, save } satisfies Record<string, Request>)) {
    const run = async ({ server, authorizations }: (typeof subjects)['few']) =>
      measure(server, { ...request, authorizations }, 16, seconds);
    for (const subject of Object.values(subjects)) await run(subject);
    const { few, many } = await alternate(subjects, rounds, run, report);
    const title = `${name}, random users of ${counts.many}, 16 connections`;
    const rates = { few: few.map((each) => each.requestsPerSecond), many: many.map((each) => each.requestsPerSecond) };
    const [p99Few, p99Many] = [few, many].map((all) => all.map(({ p99Ms }) => p99Ms));
    figures.push({
      ...ratio(title, rates.many, `of ${counts.few}`, rates.few, 0.7),
      p50Ms: median(many.map(({ p50Ms }) => p50Ms)),
      p99Ms: median(p99Many ?? []),
      cpuUs: median(many.map(({ cpuUs }) => cpuUs)),
    });
    const beside = `its p99, of ${counts.few}: ${median(p99Few ?? []).toFixed(1)} ms`;
    figures.push({ name: title, beside, value: ratioOf(p99Many ?? [], p99Few ?? []), atMost: 2 });
  }
  return figures;
}

/** Starts the service with users that have the answers and the 50 matches of one. */
async function startWithUsers(count: number): Promise<Server> {
  const file = join(temporaryFolder(), 'planning.db');
  await copyTemplate(file);
  await addLargeCatalog(file);
  const server = await startOn(`file:${file}`);
  await storePerson(server, 'matched');
  const db = await openDatabase({ url: `file:${file}`, timeoutMs: 60_000 });
  const { id: _, ...copied } = getTableColumns(users);
  const names = Object.values(copied).map(({ name }) => name);
  for (let from = 0; from < count; from += 5_000) {
    // The driver binds numbers as REAL, which would be `user-0.0`.
    await db.run(sql`WITH RECURSIVE numbers (n) AS (SELECT ${sql.raw(`${from}`)} UNION ALL
        SELECT n + 1 FROM numbers WHERE n + 1 < ${Math.min(count, from + 5_000)})
      INSERT INTO users (id, ${sql.raw(names.join())}) SELECT 'user-' || n, ${sql.raw(names.join())}
      FROM numbers, users WHERE id = 'matched'`);
  }
  await closeDatabase(db);
  return server;
}

/** The resident memory after a million requests of four kinds beside that after 50,000. */
export async function compareMemory({ seconds, report }: Settings): Promise<Figure[]> {
  const path = join(temporaryFolder(), 'planning.db');
  await copyTemplate(path);
  const server = await startOn(`file:${path}`);
  await storePerson(server, 'answered');
  const headers = { authorization: await authorizationOf('answered'), 'content-type': 'application/json' };
  const body = '{"livingStatus":"stayHome","customSelections":[{"title":"My niece %d"}]}';
  const requests: readonly Request[] = [
    { path: '/v2/private/user', headers },
    { path: '/v2/private/healthAndCare/', headers },
    { path: '/v2/private/deepDives/lifeInsurance', method: 'POST', headers, body },
  ];
  const counts = seconds > 1 ? { few: 50_000, many: 1_000_000 } : { few: 1_000, many: 5_000 };
  let sent = 0;
  const rssAfter = async (count: number) => {
    while (sent < count) {
      report(`memory, ${sent} of ${counts.many} requests`);
      for (const request of requests) {
        const { requestsPerSecond } = await measure(server, request, 16, seconds);
        sent += Math.round(requestsPerSecond * seconds);
      }
    }
    const [, rssKb] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8')) ?? [];
    return Number(rssKb) / 1024;
  };
  const [few, many] = [await rssAfter(counts.few), await rssAfter(counts.many)];
  const beside = `after ${counts.few}: ${few.toFixed(0)} MB`;
  return [{ name: `RSS after ${counts.many} requests`, beside, value: many / few, atMost: 1.1 }];
}
