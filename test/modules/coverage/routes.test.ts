import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { priceApplication } from '../../../src/carrier-sandbox/tariff';
import { applicationAttempts, applications, idempotencyKeys, users } from '../../../src/db/schema/people';
import { ApplicationsBody } from '../../../src/modules/coverage/service';
import { UserBody } from '../../../src/modules/users/model';
import { coverageServiceOf, createTestApp, startSandbox } from '../../support/app';
import { privateRoutes } from '../../support/contract';

const ltc = '/v2/private/ltc/totalCoverage';
const life = '/v2/private/life/totalCoverage';
const ada = {
  firstName: 'Ada',
  lastName: 'Byron',
  dateOfBirth: '1981-03-10T00:00:00.000Z',
  gender: 'Female',
  state: 'va',
  email: 'Ada@Example.com',
};

async function setUp() {
  const sandbox = await startSandbox();
  const testApp = await createTestApp({ carrier: sandbox.carrier() });
  const start = (body: object, as = 'ada', path = ltc, headers: Record<string, string> = {}) =>
    testApp.call('POST', path, { as, body, headers });
  const partner = (response: { body: unknown }) => v.parse(UserBody, response.body).user.purchase.partner;
  const list = async (as = 'ada') => {
    const response = await testApp.call('GET', '/v2/private/user/applications', { as });
    return v.parse(ApplicationsBody, response.body).data.applications;
  };
  const service = coverageServiceOf(testApp, sandbox.carrier());
  const reconcile = (holder = 'one') => service.reconcile(holder, () => false);
  return { sandbox, testApp, start, partner, list, service, reconcile };
}

describe('total coverage', () => {
  test.each([ltc, life])('POST %s returns the carrier’s number and prices and saves the identity', async (path) => {
    const { testApp, start, partner, list } = await setUp();
    const response = await start(ada, 'ada', path);
    expect(response.status).toBe(200);
    expect(partner(response)).toEqual({
      appNumber: 100_001,
      pricing: priceApplication({ ageYears: 45, gender: 'Female', state: 'VA' }).map((entry) => ({
        ...entry,
        terms: [...entry.terms],
      })),
    });
    expect(response.body).toMatchObject({
      user: { profile: { ...ada, dateOfBirth: '1981-03-10', state: 'VA' } },
    });
    expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).text).toBe(response.text);
    expect(await list()).toMatchObject([
      { flow: path === ltc ? 'ltc' : 'life', state: 'submitted', appNumber: 100_001, supersedes: null },
    ]);
  });

  test('starts no second application when e-mail case and spacing differ', async () => {
    const { sandbox, start } = await setUp();
    const first = await start(ada);
    const again = await start({ ...ada, email: 'ADA@example.COM', firstName: ' Ada  ', dateOfBirth: '1981-03-10' });
    expect(again.status).toBe(200);
    expect(await sandbox.store.count()).toBe(1);
    expect(v.parse(UserBody, again.body).user.purchase).toEqual(v.parse(UserBody, first.body).user.purchase);
  });

  test('starts a new application with supersedes when the birth date is corrected', async () => {
    const { sandbox, start, partner, list } = await setUp();
    await start(ada);
    const corrected = await start({ ...ada, dateOfBirth: '1981-03-11' });
    expect(partner(corrected)?.appNumber).toBe(100_002);
    expect(await sandbox.store.count()).toBe(2);
    const [newer, older] = await list();
    expect(newer?.supersedes).toBe(older?.id ?? 'none');
    expect(partner(await start(ada))?.appNumber).toBe(100_001);
    expect(await list()).toHaveLength(2);
  });

  test('starts one application for each flow and each user', async () => {
    const { sandbox, start, list } = await setUp();
    await start(ada);
    await start(ada, 'ada', life);
    await start(ada, 'bob');
    expect(await sandbox.store.count()).toBe(3);
    expect(await list('bob')).toHaveLength(1);
    expect(await list('unknown')).toEqual([]);
  });

  test('reuses an application for 30 days and starts another one after', async () => {
    const { testApp, sandbox, start } = await setUp();
    await start(ada);
    testApp.now = new Date(testApp.now.getTime() + 30 * 86_400_000 - 1);
    await start(ada);
    expect(await sandbox.store.count()).toBe(1);
    testApp.now = new Date(testApp.now.getTime() + 1);
    await start(ada);
    expect(await sandbox.store.count()).toBe(2);
  });

  test.each([
    ['Declined', 'offers no policy'],
    ['Notfiled', 'state'],
  ])(
    'returns 422 for a carrier refusal and repeats it for a day without a carrier call: %s',
    async (lastName, detail) => {
      const { testApp, start, list } = await setUp();
      const response = await start({ ...ada, lastName });
      expect(response).toMatchObject({
        status: 422,
        body: { type: '/problems/carrier-declined', code: 313, detail: expect.stringContaining(detail) },
      });
      testApp.now = new Date(testApp.now.getTime() + 86_400_000 - 1);
      await start({ ...ada, lastName });
      expect(await testApp.db.$count(applicationAttempts)).toBe(1);
      testApp.now = new Date(testApp.now.getTime() + 1);
      await start({ ...ada, lastName });
      expect(await testApp.db.$count(applicationAttempts)).toBe(2);
      expect((await list()).map(({ state }) => state)).toEqual(['declined', 'declined']);
    },
  );

  test.each([
    ['nothing', {}, ['/firstName', '/lastName', '/dateOfBirth', '/gender', '/state', '/email']],
    ['null', { ...ada, email: null }, ['/email']],
    ['another gender', { ...ada, gender: 'f' }, ['/gender']],
    ['a future date', { ...ada, dateOfBirth: '2026-03-11' }, ['/dateOfBirth']],
    ['an unknown field', { ...ada, ssn: '1' }, ['/ssn']],
  ])('returns 422 with pointers and stores nothing for %s', async (_, body, pointers) => {
    const { testApp, sandbox, start } = await setUp();
    const response = await start(body);
    expect(response.status).toBe(422);
    expect(response.body).toMatchObject({ errors: pointers.map((pointer) => ({ pointer })) });
    expect(await testApp.db.$count(users)).toBe(0);
    expect(await testApp.db.$count(applications)).toBe(0);
    expect(await sandbox.store.count()).toBe(0);
  });
});

