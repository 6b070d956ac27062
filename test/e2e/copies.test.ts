import { describe, expect, test } from 'bun:test';
import { copyFileSync, existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { openReplicaFile } from '../../src/db/replica';
import type { DatabasePlace } from '../../src/db/row-store';
import { createSalesStore } from '../../src/modules/sales/store';
import { sumNextActivities } from '../../src/modules/sales/store-sums';
import { activity, counselor, createTestApp, manager } from '../support/app';
import { createCommandLine } from '../support/command';
import { copyTemplate, filesWith, keys } from '../support/database';
import { startWorker } from '../support/processes';
import { atEnd, cases, temporaryFolder, until } from '../support/resources';
import { hasSqld, newServerDatabase, startPrimary, startSqld } from '../support/servers';

const kinds = ['file', 'encrypted file', 'libSQL server'] as const;
type Kind = (typeof kinds)[number];
const done = { exitCode: 0, stderr: '' };
const notEmpty = { exitCode: 1, stderr: 'The target has tables already: name an empty database.\n' };
const saveOf = (careCosts: number) => ({ as: 'ada', body: { careCosts } });
const lifetimeCare = '/v2/private/ltc/lifetimeCare';
const persons = 3_000;
const pathOf = ({ url }: DatabasePlace) => url.slice('file:'.length);

/** A place for a database that does not exist yet. */
async function emptyPlace(kind: Kind): Promise<DatabasePlace> {
  if (kind === 'libSQL server') return { url: await newServerDatabase() };
  const url = `file:${join(temporaryFolder(), 'planning.db')}`;
  return kind === 'file' ? { url } : { url, encryptionKey: keys.right };
}

/** A migrated and seeded database. */
async function filledPlace(kind: Kind): Promise<DatabasePlace> {
  if (kind === 'libSQL server') return startPrimary();
  const place = await emptyPlace(kind);
  await copyTemplate(pathOf(place), place.encryptionKey);
  return place;
}

const settingsOf = ({ url, encryptionKey }: DatabasePlace) => ({
  DATABASE_URL: url,
  SEED_DEMO: 'false',
  ...(encryptionKey !== undefined && { DATABASE_ENCRYPTION_KEY: encryptionKey }),
});

/** Runs commands on a database, with the settings of a target of `copy`. */
async function commandsOn(place: DatabasePlace, { encryptionKey }: Partial<DatabasePlace> = {}) {
  const target = encryptionKey === undefined ? {} : { TARGET_DATABASE_ENCRYPTION_KEY: encryptionKey };
  return (await createCommandLine({ ...settingsOf(place), ...target }, { isEmpty: true })).planning;
}

type Rows = Record<string, unknown>[];

/** Works with a database, and closes it. */
async function using<Result>(place: DatabasePlace, work: (run: (sql: string) => Promise<Rows>) => Promise<Result>) {
  const db = await openDatabase({ ...place, timeoutMs: 5_000 });
  try {
    return await work(async (sql) => (await db.$client.execute(sql)).rows.map((row) => ({ ...row })));
  } finally {
    db.$client.close();
  }
}

const rowsOf = (place: DatabasePlace, sql: string) => using(place, (run) => run(sql));

type Content = Record<string, Rows>;

/** Every row of every table, and the schema. Excludes the database id and the backup time, which follows the copy. */
function contentOf(place: DatabasePlace): Promise<Content> {
  return using(place, async (run) => {
    const schema = await run("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'libsql_%' ORDER BY name");
    const content: Content = {
      schema: schema.map((row) => ({ ...row, sql: String(row.sql).replaceAll(/\s+/g, ' ') })),
    };
    for (const { name } of schema.filter(({ type }) => type === 'table')) {
      const rows: Rows = [];
      // The response of a server is limited to 10 MB.
      for (let page: Rows = [{}]; page.length > 0; rows.push(...page)) {
        page = await run(`SELECT * FROM "${name}" LIMIT 2000 OFFSET ${rows.length}`);
      }
      content[String(name)] = rows;
    }
    for (const row of content.schema_compatibility ?? []) row.database_id = undefined;
    content.completed_tasks = (content.completed_tasks ?? []).filter(({ task }) => task !== 'backup');
    return content;
  });
}

/**
 * Runs `copy` while a process saves to the source, and checks that the copy is one consistent state of the source with
 * every save that was acknowledged before: its audit log is a prefix, each record matches the last of its events, and
 * tables without saves are equal.
 */
async function expectSnapshot(source: DatabasePlace, copy: () => Promise<DatabasePlace>): Promise<Content> {
  const saver = `saver-${crypto.randomUUID().slice(0, 8)}`;
  const worker = startWorker(source.url, 'requests', saver, settingsOf(source));
  await worker.until(30);
  const before = worker.lines();
  const target = await copy();
  await worker.until(before.length + 1);
  await worker.stop();
  const [copied, all] = [await contentOf(target), await contentOf(source)];
  const events = copied.audit_events ?? [];
  const last = Number(events.at(-1)?.id);
  expect(events).toEqual((all.audit_events ?? []).filter(({ id }) => Number(id) <= last));
  const users = copied.users ?? [];
  expect(users.length).toBeGreaterThan(0);
  for (const { id, version, request_id, ltc_lifetime_care } of users) {
    const own = events.filter(({ user_id }) => user_id === id);
    expect([own.length, own.at(-1)?.request_id]).toEqual([Number(version), request_id]);
    expect(JSON.parse(String(ltc_lifetime_care)).careCosts).toBe(Number(version));
  }
  const requests = new Set(events.map(({ request_id }) => request_id));
  expect(before.filter((id) => !requests.has(id))).toEqual([]);
  const changing = ['users', 'audit_events', 'leases'];
  const still = (content: Content) =>
    Object.fromEntries(Object.entries(content).filter(([name]) => !changing.includes(name)));
  expect(still(copied)).toEqual(still(all));
  return copied;
}

describe.skipIf(!hasSqld)('planning copy', () => {
  const pairs = kinds.flatMap((from) => kinds.map((to) => [from, to] as const));
  const first = pairs.filter((pair) => ['file,libSQL server', 'libSQL server,encrypted file'].includes(pair.join()));
  test.each(cases([...first, ...pairs.filter((pair) => !first.includes(pair))], first.length))(
    'copies one state of a %s under load to a %s',
    async (from, to) => {
      const [source, target] = [await filledPlace(from), await emptyPlace(to)];
      const planning = await commandsOn(source, target);
      let printed = '';
      const copied = await expectSnapshot(source, async () => {
        const { stdout, ...ended } = await planning('copy', '--to', target.url, '--json');
        expect(ended).toEqual(done);
        printed = stdout;
        return target;
      });
      const users = { table: 'users', rows: copied.users?.length, checksum: expect.any(String) };
      expect(JSON.parse(printed)).toMatchObject({ tables: expect.arrayContaining([users]) });
    },
  );

  test('moves a service from a file to a server, with its saves, its audit log and the sums of its sales', async () => {
    const [source, target] = [await filledPlace('file'), await emptyPlace('libSQL server')];
    const before = await openServiceDatabase({ ...source, timeoutMs: 5_000 });
    const saved = await (await createTestApp({ db: before })).call('POST', lifetimeCare, saveOf(4321));
    expect(saved.status).toBe(200);
    before.$client.close();
    expect(await (await commandsOn(source))('copy', '--to', target.url)).toMatchObject(done);

    const db = await openServiceDatabase({ ...target, timeoutMs: 5_000 });
    atEnd(() => db.$client.close());
    const { call, now } = await createTestApp({ db });
    expect((await call('GET', '/v2/private/user', { as: 'ada' })).text).toContain('"careCosts":4321');
    expect((await call('POST', lifetimeCare, saveOf(1))).status).toBe(200);
    const { stdout } = await (await commandsOn(target))('audit', 'ada', '--json');
    expect(stdout.match(/"action": ?"saved"/g)).toHaveLength(2);

    const store = createSalesStore(db);
    await store.upsertStaff([manager('boss'), counselor('c1', 'boss')], now);
    const sold = Array.from({ length: 50 }, (_, index) =>
      activity('c1', Date.UTC(2026, 2, 1) + index * 7_000_000, { amountCents: index }),
    );
    await store.upsertActivities(sold.slice(0, 40), now);
    const sums = () => rowsOf(target, 'SELECT * FROM activity_sums ORDER BY 1, 2, 3, 4');
    // The state after the migration of a database with activities, whose sums are completed in steps.
    const forget = ['DELETE FROM activity_sums', "UPDATE activity_sums_progress SET summed_up_to = ''"];
    await db.$client.batch(forget);
    await sumNextActivities(db, 15);
    await store.upsertActivities(sold.slice(40), now);
    while (!(await sumNextActivities(db, 15)));
    const maintained = await sums();
    await db.$client.batch(forget);
    while (!(await sumNextActivities(db)));
    expect(await sums()).toEqual(maintained);
    const total =
      'SELECT sum(activities) AS activities, sum(amount_cents) AS cents FROM activity_sums GROUP BY span_ms';
    const all = { activities: 50, cents: 1225 };
    expect(await rowsOf(target, total)).toEqual([all, all]);
  });

  /** Kills a copy of a large file with SIGKILL once a part of the users is in the target. */
  async function killedCopy(kind: Kind, isBegun: (target: DatabasePlace) => boolean | Promise<boolean>) {
    const [source, target] = [await filledPlace('file'), await emptyPlace(kind)];
    await rowsOf(
      source,
      `WITH RECURSIVE person(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM person WHERE n < ${persons})
        INSERT INTO users (id, profile, version, created_at, updated_at)
        SELECT 'person-' || n, json_object('firstName', hex(randomblob(500))), 1, 0, 0 FROM person`,
    );
    const key = target.encryptionKey === undefined ? {} : { TARGET_DATABASE_ENCRYPTION_KEY: target.encryptionKey };
    const { start } = await createCommandLine({ ...settingsOf(source), ...key }, { isEmpty: true, isProcess: true });
    const killed = start('copy', '--to', target.url);
    await until(() => killed.exitCode !== null || isBegun(target));
    killed.kill('SIGKILL');
    await killed.exited;
    return { source, target, copy: (await commandsOn(source, target)).bind(undefined, 'copy', '--to', target.url) };
  }

  test('continues on a server after SIGKILL, and copies a changed table again', async () => {
    const count = async (place: DatabasePlace) =>
      Number((await rowsOf(place, 'SELECT count(*) AS count FROM users').catch(() => []))[0]?.count ?? 0);
    const { source, target, copy } = await killedCopy('libSQL server', async (place) => (await count(place)) > 0);
    expect(await count(target)).toBeWithin(1, persons);
    const onTarget = await commandsOn(target);
    const unfinished = expect.stringContaining('is an unfinished copy. Run `');
    expect(await onTarget('migrate')).toMatchObject({ exitCode: 1, stderr: unfinished });
    expect(await onTarget('user', 'show', 'person-1')).toMatchObject({ exitCode: 1 });
    const other = await filledPlace('file');
    await rowsOf(other, "UPDATE schema_compatibility SET database_id = 'other'");
    expect(await (await commandsOn(other))('copy', '--to', target.url)).toMatchObject({
      exitCode: 1,
      stderr: 'The target is an unfinished copy of another database: name an empty one.\n',
    });
    await rowsOf(source, "UPDATE users SET version = 2 WHERE id = 'person-1'");
    await rowsOf(source, "DELETE FROM users WHERE id = 'person-2'");
    expect(await copy()).toMatchObject(done);
    expect(await contentOf(target)).toEqual(await contentOf(source));
    expect(await onTarget('migrate')).toMatchObject({ exitCode: 0 });
    expect(await copy()).toMatchObject(notEmpty);
  });

  test('continues a file after SIGKILL, under another name until it is complete', async () => {
    const { source, target, copy } = await killedCopy('encrypted file', (place) => {
      const { size = 0 } = statSync(`${pathOf(place)}.unfinished-copy`, { throwIfNoEntry: false }) ?? {};
      return size > 1_000_000;
    });
    const path = pathOf(target);
    expect(existsSync(path)).toBeFalse();
    expect(await copy()).toMatchObject(done);
    expect(await contentOf(target)).toEqual(await contentOf(source));
    expect(readdirSync(dirname(path)).filter((name) => name.includes('unfinished'))).toEqual([]);
    expect(filesWith(dirname(path), ['person-1'])).toEqual([]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });
});

describe('a backup', () => {
  const idOf = async (place: DatabasePlace) =>
    (await rowsOf(place, 'SELECT database_id AS id FROM schema_compatibility'))[0]?.id;

  test('of a file under load has all acknowledged saves and one state', async () => {
    const source = await filledPlace('file');
    const backup = join(temporaryFolder(), 'backup.db');
    await expectSnapshot(source, async () => {
      expect(await (await commandsOn(source))('backup', backup)).toMatchObject(done);
      return { url: `file:${backup}` };
    });
  });

  test.skipIf(!hasSqld)(
    'of a server under load restores by command, as a file in a data folder, and from a dump',
    async () => {
      const source = await filledPlace('libSQL server');
      const folder = temporaryFolder();
      const [backup, opened, dump] = ['backup.db', 'opened.db', 'dump.sql'].map((name) => join(folder, name));
      if (backup === undefined || opened === undefined) throw new Error('There are three names');
      const content = await expectSnapshot(source, async () => {
        expect(await (await commandsOn(source))('backup', backup)).toMatchObject(done);
        expect(readdirSync(folder)).toEqual(['backup.db']);
        expect(statSync(backup).mode & 0o777).toBe(0o600);
        copyFileSync(backup, opened);
        return { url: `file:${opened}` };
      });
      expect(await contentOf(await startSqld({ databaseFile: backup }))).toEqual(content);
      const empty = await emptyPlace('libSQL server');
      const planning = await commandsOn(empty);
      expect(await planning('restore', backup, '--yes')).toMatchObject(done);
      expect(await contentOf(empty)).toEqual(content);
      expect(await planning('restore', backup, '--yes')).toMatchObject(notEmpty);
      const ids = await Promise.all([source, { url: `file:${opened}` }, empty].map(idOf));
      expect(new Set(ids).size).toBe(3);

      const fresh = await startSqld({ options: ['--enable-namespaces'] });
      await expectSnapshot(source, async () => {
        await Bun.write(String(dump), await fetch(`${source.url}/dump`));
        const create = await fetch(`${fresh.adminUrl}/v1/namespaces/planning/create`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ dump_url: `file://${dump}` }),
        });
        expect([create.status, await create.text()]).toEqual([200, '']);
        return { url: fresh.url.replace('127.0.0.1', 'planning.localhost') };
      });
    },
  );
});

