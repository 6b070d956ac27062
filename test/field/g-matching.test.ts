import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { createRateLimits } from '../../src/http/rate-limits';
import { ApplicationsBody } from '../../src/modules/coverage/service';
import { parseCatalog } from '../../src/modules/matching/catalog-check';
import { UserBody } from '../../src/modules/users/model';
import { createUserStore } from '../../src/modules/users/store';
import type { Carrier, CarrierDecision } from '../../src/shared/carrier';
import { applicant, coverageServiceOf, createTestApp, type TestApp } from '../support/app';
import { beforeStatements } from '../support/database';

const paths = {
  matches: '/v2/private/engine/matches',
  profile: '/v2/private/user/profile',
  user: '/v2/private/user',
  applications: '/v2/private/user/applications',
} as const;

describe('a match of a busy record', () => {
  /** An app whose database calls `moves` before it stores each match of the record of `ada`. */
  async function movingApp(moves: (store: ReturnType<typeof createUserStore>, count: number) => Promise<unknown>) {
    const testApp = await createTestApp();
    await testApp.call('POST', paths.profile, { as: 'ada', body: { seriousIllness: true } });
    const store = createUserStore(testApp.db);
    let count = 0;
    const moving = beforeStatements(testApp.db, async (sql) => {
      if (/^update "users" set "insurance"/.test(sql)) {
        count += 1;
        await moves(store, count);
      }
    });
    return { testApp, app: await createTestApp({ db: moving }), store };
  }
  const save = (testApp: Pick<TestApp, 'now'>, store: ReturnType<typeof createUserStore>, weightKg: number) =>
    store.saveSection({ userId: 'ada', section: 'profile', patch: { weightKg }, requestId: null, now: testApp.now });

  test.each([1, 2, 3, 5, 11])('G8 matches the newest answers when saves overtake the match %d times', async (times) => {
    const { app, testApp } = await movingApp(async (store, count) => {
      if (count <= times) await save({ now: new Date('2026-03-10T12:00:00Z') }, store, 50 + count);
    });
    const response = await app.call('POST', paths.matches, { as: 'ada' });
    expect(response.status).toBe(200);
    const { user } = v.parse(UserBody, response.body);
    expect(user.profile).toEqual({ seriousIllness: true, weightKg: 50 + times });
    expect((await testApp.call('GET', paths.user, { as: 'ada' })).text).toBe(response.text);
    expect((await testApp.call('GET', paths.user, { as: 'ada' })).headers.get('etag')).toBe(
      response.headers.get('etag'),
    );
  });

  test('G8 returns 429 and stores no matches when a save overtakes each attempt', async () => {
    const { app, store } = await movingApp(async (own, count) => {
      await save({ now: new Date('2026-03-10T12:00:00Z') }, own, 50 + count);
    });
    const response = await app.call('POST', paths.matches, { as: 'ada' });
    expect([response.status, response.headers.get('retry-after')]).toEqual([429, '1']);
    expect((await store.findAnswers('ada'))?.insurance).toBeNull();
  });

  test('G8 matches a record that another client saves in a loop', async () => {
    const { call } = await createTestApp();
    for (const as of ['ada', 'bob', 'eve']) {
      let isMatched = false;
      const saveInLoop = async () => {
        for (let count = 0; !isMatched; count += 1) {
          await call('POST', paths.profile, { as, body: { seriousIllness: count % 2 === 0 } });
        }
      };
      await call('POST', paths.profile, { as, body: { tobacco: true } });
      const saving = saveInLoop();
      const { status } = await call('POST', paths.matches, { as });
      isMatched = true;
      await saving;
      expect(status).toBe(200);
    }
  });

  test('G8 keeps the matches that another request stored meanwhile', async () => {
    const { app, testApp } = await movingApp(async (store, count) => {
      if (count > 3) return;
      await save({ now: new Date('2026-03-10T12:00:00Z') }, store, 50 + count);
      if (count < 3) return;
      const read = await store.findAnswers('ada');
      const matches = JSON.stringify({ bestMatch: null, remainingMatches: [] });
      const by = { requestId: null, now: new Date('2026-03-10T12:00:00Z') };
      await store.replaceMatches({ userId: 'ada', read, matches, ...by });
    });
    const response = await app.call('POST', paths.matches, { as: 'ada' });
    expect(response.status).toBe(200);
    const { user } = v.parse(UserBody, response.body);
    expect(user.profile).toEqual({ seriousIllness: true, weightKg: 53 });
    expect(user.insurance.matches?.bestMatch).toBeObject();
    expect((await testApp.call('GET', paths.user, { as: 'ada' })).text).toBe(response.text);
  });

  test('G8 returns 412 when If-Match is stale after a save overtakes the match', async () => {
    const { app, testApp, store } = await movingApp(async (own) => {
      await save({ now: new Date('2026-03-10T12:00:00Z') }, own, 51);
    });
    const tag = (await testApp.call('GET', paths.user, { as: 'ada' })).headers.get('etag') ?? '';
    expect((await app.call('POST', paths.matches, { as: 'ada', headers: { 'if-match': tag } })).status).toBe(412);
    expect((await store.findAnswers('ada'))?.insurance).toBeNull();
  });

  test('G8 stores each match among many saves and matches at one instant', async () => {
    const testApp = await createTestApp();
    await testApp.call('POST', paths.profile, { as: 'ada', body: { seriousIllness: true } });
    const calls = Array.from({ length: 60 }, (_, index) =>
      index % 2 === 0
        ? testApp.call('POST', paths.matches, { as: 'ada' })
        : testApp.call('POST', paths.profile, { as: 'ada', body: { weightKg: 50 + index, inCare: index % 4 === 1 } }),
    );
    const statuses = (await Promise.all(calls)).map(({ status }) => status);
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
  });
});

