import { beforeAll, describe, expect, test } from 'bun:test';
import { randomInt } from 'node:crypto';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { readShippedCatalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { UserBody } from '../../src/modules/users/model';
import { applicant, type Call, callerOf, mergePatch, type Sandbox, startSandbox, testSecret } from '../support/app';
import { type Service, startService } from '../support/processes';
import { amount, isLong, never, temporaryFolder, until } from '../support/resources';
import { hasSqld, type Sqld, startPrimary, startSqld } from '../support/servers';

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
const cemeteries = '/v2/private/cemetery/all';

interface Instance extends Service {
  readonly call: Call;
}

async function startInstance(primary: Sqld, settings: Record<string, string> = {}, cwd?: string): Promise<Instance> {
  const environment = {
    DATABASE_URL: primary.url,
    DATABASE_TIMEOUT_MS: '2000',
    AUTH_SECRET: testSecret,
    LOG_LEVEL: 'error',
    ...settings,
  };
  const service = await startService({ environment, ...(cwd === undefined ? {} : { cwd }) });
  return { ...service, call: callerOf(service.address) };
}

const embedded = { DATABASE_REPLICA_PATH: 'replica/planning.db', DATABASE_SYNC_INTERVAL_MS: '100' };
const save = ({ call }: Instance, as: string, careCosts: number) => call('POST', ltc, { as, body: { careCosts } });

describe.skipIf(!hasSqld)(
  'four instances on one primary, two with a replica server and one with a replica file',
  () => {
    let primary: Sqld;
    let replica: Sqld;
    let sandbox: Sandbox;
    let instances: readonly Instance[];
    beforeAll(async () => {
      primary = await startPrimary();
      const replicas = await Promise.all([startSqld({ replicaOf: primary }), startSqld({ replicaOf: primary })]);
      replica = replicas[0];
      sandbox = await startSandbox(() => new Date());
      // On a busy machine a save that times out would leave the stored state unknown.
      const settings = { DATABASE_TIMEOUT_MS: '10000', CARRIER_URL: sandbox.url, CARRIER_API_KEY: 'test-key' };
      const readers = [...replicas.map(({ url }) => ({ DATABASE_READ_URL: url })), embedded, {}];
      instances = await Promise.all(readers.map((reader) => startInstance(primary, { ...settings, ...reader })));
    }, 60_000);
    const instanceFor = (index: number) => instances[index % instances.length] ?? never();

    test('keep each record equal to a model, and read nothing older than the last save of the same user', async () => {
      const seed = randomInt(1 << 30);
      const choose = chooserOf(seed);
      const live = async (as: string) => {
        let model: Record<string, unknown> = {};
        let tag = '';
        for (let count = 0; count < amount({ long: 20, short: 8 }); count += 1) {
          const { call } = choose(instances);
          const { path, section, patches } = choose(saves);
          const patch = choose(patches);
          const saved = await call('POST', path, { as, body: patch });
          expect(saved.status).toBe(200);
          model = { ...model, [section]: mergePatch(model[section], patch) };
          tag = saved.headers.get('etag') ?? '';
          // The same instance, and any other that receives the ETag, shows the save.
          expect((await call('GET', user, { as })).headers.get('etag')).toBe(tag);
          const known = { as, headers: { 'if-none-match': tag } };
          expect((await choose(instances).call('GET', user, known)).status).toBe(304);
        }
        for (const { call } of instances) {
          let response = await call('GET', user, { as });
          await until(async () => {
            response = await call('GET', user, { as });
            return response.headers.get('etag') === tag;
          });
          const { profile, ltc, lifeInsurance, lifetimeCare } = v.parse(UserBody, response.body).user;
          expect(present({ profile, ltc: ltc.lifetimeCare, lifeInsurance, lifetimeCare })).toEqual(present(model));
        }
      };
      const waiting = Array.from({ length: amount({ long: 500, short: 12 }) }, (_, index) => `person-${index}`);
      const lanes = Array.from({ length: 64 }, async () => {
        for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) await live(id);
      });
      await Promise.all(lanes).catch((error: unknown) => {
        throw new Error(`with seed ${seed}`, { cause: error });
      });
    }, 300_000);

    test('start one application for a hundred simultaneous requests of one user', async () => {
      const before = await sandbox.store.count();
      const requests = Array.from({ length: 100 }, (_, index) =>
        instanceFor(index).call('POST', '/v2/private/ltc/totalCoverage', { as: 'applicant', body: applicant }),
      );
      const responses = await Promise.all(requests);
      const accepted = responses.filter(({ status }) => status === 200);
      // A request that waited too long for the first gets 409.
      expect(responses.filter(({ status }) => status !== 200 && status !== 409).map(({ status }) => status)).toEqual(
        [],
      );
      const numbers = accepted.map(({ body }) => v.parse(UserBody, body).user.purchase.partner?.appNumber);
      expect(new Set(numbers).size).toBe(1);
      expect((await sandbox.store.count()) - before).toBe(1);
    }, 60_000);

    test('settle each open application once, and all notice a new catalogue', async () => {
      const before = await sandbox.store.count();
      // The carrier accepts, and its responses are lost.
      const starts = Array.from({ length: 8 }, (_, index) => {
        const body = { ...applicant, lastName: 'Dropped', email: `dropped-${index}@example.com` };
        return instanceFor(index).call('POST', '/v2/private/life/totalCoverage', { as: `dropped-${index}`, body });
      });
      expect([...new Set((await Promise.all(starts)).map(({ status }) => status))]).toEqual([503]);

      const db = await openDatabase({ url: primary.url, timeoutMs: 10_000 });
      const catalog = readShippedCatalog();
      const products = catalog.products.slice(0, 3);
      const origin = { source: 'imported', contentHash: 'three', now: new Date() } as const;
      await createCatalogStore(db).add({ ...catalog, products }, origin);
      for (const { call } of instances) {
        await until(async () => {
          const { body } = await call('POST', '/v2/private/engine/matches', { as: 'matched', body: {} });
          const { matches } = v.parse(UserBody, body).user.insurance;
          return (matches?.remainingMatches.length ?? 0) + (matches?.bestMatch ? 1 : 0) === products.length;
        });
      }

      const dropped = "user_id LIKE 'dropped-%'";
      await until(async () => {
        const { rows } = await db.$client.execute(
          `SELECT state, count(*) AS n FROM applications WHERE ${dropped} GROUP BY 1`,
        );
        return Bun.deepEquals(
          rows.map(({ state, n }) => [state, n]),
          [['submitted', 8]],
        );
      });
      // One attempt each: no two instances claimed the same application.
      const { rows } = await db.$client.execute(`SELECT attempt, count(*) AS n FROM application_attempts
      WHERE attempt > 1 AND application_id IN (SELECT id FROM applications WHERE ${dropped}) GROUP BY attempt`);
      expect(rows.map(({ attempt, n }) => [attempt, n])).toEqual([[2, 8]]);
      expect((await sandbox.store.count()) - before).toBe(8);
      db.$client.close();
    }, 90_000);

    test('lose no acknowledged save, return 503 while the primary is away, and recover after its restart', async () => {
      const savers = Array.from({ length: 32 }, (_, index) => ({
        id: `saver-${index}`,
        acknowledged: 0,
        sinceRestart: 0,
      }));
      const refusals: (string | null)[] = [];
      const others: number[] = [];
      let phase: 'before' | 'restarted' | 'over' = 'before';
      const saving = Promise.all(
        savers.map(async (saver, index) => {
          for (let value = 1; phase !== 'over'; value += 1) {
            const { status, headers } = await save(instanceFor(index), saver.id, value);
            if (status === 200) {
              saver.acknowledged = value;
              if (phase === 'restarted') saver.sinceRestart += 1;
            } else if (status === 503) refusals.push(headers.get('retry-after'));
            else others.push(status);
            if (status !== 200) await Bun.sleep(20);
          }
        }),
      );
      await until(() => savers.every(({ acknowledged }) => acknowledged >= 5));
      await primary.kill();
      // While the primary is away, each saver gets a response.
      await until(() => refusals.length >= 2 * savers.length);
      await primary.start();
      phase = 'restarted';
      await until(() => savers.every(({ sinceRestart }) => sinceRestart > 0));
      phase = 'over';
      await saving;
      expect(others).toEqual([]);
      expect([...new Set(refusals)]).toEqual(['1']);
      for (const { id, acknowledged } of savers) {
        const read = await instanceFor(3).call('GET', user, { as: id });
        expect(v.parse(UserBody, read.body).user.ltc.lifetimeCare?.careCosts).toBeGreaterThanOrEqual(acknowledged);
      }
    }, 60_000);

    test('keep reading while a replica server freezes, is killed, and restarts', async () => {
      const instance = instanceFor(0);
      expect((await save(instance, 'reader', 1)).status).toBe(200);
      /** The milliseconds of the slowest of 20 reads. */
      const read = async () => {
        const startedAtMs = performance.now();
        const reads = Array.from({ length: 20 }, () => instance.call('GET', user, { as: 'reader' }));
        expect([...new Set((await Promise.all(reads)).map(({ status }) => status))]).toEqual([200]);
        return performance.now() - startedAtMs;
      };
      await read();
      replica.pause();
      // The first read waits for a part of the deadline, then the circuit opens.
      const waited = await read();
      expect(await read()).toBeLessThan(waited);
      await replica.kill();
      await read();
      await replica.start();
      await Bun.sleep(1_100);
      await read();
      expect((await instance.call('GET', '/health/ready')).body).toEqual({ status: 'ready', writes: 'available' });
    }, 60_000);
  },
);

