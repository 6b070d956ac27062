import { Database as SqliteDatabase } from 'bun:sqlite';
import { afterEach, describe, expect, test } from 'bun:test';
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { openDatabase, toDatabase } from '../../src/db/client';
import { openReplicaFile } from '../../src/db/replica';
import { filesWith, keys } from '../support/database';
import { amount, atEnd, cleanUp, temporaryFolder, until } from '../support/resources';
import { hasSqld, type Sqld, startSqld } from '../support/servers';

async function openReplica(
  { url }: Pick<Sqld, 'url'>,
  path = join(temporaryFolder(), 'deep/replica.db'),
  encryptionKey?: string,
) {
  const reports: string[] = [];
  const opened = openReplicaFile({
    path,
    primaryUrl: url,
    encryptionKey,
    intervalMs: 50,
    environment: process.env,
    isPrimaryReachable: () =>
      fetch(url, { signal: AbortSignal.timeout(500) }).then(
        () => true,
        () => false,
      ),
    onSyncChange: ({ kind, reason }) => reports.push(reason ?? kind),
  });
  const replica = toDatabase(opened).$client;
  atEnd(() => replica.close());
  return { path, replica, reports };
}

async function openPrimary() {
  const sqld = await startSqld();
  const db = await openDatabase({ url: sqld.url, timeoutMs: 5_000 });
  atEnd(() => db.$client.close());
  await db.$client.batch(
    [
      'CREATE TABLE a (n integer)',
      'CREATE TABLE b (n integer)',
      'INSERT INTO a VALUES (0)',
      'INSERT INTO b VALUES (0)',
    ],
    'write',
  );
  const raise = () => db.$client.batch(['UPDATE a SET n = n + 1', 'UPDATE b SET n = n + 1'], 'write');
  return { sqld, raise };
}

const sums = 'SELECT (SELECT n FROM a) AS a, (SELECT n FROM b) AS b';

