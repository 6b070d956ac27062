import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { type Call, callerOf, testSecret } from '../support/app';
import { createSaveHistory, mountFailingDisk, mountSmallDisk } from '../support/disks';
import { failToStart, startService } from '../support/processes';
import { amount, temporaryFolder, until } from '../support/resources';

const ltc = '/v2/private/ltc/lifetimeCare';
const disk = mountSmallDisk(1);
const failing = mountFailingDisk();
if (disk === undefined) process.stderr.write('Cannot mount a file system: skipping the disk tests.\n');

const text = (length: number) => ({ selections: Array.from({ length }, (_, id) => ({ id, title: 'x'.repeat(200) })) });

/** Starts a service with its data in `folder`. */
async function startOn(folder: string) {
  const service = await startService({
    environment: {
      AUTH_SECRET: testSecret,
      DATABASE_URL: `file:${join(folder, 'planning.db')}`,
      DATABASE_TIMEOUT_MS: '500',
      SEED_DEMO: 'false',
    },
    hasErrorsInOutput: true,
  });
  const call = callerOf(service.address);
  const acknowledged = new Map<string, number>();
  const history = createSaveHistory();
  return {
    service,
    call,
    acknowledged,
    /** Saves a value and returns whether it was acknowledged; any other response must be a 503. */
    async save(as: string, careCosts: number, more: object = {}): Promise<boolean> {
      const response = await call('POST', ltc, { as, body: { careCosts, ...more } });
      if (response.status === 200) {
        acknowledged.set(as, careCosts);
        history.note(as, response);
      } else expectUnavailable(response);
      return response.status === 200;
    },
    /** Checks that each acknowledged value is stored and that the save history is consistent. */
    async expectNothingLost() {
      for (const [as, careCosts] of acknowledged) {
        const { body } = await call('GET', '/v2/private/user', { as });
        expect(body).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts } } } });
      }
      expect(history.faultsOf(join(folder, 'planning.db'))).toEqual([]);
    },
  };
}

function expectUnavailable(response: Awaited<ReturnType<Call>>): void {
  expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable', code: 301 } });
  expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
}

const readyOf = async (call: Call) => (await call('GET', '/health/ready')).body;
const isWritable = async (call: Call) => Bun.deepEquals(await readyOf(call), { status: 'ready', writes: 'available' });

async function expectReadsServed(call: Call, as: string) {
  for (const path of ['/v2/private/user', '/v2/private/healthAndCare/', '/v2/private/cemetery/all', '/health/live']) {
    expect([path, (await call('GET', path, { as })).status]).toEqual([path, 200]);
  }
}