describe.skipIf(!hasSqld)('an instance with a replica file', () => {
  let primary: Sqld;
  /** The folder of an instance that was killed after it had synced one save of `ada`, with the record. */
  let synced: { readonly folder: string; readonly record: unknown };
  const start = async (cwd = temporaryFolder()) => startInstance(primary, { ...embedded, LOG_LEVEL: 'info' }, cwd);
  const startSynced = async () => {
    const cwd = temporaryFolder();
    cpSync(synced.folder, cwd, { recursive: true });
    return start(cwd);
  };
  const follows = (instance: Instance) => until(() => instance.output().includes('the replica follows the primary'));
  const read = ({ call }: Instance, as = 'ada') => call('GET', user, { as });
  const ready = ({ call }: Instance) => call('GET', '/health/ready');
  const recovers = (instance: Instance) => until(async () => (await save(instance, 'eve', 2)).status === 200);

  beforeAll(async () => {
    primary = await startPrimary();
    const folder = temporaryFolder();
    const first = await start(folder);
    await follows(first);
    const record = (await save(first, 'ada', 1)).body;
    await Bun.sleep(500);
    // SIGKILL allows no clean shutdown of the replica.
    first.process.kill('SIGKILL');
    await first.process.exited;
    synced = { folder, record };
  }, 60_000);

  test('keeps reading without delay while the primary is frozen, and writes again when it resumes', async () => {
    const instance = await start();
    await follows(instance);
    await until(async () => (await read(instance)).status === 200);
    primary.pause();
    let isSaving = true;
    const saving = save(instance, 'bob', 2).finally(() => {
      isSaving = false;
    });
    let rounds = 0;
    // The long form lasts until the replica would be too old.
    const endsAtMs = performance.now() + amount({ long: 12_000, short: 0 });
    for (; isSaving || performance.now() < endsAtMs; await Bun.sleep(50)) {
      const [own, list, health] = await Promise.all([
        read(instance),
        instance.call('GET', cemeteries, { as: 'ada' }),
        ready(instance),
      ]);
      expect([own.status, list.status, health.status]).toEqual([200, 200, 200]);
      if (isSaving) rounds += 1;
    }
    // Four rounds would take all of the time if each read waited for the primary.
    expect(rounds).toBeGreaterThan(4);
    await until(async () => (await ready(instance)).text.includes('"writes":"unavailable"'));
    const saved = await saving;
    expect(saved).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect(saved.headers.get('retry-after')).toBe('1');
    primary.resume();
    await recovers(instance);
    await until(async () => (await ready(instance)).text.includes('"writes":"available"'));
  }, 30_000);

  test('starts while the primary is down and serves the replica', async () => {
    await primary.kill();
    const instance = await startSynced();
    await until(async () => (await ready(instance)).status === 200);
    expect(await read(instance)).toMatchObject({ status: 200, body: synced.record });
    expect((await instance.call('GET', '/v2/private/healthAndCare/', { as: 'ada' })).status).toBe(200);
    expect((await save(instance, 'eve', 2)).status).toBe(503);
    await primary.start();
    await recovers(instance);
    // No line of the driver appears among the log lines.
    const log = instance.output().replace(/^Personal planning service\n[\s\S]*?\n {2}curl .*\n/m, '');
    for (const line of log.split('\n').filter((each) => each !== '')) expect(line).toStartWith('{');
  }, 30_000);

  test('starts while the primary is frozen and serves the replica', async () => {
    primary.pause();
    const instance = await startSynced();
    await until(async () => (await read(instance)).status === 200);
    expect((await read(instance)).body).toEqual(synced.record);
    primary.resume();
    await recovers(instance);
  }, 60_000);

  test('returns 503 on its first start while the primary is down, then recovers', async () => {
    await primary.kill();
    const instance = await start();
    for (const path of [user, cemeteries, '/v2/private/healthAndCare/']) {
      const response = await instance.call('GET', path, { as: 'ada' });
      expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
      expect(response.headers.get('retry-after')).toBe('1');
    }
    expect((await save(instance, 'eve', 1)).status).toBe(503);
    expect((await ready(instance)).status).toBe(503);
    await primary.start();
    await until(async () => (await ready(instance)).status === 200);
    await recovers(instance);
    await follows(instance);
    await primary.kill();
    expect((await instance.call('GET', cemeteries, { as: 'ada' })).status).toBe(200);
    await primary.start();
  }, 30_000);

  test('shares its file with another instance, which syncs it when the first is killed', async () => {
    const cwd = temporaryFolder();
    const first = await start(cwd);
    await follows(first);
    const second = await start(cwd);
    await until(() => second.output().includes('held-by-another-process'));
    await save(first, 'cleo', 1);
    await until(async () => (await read(second, 'cleo')).status === 200);
    first.process.kill('SIGKILL');
    await follows(second);
    expect((await save(second, 'cleo', 2)).status).toBe(200);
  }, 30_000);

  test.each(['SIGTERM', 'SIGKILL'] as const)(
    'leaves no child process after %s',
    async (signal) => {
      const instance = await start();
      await follows(instance);
      const children = await childrenOf(instance);
      expect(children).toHaveLength(1);
      instance.process.kill(signal);
      await instance.process.exited;
      await until(async () => !(await Bun.file(join('/proc', children[0] ?? '', 'cmdline')).exists()));
    },
    30_000,
  );

  test.if(isLong)(
    'reads from the primary when the replica has not synced for seconds',
    async () => {
      const [instance, other] = [await start(), await startInstance(primary)];
      await follows(instance);
      const sync = Number((await childrenOf(instance))[0]);
      process.kill(sync, 'SIGSTOP');
      const saved = await save(other, 'ada', 2);
      await until(async () => Bun.deepEquals((await read(instance)).body, saved.body));
      process.kill(sync, 'SIGCONT');
    },
    60_000,
  );
});