describe('the icon of a product', () => {
  const withIcon = (productIcon: string) => ({
    conditions: [],
    products: [{ id: 1, productName: 'P', productWrapper: 'W', productIcon, disqualifiers: [], rules: [] }],
  });

  test.each([
    '\\\\host\\x',
    '/\\host/x',
    '\\/host/x',
    '//host/x',
    '/\t/host/x',
    '/\n/host/x',
    'icons/\u0000x.svg',
    'icons/\u007fx.svg',
    'icons/\u202ex.svg',
    'https:host/x.svg',
    'https:/host/x.svg',
    'https:///host/x.svg',
    'https:\\\\host\\x.svg',
    'https://user@host.example/x.svg',
    'https://user:secret@host.example/x.svg',
    'https://@host.example/x.svg',
    'HTTPS://user@host.example/x.svg',
    'javascript:alert(1)',
    'java\tscript:alert(1)',
    'data:image/svg+xml,x',
    'file:///etc/passwd',
    'blob:https://host.example/x',
    'ftp://host.example/x.svg',
    'https://',
  ])('G10 refuses the icon %j', (icon) => {
    expect(parseCatalog(withIcon(icon)).errors?.join()).toContain('productIcon must ');
  });

  test.each([
    '/icons/hybrid.svg',
    'icons/x.svg',
    './x.svg',
    'x@2x.svg',
    '/a//b.svg',
    'https://host.example/x@2x.svg',
    'https://host.example/x.svg?size=2#part',
    'http://host.example:8080/x.svg',
    'HTTPS://host.example/x.svg',
    'https://host.example',
  ])('G10 accepts the icon %j', (icon) => {
    expect(parseCatalog(withIcon(icon)).errors).toBeUndefined();
  });
});

/** A carrier whose responses the test provides, call by call. */
function manualCarrier() {
  const calls: PromiseWithResolvers<CarrierDecision>[] = [];
  const arrivals: PromiseWithResolvers<void>[] = [];
  const arrival = (index: number) => {
    arrivals[index] ??= Promise.withResolvers<void>();
    return arrivals[index];
  };
  const carrier: Carrier = {
    id: 'by-hand',
    start() {
      const call = Promise.withResolvers<CarrierDecision>();
      const index = calls.push(call) - 1;
      arrival(index).resolve();
      return call.promise;
    },
  };
  return {
    carrier,
    async respond(index: number, decision: CarrierDecision) {
      await arrival(index).promise;
      calls[index]?.resolve(decision);
    },
    arrived: (index: number) => arrival(index).promise,
  };
}
const accepted = (applicationNumber: number): CarrierDecision => ({
  kind: 'accepted',
  applicationNumber,
  pricing: [{ product: 'TERM_10', coverage: 1, terms: [{ years: 10, price: 1, riders: [] }] }],
  reply: '201',
});
const declined: CarrierDecision = { kind: 'declined', reason: 'declined', reply: '422' };

