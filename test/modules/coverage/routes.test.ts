import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { priceApplication } from '../../../src/carrier-sandbox/tariff';
import { applicationAttempts, applications, idempotencyKeys, users } from '../../../src/db/schema';
import { ApplicationsBody } from '../../../src/modules/coverage/model';
import { UserBody } from '../../../src/modules/users/model';
import { createTestApp } from '../../support/app';
import { privateRoutes } from '../../support/contract';
import { coverageServiceOf } from '../../support/coverage';
import { startSandbox } from '../../support/sandbox';

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
  const partner = (answer: { body: unknown }) => v.parse(UserBody, answer.body).user.purchase.partner;
  const list = async (as = 'ada') => {
    const answer = await testApp.call('GET', '/v2/private/user/applications', { as });
    return v.parse(ApplicationsBody, answer.body).data.applications;
  };
  const service = coverageServiceOf(testApp, sandbox.carrier());
  const reconcile = (holder = 'one') => service.reconcile(holder, () => false);
  return { sandbox, testApp, start, partner, list, service, reconcile };
}

describe('a total coverage', () => {
  test.each([ltc, life])('by %s answers the carrier’s number and prices, and keeps the identity', async (path) => {
    const { testApp, start, partner, list } = await setUp();
    const answer = await start(ada, 'ada', path);
    expect(answer.status).toBe(200);
    expect(partner(answer)).toEqual({
      appNumber: 100_001,
      pricing: priceApplication({ ageYears: 45, gender: 'Female', state: 'VA' }).map((entry) => ({
        ...entry,
        terms: [...entry.terms],
      })),
    });
    expect(answer.body).toMatchObject({
      user: { profile: { ...ada, dateOfBirth: '1981-03-10', state: 'VA' } },
    });
    expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).text).toBe(answer.text);
    expect(await list()).toMatchObject([
      { flow: path === ltc ? 'ltc' : 'life', state: 'submitted', appNumber: 100_001, supersedes: null },
    ]);
  });

  test('repeated with the same person starts nothing, whatever the case of the e-mail and the spacing', async () => {
    const { sandbox, start } = await setUp();
    const first = await start(ada);
    const again = await start({ ...ada, email: 'ADA@example.COM', firstName: ' Ada  ', dateOfBirth: '1981-03-10' });
    expect(again.status).toBe(200);
    expect(await sandbox.store.count()).toBe(1);
    expect(v.parse(UserBody, again.body).user.purchase).toEqual(v.parse(UserBody, first.body).user.purchase);
  });

  test('with a corrected birth date starts a new application and says which it follows', async () => {
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

  test('is one for each flow and each person', async () => {
    const { sandbox, start, list } = await setUp();
    await start(ada);
    await start(ada, 'ada', life);
    await start(ada, 'bob');
    expect(await sandbox.store.count()).toBe(3);
    expect(await list('bob')).toHaveLength(1);
    expect(await list('nobody')).toEqual([]);
  });

  test('is answered again for thirty days, and started anew after', async () => {
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
    ['Declined', 'does not offer a policy'],
    ['Notfiled', 'state'],
  ])('that the carrier refuses is 422, and repeated for a day without asking: %s', async (lastName, detail) => {
    const { testApp, start, list } = await setUp();
    const answer = await start({ ...ada, lastName });
    expect(answer).toMatchObject({
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
  });

  test.each([
    ['nothing', {}, ['/firstName', '/lastName', '/dateOfBirth', '/gender', '/state', '/email']],
    ['null', { ...ada, email: null }, ['/email']],
    ['another gender', { ...ada, gender: 'f' }, ['/gender']],
    ['a date to come', { ...ada, dateOfBirth: '2026-03-11' }, ['/dateOfBirth']],
    ['an unknown field', { ...ada, ssn: '1' }, ['/ssn']],
  ])('of %s is refused by name, and stores nothing', async (_, body, pointers) => {
    const { testApp, sandbox, start } = await setUp();
    const answer = await start(body);
    expect(answer.status).toBe(422);
    expect(answer.body).toMatchObject({ errors: pointers.map((pointer) => ({ pointer })) });
    expect(await testApp.db.$count(users)).toBe(0);
    expect(await testApp.db.$count(applications)).toBe(0);
    expect(await sandbox.store.count()).toBe(0);
  });
});

test('a total coverage over a record that has moved on is refused, and starts nothing', async () => {
  const { testApp, sandbox, start } = await setUp();
  await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: { inCare: false } });
  expect((await start(ada, 'ada', ltc, { 'if-match': '"0-0"' })).status).toBe(412);
  expect(await testApp.db.$count(applications)).toBe(0);
  const { headers } = await testApp.call('GET', '/v2/private/user', { as: 'ada' });
  expect((await start(ada, 'ada', ltc, { 'if-match': headers.get('etag') ?? '' })).status).toBe(200);
  expect(await sandbox.store.count()).toBe(1);
});