const saves: readonly { path: string; section: string; patches: readonly object[] }[] = [
  {
    path: '/v2/private/user/profile',
    section: 'profile',
    patches: [{ firstName: 'Ada' }, { heightCm: 170, weightKg: 70.5 }, { firstName: null, seriousIllness: false }],
  },
  {
    path: ltc,
    section: 'ltc',
    patches: [
      { careCosts: 4500 },
      { careCosts: null, insuranceCover: ['donation'] },
      { insuranceCover: [], policyValue: 0.1 },
    ],
  },
  {
    path: '/v2/private/deepDives/lifeInsurance',
    section: 'lifeInsurance',
    patches: [{ livingStatus: 'stayHome' }, { billsAndDebt: ['mortgage', 'cc'] }, { livingStatus: null }],
  },
  {
    path: '/v2/private/deepDives/lifetimeCare',
    section: 'lifetimeCare',
    patches: [{ careSafety: 12.25 }, { careFacilityType: 'inHome' }, { careSafety: null }],
  },
];

/** Removes empty sections. */
function present(sections: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(sections).filter(([, value]) => value !== undefined && !Bun.deepEquals(value, {}, true)),
  );
}

/** Chooses items pseudo-randomly; the same seed repeats the choices. */
function chooserOf(seed: number) {
  let state = seed;
  return <Item>(items: readonly Item[]): Item => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return items[(state >> 8) % items.length] ?? never();
  };
}

async function childrenOf({ process: { pid } }: Instance): Promise<string[]> {
  return (await Bun.file(`/proc/${pid}/task/${pid}/children`).text()).split(' ').filter((id) => id !== '');
}
