import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, spyOn, test } from 'bun:test';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { Glob } from 'bun';
import Connection from 'libsql';
import { closeDatabase, type Database, openServiceDatabase, toDatabase } from '../../src/db/client';
import { DatabaseError } from '../../src/db/errors';
import { openFileClient } from '../../src/db/file-client';
import { createLossDetector } from '../../src/db/file-watch';
import { createWalSync } from '../../src/db/wal';
import { copyTemplate, keys } from '../support/database';
import { createSaveHistory, mountSmallDisk, saveMany } from '../support/disks';
import { createDeployment, createKilledDeployment, refusedStart } from '../support/processes';
import { atEnd, contentsOf, temporaryFolder, until } from '../support/resources';

const ltc = '/v2/private/ltc/lifetimeCare';
const source = join(import.meta.dirname, '../../src');
const disk = mountSmallDisk(8);
const hasSqlite = Bun.which('sqlite3') !== null;

const sizeOf = (path: string) => fs.statSync(path, { throwIfNoEntry: false })?.size ?? 0;
const failureOf = (failing: Promise<unknown> | undefined) =>
  failing?.then(
    () => undefined,
    (error: unknown) => error,
  );
async function createFile(folder = temporaryFolder()): Promise<string> {
  const path = join(folder, 'planning.db');
  await copyTemplate(path);
  return path;
}

/** `pending` while the promise is not settled. */
const stateOf = (promise: Promise<unknown>) =>
  Promise.race([
    promise.then(
      () => 'fulfilled',
      () => 'rejected',
    ),
    Bun.sleep(20).then(() => 'pending'),
  ]);

interface Sync {
  readonly descriptor: number;
  end(): void;
  fail(error: Error): void;
}

/** Opens a client on a new file; the test completes or fails each WAL sync. */
async function openWithSyncs({ timeoutMs = 2000, pathOf = (file: string) => file } = {}) {
  const file = await createFile();
  const syncs: Sync[] = [];
  const failures: string[] = [];
  let areHeld = false;
  const opened = await openFileClient({
    path: pathOf(file),
    timeoutMs,
    onLoss: ({ code }) => failures.push(code),
    openWal: (path) =>
      createWalSync(path, (descriptor) => {
        if (!areHeld) return Promise.resolve();
        const { promise, resolve, reject } = Promise.withResolvers<void>();
        syncs.push({ descriptor, end: resolve, fail: reject });
        return promise;
      }),
  });
  const client = toDatabase(opened).$client;
  atEnd(() => client.close());
  await client.execute('CREATE TABLE t (id TEXT PRIMARY KEY, v INTEGER)');
  areHeld = true;
  return { client, file, syncs, failures };
}

const put = (id: string) => ({ sql: 'INSERT INTO t VALUES (?, 1) RETURNING id', args: [id] });
const count = 'SELECT count(*) AS n FROM t';

describe('a write', () => {
  test('returns only after the sync of the WAL, and stays invisible to reads until then, while others commit', async () => {
    const { client, syncs } = await openWithSyncs();
    const first = client.execute(put('a'));
    expect(await stateOf(first)).toBe('pending');
    const reading = client.execute(count);
    const second = client.batch([put('b'), put('c')], 'write');
    const third = client.execute(put('d'));
    expect(await Promise.all([reading, second, third].map(stateOf))).toEqual(['pending', 'pending', 'pending']);
    // Writes that arrive during a sync share the next one, which begins after it.
    expect(syncs).toHaveLength(1);
    syncs[0]?.end();
    expect((await first).rows[0]?.id).toBe('a');
    expect((await reading).rows[0]?.n).toBe(1);
    expect(await Promise.all([second, third].map(stateOf))).toEqual(['pending', 'pending']);
    expect(syncs).toHaveLength(2);
    syncs[1]?.end();
    expect((await second).map(({ rows }) => rows[0]?.id)).toEqual(['b', 'c']);
    expect((await third).rows[0]?.id).toBe('d');
  });

  test('fails at its own deadline when the disk is slow, and so does a read', async () => {
    const { client, syncs } = await openWithSyncs({ timeoutMs: 100 });
    const late = ['first', 'second'].map(async (id, index) => {
      await Bun.sleep(50 * index);
      return failureOf(client.execute(put(id)));
    });
    expect(await Promise.race(late.map(async (each, index) => [await each, index]))).toEqual([expect.anything(), 0]);
    for (const failure of [...(await Promise.all(late)), await failureOf(client.execute(count))]) {
      expect(failure).toMatchObject({ code: 'DEADLINE_EXCEEDED', isUnavailable: true });
    }
    syncs[0]?.end();
    await until(() => syncs.length === 2);
    syncs[1]?.end();
    expect((await client.execute(count)).rows[0]?.n).toBe(2);
  });

  test('fails permanently after one failed sync, while reads continue', async () => {
    const { client, syncs, failures } = await openWithSyncs();
    const outcomes = Promise.allSettled([client.execute(put('a')), client.execute(put('b'))]);
    await until(() => syncs.length === 1);
    syncs[0]?.fail(new Error('EIO'));
    const failure = { status: 'rejected', reason: { code: 'SYNC_FAILED', isUnavailable: true } };
    expect(await outcomes).toMatchObject([failure, failure]);
    const later = [client.execute(put('c')), client.execute('DELETE FROM t'), client.exec('DELETE FROM t')];
    expect(await Promise.allSettled(later)).toMatchObject([failure, failure, failure]);
    expect(syncs).toHaveLength(1);
    expect(failures).toEqual(['SYNC_FAILED']);
    expect((await client.execute(count)).rows[0]?.n).toBe(2);
  });
});

