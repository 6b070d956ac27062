import { afterAll, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { type Service, startService } from '../support/processes';
import { amount, cleanUp, isLong, temporaryFolder, until } from '../support/resources';
import { hasSqld, type Sqld } from '../support/servers';
import { callService, databaseTimeoutMs, serviceEnvironment, startPrimary } from './cluster';

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
/** Much longer than any response takes, much shorter than a deadline. */
const stallMs = databaseTimeoutMs / 4;

const startWithReplica = (primary: Sqld, cwd: string, logLevel = 'info') =>
  startService({
    cwd,
    environment: serviceEnvironment(primary, {
      DATABASE_REPLICA_PATH: 'replica/planning.db',
      DATABASE_SYNC_INTERVAL_MS: '100',
      LOG_LEVEL: logLevel,
    }),
  });

const follows = (service: Service) => until(() => service.output().includes('the replica follows the primary'));
const ready = async (service: Service) => {
  const startedAtMs = performance.now();
  const response = await fetch(`${service.address}/health/ready`);
  return { status: response.status, body: await response.json(), tookMs: performance.now() - startedAtMs };
};

/** Kills an instance after a save, stops the primary, and starts an instance on the same replica. */
async function startAgain(stop: (primary: Sqld) => unknown) {
  const primary = await startPrimary();
  const cwd = temporaryFolder();
  const first = await startWithReplica(primary, cwd);
  await follows(first);
  const saved = await callService(first, ltc, 'ada', { body: { careCosts: 1 } });
  await Bun.sleep(500);
  // SIGKILL allows no clean shutdown of the replica.
  first.process.kill('SIGKILL');
  await stop(primary);
  return { primary, saved, second: await startWithReplica(primary, cwd) };
}

describe.skipIf(!hasSqld)('an instance with an embedded replica', () => {
  afterAll(cleanUp);

  test('keeps reading without delay while the primary is frozen, and writes again when it resumes', async () => {
    const primary = await startPrimary();
    const service = await startWithReplica(primary, temporaryFolder());
    await follows(service);
    expect((await callService(service, ltc, 'ada', { body: { careCosts: 1 } })).status).toBe(200);
    await Bun.sleep(500);
    primary.pause();
    const saving = callService(service, ltc, 'ada', { body: { careCosts: 2 } });
    const longest = { read: 0, lists: 0, health: 0 };
    // The long run lasts until the replica would be too old.
    for (
      const deadlineMs = performance.now() + amount({ long: 12_000, short: 3_500 });
      performance.now() < deadlineMs;
      await Bun.sleep(50)
    ) {
      const [read, lists, health] = await Promise.all([
        callService(service, user, 'ada'),
        callService(service, '/v2/private/cemetery/all', 'ada'),
        ready(service),
      ]);
      expect([read.status, lists.status, health.status]).toEqual([200, 200, 200]);
      longest.read = Math.max(longest.read, read.tookMs);
      longest.lists = Math.max(longest.lists, lists.tookMs);
      longest.health = Math.max(longest.health, health.tookMs);
    }
    expect(Math.max(longest.read, longest.lists, longest.health)).toBeLessThan(stallMs);
    expect(await ready(service)).toMatchObject({ body: { status: 'ready', writes: 'unavailable' } });
    const saved = await saving;
    expect(saved).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect(saved.headers.get('retry-after')).toBe('1');
    expect(saved.tookMs).toBeLessThan(databaseTimeoutMs + 1_000);
    primary.resume();
    await until(async () => (await callService(service, ltc, 'ada', { body: { careCosts: 3 } })).status === 200);
    await until(async () => (await ready(service)).body.writes === 'available');
  }, 30_000);

  test.concurrent('starts while the primary is down and serves the replica', async () => {
    const { primary, saved, second } = await startAgain((stopped) => stopped.kill());
    await until(async () => (await ready(second)).status === 200);
    expect(await callService(second, user, 'ada')).toMatchObject({ status: 200, body: saved.body });
    expect(await callService(second, '/v2/private/healthAndCare/', 'ada')).toMatchObject({ status: 200 });
    expect((await callService(second, ltc, 'ada', { body: { careCosts: 2 } })).status).toBe(503);
    await primary.start();
    await until(async () => (await callService(second, ltc, 'ada', { body: { careCosts: 2 } })).status === 200);
    // No line of the driver appears between the log lines.
    const log = second.output().slice(second.output().indexOf('\n{'));
    for (const line of log.split('\n').filter((each) => each !== '')) expect(line).toStartWith('{');
  }, 30_000);

  test.concurrent('starts while the primary is frozen and serves the replica', async () => {
    const { primary, saved, second } = await startAgain((stopped) => stopped.pause());
    await until(async () => (await callService(second, user, 'ada')).status === 200);
    const read = await callService(second, user, 'ada');
    expect(read.body).toEqual(saved.body);
    expect(read.tookMs).toBeLessThan(stallMs);
    primary.resume();
    await until(async () => (await callService(second, ltc, 'ada', { body: { careCosts: 2 } })).status === 200);
  }, 60_000);

  test.if(isLong)(
    'reads from the primary when the replica has not synced for seconds',
    async () => {
      const primary = await startPrimary();
      const service = await startWithReplica(primary, temporaryFolder());
      await follows(service);
      const [sync = ''] = await syncProcesses(service);
      await callService(service, ltc, 'ada', { body: { careCosts: 1 } });
      await Bun.sleep(500);
      process.kill(Number(sync), 'SIGSTOP');
      const other = await startService({ environment: serviceEnvironment(primary) });
      const saved = await callService(other, ltc, 'ada', { body: { careCosts: 2 } });
      await until(async () => Bun.deepEquals((await callService(service, user, 'ada')).body, saved.body));
      process.kill(Number(sync), 'SIGCONT');
    },
    60_000,
  );

  test.concurrent('returns 503 on its first start while the primary is down, then recovers', async () => {
    const primary = await startPrimary();
    await primary.kill();
    const service = await startWithReplica(primary, temporaryFolder());
    for (const path of [user, '/v2/private/cemetery/all', '/v2/private/healthAndCare/']) {
      const response = await callService(service, path, 'ada');
      expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
      expect(response.headers.get('retry-after')).toBe('1');
    }
    expect((await callService(service, ltc, 'ada', { body: {} })).status).toBe(503);
    expect((await ready(service)).status).toBe(503);
    await primary.start();
    await until(async () => (await ready(service)).status === 200);
    expect((await callService(service, ltc, 'ada', { body: { careCosts: 1 } })).status).toBe(200);
    await follows(service);
    await primary.kill();
    expect((await callService(service, '/v2/private/cemetery/all', 'ada')).status).toBe(200);
  }, 30_000);

  test.concurrent('shares its file with another instance, which syncs it when the first is killed', async () => {
    const primary = await startPrimary();
    const cwd = temporaryFolder();
    const first = await startWithReplica(primary, cwd);
    await follows(first);
    const second = await startWithReplica(primary, cwd);
    await until(() => second.output().includes('held-by-another-process'));
    await callService(first, ltc, 'ada', { body: { careCosts: 1 } });
    await until(async () => (await callService(second, user, 'ada')).status === 200);
    first.process.kill('SIGKILL');
    await follows(second);
    expect((await callService(second, ltc, 'ada', { body: { careCosts: 2 } })).status).toBe(200);
  }, 30_000);

  test.concurrent('leaves no child process, however it ends', async () => {
    const primary = await startPrimary();
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      const cwd = temporaryFolder();
      const service = await startWithReplica(primary, cwd);
      await follows(service);
      expect(await syncProcesses(service)).toHaveLength(1);
      const [sync = ''] = await syncProcesses(service);
      service.process.kill(signal);
      await service.process.exited;
      await until(async () => !(await Bun.file(join('/proc', sync, 'cmdline')).exists()));
    }
  }, 30_000);
});

/** The ids of the child processes. */
async function syncProcesses(service: Service): Promise<string[]> {
  const path = `/proc/${service.process.pid}/task/${service.process.pid}/children`;
  return (await Bun.file(path).text()).split(' ').filter((id) => id !== '');
}
