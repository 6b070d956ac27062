import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { randomInt } from 'node:crypto';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { readShippedCatalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { UserBody } from '../../src/modules/users/model';
import { applicant, mergePatch } from '../support/app';
import { amount, cleanUp, never, until } from '../support/resources';
import { hasSqld } from '../support/servers';
import { type Cluster, chooseBy, startCluster, type TimedResponse } from './cluster';

const user = '/v2/private/user';

interface Save {
  readonly path: string;
  readonly section: string;
  readonly patches: readonly object[];
}
const saves: readonly Save[] = [
  {
    path: '/v2/private/user/profile',
    section: 'profile',
    patches: [{ firstName: 'Ada' }, { heightCm: 170, weightKg: 70.5 }, { firstName: null, seriousIllness: false }],
  },
  {
    path: '/v2/private/ltc/lifetimeCare',
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

const Applications = v.object({
  user: v.object({ purchase: v.object({ partner: v.object({ appNumber: v.number() }) }) }),
});

describe.skipIf(!hasSqld)('four instances on one primary, three with a replica', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    // On a busy machine a save that times out would leave the stored state unknown.
    cluster = await startCluster({ DATABASE_TIMEOUT_MS: '15000' });
  }, 60_000);
  afterAll(cleanUp);

  test('keep each record equal to a model, and read nothing older than the last save of the same user', async () => {
    const { services, call } = cluster;
    const seed = randomInt(1 << 30);
    const choose = chooseBy(seed);
    const people = amount({ long: 500, short: 12 });
    const savesEach = amount({ long: 20, short: 8 });

    const live = async (id: string) => {
      let model: Record<string, unknown> = {};
      let lastTag = '';
      for (let count = 0; count < savesEach; count += 1) {
        const service = choose(services);
        const { path, section, patches } = choose(saves);
        const patch = choose(patches);
        const saved = await call(service, path, id, { body: patch });
        expect(saved.status).toBe(200);
        const merged = mergePatch(model[section], patch);
        model = { ...model, [section]: merged };
        lastTag = saved.headers.get('etag') ?? '';
        // The same instance, and any other that receives the ETag, shows the save.
        const near = await call(service, user, id);
        expect(near.headers.get('etag')).toBe(lastTag);
        expect((await call(choose(services), user, id, { ifNoneMatch: lastTag })).status).toBe(304);
      }
      for (const service of services) {
        const response = await untilSynced(() => call(service, user, id), lastTag);
        // A stale replica and a wrong record are different failures.
        expect(response.headers.get('etag')).toBe(lastTag);
        expect(sectionsOf(v.parse(UserBody, response.body).user)).toEqual(present(model));
      }
    };
    // A failure names the seed, which repeats the run.
    const waiting = Array.from({ length: people }, (_, index) => `person-${index}`);
    const atOnce = Array.from({ length: 64 }, async () => {
      for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) await live(id);
    });
    await Promise.all(atOnce).catch((error: unknown) => {
      throw new Error(`with seed ${seed}`, { cause: error });
    });
  }, 300_000);

  test('start one application for a hundred simultaneous requests of one user', async () => {
    const { services, sandbox, call } = cluster;
    const responses = await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        call(services[index % 4] ?? never(), '/v2/private/ltc/totalCoverage', 'applicant', {
          body: applicant,
        }),
      ),
    );
    const accepted = responses.filter(({ status }) => status === 200);
    // A request that waited too long for the first gets 409.
    expect(responses.filter(({ status }) => status !== 200 && status !== 409).map(({ status }) => status)).toEqual([]);
    const numbers = new Set(accepted.map(({ body }) => v.parse(Applications, body).user.purchase.partner.appNumber));
    expect(accepted.length).toBeGreaterThan(0);
    expect(numbers.size).toBe(1);
    expect(await sandbox.store.count()).toBe(1);
  }, 60_000);

  test('settle each open application once, and all notice a new catalogue', async () => {
    const { services, primary, sandbox, call } = cluster;
    const before = await sandbox.store.count();
    const people = Array.from({ length: 8 }, (_, index) => `dropped-${index}`);
    // The carrier accepts, and its responses are lost.
    const starts = people.map((id, index) => {
      const body = { ...applicant, lastName: 'Dropped', email: `${id}@example.com` };
      return call(services[index % 4] ?? never(), '/v2/private/life/totalCoverage', id, { body });
    });
    expect([...new Set((await Promise.all(starts)).map(({ status }) => status))]).toEqual([503]);

    const db = await openDatabase({ url: primary.url, timeoutMs: 10_000 });
    const catalog = readShippedCatalog();
    const products = catalog.products.slice(0, 3);
    const by = { source: 'imported', contentHash: 'three', now: new Date() } as const;
    await createCatalogStore(db).add({ ...catalog, products }, by);
    for (const service of services) {
      await until(async () => {
        const { body } = await call(service, '/v2/private/engine/matches', 'matched', { body: {} });
        const { matches } = v.parse(UserBody, body).user.insurance;
        return (matches?.remainingMatches.length ?? 0) + (matches?.bestMatch ? 1 : 0) === products.length;
      });
    }

    const { rows: open } = await db.$client.execute("SELECT id FROM applications WHERE user_id LIKE 'dropped-%'");
    expect(open).toHaveLength(people.length);
    await until(async () => {
      const { rows } = await db.$client.execute(
        "SELECT count(*) AS n FROM applications WHERE user_id LIKE 'dropped-%' AND state = 'submitted'",
      );
      return rows[0]?.n === people.length;
    });
    // One attempt each: no two instances claimed the same application.
    const { rows: attempts } = await db.$client.execute(`SELECT attempt, count(*) AS n FROM application_attempts
      WHERE attempt > 1 AND application_id IN (SELECT id FROM applications WHERE user_id LIKE 'dropped-%')
      GROUP BY attempt`);
    expect(attempts.map(({ attempt, n }) => [attempt, n])).toEqual([[2, people.length]]);
    expect(await sandbox.store.count()).toBe(before + people.length);
    db.$client.close();
  }, 90_000);
});

/** Reads until the record has the ETag, for as long as a replica may lag on a busy machine. */
async function untilSynced(read: () => Promise<TimedResponse>, tag: string): Promise<TimedResponse> {
  for (const deadlineMs = performance.now() + 60_000; ; await Bun.sleep(20)) {
    const response = await read();
    if (response.headers.get('etag') === tag || performance.now() > deadlineMs) return response;
  }
}

/** The sections of a record, in the form of the model. */
function sectionsOf({ profile, ltc, lifeInsurance, lifetimeCare }: UserBody['user']): Record<string, unknown> {
  return present({ profile, ltc: ltc.lifetimeCare, lifeInsurance, lifetimeCare });
}

/** Removes empty sections. */
function present(sections: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(sections).filter(([, value]) => value !== undefined && !Bun.deepEquals(value, {}, true)),
  );
}