test.each([1, 2, 5])(
  '%d reads of one turn see every earlier commit, each fails alone, and none blocks a checkpoint',
  async (reads) => {
    const { client, file } = await openWithSyncs();
    const other = new Connection(file);
    atEnd(() => other.close());
    for (let rows = 1; rows <= 3; rows += 1) {
      other.prepare('INSERT INTO t VALUES (?, 1)').run([String(rows)]);
      const counts = Array.from({ length: reads }, () => client.read(count));
      const failing = [client.read('SELECT * FROM missing'), client.read(count, ['unbound'])];
      const later = counts.map(() => client.read(count));
      const results = await Promise.all([...counts, ...later]);
      expect(results.map((result) => result.rows[0]?.n)).toEqual(results.map(() => rows));
      const failure = { status: 'rejected', reason: expect.any(DatabaseError) };
      expect(await Promise.allSettled(failing)).toMatchObject([failure, failure]);
      expect(other.prepare('PRAGMA wal_checkpoint(TRUNCATE)').raw(true).all()).toEqual([[0, 0, 0]]);
      expect((await client.read(count)).rows[0]?.n).toBe(rows);
    }
  },
);

const marked = 'SELECT count(*) + 1 AS n FROM t';

/** Calls `onPrepare` before a connection prepares the marked query. */
function watchMarked(onPrepare: (connection: Connection.Database) => void) {
  const prepare = new Proxy(Connection.prototype.prepare, {
    apply(original, connection: Connection.Database, args: [sql: string]) {
      if (args[0] === marked) onPrepare(connection);
      return Reflect.apply(original, connection, args);
    },
  });
  return spyOn(Connection.prototype, 'prepare').mockImplementation(prepare);
}

test.each([1, 3])('%d reads of one turn run again, on another connection, after SQLITE_BUSY', async (reads) => {
  const { client } = await openWithSyncs();
  const connections = new Set<Connection.Database>();
  const preparing = watchMarked((connection) => {
    if (connections.add(connection).size === 1) throw new Connection.SqliteError('locked', 'SQLITE_BUSY', 5);
  });
  try {
    const queries = [marked, count, count].slice(0, reads);
    const results = await Promise.all(queries.map((sql) => client.read(sql)));
    expect(results.map((result) => result.rows[0]?.n)).toEqual([1, 0, 0].slice(0, reads));
    expect(connections.size).toBe(2);
  } finally {
    preparing.mockRestore();
  }
});

test('reads whose COMMIT fails leave no transaction open: the next reads and the next write succeed', async () => {
  const { client, syncs } = await openWithSyncs();
  let failing: Connection.Database | undefined;
  const preparing = watchMarked((connection) => {
    failing = connection;
  });
  const { exec } = Connection.prototype;
  const executing = spyOn(Connection.prototype, 'exec').mockImplementation(function (this: Connection.Database, sql) {
    if (this !== failing || sql !== 'COMMIT') return exec.call(this, sql);
    failing = undefined;
    throw new Connection.SqliteError('disk I/O error', 'SQLITE_IOERR', 10);
  });
  const readTwo = () => Promise.allSettled([client.read(marked), client.read(count)]);
  try {
    const failure = { status: 'rejected', reason: { code: 'SQLITE_IOERR', isUnavailable: true } };
    expect(await readTwo()).toMatchObject([failure, failure]);
    expect(await readTwo()).toMatchObject([{ value: { rows: [{ n: 1 }] } }, { value: { rows: [{ n: 0 }] } }]);
    const writing = client.execute(put('a'));
    await until(() => syncs.length === 1);
    syncs[0]?.end();
    expect((await writing).rows[0]?.id).toBe('a');
  } finally {
    preparing.mockRestore();
    executing.mockRestore();
  }
});