test('total coverage returns 412 and starts no application when If-Match is stale', async () => {
  const { testApp, sandbox, start } = await setUp();
  await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: { inCare: false } });
  expect((await start(ada, 'ada', ltc, { 'if-match': '"0-0"' })).status).toBe(412);
  expect(await testApp.db.$count(applications)).toBe(0);
  const { headers } = await testApp.call('GET', '/v2/private/user', { as: 'ada' });
  expect((await start(ada, 'ada', ltc, { 'if-match': headers.get('etag') ?? '' })).status).toBe(200);
  expect(await sandbox.store.count()).toBe(1);
});

describe('Idempotency-Key', () => {
  const key = { 'idempotency-key': 'one' };

  test('repeats equal data and rejects other data, scoped to path and user, for a day', async () => {
    const { testApp, sandbox, start } = await setUp();
    expect((await start(ada, 'ada', ltc, key)).status).toBe(200);
    expect((await start(ada, 'ada', ltc, key)).status).toBe(200);
    const reused = await start({ ...ada, state: 'NY' }, 'ada', ltc, key);
    expect(reused).toMatchObject({ status: 422, body: { type: '/problems/idempotency-key-reused', code: 241 } });
    expect(await sandbox.store.count()).toBe(1);
    expect((await start({ ...ada, state: 'NY' }, 'ada', life, key)).status).toBe(200);
    expect((await start({ ...ada, state: 'NY' }, 'bob', ltc, key)).status).toBe(200);
    testApp.now = new Date(testApp.now.getTime() + 86_400_001);
    expect((await start({ ...ada, state: 'NY' }, 'ada', ltc, key)).status).toBe(200);
  });

  test('expires after a day', async () => {
    const { testApp, start } = await setUp();
    await start(ada, 'ada', ltc, { 'idempotency-key': 'one' });
    testApp.now = new Date(testApp.now.getTime() + 86_400_001);
    await start(ada, 'bob', ltc, { 'idempotency-key': 'another' });
    expect(await testApp.db.select({ key: idempotencyKeys.key }).from(idempotencyKeys)).toEqual([{ key: 'another' }]);
  });

  test('returns 422 when the key has 256 characters', async () => {
    const { start } = await setUp();
    const response = await start(ada, 'ada', ltc, { 'idempotency-key': 'a'.repeat(256) });
    expect(response).toMatchObject({ status: 422, body: { errors: [{ pointer: 'idempotency-key' }] } });
  });
});

