import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { openLocalClient } from '../../src/db/local-client';
import { createLogSync } from '../../src/db/log-sync';
import { atEnd } from '../support/cleanup';
import { temporaryFolder } from '../support/database';

/** A client of a new file; the test says how each sync of its log ends. */
async function setUp({ timeoutMs = 2000 } = {}) {
  const path = join(temporaryFolder(), 'planning.db');
  const syncs: { end(): void; fail(error: Error): void }[] = [];
  let areHeld = false;
  const client = openLocalClient({
    path,
    timeoutMs,
    openLog: (of) => ({
      ...createLogSync(of),
      synced: () => {
        if (!areHeld) return Promise.resolve();
        const { promise, resolve, reject } = Promise.withResolvers<void>();
        syncs.push({ end: resolve, fail: reject });
        return promise;
      },
    }),
  });
  atEnd(() => client.close());
  await client.execute('CREATE TABLE t (id TEXT PRIMARY KEY, v INTEGER)');
  areHeld = true;
  return { client, syncs };
}

const put = (id: string) => ({ sql: 'INSERT INTO t VALUES (?, 1) RETURNING id', args: [id] });
/** `pending` as long as a promise has not ended. */
const stateOf = (promise: Promise<unknown>) =>
  Promise.race([
    promise.then(
      () => 'fulfilled',
      () => 'rejected',
    ),
    Bun.sleep(20).then(() => 'pending'),
  ]);

describe('a write to a local file', () => {
  test('is acknowledged only when the log is on the disk, and others commit meanwhile', async () => {
    const { client, syncs } = await setUp();
    const first = client.execute(put('a'));
    expect(await stateOf(first)).toBe('pending');
    const second = client.batch([put('b'), put('c')], 'write');
    expect(await stateOf(second)).toBe('pending');
    expect((await client.execute('SELECT count(*) AS n FROM t')).rows[0]?.n).toBe(3);
    expect(syncs).toHaveLength(2);
    syncs[0]?.end();
    expect((await first).rows[0]?.id).toBe('a');
    expect(await stateOf(second)).toBe('pending');
    syncs[1]?.end();
    expect((await second).map(({ rows }) => rows[0]?.id)).toEqual(['b', 'c']);
  });

  test('that the disk does not take in time is told to be unavailable at its own deadline', async () => {
    const { client } = await setUp({ timeoutMs: 100 });
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
  });

  test('is never acknowledged again after a sync has failed, while reads go on', async () => {
    const { client, syncs } = await setUp();
    const writes = [client.execute(put('a')), client.execute(put('b'))];
    const outcomes = Promise.allSettled(writes);
    await Bun.sleep(20);
    syncs[0]?.fail(new Error('EIO'));
    const failure = { status: 'rejected', reason: { code: 'SYNC_FAILED', isUnavailable: true } };
    expect(await outcomes).toMatchObject([failure, failure]);
    const later = await Promise.allSettled([client.execute(put('c')), client.execute('DELETE FROM t')]);
    expect(later).toMatchObject([failure, failure]);
    expect(syncs).toHaveLength(1);
    expect((await client.execute('SELECT count(*) AS n FROM t')).rows[0]?.n).toBe(2);
  });
});

describe('the log of a local file', () => {
  test('is synced once for all who come while it is being synced, and again for them', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    await Bun.write(`${path}-wal`, 'frames');
    const log = createLogSync(path);
    const first = log.synced();
    await Promise.resolve();
    await Promise.resolve();
    const [second, third] = [log.synced(), log.synced()];
    expect(second).not.toBe(first);
    expect(third).toBe(second);
    await Promise.all([first, second]);
    await log.close();
  });

  test('that is not there fails those who wait for it', async () => {
    const log = createLogSync(join(temporaryFolder(), 'none.db'));
    const failures = await Promise.allSettled([log.synced(), log.synced()]);
    expect(failures.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    await log.close();
  });
});