describe('the sync of the WAL', () => {
  test.skipIf(process.platform !== 'linux').each([
    ['the WAL of the database', (file: string) => file],
    [
      'the WAL of the target of a link, not a file beside the link',
      (file: string) => {
        const link = join(temporaryFolder(), 'link.db');
        fs.symlinkSync(file, link);
        fs.symlinkSync('/dev/null', `${link}-wal`);
        return link;
      },
    ],
  ])('syncs %s', async (_, pathOf) => {
    const { client, file, syncs } = await openWithSyncs({ pathOf });
    const writing = client.execute(put('a'));
    await until(() => syncs.length === 1);
    expect(fs.readlinkSync(`/proc/self/fd/${syncs[0]?.descriptor}`)).toBe(`${fs.realpathSync(file)}-wal`);
    syncs[0]?.end();
    await writing;
  });

  test('calls fdatasync, and throws ENOENT when there is no WAL', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    expect(() => createWalSync(path)).toThrow('ENOENT');
    await Bun.write(path, '');
    await Bun.write(`${path}-wal`, 'frames');
    const wal = createWalSync(path);
    await wal.synced();
    await wal.close();
    // Only a sync of a closed descriptor fails with EBADF.
    await expect(wal.synced()).rejects.toMatchObject({ code: 'EBADF' });
  });
});

async function openTemporary(folder?: string) {
  const path = await createFile(folder);
  const losses: string[] = [];
  const checkpoints: (string | undefined)[] = [];
  const db = await openServiceDatabase(
    { url: `file:${path}`, timeoutMs: 5000 },
    { onLoss: ({ code }) => losses.push(code), onCheckpointChange: (code) => checkpoints.push(code) },
  );
  return { path, losses, checkpoints, db };
}

/** Writes rows of a size into a table of its own. */
async function fill({ $client }: Database, rows: number, bytes = 4000): Promise<void> {
  await $client.execute('CREATE TABLE IF NOT EXISTS ballast (bytes)');
  const insert = { sql: 'INSERT INTO ballast VALUES (randomblob(?))', args: [bytes] };
  await Promise.all(Array.from({ length: rows }, () => $client.execute(insert)));
}