const carrierFailures = [
  { lastName: 'Slow', status: 504, slug: 'carrier-timeout', accepted: 1 },
  { lastName: 'Dropped', status: 503, slug: 'carrier-unavailable', accepted: 1 },
  { lastName: 'Broken', status: 503, slug: 'carrier-unavailable', accepted: 1 },
  { lastName: 'Busy', status: 503, slug: 'carrier-unavailable', accepted: 0 },
  { lastName: 'Garbled', status: 502, slug: 'carrier-bad-answer', accepted: 1 },
  { lastName: 'Huge', status: 502, slug: 'carrier-bad-answer', accepted: 1 },
];

describe('reconciliation', () => {
  const open = async () => {
    const tools = await setUp();
    for (const state of ['VA', 'NY']) await tools.start({ ...ada, lastName: 'Dropped', state });
    tools.testApp.now = new Date(tools.testApp.now.getTime() + 5_000);
    return tools;
  };

  test('runs for one lease holder until that holder releases the lease', async () => {
    const { testApp, start, service, reconcile } = await open();
    expect(await reconcile('one')).toBe(2);
    await start({ ...ada, lastName: 'Dropped', state: 'CA' });
    testApp.now = new Date(testApp.now.getTime() + 60_000);
    expect(await reconcile('another')).toBe(0);
    await service.stopReconciling('another');
    expect(await reconcile('another')).toBe(0);
    await service.stopReconciling('one');
    expect(await reconcile('another')).toBe(1);
  });

  test('starts no further application after a stop', async () => {
    const { service } = await open();
    let stopChecks = 0;
    expect(await service.reconcile('one', () => stopChecks++ > 0)).toBe(1);
  });

  test('keeps the purchase of the newest application in any settlement order', async () => {
    const { testApp, list, reconcile } = await open();
    await reconcile();
    const { user } = v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).body);
    const [newest] = await list();
    expect(user.purchase.partner?.appNumber).toBe(newest?.appNumber ?? 0);
  });

  test('retries an open application with growing delays and stops after seven days', async () => {
    const { testApp, start, reconcile } = await setUp();
    await start({ ...ada, lastName: 'Busy' });
    const startedAtMs = testApp.now.getTime();
    const attemptsAfter = async (seconds: number) => {
      while (testApp.now.getTime() < startedAtMs + seconds * 1000) {
        testApp.now = new Date(testApp.now.getTime() + seconds * 100);
        await reconcile();
      }
      const [row] = await testApp.db.select().from(applications);
      return row?.attempt ?? 0;
    };
    const afterMinute = await attemptsAfter(60);
    expect(afterMinute).toBeGreaterThan(2);
    expect(afterMinute).toBeLessThan(8);
    const afterWeek = await attemptsAfter(8 * 86_400);
    expect(await attemptsAfter(9 * 86_400)).toBe(afterWeek);
  }, 20_000);
});