describe.skipIf(!hasSqld)('an embedded replica', () => {
  // A replica polls its primary many times a second.
  afterEach(cleanUp);

  test('returns neither torn nor older rows while it follows the primary and while the primary restarts', async () => {
    const { sqld, raise } = await openPrimary();
    const { replica, reports } = await openReplica(sqld);
    await until(() => reports.includes('synced'));
    let reads = 0;
    let last = 0;
    const readFor = async (durationMs: number) => {
      for (const deadlineMs = performance.now() + durationMs; performance.now() < deadlineMs; ) {
        const { rows } = await replica.execute(sums);
        const [a, b] = [Number(rows[0]?.a), Number(rows[0]?.b)];
        if (a !== b || a < last) throw new Error(`${a} beside ${b} after ${last}`);
        last = a;
        reads += 1;
        if (reads % 20 === 0) await Bun.sleep(0);
      }
    };
    let isDone = false;
    let raised = 0;
    const raising = (async () => {
      while (!isDone) {
        await raise().then(
          () => {
            raised += 1;
          },
          () => Bun.sleep(10),
        );
      }
    })();
    await readFor(amount({ long: 10_000, short: 700 }));
    await sqld.kill();
    await readFor(200);
    await sqld.start();
    await readFor(amount({ long: 10_000, short: 700 }));
    isDone = true;
    await raising;
    await until(async () => Number((await replica.execute(sums)).rows[0]?.a) >= raised);
    expect(last).toBeGreaterThan(0);
    expect(reads).toBeGreaterThan(1_000);
  }, 60_000);

  test('refuses writes, and reports not ready until the first sync is complete', async () => {
    const { sqld } = await openPrimary();
    await sqld.kill();
    const { path, replica, reports } = await openReplica(sqld);
    for (const sql of ['INSERT INTO a VALUES (1)', 'PRAGMA query_only = OFF', 'DELETE FROM a']) {
      await expect(replica.execute(sql)).rejects.toThrow('read-only');
    }
    await expect(replica.batch(['SELECT 1'])).rejects.toThrow('read-only');
    await until(() => reports.includes('primary-unreachable'));
    await expect(replica.execute('SELECT 1')).rejects.toMatchObject({ code: 'REPLICA_NOT_READY' });
    // Opening the file now would create one that is not a replica.
    expect(existsSync(`${path}-synced`)).toBeFalse();
    await sqld.start();
    await until(() => reports.includes('synced'));
    expect((await replica.execute(sums)).rows[0]?.a).toBe(0);
  }, 30_000);

  test('shows no plain text in any file when encrypted, and rebuilds a plain replica', async () => {
    const { sqld, raise } = await openPrimary();
    const primary = await openDatabase({ url: sqld.url, timeoutMs: 5_000 });
    atEnd(() => primary.$client.close());
    await primary.$client.execute('CREATE TABLE c (t text)');
    const count = 200;
    for (let n = 0; n < count; n += 50) {
      const insert = { sql: 'INSERT INTO c VALUES (?)', args: [`canary-replicated ${'x'.repeat(500)}`] };
      await primary.$client.batch(
        Array.from({ length: 50 }, () => insert),
        'write',
      );
    }
    const folder = temporaryFolder();
    const path = join(folder, 'replica.db');
    const readAll = async (key?: string) => {
      const { replica, reports } = await openReplica(sqld, path, key);
      await until(() =>
        replica.execute('SELECT count(*) AS n FROM c').then(
          ({ rows }) => rows[0]?.n === count,
          () => false,
        ),
      );
      await raise();
      await until(
        async () => (await replica.execute(sums)).rows[0]?.a === (await primary.$client.execute(sums)).rows[0]?.a,
      );
      return { replica, reports };
    };
    const plain = await readAll();
    expect(filesWith(folder, ['canary-replicated'])).toContain('replica.db-wal');
    plain.replica.close();
    const encrypted = await readAll(keys.right);
    expect(encrypted.reports).toContain('rebuilt');
    // A file that may not be a copy is quarantined under a name that says so.
    expect(filesWith(folder, ['canary-replicated']).filter((name) => !name.includes('.set-aside-'))).toEqual([]);
  }, 60_000);

  test('removes its file and refuses reads when the driver ignores the key', async () => {
    const folder = temporaryFolder();
    const source = join(folder, 'source.db');
    const db = new SqliteDatabase(source);
    db.run("CREATE TABLE t AS SELECT 'canary-exported' AS a");
    db.run('PRAGMA journal_mode = WAL');
    db.close(true);
    let exported = 0;
    // A hosted libSQL server sends the file itself.
    const server = Bun.serve({
      port: 0,
      fetch(request) {
        const { pathname } = new URL(request.url);
        if (pathname === '/info') return Response.json({ current_generation: 1 });
        if (!pathname.startsWith('/export/')) return new Response(null, { status: 404 });
        exported += 1;
        return new Response(Bun.file(source));
      },
    });
    atEnd(() => server.stop(true));
    const place = join(folder, 'kept');
    const { replica, reports } = await openReplica({ url: server.url.origin }, join(place, 'replica.db'), keys.right);
    await until(() => reports.includes('not-encrypted'));
    expect(exported).toBeGreaterThan(0);
    await expect(replica.execute('SELECT a FROM t')).rejects.toMatchObject({ code: 'REPLICA_NOT_READY' });
    replica.close();
    await until(() => filesWith(place, ['canary-exported']).length === 0);
  });

  test('restricts its folder and files to the owner', async () => {
    const { sqld } = await openPrimary();
    const { path, replica, reports } = await openReplica(sqld);
    await until(() => reports.includes('synced'));
    await replica.execute(sums);
    const names = readdirSync(dirname(path));
    expect(names).toContain('replica.db');
    for (const name of ['', ...names]) expect((await stat(join(dirname(path), name))).mode & 0o077).toBe(0);
  }, 30_000);

  test('starts unready when its file is missing but a sync marker exists', async () => {
    const { sqld } = await openPrimary();
    await sqld.kill();
    const path = join(temporaryFolder(), 'replica.db');
    await Bun.write(`${path}-synced`, '');
    const { replica, reports } = await openReplica(sqld, path);
    await until(() => reports.includes('primary-unreachable'));
    expect(existsSync(`${path}-synced`)).toBeFalse();
    await expect(replica.execute(sums)).rejects.toMatchObject({ code: 'REPLICA_NOT_READY' });
    expect(existsSync(path)).toBeFalse();
  }, 30_000);

  test.each([
    ['its file is removed', (path: string) => rmSync(path)],
    [
      'its folder is emptied',
      (path: string) => {
        for (const name of readdirSync(dirname(path))) rmSync(join(dirname(path), name));
      },
    ],
    ['the index file of the driver is removed', (path: string) => rmSync(`${path}-client_wal_index`)],
  ])(
    'rebuilds and serves reads again when %s while it runs',
    async (_, remove) => {
      const { sqld, raise } = await openPrimary();
      const { path, replica, reports } = await openReplica(sqld);
      await until(() => reports.includes('synced'));
      await replica.execute(sums);
      remove(path);
      await raise();
      const isRaised = () =>
        replica.execute(sums).then(
          ({ rows }) => rows[0]?.a === 1,
          () => false,
        );
      await until(isRaised);
      expect(reports.at(-1)).toBe('synced');
    },
    40_000,
  );

  test.each([
    [
      'a database',
      async (path: string) => {
        const db = new SqliteDatabase(path);
        db.run('CREATE TABLE own (id)');
        db.close(true);
      },
    ],
    ['a text file', async (path: string) => Bun.write(path, 'my notes '.repeat(1000))],
  ])(
    'leaves %s at its path unchanged, and reports it',
    async (_, make) => {
      const { sqld } = await openPrimary();
      const path = join(temporaryFolder(), 'own.db');
      await make(path);
      const before = await Bun.file(path).bytes();
      const { replica, reports } = await openReplica(sqld, path);
      await until(() => reports.includes('not-a-replica'));
      expect(await Bun.file(path).bytes()).toEqual(before);
      await expect(replica.execute(sums)).rejects.toMatchObject({ code: 'REPLICA_NOT_READY' });
    },
    30_000,
  );

  test('recovers in both processes that read it when its file is removed', async () => {
    const { sqld, raise } = await openPrimary();
    const first = await openReplica(sqld);
    await until(() => first.reports.includes('synced'));
    const second = await openReplica(sqld, first.path);
    await until(() => second.reports.includes('held-by-another-process'));
    const read = ({ replica }: typeof first) =>
      replica.execute(sums).then(
        ({ rows }) => rows[0]?.a,
        () => undefined,
      );
    expect([await read(first), await read(second)]).toEqual([0, 0]);
    rmSync(first.path);
    await raise();
    for (const each of [first, second]) await until(async () => (await read(each)) === 1);
  }, 60_000);

  test.each([
    ['beside an old sync marker', true],
    ['while it runs', false],
  ])(
    'quarantines a foreign file that appears %s',
    async (_, isAtStart) => {
      const { sqld } = await openPrimary();
      const path = join(temporaryFolder(), 'replica.db');
      const notes = 'my notes '.repeat(1000);
      if (isAtStart) {
        await Bun.write(path, notes);
        await Bun.write(`${path}-synced`, '');
      }
      const { reports } = await openReplica(sqld, path);
      if (!isAtStart) {
        await until(() => reports.includes('synced'));
        await Bun.write(`${path}.new`, notes);
        renameSync(`${path}.new`, path);
      }
      const kept = () => readdirSync(dirname(path)).find((name) => /^replica\.db\.set-aside-\d+$/.test(name));
      await until(() => kept() !== undefined);
      expect(await Bun.file(join(dirname(path), kept() ?? '')).text()).toBe(notes);
      await until(() => reports.at(-1) === 'synced');
    },
    60_000,
  );

  test.each([
    ['the primary refuses replication', 401],
    ['a proxy in front of the primary fails', 502],
  ])(
    'refuses reads when %s, because the age of the data is unknown',
    async (_, status) => {
      const { sqld } = await openPrimary();
      const path = join(temporaryFolder(), 'replica.db');
      const first = await openReplica(sqld, path);
      await until(() => first.reports.includes('synced'));
      first.replica.close();
      const before = Bun.serve({ port: 0, fetch: () => new Response('no', { status }) });
      atEnd(() => before.stop(true));
      const { replica, reports } = await openReplica({ ...sqld, url: before.url.origin }, path);
      await until(() => reports.some((report) => /^(?:refused|unknown|primary-unreachable)$/.test(report)));
      // The first request to the primary ends this.
      await until(() =>
        replica.execute(sums).then(
          () => false,
          ({ code }) => code === 'REPLICA_NOT_READY',
        ),
      );
      await Bun.sleep(300);
      await expect(replica.execute(sums)).rejects.toMatchObject({ code: 'REPLICA_NOT_READY' });
    },
    30_000,
  );
});