describe('a checkpoint', () => {
  test('runs only in the checkpointer, and no writing connection checkpoints automatically', async () => {
    const paths = [...new Glob('**/*.ts').scanSync(source)];
    const texts = await Promise.all(paths.map((path) => Bun.file(join(source, path)).text()));
    const pathsOf = (pattern: RegExp) => paths.filter((_, index) => pattern.test(texts[index] ?? '')).sort();
    expect(pathsOf(/wal_checkpoint/i)).toEqual(['db/checkpointer.ts']);
    expect(pathsOf(/wal_autocheckpoint/i)).toEqual(['db/checkpointer.ts']);
    expect(pathsOf(/manualCheckpoints/)).toEqual(['db/checkpointer.ts', 'db/connection.ts']);
    // These open a separate file, use no WAL, or do not write.
    const others = ['backup', 'database-file', 'replica', 'replica-sync'].map((name) => `db/${name}.ts`);
    expect(pathsOf(/\bnew (?:Async)?Connection\((?!':memory:')/)).toEqual(
      [...others, 'db/checkpointer.ts', 'db/connection.ts'].sort(),
    );
    expect(pathsOf(/@libsql\/client\/sqlite3|bun:sqlite/)).toEqual(['db/errors.ts']);
  });

  test('bounds the WAL, and continues after a reader blocked it', async () => {
    const { path, db } = await openTemporary();
    const wal = `${path}-wal`;
    const maxIdleBytes = 16 * 1024 * 1024;
    await fill(db, 150, 40_000);
    await until(() => sizeOf(path) > 150 * 40_000);
    // The next generation of the WAL overwrites the file.
    await fill(db, 10, 40_000);
    expect(sizeOf(wal)).toBeLessThanOrEqual(maxIdleBytes);
    const reader = new Connection(path, { timeout: 0 });
    reader.exec('BEGIN; SELECT count(*) FROM users');
    for (let round = 0; round < 3; round += 1) await fill(db, 150, 40_000);
    expect(sizeOf(wal)).toBeGreaterThan(maxIdleBytes);
    reader.exec('COMMIT');
    reader.close();
    await until(async () => {
      await fill(db, 1);
      return sizeOf(wal) <= maxIdleBytes;
    });
    expect((await db.$client.execute('SELECT count(*) AS n FROM ballast')).rows[0]?.n).toBeGreaterThanOrEqual(611);
    expect((await db.$client.execute('PRAGMA integrity_check')).rows[0]?.integrity_check).toBe('ok');
    await closeDatabase(db);
  });

  test.skipIf(disk === undefined)(
    'on a full disk reports the first failure and the next success, and keeps the WAL',
    async () => {
      const { path, losses, checkpoints, db } = await openTemporary(disk?.folder);
      await fill(db, 200);
      disk?.fill();
      for (const _ of ['first', 'second']) {
        expect(await failureOf(db.$client.checkpoint?.())).toMatchObject({ code: 'SQLITE_FULL' });
      }
      disk?.free();
      // Closes the connection of the statements after the failed checkpoints. The driver closes a connection with its
      // last statement, which the garbage collector frees.
      db.$client.reconnect();
      for (let round = 0; round < 3; round += 1) {
        await Bun.sleep(20);
        Bun.gc(true);
      }
      expect(fs.existsSync(`${path}-wal`)).toBeTrue();
      await fill(db, 1);
      expect([losses, checkpoints]).toEqual([[], ['SQLITE_FULL']]);
      await db.$client.checkpoint?.();
      expect(checkpoints).toEqual(['SQLITE_FULL', undefined]);
      expect((await db.$client.execute('SELECT count(*) AS n FROM ballast')).rows[0]?.n).toBe(201);
      expect(await closeDatabase(db)).toBeUndefined();
    },
  );

  test('leaves the WAL where another connection reads when the database closes, and reports it', async () => {
    const deployment = await createDeployment({ DATABASE_TIMEOUT_MS: '500' });
    const { databasePath } = deployment;
    const service = await deployment.start();
    const reader = new Connection(databasePath);
    reader.exec('BEGIN; SELECT count(*) FROM users');
    const history = createSaveHistory();
    await saveMany(service.call, history, 8);
    expect(await service.stop()).toBe(0);
    const keepLog = 'keep the -wal file with the database file';
    const warning = { level: 'warn', code: 'SQLITE_BUSY', database: databasePath };
    expect(service.logLines()).toContainEqual(
      expect.objectContaining({ ...warning, msg: expect.stringContaining(keepLog) }),
    );
    const copy = join(temporaryFolder(), 'copy.db');
    fs.copyFileSync(databasePath, copy);
    // A checkpoint stops where the oldest reader began.
    expect(history.faultsOf(copy)).not.toEqual([]);
    const seeded = await deployment.planning('seed');
    expect(seeded).toMatchObject({ exitCode: 0, stderr: expect.stringContaining(keepLog) });
    reader.exec('COMMIT');
    reader.close();
    const again = await deployment.planning('seed');
    expect(again).toMatchObject({ exitCode: 0, stderr: expect.not.stringContaining(keepLog) });
    fs.copyFileSync(databasePath, copy);
    expect(history.faultsOf(copy)).toEqual([]);
  });
});

test.each(['SQLITE_CORRUPT', 'SQLITE_NOTADB'])('the reason of a loss is the fault of the files, before %s', (code) => {
  const losses: string[] = [];
  const rescue = () => Promise.reject(new Error('not rescuable'));
  for (const fault of ['FILE_TRUNCATED', undefined] as const) {
    const detector = createLossDetector({ onLoss: (loss) => losses.push(loss.code), rescue, fault: () => fault });
    detector.failed('read', new DatabaseError(code, true));
  }
  expect(losses).toEqual(['FILE_TRUNCATED', code]);
});

describe('an I/O error', () => {
  const setUp = () => {
    const losses: string[] = [];
    const checkpoints: (string | undefined)[] = [];
    let nowMs = 0;
    const detector = createLossDetector({
      onLoss: ({ code }) => losses.push(code),
      onCheckpointChange: (code) => checkpoints.push(code),
      rescue: () => Promise.reject(new Error('not rescuable')),
      monotonicMs: () => nowMs,
    });
    const failAt = (ms: number, kind: 'read' | 'write' | 'checkpoint') => {
      nowMs = ms;
      detector.failed(kind, new DatabaseError('SQLITE_IOERR', true));
    };
    return { detector, losses, checkpoints, failAt };
  };

  test.each(['read', 'write', 'checkpoint'] as const)('of a %s means a loss when it recurs after 10 s', (kind) => {
    const { failAt, losses, detector } = setUp();
    failAt(1_000, kind);
    failAt(11_000, kind);
    expect([losses, detector.isLost]).toEqual([[], false]);
    failAt(11_001, kind);
    expect([losses, detector.isLost]).toEqual([['SQLITE_IOERR'], true]);
    expect(() => detector.check()).toThrow('SQLITE_IOERR');
  });

  test('is forgotten after a success of the same kind, and after ten minutes', () => {
    const { failAt, losses, detector } = setUp();
    failAt(0, 'write');
    failAt(0, 'checkpoint');
    detector.succeeded('write');
    failAt(20_000, 'write');
    failAt(650_000, 'checkpoint');
    expect(losses).toEqual([]);
    failAt(661_000, 'checkpoint');
    expect(losses).toEqual(['SQLITE_IOERR']);
  });

  test('of a checkpoint is reported once, and so is the next success', () => {
    const { failAt, checkpoints, detector } = setUp();
    failAt(0, 'checkpoint');
    failAt(5, 'checkpoint');
    detector.succeeded('checkpoint');
    detector.succeeded('checkpoint');
    expect(checkpoints).toEqual(['SQLITE_IOERR', undefined]);
  });
});

test.skipIf(process.platform !== 'linux')(
  'an I/O error of the WAL index fails the write that meets it, and the next write is stored',
  async () => {
    const path = await createFile();
    const { write, exec, close } = await openFileClient({ path, timeoutMs: 2000 });
    atEnd(close);
    const save = (id: string) => write([{ sql: `INSERT INTO leases VALUES ('${id}', '', 0)` }]);
    const isIndex = (descriptor: string) => {
      try {
        const flags = /^flags:\s*\d*(\d)$/m.exec(fs.readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8'))?.[1];
        return (
          fs.readlinkSync(`/proc/self/fd/${descriptor}`) === `${path}-shm` &&
          Number(flags) % 4 === fs.constants.O_RDONLY
        );
      } catch {
        return false;
      }
    };
    const descriptor = Number(fs.readdirSync('/proc/self/fd').find(isIndex));
    /** Opens another file with the descriptor. The system gives the lowest free one. */
    const reopenAs = (other: string, flags: string) => {
      fs.closeSync(descriptor);
      const opened = [fs.openSync(other, flags)];
      while (opened.at(-1) !== descriptor && opened.length < 100) opened.push(fs.openSync(other, flags));
      expect(opened.pop()).toBe(descriptor);
      for (const lower of opened) fs.closeSync(lower);
    };
    reopenAs('/dev/null', 'w');
    const failures = await Promise.all([save('a'), save('b'), exec('PRAGMA optimize')].map(failureOf));
    expect(failures).toMatchObject(failures.map(() => ({ code: 'SQLITE_IOERR', isUnavailable: true })));
    reopenAs(`${path}-shm`, 'r');
    expect(await failureOf(save('a'))).toBeUndefined();
  },
);

const reasons = {
  FILE_REMOVED: 'the database file was removed or moved',
  FILE_REPLACED: 'the database file was replaced by another file',
  FILE_TRUNCATED: 'the database file was truncated',
  FILE_OVERWRITTEN: 'another program wrote to the database file',
  WAL_REMOVED: 'the write-ahead log (-wal) was removed, moved or replaced',
  WAL_TRUNCATED: 'the write-ahead log (-wal) was truncated or overwritten',
  WAL_INDEX_REMOVED: 'the index of the write-ahead log (-shm) was removed or replaced',
  SQLITE_CORRUPT: 'the database file is corrupt',
};
type Code = keyof typeof reasons;

/** Gives the WAL another salt, as a restart by another program does. */
function saltWal(path: string): void {
  const bytes = fs.readFileSync(`${path}-wal`);
  fs.writeFileSync(`${path}-wal`, bytes.fill(0, 16, 24));
}

type Deployment = Awaited<ReturnType<typeof createDeployment>>;
type Started = Awaited<ReturnType<Deployment['start']>>;

/** Checks that saves and readiness get 503, with one fatal line, and that the liveness probe succeeds. */
async function expectLost({ call, health, logLines }: Started, code: Code): Promise<void> {
  const reason = reasons[code];
  for (const careCosts of [2, 3]) {
    const response = await call('POST', ltc, { as: 'ada', body: { careCosts } });
    expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
  }
  const ready = await call('GET', '/health/ready');
  expect(ready).toMatchObject({ status: 503, body: { detail: expect.stringContaining(reason) } });
  expect(await health('live')).toBe(200);
  const fatal = logLines().filter(({ level }) => level === 'fatal');
  expect(fatal).toHaveLength(1);
  expect(fatal[0]?.errors).toEqual(expect.arrayContaining([expect.objectContaining({ code })]));
  expect(fatal[0]?.msg).toStartWith(`${reason}: no save is acknowledged until the service is restarted.`);
}

const rescuedLine = ({ logLines }: Started) => logLines().find(({ rescued }) => rescued !== undefined);

/** A running service with acknowledged saves, and an older copy beside its file. */
async function startWithSaves(environment: Record<string, string> = {}) {
  const deployment = await createDeployment(environment);
  const { databasePath: path } = deployment;
  fs.copyFileSync(path, `${path}.older`);
  const service = await deployment.start();
  const history = createSaveHistory();
  // The background tasks read and write 100 ms after the start, and would meet the harmed file.
  await Bun.sleep(300);
  await saveMany(service.call, history, 8);
  return { deployment, path, service, history };
}

describe('a running service', () => {
  test.each<[what: string, code: Code, harm: (path: string) => void]>([
    ['the file is removed', 'FILE_REMOVED', fs.rmSync],
    ['another file replaces it', 'FILE_REPLACED', (path) => fs.renameSync(`${path}.older`, path)],
    ['the WAL is removed', 'WAL_REMOVED', (path) => fs.rmSync(`${path}-wal`)],
    ['the WAL is moved', 'WAL_REMOVED', (path) => fs.renameSync(`${path}-wal`, `${path}-wal.moved`)],
    ['the index of the WAL is removed', 'WAL_INDEX_REMOVED', (path) => fs.rmSync(`${path}-shm`)],
    ['a part of the WAL is cut off', 'WAL_TRUNCATED', (path) => fs.truncateSync(`${path}-wal`, 5000)],
    ['the WAL has another salt', 'WAL_TRUNCATED', saltWal],
    ['the file is truncated', 'FILE_TRUNCATED', (path) => fs.truncateSync(path, 8192)],
    ['a backup is copied over the file', 'FILE_OVERWRITTEN', (path) => fs.copyFileSync(`${path}.older`, path)],
  ])('acknowledges no save, is not ready and keeps serving reads when %s', async (_, code, harm) => {
    const { path, service, history } = await startWithSaves();
    harm(path);
    await expectLost(service, code);
    expect((await service.call('GET', '/v2/private/user', { as: 'ada' })).status).toBe(200);
    const isRescued = /REMOVED|REPLACED/.test(code);
    if (isRescued) await until(() => rescuedLine(service) !== undefined);
    const copy = String(rescuedLine(service)?.rescued);
    if (isRescued) {
      expect(copy).toStartWith(`${path}.rescued-`);
      expect(fs.statSync(copy).mode & 0o777).toBe(0o600);
      const ready = await service.call('GET', '/health/ready');
      expect(ready).toMatchObject({ status: 503, body: { detail: expect.stringContaining('the rescued copy') } });
    }
    expect(await service.stop()).toBe(0);
    if (isRescued) expect(history.faultsOf(copy)).toEqual([]);
    // The service created no other file in its place.
    expect(fs.existsSync(path)).toBe(code !== 'FILE_REMOVED');
  });

  test('rescues an encrypted file, which planning restore puts in its place', async () => {
    const { deployment, path, service, history } = await startWithSaves({ DATABASE_ENCRYPTION_KEY: keys.right });
    fs.rmSync(path);
    await expectLost(service, 'FILE_REMOVED');
    await until(() => rescuedLine(service) !== undefined);
    expect(await service.stop()).toBe(0);
    for (const suffix of ['-wal', '-shm']) fs.rmSync(`${path}${suffix}`, { force: true });
    const restored = await deployment.planning('restore', String(rescuedLine(service)?.rescued), '--yes');
    expect(restored).toMatchObject({ exitCode: 0 });
    expect(await deployment.planning('rekey', '--decrypt', '--yes')).toMatchObject({ exitCode: 0 });
    expect(history.faultsOf(path)).toEqual([]);
  });

  test('waits for the rescue when it stops before it has noticed the loss', async () => {
    const { path, service, history } = await startWithSaves();
    fs.rmSync(path);
    expect(await service.stop()).toBe(0);
    expect(history.faultsOf(String(rescuedLine(service)?.rescued))).toEqual([]);
  });

  test('returns 503 for saves, serves reads and recovers by itself while another connection holds the write lock', async () => {
    const deployment = await createDeployment({ DATABASE_TIMEOUT_MS: '500' });
    const { databasePath: database } = deployment;
    const { call, logLines } = await deployment.start();
    const save = (as: string, careCosts: number) => call('POST', ltc, { as, body: { careCosts } });
    const users = Array.from({ length: 8 }, (_, index) => `saver-${index}`);
    expect((await save('reader', 1)).status).toBe(200);
    const holder = new Connection(database);
    holder.exec('BEGIN IMMEDIATE');
    for (const response of await Promise.all(users.map((as) => save(as, 1)))) {
      expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable', code: 301 } });
      expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
    }
    const ready = async () => (await call('GET', '/health/ready')).body;
    await until(async () =>
      Bun.deepEquals(await ready(), { status: 'ready', writes: 'unavailable', reason: 'SQLITE_BUSY' }),
    );
    for (const path of ['/v2/private/user', '/v2/private/healthAndCare/', '/v2/private/cemetery/all', '/health/live']) {
      expect([path, (await call('GET', path, { as: 'reader' })).status]).toEqual([path, 200]);
    }
    holder.exec('ROLLBACK');
    holder.close();
    expect((await Promise.all(users.map((as) => save(as, 2)))).map(({ status }) => status)).toEqual(Array(8).fill(200));
    await until(async () => Bun.deepEquals(await ready(), { status: 'ready', writes: 'available' }));
    for (const as of users) {
      const { body } = await call('GET', '/v2/private/user', { as });
      expect(body).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts: 2 } } } });
    }
    const reason = 'another process holds the write lock';
    const busy = `the database takes no writes: ${reason}. Wait for that process, or stop it.`;
    expect(logLines().filter(({ msg }) => msg.startsWith('the database takes '))).toMatchObject([
      { level: 'error', code: 'SQLITE_BUSY', database, msg: busy },
      { level: 'info', msg: 'the database takes writes again' },
    ]);
  });
});