describe('carrier failure', () => {
  test.concurrent.each(carrierFailures)(
    '$lastName returns $status, keeps the previous purchase, and a repeat returns the first number',
    async ({ lastName, status, slug, accepted }) => {
      const { testApp, sandbox, start, partner, list } = await setUp();
      const previous = await start({ ...ada, lastName: 'Before' });
      const body = { ...ada, lastName };
      const response = await start(body);
      expect(response).toMatchObject({ status, body: { type: `/problems/${slug}` } });
      expect(response.headers.get('retry-after')).toBe(lastName === 'Busy' ? '1' : '5');
      expect((await list())[0]).toMatchObject({ state: 'unknown', appNumber: null });
      expect(await sandbox.store.count()).toBe(1 + accepted);
      const saved = v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).body).user;
      expect(saved.profile).toMatchObject({ lastName: 'Before' });
      expect(saved.purchase.partner).toEqual(partner(previous));
      if (accepted === 0) return;
      const repeated = await start(body);
      expect(repeated.status).toBe(200);
      expect(partner(repeated)?.appNumber).toBe(100_002);
      expect(await sandbox.store.count()).toBe(2);
    },
    20_000,
  );

  test.concurrent.each(carrierFailures.filter(({ accepted }) => accepted === 1))(
    '$lastName is settled by the reconciler',
    async ({ lastName }) => {
      const { testApp, sandbox, start, list, reconcile } = await setUp();
      await start({ ...ada, lastName });
      expect(await reconcile()).toBe(0);
      testApp.now = new Date(testApp.now.getTime() + 5_000);
      expect(await reconcile()).toBe(1);
      expect((await list())[0]).toMatchObject({ state: 'submitted', appNumber: 100_001 });
      const { user } = v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).body);
      expect(user.purchase.partner?.appNumber).toBe(100_001);
      expect(await sandbox.store.count()).toBe(1);
    },
    20_000,
  );

  test('opens the circuit breaker, which closes again after the break', async () => {
    const { start, sandbox } = await setUp();
    for (const state of ['VA', 'NY', 'CA']) await start({ ...ada, lastName: 'Broken', state });
    const startedAtMs = performance.now();
    const refused = await start({ ...ada, lastName: 'Healthy' });
    expect(refused.status).toBe(503);
    expect(performance.now() - startedAtMs).toBeLessThan(1000);
    const before = await sandbox.store.count();
    const deadline = performance.now() + 5_000;
    let response = refused;
    while (response.status !== 200 && performance.now() < deadline) {
      await Bun.sleep(100);
      response = await start({ ...ada, lastName: 'Healthy' });
    }
    expect(response.status).toBe(200);
    expect(await sandbox.store.count()).toBe(before + 1);
  }, 20_000);

  test('does not delay other requests when the carrier is slow', async () => {
    const { testApp, start } = await setUp();
    let openCount = 200;
    const slow = Array.from({ length: openCount }, async (_, index) => {
      const response = await start({ ...ada, lastName: 'Slow' }, `slow-${index}`);
      openCount -= 1;
      return response;
    });
    await Bun.sleep(100);
    expect((await testApp.call('GET', '/health/ready')).status).toBe(200);
    expect(openCount).toBeGreaterThan(0);
    for (const { status } of await Promise.all(slow)) expect([503, 504]).toContain(status);
  }, 30_000);

  test('writes no name, e-mail or birth date to logs and problems on any path', async () => {
    const { testApp, start, reconcile } = await setUp();
    const canary = { firstName: 'Canaryname', email: 'canary@example.com', dateOfBirth: '1979-07-19' };
    const problems: string[] = [];
    const note = (response: { status: number; text: string }) => {
      if (response.status >= 400) problems.push(response.text);
    };
    for (const lastName of ['Fine', 'Slow', 'Broken', 'Garbled', 'Huge', 'Busy', 'Declined', 'Dropped']) {
      note(await start({ ...ada, ...canary, lastName }));
      note(await start({ ...ada, ...canary, lastName, state: 'Canaryname', gender: 'canary@example.com' }));
    }
    for (const { method, path } of privateRoutes) {
      note(await testApp.call(method, path, { as: 'ada', body: method === 'GET' ? undefined : canary }));
      note(await testApp.call(method, path, { as: 'ada', body: '{"firstName":"Canaryname", canary@example.com' }));
    }
    testApp.now = new Date(testApp.now.getTime() + 60_000);
    await reconcile();
    testApp.db.$client.close();
    note(await start({ ...ada, ...canary }));
    await Bun.sleep(0);
    expect(problems.length).toBeGreaterThan(15);
    expect(testApp.logLines.filter((line) => line.includes('not settled')).length).toBeGreaterThan(0);
    const written = [...problems, ...testApp.logLines].join('\n');
    for (const text of Object.values(canary)) expect(written).not.toContain(text);
  }, 20_000);
});
