import { Database as SqliteDatabase } from 'bun:sqlite';
import { afterEach, describe, expect, test } from 'bun:test';
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { openDatabase, toDatabase } from '../../src/db/client';
import { openReplicaFile } from '../../src/db/replica';
import { filesWith, keys } from '../support/database';
import { amount, atEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, type Sqld, startSqld } from '../support/servers';

const running: (() => void)[] = [];
// A replica polls its primary many times a second.
afterEach(() => {
  for (const close of running.splice(0)) close();
});

function openReplica(
  url: string,
  path = join(temporaryFolder(), 'deep/replica.db'),
  { encryptionKey, minLagMs = 5_000 }: { encryptionKey?: string | undefined; minLagMs?: number } = {},
) {
  const reports: string[] = [];
  const opened = openReplicaFile({
    path,
    primaryUrl: url,
    encryptionKey,
    minLagMs,
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
  running.push(() => replica.close());
  const read = () => replica.execute('SELECT (SELECT n FROM a) AS a, (SELECT n FROM b) AS b');
  return {
    ...{ path, replica, reports, read },
    isReported: (report: string) => until(() => reports.includes(report)),
    /** Reads the number that a write to the primary raises; undefined while the replica refuses reads. */
    value: () =>
      read().then(
        ({ rows }) => Number(rows[0]?.a),
        () => undefined,
      ),
  };
}

/** A primary with two tables, whose numbers one transaction raises. */
async function openPrimary() {
  const sqld = await startSqld();
  const db = await openDatabase({ url: sqld.url, timeoutMs: 5_000 });
  atEnd(() => db.$client.close());
  const create = ['a', 'b'].flatMap((name) => [`CREATE TABLE ${name} (n integer)`, `INSERT INTO ${name} VALUES (0)`]);
  await db.$client.batch(create, 'write');
  let raised = 0;
  const raise = async () => {
    await db.$client.batch(['UPDATE a SET n = n + 1', 'UPDATE b SET n = n + 1'], 'write');
    raised += 1;
    return raised;
  };
  return { sqld, db, raise, raised: () => raised };
}

let shared: ReturnType<typeof openPrimary> | undefined;
/** The primary of the tests that do not stop it. */
const sharedPrimary = () => {
  shared ??= openPrimary();
  return shared;
};

/** A stopped primary, at whose address no server listens. */
async function stoppedPrimary(): Promise<Sqld> {
  const { sqld } = await openPrimary();
  await sqld.kill();
  return sqld;
}

/** The child processes of this process that sync replicas. */
const syncProcesses = () =>
  readdirSync('/proc/self/task')
    .flatMap((task) => readFileSync(`/proc/self/task/${task}/children`, 'utf8').trim().split(' '))
    .filter((id) => id !== '' && readFileSync(`/proc/${id}/cmdline`, 'utf8').includes('replica-sync'))
    .map(Number);

const notReady = { code: 'REPLICA_NOT_READY' };
const isRefused = (read: () => Promise<unknown>) =>
  read().then(
    () => false,
    ({ code }) => code === notReady.code,
  );

describe.skipIf(!hasSqld)('an embedded replica', () => {
  test('returns neither torn nor older rows while it follows the primary and while the primary restarts', async () => {
    const { sqld, raise, raised } = await openPrimary();
    const { read, isReported } = openReplica(sqld.url);
    await isReported('synced');
    let [reads, last] = [0, 0];
    const readFor = async (durationMs: number) => {
      for (const deadlineMs = performance.now() + durationMs; performance.now() < deadlineMs; ) {
        const { rows } = await read();
        const [a, b] = [Number(rows[0]?.a), Number(rows[0]?.b)];
        if (a !== b || a < last) throw new Error(`${a} beside ${b} after ${last}`);
        last = a;
        reads += 1;
        if (reads % 20 === 0) await Bun.sleep(0);
      }
    };
    let isDone = false;
    const raising = (async () => {
      while (!isDone) await raise().catch(() => Bun.sleep(10));
    })();
    const durationMs = amount({ long: 10_000, short: 500 });
    await readFor(durationMs);
    await sqld.kill();
    await readFor(200);
    await sqld.start();
    await readFor(durationMs);
    isDone = true;
    await raising;
    await until(async () => Number((await read()).rows[0]?.a) >= raised());
    expect(last).toBeGreaterThan(0);
    expect(reads).toBeGreaterThan(100);
  }, 60_000);

  test('refuses writes, is not ready until the first sync is complete, and is private to the owner', async () => {
    const sqld = await stoppedPrimary();
    const { path, replica, isReported, read } = openReplica(sqld.url);
    for (const sql of ['INSERT INTO a VALUES (1)', 'PRAGMA query_only = OFF', 'DELETE FROM a']) {
      await expect(replica.execute(sql)).rejects.toThrow('read-only');
    }
    await expect(replica.batch(['SELECT 1'])).rejects.toThrow('read-only');
    await isReported('primary-unreachable');
    await expect(replica.execute('SELECT 1')).rejects.toMatchObject(notReady);
    // Opening the file now would create one that is not a replica.
    expect(existsSync(`${path}-synced`)).toBeFalse();
    await sqld.start();
    await isReported('synced');
    expect((await read()).rows[0]?.a).toBe(0);
    const names = readdirSync(dirname(path));
    expect(names).toContain('replica.db');
    for (const name of ['', ...names]) expect(statSync(join(dirname(path), name)).mode & 0o077).toBe(0);
  });

  test('starts unready when its file is missing but a sync marker exists', async () => {
    const path = join(temporaryFolder(), 'replica.db');
    await Bun.write(`${path}-synced`, '');
    const { isReported, read } = openReplica((await stoppedPrimary()).url, path);
    await isReported('primary-unreachable');
    expect(existsSync(`${path}-synced`)).toBeFalse();
    await expect(read()).rejects.toMatchObject(notReady);
    expect(existsSync(path)).toBeFalse();
  });

  test('shows no plain text in any file when encrypted, and rebuilds a plain replica', async () => {
    const { sqld, db, raise } = await sharedPrimary();
    const text = `canary-replicated ${'x'.repeat(500)}`;
    await db.$client.execute(`CREATE TABLE c AS WITH RECURSIVE rows (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM rows
      WHERE n < 200) SELECT '${text}' AS t FROM rows`);
    const folder = temporaryFolder();
    const follow = async (key?: string) => {
      const opened = openReplica(sqld.url, join(folder, 'replica.db'), { encryptionKey: key });
      const value = await raise();
      await until(async () => (await opened.value()) === value);
      expect((await opened.replica.execute('SELECT count(*) AS n FROM c')).rows[0]?.n).toBe(200);
      return opened;
    };
    const plain = await follow();
    expect(filesWith(folder, ['canary-replicated'])).not.toEqual([]);
    plain.replica.close();
    expect((await follow(keys.right)).reports).toContain('rebuilt');
    // A file that may not be a copy is quarantined under a name that says so.
    expect(filesWith(folder, ['canary-replicated']).filter((name) => !name.includes('.set-aside-'))).toEqual([]);
  });

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
    running.push(() => void server.stop(true));
    const place = join(folder, 'kept');
    const { replica, isReported } = openReplica(server.url.origin, join(place, 'replica.db'), {
      encryptionKey: keys.right,
    });
    await isReported('not-encrypted');
    expect(exported).toBeGreaterThan(0);
    await expect(replica.execute('SELECT a FROM t')).rejects.toMatchObject(notReady);
    replica.close();
    await until(() => filesWith(place, ['canary-exported']).length === 0);
  });

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
      const { sqld, raise } = await sharedPrimary();
      const { path, reports, read, value, isReported } = openReplica(sqld.url);
      await isReported('synced');
      await read();
      remove(path);
      const raised = await raise();
      await until(async () => (await value()) === raised);
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
  ])('leaves %s at its path unchanged, and reports it', async (_, make) => {
    const path = join(temporaryFolder(), 'own.db');
    await make(path);
    const before = await Bun.file(path).bytes();
    const { isReported, read } = openReplica((await sharedPrimary()).sqld.url, path);
    await isReported('not-a-replica');
    expect(await Bun.file(path).bytes()).toEqual(before);
    await expect(read()).rejects.toMatchObject(notReady);
  });

  test('recovers in both processes that read it when its file is removed', async () => {
    const { sqld, raise, raised } = await sharedPrimary();
    const first = openReplica(sqld.url);
    await first.isReported('synced');
    const second = openReplica(sqld.url, first.path);
    await second.isReported('held-by-another-process');
    expect([await first.value(), await second.value()]).toEqual([raised(), raised()]);
    rmSync(first.path);
    const value = await raise();
    for (const each of [first, second]) await until(async () => (await each.value()) === value);
  }, 60_000);

  test.each([
    ['beside an old sync marker', true],
    ['while it runs', false],
  ])(
    'quarantines a foreign file that appears %s',
    async (_, isAtStart) => {
      const path = join(temporaryFolder(), 'replica.db');
      const notes = 'my notes '.repeat(1000);
      if (isAtStart) {
        await Bun.write(path, notes);
        await Bun.write(`${path}-synced`, '');
      }
      const { reports, isReported } = openReplica((await sharedPrimary()).sqld.url, path);
      if (!isAtStart) {
        await isReported('synced');
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

  test.skipIf(process.platform !== 'linux')(
    'refuses reads while its sync stalls and the primary is reachable',
    async () => {
      const { sqld, raise } = await sharedPrimary();
      const before = syncProcesses();
      const { read, value, isReported } = openReplica(sqld.url, undefined, { minLagMs: 500 });
      await isReported('synced');
      await until(async () => (await value()) !== undefined);
      const syncing = syncProcesses().filter((id) => !before.includes(id));
      expect(syncing).toHaveLength(1);
      for (const id of syncing) process.kill(id, 'SIGSTOP');
      await isReported('stalled');
      await until(() => isRefused(read));
      for (const id of syncing) process.kill(id, 'SIGCONT');
      const raised = await raise();
      await until(async () => (await value()) === raised);
    },
  );

  test.each([
    ['the primary refuses replication', 401],
    ['a proxy in front of the primary fails', 502],
  ])('refuses reads when %s, because the age of the data is unknown', async (_, status) => {
    const first = openReplica((await sharedPrimary()).sqld.url);
    await first.isReported('synced');
    first.replica.close();
    const before = Bun.serve({ port: 0, fetch: () => new Response('no', { status }) });
    running.push(() => void before.stop(true));
    const { reports, read } = openReplica(before.url.origin, first.path);
    await until(() => reports.some((report) => /^(?:refused|unknown|primary-unreachable)$/.test(report)));
    // The first request to the primary ends the readiness of the marker.
    await until(() => isRefused(read));
    await Bun.sleep(200);
    expect(await isRefused(read)).toBeTrue();
  });
});