describe('an Idempotency-Key', () => {
  const key = { 'idempotency-key': 'one' };

  test('repeats with the same data and refuses others, a path and a person at a time, for a day', async () => {
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

  test('of yesterday is forgotten', async () => {
    const { testApp, start } = await setUp();
    await start(ada, 'ada', ltc, { 'idempotency-key': 'one' });
    testApp.now = new Date(testApp.now.getTime() + 86_400_001);
    await start(ada, 'bob', ltc, { 'idempotency-key': 'another' });
    expect(await testApp.db.select({ key: idempotencyKeys.key }).from(idempotencyKeys)).toEqual([{ key: 'another' }]);
  });

  test('of another form is refused', async () => {
    const { start } = await setUp();
    const answer = await start(ada, 'ada', ltc, { 'idempotency-key': 'a'.repeat(256) });
    expect(answer).toMatchObject({ status: 422, body: { errors: [{ pointer: 'idempotency-key' }] } });
  });
});

const faults = [
  { lastName: 'Slow', status: 504, slug: 'carrier-timeout', accepted: 1 },
  { lastName: 'Dropped', status: 503, slug: 'carrier-unavailable', accepted: 1 },
  { lastName: 'Broken', status: 503, slug: 'carrier-unavailable', accepted: 1 },
  { lastName: 'Busy', status: 503, slug: 'carrier-unavailable', accepted: 0 },
  { lastName: 'Garbled', status: 502, slug: 'carrier-bad-answer', accepted: 1 },
  { lastName: 'Huge', status: 502, slug: 'carrier-bad-answer', accepted: 1 },
];

describe('reconciling', () => {
  const open = async () => {
    const tools = await setUp();
    for (const state of ['VA', 'NY']) await tools.start({ ...ada, lastName: 'Dropped', state });
    tools.testApp.now = new Date(tools.testApp.now.getTime() + 5_000);
    return tools;
  };

  test('is done by one holder at a time, until it lets go', async () => {
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

  test('begins no other application when it is to stop', async () => {
    const { service } = await open();
    let asked = 0;
    expect(await service.reconcile('one', () => asked++ > 0)).toBe(1);
  });

  test('gives the person the application that was started last, whichever is settled first', async () => {
    const { testApp, list, reconcile } = await open();
    await reconcile();
    const { user } = v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).body);
    const [newest] = await list();
    expect(user.purchase.partner?.appNumber).toBe(newest?.appNumber ?? 0);
  });

  test('asks for what stays open less and less often, and not beyond seven days', async () => {
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

describe('a carrier that fails', () => {
  test.concurrent.each(faults)(
    'in the way of $lastName is told, nothing is lost, and a repeat brings the first number',
    async ({ lastName, status, slug, accepted }) => {
      const { testApp, sandbox, start, partner, list } = await setUp();
      const previous = await start({ ...ada, lastName: 'Before' });
      const body = { ...ada, lastName };
      const answer = await start(body);
      expect(answer).toMatchObject({ status, body: { type: `/problems/${slug}` } });
      expect(answer.headers.get('retry-after')).toBe(lastName === 'Busy' ? '1' : '5');
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

  test.concurrent.each(faults.filter(({ accepted }) => accepted === 1))(
    'in the way of $lastName is settled by the reconciler',
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

  test('opens the breaker, which answers without asking and closes again by itself', async () => {
    const { start, sandbox } = await setUp();
    for (const state of ['VA', 'NY', 'CA']) await start({ ...ada, lastName: 'Broken', state });
    const startedAtMs = performance.now();
    const refused = await start({ ...ada, lastName: 'Healthy' });
    expect(refused.status).toBe(503);
    expect(performance.now() - startedAtMs).toBeLessThan(1000);
    const before = await sandbox.store.count();
    const deadline = performance.now() + 5_000;
    let answer = refused;
    while (answer.status !== 200 && performance.now() < deadline) {
      await Bun.sleep(100);
      answer = await start({ ...ada, lastName: 'Healthy' });
    }
    expect(answer.status).toBe(200);
    expect(await sandbox.store.count()).toBe(before + 1);
  }, 20_000);

  test('slowly does not keep others from being answered', async () => {
    const { testApp, start } = await setUp();
    let openCount = 200;
    const slow = Array.from({ length: openCount }, async (_, index) => {
      const answer = await start({ ...ada, lastName: 'Slow' }, `slow-${index}`);
      openCount -= 1;
      return answer;
    });
    await Bun.sleep(100);
    expect((await testApp.call('GET', '/health/ready')).status).toBe(200);
    expect(openCount).toBeGreaterThan(0);
    for (const { status } of await Promise.all(slow)) expect([503, 504]).toContain(status);
  }, 30_000);

  test('puts no name, e-mail or birth date into a log or a problem, on any path', async () => {
    const { testApp, start, reconcile } = await setUp();
    const canary = { firstName: 'Canaryname', email: 'canary@example.com', dateOfBirth: '1979-07-19' };
    const problems: string[] = [];
    const note = (answer: { status: number; text: string }) => {
      if (answer.status >= 400) problems.push(answer.text);
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
