import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { type Call, callerOf, testSecret } from '../support/app';
import { temporaryFolder } from '../support/database';
import { amount } from '../support/long';
import { createSaveHistory } from '../support/save-history';
import { failToStart, startService } from '../support/service';
import { mountFailingDisk, mountSmallDisk } from '../support/small-disk';
import { until } from '../support/until';

const ltc = '/v2/private/ltc/lifetimeCare';
const disk = mountSmallDisk(1);
const failing = mountFailingDisk();
if (disk === undefined) process.stderr.write('No file system can be mounted here: the tests of a disk are skipped.\n');

const text = (length: number) => ({ selections: Array.from({ length }, (_, id) => ({ id, title: 'x'.repeat(200) })) });

/** A service whose data are in a folder, and those who use it. */
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
    /** Saves something, and tells whether that was acknowledged; nothing but a clear 503 may be told else. */
    async save(as: string, careCosts: number, more: object = {}): Promise<boolean> {
      const answer = await call('POST', ltc, { as, body: { careCosts, ...more } });
      if (answer.status === 200) {
        acknowledged.set(as, careCosts);
        history.note(as, answer);
      } else expectUnavailable(answer);
      return answer.status === 200;
    },
    /** Whether each has what was acknowledged last, and every save before it is in the history. */
    async expectNothingLost() {
      for (const [as, careCosts] of acknowledged) {
        const { body } = await call('GET', '/v2/private/user', { as });
        expect(body).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts } } } });
      }
      expect(history.faultsOf(join(folder, 'planning.db'))).toEqual([]);
    },
  };
}

function expectUnavailable(answer: Awaited<ReturnType<Call>>): void {
  expect(answer).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable', code: 301 } });
  expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
}

const readyOf = async (call: Call) => (await call('GET', '/health/ready')).body;
const isWritable = async (call: Call) => Bun.deepEquals(await readyOf(call), { status: 'ready', writes: 'available' });

async function expectReadsServed(call: Call, as: string) {
  for (const path of ['/v2/private/user', '/v2/private/healthAndCare/', '/v2/private/cemetery/all', '/health/live']) {
    expect([path, (await call('GET', path, { as })).status]).toEqual([path, 200]);
  }
}

describe.skipIf(disk === undefined)('a disk', () => {
  test('that is full answers 503 to saves and serves reads, says so, and is used again once there is room', async () => {
    const full = mountSmallDisk(8);
    if (full === undefined) throw new Error('It cannot be mounted');
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
    'that turns read-only answers 503 to saves and serves reads, says so, and the next start goes on from there',
    async () => {
      if (failing === undefined) throw new Error('It cannot be mounted');
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

  test('that is full takes the log’s lines again once there is room, each whole', async () => {
    const full = mountSmallDisk(1);
    if (full === undefined) throw new Error('It cannot be mounted');
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

describe('a database that another process has locked', () => {
  const heldMs = amount({ long: 10_000, short: 2_500 });

  test.each(['IMMEDIATE', 'EXCLUSIVE'])(
    'by BEGIN %s answers 503 to saves under load, serves reads, says so, and goes on by itself',
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
      // Readiness has the last result until the probe that runs has ended.
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
