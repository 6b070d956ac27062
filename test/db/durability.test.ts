import { describe, expect, test } from 'bun:test';
import { readlinkSync, realpathSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { toDatabase } from '../../src/db/client';
import { openFileClient } from '../../src/db/file-client';
import { createWalSync } from '../../src/db/wal';
import { copyTemplate, keys } from '../support/database';
import { atEnd, temporaryFolder } from '../support/resources';

interface Sync {
  readonly descriptor: number;
  end(): void;
  fail(error: Error): void;
}

/** Opens a client on a new file; the test completes or fails each WAL sync. */
async function openFile(encryptionKey?: string, { timeoutMs = 2000, pathOf = (file: string) => file } = {}) {
  const file = join(temporaryFolder(), 'planning.db');
  await copyTemplate(file, encryptionKey);
  const syncs: Sync[] = [];
  const failures: string[] = [];
  let areHeld = false;
  const opened = await openFileClient({
    path: pathOf(file),
    encryptionKey,
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
/** `pending` while the promise is not settled. */
const stateOf = (promise: Promise<unknown>) =>
  Promise.race([
    promise.then(
      () => 'fulfilled',
      () => 'rejected',
    ),
    Bun.sleep(20).then(() => 'pending'),
  ]);

describe.each([
  ['a local file', undefined],
  ['an encrypted local file', keys.right],
])('a write to %s', (_, encryptionKey) => {
  const setUp = (options?: Parameters<typeof openFile>[1]) => openFile(encryptionKey, options);

  test('returns only after the WAL fsync, while other writes commit', async () => {
    const { client, syncs } = await setUp();
    const first = client.execute(put('a'));
    expect(await stateOf(first)).toBe('pending');
    const second = client.batch([put('b'), put('c')], 'write');
    const third = client.execute(put('d'));
    expect([await stateOf(second), await stateOf(third)]).toEqual(['pending', 'pending']);
    // Writes that arrive during a sync share the next one, which begins after it.
    expect(syncs).toHaveLength(1);
    syncs[0]?.end();
    expect((await first).rows[0]?.id).toBe('a');
    expect([await stateOf(second), await stateOf(third)]).toEqual(['pending', 'pending']);
    expect(syncs).toHaveLength(2);
    syncs[1]?.end();
    expect((await second).map(({ rows }) => rows[0]?.id)).toEqual(['b', 'c']);
    expect((await third).rows[0]?.id).toBe('d');
  });

  test('stays invisible to reads until the WAL fsync', async () => {
    const { client, syncs } = await setUp();
    expect((await client.execute(count)).rows[0]?.n).toBe(0);
    const writing = client.execute(put('a'));
    await Bun.sleep(5);
    const reading = client.execute(count);
    expect(await stateOf(reading)).toBe('pending');
    syncs[0]?.end();
    await writing;
    expect((await reading).rows[0]?.n).toBe(1);
  });

  test.skipIf(process.platform !== 'linux').each([
    ['the WAL of the database', (file: string) => file],
    [
      'the WAL of the link target, not a file beside the link',
      (file: string) => {
        const link = join(temporaryFolder(), 'link.db');
        symlinkSync(file, link);
        symlinkSync('/dev/null', `${link}-wal`);
        return link;
      },
    ],
  ])('syncs %s', async (_, pathOf) => {
    const { client, file, syncs } = await setUp({ pathOf });
    const writing = client.execute(put('a'));
    await Bun.sleep(20);
    const [sync] = syncs;
    expect(readlinkSync(`/proc/self/fd/${sync?.descriptor}`)).toBe(`${realpathSync(file)}-wal`);
    sync?.end();
    await writing;
  });

  test('fails at its own deadline when the disk is slow, and so does a read', async () => {
    const { client, syncs } = await setUp({ timeoutMs: 100 });
    const startedAtMs = performance.now();
    const times = await Promise.all(
      [0, 50].map(async (delayMs) => {
        await Bun.sleep(delayMs);
        const failure = await client.execute(put(`late ${delayMs}`)).catch((error: unknown) => error);
        expect(failure).toMatchObject({ code: 'DEADLINE_EXCEEDED', isUnavailable: true });
        return performance.now() - startedAtMs - delayMs;
      }),
    );
    for (const time of times) expect(time).toBeGreaterThan(99);
    expect(times[1]).toBeLessThan((times[0] ?? 0) + 45);
    expect(await client.execute(count).catch((error: unknown) => error)).toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      isUnavailable: true,
    });
    syncs[0]?.end();
    await Bun.sleep(5);
    syncs[1]?.end();
    expect((await client.execute(count)).rows[0]?.n).toBe(2);
  });

  test('fails permanently after one failed sync, while reads continue', async () => {
    const { client, syncs, failures } = await setUp();
    const outcomes = Promise.allSettled([client.execute(put('a')), client.execute(put('b'))]);
    await Bun.sleep(20);
    syncs[0]?.fail(new Error('EIO'));
    const failure = { status: 'rejected', reason: { code: 'SYNC_FAILED', isUnavailable: true } };
    expect(await outcomes).toMatchObject([failure, failure]);
    const later = await Promise.allSettled([
      client.execute(put('c')),
      client.execute('DELETE FROM t'),
      client.exec('DELETE FROM t'),
    ]);
    expect(later).toMatchObject([failure, failure, failure]);
    expect(syncs).toHaveLength(1);
    expect(failures).toEqual(['SYNC_FAILED']);
    expect((await client.execute(count)).rows[0]?.n).toBe(2);
  });
});

describe('the WAL sync of a local file', () => {
  test('throws ENOENT when the WAL does not exist', () => {
    expect(() => createWalSync(join(temporaryFolder(), 'none.db'))).toThrow('ENOENT');
  });

  test('calls fsync', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    await Bun.write(path, '');
    await Bun.write(`${path}-wal`, 'frames');
    const log = createWalSync(path);
    await log.synced();
    await log.close();
    // Only fsync of a closed descriptor fails with EBADF.
    await expect(log.synced()).rejects.toMatchObject({ code: 'EBADF' });
  });
});