describe('an application that ends late', () => {
  const set = async () => {
    const testApp = await createTestApp();
    const { carrier, ...hand } = manualCarrier();
    const service = coverageServiceOf(testApp, carrier);
    const start = (firstName = 'Ada') =>
      service.start({
        ...{ userId: 'ada', flow: 'ltc', applicant: { ...applicant, firstName } },
        ...{ idempotencyKey: undefined, preconditions: {}, requestId: 'r' },
      });
    const list = async () =>
      v.parse(ApplicationsBody, (await testApp.call('GET', paths.applications, { as: 'ada' })).body).data.applications;
    const number = async () =>
      v.parse(UserBody, (await testApp.call('GET', paths.user, { as: 'ada' })).body).user.purchase.partner?.appNumber;
    const pass = (ms: number) => {
      testApp.now = new Date(testApp.now.getTime() + ms);
    };
    return { ...hand, start, list, number, pass, reconcile: () => service.reconcile('one', () => false) };
  };

  test('G11 a decline of an old attempt does not settle an application that a newer attempt claimed', async () => {
    const { respond, arrived, start, list, number, pass, reconcile } = await set();
    const first = start().catch((error: unknown) => error);
    await arrived(0);
    pass(60_000);
    const second = reconcile();
    await arrived(1);
    await respond(0, declined);
    expect(await list()).toMatchObject([{ state: 'submitting' }]);
    await respond(1, accepted(1));
    expect(await second).toBe(1);
    expect(await list()).toMatchObject([{ state: 'submitted', appNumber: 1 }]);
    expect(await first).toMatchObject({ id: 'ada' });
    expect(await number()).toBe(1);
  });

  test('G11 an older application does not replace the purchase of a newer one', async () => {
    const { respond, arrived, start, list, number, pass, reconcile } = await set();
    const older = start('Augusta').catch((error: unknown) => error);
    await arrived(0);
    const newer = start('Ada');
    await respond(1, accepted(2));
    await newer;
    expect(await number()).toBe(2);
    pass(60_000);
    const settling = reconcile();
    await arrived(2);
    await respond(2, accepted(1));
    expect(await settling).toBe(1);
    expect(await list()).toMatchObject([{ appNumber: 2 }, { appNumber: 1 }]);
    expect(await number()).toBe(2);
    await respond(0, accepted(1));
    await older;
  });

  test.each([
    [2, 1],
    [6.9, 1],
    [7.1, 0],
  ])('G11 the service settles an application after %d days %d times', async (days, times) => {
    const { respond, arrived, start, pass, reconcile } = await set();
    start().catch(() => undefined);
    await arrived(0);
    pass(days * 86_400_000);
    const settling = reconcile();
    if (times > 0) await respond(1, accepted(1));
    expect(await settling).toBe(times);
  });
});

test.each([
  [1, 1],
  [20, 1],
  [21, 2],
  [39, 2],
  [600, 30],
])('G11 a limit of %d requests a minute allows %d applications', async (perMinute, quota) => {
  const rateLimits = createRateLimits({ perMinute, trustedProxyCount: 0 }, () => 0);
  const testApp = await createTestApp({ rateLimits });
  const response = await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body: applicant });
  expect(response.headers.get('ratelimit-policy')).toContain(`"coverage";q=${quota};w=60`);
});

test.each([
  [110, 36.3],
  [220, 145.2],
  [230, 158.7],
])('G11 a body of %d cm and %d kg has a body mass index of 30', async (heightCm, weightKg) => {
  const testApp = await createTestApp();
  await testApp.call('POST', paths.profile, { as: 'ada', body: { heightCm, weightKg } });
  const held = async () => {
    const { user } = v.parse(
      UserBody,
      (await testApp.call('POST', `${paths.matches}?explain=true`, { as: 'ada' })).body,
    );
    return user.insurance.matches?.remainingMatches.flatMap(({ explanation }) => explanation?.disqualifiersHeld ?? []);
  };
  expect(await held()).toContain('obese');
  await testApp.call('POST', paths.profile, { as: 'ada', body: { weightKg: Math.round(weightKg * 100 - 1) / 100 } });
  expect(await held()).not.toContain('obese');
});
