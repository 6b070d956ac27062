import { beforeAll, describe, expect, test } from 'bun:test';
import { randomInt } from 'node:crypto';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { readShippedCatalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { UserBody } from '../../src/modules/users/model';
import { createUserStore } from '../../src/modules/users/store';
import { applicant, mergePatch } from '../support/app';
import { createProduction, type Production, startInProcess } from '../support/processes';
import { amount, never, temporaryFolder, until } from '../support/resources';
import { hasSqld, type Sqld, startPrimary, startSqld } from '../support/servers';

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
const cemeteries = '/v2/private/cemetery/all';

type Instance = Pick<Production, 'call' | 'logLines'>;

const replicaIn = (folder: string) => ({
  DATABASE_REPLICA_PATH: join(folder, 'planning.db'),
  DATABASE_SYNC_INTERVAL_MS: '100',
});
const save = ({ call }: Instance, as: string, careCosts: number) => call('POST', ltc, { as, body: { careCosts } });
const read = ({ call }: Instance, as = 'ada') => call('GET', user, { as });
const ready = ({ call }: Instance) => call('GET', '/health/ready');
const logs = ({ logLines }: Instance, words: string) => logLines().some(({ msg }) => msg.includes(words));
const unavailable = { status: 503, body: { type: '/problems/database-unavailable' } };

describe.skipIf(!hasSqld)(
  'four instances on one primary, two with a replica server and one with a replica file',
  () => {
    let primary: Sqld;
    let replica: Sqld;
    let sandbox: Awaited<ReturnType<typeof createProduction>>['sandbox'];
    let instances: readonly Instance[];
    beforeAll(async () => {
      primary = await startPrimary();
      const replicas = await Promise.all([startSqld({ replicaOf: primary }), startSqld({ replicaOf: primary })]);
      replica = replicas[0];
      // On a busy machine a save that times out would leave the stored state unknown.
      const common = { DATABASE_URL: primary.url, DATABASE_TIMEOUT_MS: '10000', RATE_LIMIT_PER_MINUTE: '0' };
      const production = await createProduction(common, { isEmpty: true });
      sandbox = production.sandbox;
      // Two are processes, so that a state of the module that the others share would show.
      instances = await Promise.all([
        production.start({ environment: { DATABASE_READ_URL: replicas[0].url } }),
        startInProcess({ ...production.settings, DATABASE_READ_URL: replicas[1].url }),
        production.start({ environment: replicaIn(temporaryFolder()) }),
        startInProcess(production.settings),
      ]);
    }, 60_000);
    const instanceFor = (index: number) => instances[index % instances.length] ?? never();

    test.concurrent('keep each record equal to a model, and read nothing older than the last save of the same user', async () => {
      const seed = randomInt(1 << 30);
      const choose = chooserOf(seed);
      const live = async (as: string) => {
        let model: Record<string, unknown> = {};
        let tag = '';
        for (let count = 0; count < amount({ long: 20, short: 6 }); count += 1) {
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
        for (const instance of instances) {
          let response = await read(instance, as);
          await until(async () => {
            response = await read(instance, as);
            return response.headers.get('etag') === tag;
          });
          const { profile, ltc, lifeInsurance, lifetimeCare } = v.parse(UserBody, response.body).user;
          expect(present({ profile, ltc: ltc.lifetimeCare, lifeInsurance, lifetimeCare })).toEqual(present(model));
        }
      };
      const people = Array.from({ length: amount({ long: 64, short: 6 }) }, (_, index) => `person-${index}`);
      await Promise.all(people.map(live)).catch((error: unknown) => {
        throw new Error(`with seed ${seed}`, { cause: error });
      });
    });

    test.concurrent('start one application for simultaneous requests of one user, and settle each open one once', async () => {
      const before = await sandbox.store.count();
      const start = (index: number, as: string, body: object) =>
        instanceFor(index).call('POST', '/v2/private/ltc/totalCoverage', { as, body: { ...applicant, ...body } });
      const responses = await Promise.all(Array.from({ length: 24 }, (_, index) => start(index, 'applicant', {})));
      // A request that waited too long for the first gets 409.
      for (const { status } of responses) expect([200, 409]).toContain(status);
      const accepted = responses.filter(({ status }) => status === 200);
      const numbers = accepted.map(({ body }) => v.parse(UserBody, body).user.purchase.partner?.appNumber);
      expect(new Set(numbers).size).toBe(1);
      expect((await sandbox.store.count()) - before).toBe(1);

      // The carrier accepts, and its responses are lost.
      const dropped = await Promise.all(
        Array.from({ length: 4 }, (_, index) =>
          start(index, `dropped-${index}`, { lastName: 'Dropped', email: `dropped-${index}@example.com` }),
        ),
      );
      expect(dropped.map(({ status }) => status)).toEqual([503, 503, 503, 503]);
      const db = await openDatabase({ url: primary.url, timeoutMs: 10_000 });
      const countsOf = async (sql: string) => (await db.$client.execute(sql)).rows.map((row) => Object.values(row));
      const states = "SELECT state, count(*) FROM applications WHERE user_id LIKE 'dropped-%' GROUP BY state";
      await until(async () => Bun.deepEquals(await countsOf(states), [['submitted', 4]]));
      // One attempt each: no two instances claimed the same application.
      const attempts =
        await countsOf(`SELECT application_attempts.attempt, count(*) FROM application_attempts JOIN applications
      ON applications.id = application_id WHERE application_attempts.attempt > 1 AND user_id LIKE 'dropped-%' GROUP BY 1`);
      expect(attempts).toEqual([[2, 4]]);
      expect((await sandbox.store.count()) - before).toBe(5);
      db.$client.close();
    });

    test.concurrent('notice a new catalogue', async () => {
      const db = await openDatabase({ url: primary.url, timeoutMs: 10_000 });
      const catalog = readShippedCatalog();
      const products = catalog.products.slice(0, 3);
      await createCatalogStore(db).add(
        { ...catalog, products },
        { source: 'imported', contentHash: 'three', now: new Date() },
      );
      db.$client.close();
      const hasNoticed = async ({ call }: Instance) => {
        const { body } = await call('POST', '/v2/private/engine/matches', { as: 'matched', body: {} });
        const { matches } = v.parse(UserBody, body).user.insurance;
        return (matches?.remainingMatches.length ?? 0) + (matches?.bestMatch ? 1 : 0) === products.length;
      };
      for (const instance of instances) await until(() => hasNoticed(instance));
    });

    test('lose no acknowledged save, return 503 while the primary is away, and recover after its restart', async () => {
      const savers = Array.from({ length: 16 }, (_, index) => ({
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
      await until(() => savers.every(({ acknowledged }) => acknowledged >= 3));
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
        const { body } = await read(instanceFor(3), id);
        expect(v.parse(UserBody, body).user.ltc.lifetimeCare?.careCosts).toBeGreaterThanOrEqual(acknowledged);
      }
    });

    test('keep reading while a replica server freezes, is killed, and restarts', async () => {
      const instance = instanceFor(0);
      expect((await save(instance, 'reader', 1)).status).toBe(200);
      const readAll = async () => {
        const reads = await Promise.all(Array.from({ length: 20 }, () => read(instance, 'reader')));
        expect([...new Set(reads.map(({ status }) => status))]).toEqual([200]);
      };
      const readUntil = (reason?: string) =>
        until(async () => {
          await readAll();
          const last = instance.logLines().findLast(({ msg }) => msg.startsWith('the replica '));
          return last?.reason === reason;
        });
      await readUntil();
      replica.pause();
      await readUntil('replica-unreachable');
      await replica.kill();
      await readAll();
      await replica.start();
      await readUntil();
      expect((await ready(instance)).body).toEqual({ status: 'ready', writes: 'available' });
    });
  },
);

/** A primary of its own, with a record of `ada`, and instances with a replica file. */
async function createReplicated(DATABASE_TIMEOUT_MS = '1000') {
  const primary = await startPrimary();
  const db = await openServiceDatabase({ url: primary.url, timeoutMs: 10_000 });
  const ids = { userId: 'ada', requestId: 'request-1', now: new Date() };
  await createUserStore(db).saveSection({ ...ids, section: 'ltcLifetimeCare', patch: { careCosts: 1 } });
  db.$client.close();
  const settings = { DATABASE_URL: primary.url, DATABASE_TIMEOUT_MS };
  const production = await createProduction(settings, { isEmpty: true });
  const folder = temporaryFolder();
  return {
    primary,
    folder,
    startProcess: (at = folder) => production.start({ environment: replicaIn(at) }),
    start: (at = folder) => startInProcess({ ...production.settings, ...replicaIn(at) }),
    follows: (instance: Instance) => until(() => logs(instance, 'the replica follows the primary')),
    recovers: (instance: Instance) => until(async () => (await save(instance, 'eve', 2)).status === 200),
  };
}

async function childrenOf({ process: { pid } }: Production): Promise<string[]> {
  return (await Bun.file(`/proc/${pid}/task/${pid}/children`).text()).split(' ').filter((id) => id !== '');
}

const isEnded = async (id = '') => !(await Bun.file(join('/proc', id, 'cmdline')).exists());

describe.skipIf(!hasSqld)('an instance with a replica file', () => {
  test.concurrent('keeps reading without delay while the primary is frozen, and writes again when it resumes', async () => {
    const { primary, start, follows, recovers } = await createReplicated('3000');
    const instance = await start();
    await follows(instance);
    primary.pause();
    let isSaving = true;
    const saving = save(instance, 'bob', 2).finally(() => {
      isSaving = false;
    });
    const readAll = async () => {
      const responses = [await read(instance), await instance.call('GET', cemeteries, { as: 'ada' })];
      expect(responses.map(({ status }) => status)).toEqual([200, 200]);
    };
    // Reads that wait for a quarter of the deadline would take longer than the save.
    for (let round = 0; round < 5; round += 1) await readAll();
    expect(isSaving).toBeTrue();
    expect((await ready(instance)).status).toBe(200);
    // The long form lasts until the replica would be too old.
    const endsAtMs = performance.now() + amount({ long: 12_000, short: 0 });
    for (; isSaving || performance.now() < endsAtMs; await Bun.sleep(100)) await readAll();
    await until(async () => (await ready(instance)).text.includes('"writes":"unavailable"'));
    const saved = await saving;
    expect(saved).toMatchObject(unavailable);
    expect(saved.headers.get('retry-after')).toBe('1');
    primary.resume();
    await recovers(instance);
    await until(async () => (await ready(instance)).text.includes('"writes":"available"'));
  });

  test.concurrent('starts while the primary is frozen or down and serves the replica, and leaves no child process after SIGTERM', async () => {
    const { primary, folder, start, startProcess, follows, recovers } = await createReplicated();
    const first = await start();
    await follows(first);
    const { body: record } = await read(first);
    // The files as a kill would leave them.
    const [killed, other] = [temporaryFolder(), temporaryFolder()];
    for (const copy of [killed, other]) cpSync(folder, copy, { recursive: true });
    await first.stop();

    primary.pause();
    const atFrozen = await start(killed);
    await until(async () => (await read(atFrozen)).status === 200);
    expect((await read(atFrozen)).body).toEqual(record);
    primary.resume();
    await recovers(atFrozen);
    await atFrozen.stop();

    await primary.kill();
    const instance = await startProcess(other);
    await until(async () => (await ready(instance)).status === 200);
    expect(await read(instance)).toMatchObject({ status: 200, body: record });
    expect((await instance.call('GET', '/v2/private/healthAndCare/', { as: 'ada' })).status).toBe(200);
    expect((await save(instance, 'eve', 2)).status).toBe(503);
    await primary.start();
    await recovers(instance);
    // No line of the driver appears among the log lines.
    for (const line of instance.output().trim().split('\n')) expect(line).toStartWith('{');
    const children = await childrenOf(instance);
    expect(children).toHaveLength(1);
    instance.process.kill('SIGTERM');
    await instance.process.exited;
    await until(() => isEnded(children[0]));
  });

  test.concurrent('returns 503 on its first start while the primary is down, then recovers', async () => {
    const { primary, start, follows, recovers } = await createReplicated();
    await primary.kill();
    const instance = await start();
    for (const path of [user, cemeteries, '/v2/private/healthAndCare/']) {
      const response = await instance.call('GET', path, { as: 'ada' });
      expect(response).toMatchObject(unavailable);
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
  });

  test.concurrent('shares its file with another, which syncs it when the first and its child process are killed', async () => {
    const { start, startProcess, follows } = await createReplicated();
    const first = await startProcess();
    await follows(first);
    const second = await start();
    await until(() => second.logLines().some(({ reason }) => reason === 'held-by-another-process'));
    await save(first, 'cleo', 1);
    await until(async () => (await read(second, 'cleo')).status === 200);
    const children = await childrenOf(first);
    expect(children).toHaveLength(1);
    first.process.kill('SIGKILL');
    await until(() => isEnded(children[0]));
    await follows(second);
    expect((await save(second, 'cleo', 2)).status).toBe(200);
  });
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