describe('the client of a file', () => {
  test('notices a removed file when nothing is written', async () => {
    const path = await createFile();
    const losses: string[] = [];
    const settings = { path, timeoutMs: 2000, onLoss: ({ code }: { code: string }) => losses.push(code) };
    const client = await openFileClient({ ...settings, checkIntervalMs: 10 });
    fs.rmSync(path);
    await until(() => losses.length > 0);
    expect(losses).toEqual(['FILE_REMOVED']);
    client.close();
  });

  test('changes no file when it closes after a loss, even when another WAL has the name', async () => {
    const { path, db } = await openTemporary();
    await fill(db, 5);
    fs.renameSync(`${path}-wal`, `${path}-wal.moved`);
    fs.writeFileSync(`${path}-wal`, 'the log of another process');
    const files = [path, `${path}-wal`, `${path}-wal.moved`];
    const before = files.map((file) => fs.readFileSync(file, 'base64'));
    expect(await closeDatabase(db)).toBe('WAL_REMOVED');
    expect(files.map((file) => fs.readFileSync(file, 'base64'))).toEqual(before);
  });

  test.skipIf(!hasSqlite)('accepts a checkpoint, an erasure, a VACUUM and a backup by other programs', async () => {
    const { path, db, losses } = await openTemporary();
    const run = (...sql: string[]) => expect(Bun.spawnSync(['sqlite3', path, ...sql]).exitCode).toBe(0);
    await fill(db, 50);
    run('PRAGMA wal_checkpoint(TRUNCATE)');
    await fill(db, 50);
    run('DELETE FROM ballast', 'VACUUM', 'PRAGMA wal_checkpoint(TRUNCATE)');
    await fill(db, 1);
    run(`VACUUM INTO '${path}.backup'`);
    run('PRAGMA wal_checkpoint(PASSIVE)', 'INSERT INTO ballast VALUES (1)');
    await fill(db, 1);
    await db.$client.checkpoint?.();
    await fill(db, 1);
    expect(losses).toEqual([]);
    await closeDatabase(db);
    expect(sizeOf(`${path}-wal`)).toBe(0);
  });
});