test.skipIf(!hasSqld)(
  'an erasure leaves bytes in the files of a libSQL server, but not in a copy on a new server or its replica',
  async () => {
    const [before, after] = [await startPrimary(), await startSqld()];
    const planning = await commandsOn(before);
    await rowsOf(
      before,
      `INSERT INTO users (id, profile, version, created_at, updated_at)
        VALUES ('canary-id', '{"firstName":"canary-name"}', 1, 0, 0), ('ada', '{"firstName":"Ada"}', 1, 0, 0)`,
    );
    expect(await planning('user', 'erase', 'canary-id', '--yes')).toMatchObject({ exitCode: 0 });
    const canaries = ['canary-id', 'canary-name'];
    expect(filesWith(before.folder, canaries)).not.toEqual([]);
    expect(await planning('copy', '--to', after.url)).toMatchObject(done);
    const folder = temporaryFolder();
    const replica = openReplicaFile({
      path: join(folder, 'replica.db'),
      primaryUrl: after.url,
      intervalMs: 50,
      environment: process.env,
      isPrimaryReachable: async () => true,
      onSyncChange: () => undefined,
    });
    await until(async () => {
      const found = await replica.read("SELECT 1 FROM users WHERE id = 'ada'").catch(() => undefined);
      return found?.rows.length === 1;
    });
    replica.close();
    for (const files of [after.folder, folder]) {
      expect(filesWith(files, ['Ada'])).not.toEqual([]);
      expect(filesWith(files, canaries)).toEqual([]);
    }
  },
);