describe.skipIf(disk === undefined)('a service on a failing disk', () => {
  test('returns 503 for saves and serves reads while the disk is full, and recovers when space is freed', async () => {
    const full = mountSmallDisk(8);
    if (full === undefined) throw new Error('Cannot mount a small disk');
    const { service, call, save, acknowledged, expectNothingLost } = await startOn(full.folder);
    await save('before', 1);
    full.fill();
    let refused = 0;
    for (let count = 0; count < 400 && refused < 5; count += 1)
      if (!(await save(`saver-${count}`, count, text(90)))) refused += 1;
    expect(refused).toBe(5);
    await expectReadsServed(call, 'before');
    await expectNothingLost();
    expect(service.output()).toContain('SQLITE_FULL');
    expect(await readyOf(call)).toMatchObject({ status: 'ready' });
    full.free();
    await until(() => save('before', 2));
    await until(() => isWritable(call));
    for (let count = 0; count < 20; count += 1) expect(await save(`after-${count}`, count, text(50))).toBeTrue();
    await expectNothingLost();
    expect(acknowledged.size).toBeGreaterThan(20);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    const file = new SqliteDatabase(join(full.folder, 'planning.db'));
    expect(file.query('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
    file.close();
  }, 60_000);

  test.skipIf(failing === undefined)(
    'returns 503 for saves and serves reads while the disk is read-only, and restarts from the same data',
    async () => {
      if (failing === undefined) throw new Error('Cannot mount a failing disk');
      const { service, call, save, expectNothingLost } = await startOn(failing.folder);
      expect(await save('before', 1)).toBeTrue();
      failing.fail();
      for (let value = 2; value < 5; value += 1) expect(await save('before', value)).toBeFalse();
      await expectReadsServed(call, 'before');
      await expectNothingLost();
      await until(async () => !(await isWritable(call)));
      expect(await readyOf(call)).toMatchObject({ status: 'ready', writes: 'unavailable' });
      service.process.kill('SIGTERM');
      expect(await service.process.exited).toBe(0);
      const environment = { DATABASE_URL: `file:${join(failing.folder, 'planning.db')}` };
      expect((await failToStart({ environment })).stderr).toContain('cannot be opened (SQLITE_READONLY)');
      failing.mend();
      const next = await startOn(failing.folder);
      expect((await next.call('GET', '/v2/private/user', { as: 'before' })).body).toMatchObject({
        user: { ltc: { lifetimeCare: { careCosts: 1 } } },
      });
      expect(await next.save('before', 5)).toBeTrue();
    },
    60_000,
  );

  test('writes complete log lines again when a full disk has space', async () => {
    const full = mountSmallDisk(1);
    if (full === undefined) throw new Error('Cannot mount a small disk');
    const path = join(full.folder, 'log');
    const program = `
      const { createLog } = await import(${JSON.stringify(join(import.meta.dirname, '../../src/log.ts'))});
      const log = createLog('info');
      setInterval(() => { for (let n = 0; n < 50; n += 1) log.info({ settled: n }, 'applications were settled'); }, 5);`;
    full.fill();
    const child = Bun.spawn([process.execPath, '-e', program], { stdout: openSync(path, 'a'), stderr: 'pipe' });
    await Bun.sleep(1000);
    expect(child.exitCode).toBeNull();
    full.free();
    await until(() => Bun.file(path).size > 100_000);
    child.kill('SIGKILL');
    await child.exited;
    const lines = (await Bun.file(path).text()).split('\n').slice(0, -1);
    expect(lines.every((line) => JSON.parse(line).msg === 'applications were settled')).toBeTrue();
  }, 60_000);
});

describe('a database locked by another process', () => {
  const heldMs = amount({ long: 10_000, short: 2_500 });

  test.each(['IMMEDIATE', 'EXCLUSIVE'])(
    'rejects saves with 503 under load, serves reads, and recovers by itself: BEGIN %s',
    async (kind) => {
      const folder = temporaryFolder();
      const { service, call, save, expectNothingLost } = await startOn(folder);
      await save('reader', 1);
      const holder = new SqliteDatabase(join(folder, 'planning.db'));
      holder.run(`BEGIN ${kind}`);
      const releasedAtMs = performance.now() + heldMs;
      let refused = 0;
      const savers = Array.from({ length: 16 }, async (_, index) => {
        for (let value = 1; performance.now() < releasedAtMs; value += 1) {
          if (!(await save(`saver-${index}`, value))) refused += 1;
        }
      });
      // Readiness returns the last result until the running probe ends.
      await until(async () => !(await isWritable(call)));
      while (performance.now() < releasedAtMs - 1000) {
        await expectReadsServed(call, 'reader');
        expect(await readyOf(call)).toMatchObject({ status: 'ready', writes: 'unavailable' });
        await Bun.sleep(100);
      }
      await Promise.all(savers);
      expect(refused).toBeGreaterThan(16);
      holder.run('ROLLBACK');
      holder.close();
      await until(() => save('reader', 2));
      await until(() => isWritable(call));
      for (let index = 0; index < 16; index += 1) expect(await save(`saver-${index}`, 1000 + index)).toBeTrue();
      await expectNothingLost();
      expect(service.process.exitCode).toBeNull();
    },
    60_000,
  );
});