describe('a WAL without its database file', () => {
  test.each([
    ['missing', (path: string) => fs.rmSync(path)],
    ['empty (0 bytes)', (path: string) => fs.truncateSync(path)],
  ])('stays unchanged under every command and every start when the file is %s', async (state, harm) => {
    const { history, databasePath: path, folder, planning, write, settings, cwd } = await createKilledDeployment();
    fs.copyFileSync(path, join(cwd, 'kept.db'));
    harm(path);
    const before = contentsOf(folder);
    const refusal = `The WAL ${path}-wal belongs to a database file that is ${state}: put the file back beside its WAL.`;
    await write('rows.csv', 'id;name\n');
    const copies = `backup backup.db,restore kept.db --yes,copy --to file:${cwd}/copy.db,rekey --decrypt`;
    const others = 'migrate,migrate --dry-run,seed,import cemeteries rows.csv,applications list';
    for (const command of `${others},${copies}`.split(',')) {
      const { exitCode, stderr } = await planning(...command.split(' '));
      expect({ command, exitCode, stderr }).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('its WAL') });
      expect(stderr).not.toContain('planning migrate');
    }
    const { exitCode, stdout } = await planning('doctor');
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: expect.stringContaining(refusal) });
    expect(stdout).not.toContain('planning migrate');
    for (const NODE_ENV of ['production', 'development']) {
      expect(await refusedStart({ ...settings, NODE_ENV })).toContain(refusal);
    }
    expect(contentsOf(folder)).toEqual(before);
    fs.renameSync(join(cwd, 'kept.db'), path);
    expect((await planning('doctor', '--deep')).stdout).toMatch(/ok +pages /);
    expect(history.faultsOf(path)).toEqual([]);
  });

  test('is named with the remedy by a start when it may belong to another file', async () => {
    const { databasePath: path, refusedStart } = await createKilledDeployment();
    fs.writeFileSync(path, 'not a database '.repeat(1000));
    const message = await refusedStart();
    expect(message).toContain(`The WAL ${path}-wal may belong to another file`);
    expect(message).toContain('doctor --deep');
  });
});

/** Inverts the first page of a table, so that SQLite does not recognise its type. */
function corrupt(path: string, table: string): void {
  const file = new SqliteDatabase(path, { readonly: true });
  const query = file.query<{ rootpage: number }, [string]>('SELECT rootpage FROM sqlite_schema WHERE name = ?');
  const { rootpage } = query.get(table) ?? { rootpage: 0 };
  file.close();
  const bytes = fs.readFileSync(path);
  const pageStart = (rootpage - 1) * 4096;
  for (let at = pageStart; at < pageStart + 4096; at += 1) bytes.writeUInt8(bytes.readUInt8(at) ^ 0xff, at);
  fs.writeFileSync(path, bytes);
}

describe('a corrupt page', () => {
  test('of the users table makes the service not ready, and doctor names it', async () => {
    const deployment = await createDeployment();
    const before = await deployment.start();
    expect((await before.call('POST', ltc, { as: 'ada', body: { careCosts: 1 } })).status).toBe(200);
    await before.stop();
    corrupt(deployment.databasePath, 'users');
    const service = await deployment.start();
    await expectLost(service, 'SQLITE_CORRUPT');
    expect(await service.call('GET', '/v2/private/user', { as: 'ada' })).toMatchObject({ status: 503 });
    expect(await service.call('GET', '/v2/private/cemetery/all', { as: 'ada' })).toMatchObject({ status: 200 });
    const { exitCode, stdout } = await deployment.planning('doctor', '--deep');
    expect(exitCode).toBe(1);
    expect(stdout).toMatch(/failed +pages .*corrupt/);
  });

  test('stops every later write, while reads of other tables continue', async () => {
    const path = await createFile();
    corrupt(path, 'cemeteries');
    const losses: string[] = [];
    const settings = { path, timeoutMs: 2000, onLoss: ({ code }: { code: string }) => losses.push(code) };
    const client = toDatabase(await openFileClient(settings)).$client;
    const outcomeOf = (sql: string) => client.execute(sql).catch((error: unknown) => error);
    expect(await outcomeOf('SELECT * FROM cemeteries')).toMatchObject({ code: 'SQLITE_CORRUPT', isUnavailable: true });
    expect(await outcomeOf("DELETE FROM users WHERE id = ''")).toMatchObject({ code: 'SQLITE_CORRUPT' });
    expect(losses).toEqual(['SQLITE_CORRUPT']);
    expect(await outcomeOf('SELECT count(*) FROM leases')).toMatchObject({ rows: [expect.anything()] });
    client.close();
  });
});

test('doctor --deep finds no errors and an empty log after a command, which removes the WAL', async () => {
  const { planning, databasePath } = await createDeployment();
  expect(await planning('seed')).toMatchObject({ exitCode: 0 });
  expect(fs.existsSync(`${databasePath}-wal`)).toBeFalse();
  const { stdout } = await planning('doctor', '--deep');
  expect(stdout).toMatch(/ok +pages +no errors in \d+ tables/);
  expect(stdout).toMatch(/ok +sqlite +3\.\d+\.\d+ in the driver/);
  expect(stdout).toMatch(/ok +log +0\.0 MB/);
});
