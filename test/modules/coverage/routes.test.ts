import { describe, expect, test } from 'bun:test';
import { activities } from '../../../src/db/schema/lists';
import { applicationAttempts, applications, auditEvents, idempotencyKeys, users } from '../../../src/db/schema/people';
import { createRateLimits } from '../../../src/http/rate-limits';
import { createApplicationStore } from '../../../src/modules/coverage/store';
import { createSalesStore } from '../../../src/modules/sales/store';
import { stateCodes } from '../../../src/shared/states';
import {
  accepted,
  applicant,
  carrierPricing,
  counselor,
  createCoverageApp,
  declined,
  manager,
  testOperator,
  unavailable,
} from '../../support/app';
import { explainFirst } from '../../support/database';

const dayMs = 86_400_000;
const hourMs = 3_600_000;
const life = { flow: 'life' };
const bob = { as: 'bob' };
const limited = { status: 429, body: { type: '/problems/rate-limited' } };

/** The app of the tests that store nothing. */
const unchanged = await createCoverageApp();

describe('POST /v2/private/{ltc,life}/totalCoverage', () => {
  test.each(['ltc', 'life'])(
    'returns the number and prices of the carrier and saves the identity: %s',
    async (flow) => {
      const { testApp, start, list } = await createCoverageApp();
      const sent = { dateOfBirth: '1981-03-10T00:00:00.000Z', state: 'va' };
      const response = await start(sent, { flow });
      expect(response).toMatchObject({
        status: 200,
        body: { user: { profile: applicant, purchase: { partner: { appNumber: 1, pricing: carrierPricing } } } },
      });
      expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).text).toBe(response.text);
      expect((await list()).applications).toMatchObject([{ flow, state: 'submitted', appNumber: 1, supersedes: null }]);
    },
  );

  test('starts no second application when e-mail case and spacing differ', async () => {
    const { carrier, start, user } = await createCoverageApp();
    await start();
    const { purchase } = await user();
    const spelled = { email: 'ADA@example.COM', firstName: ' Ada  ', dateOfBirth: '1981-03-10T00:00:00.000Z' };
    expect((await start(spelled)).status).toBe(200);
    expect(carrier.calls).toHaveLength(1);
    expect((await user()).purchase).toEqual(purchase);
  });

  test('starts a new application with supersedes when the birth date is corrected', async () => {
    const { start, list, user } = await createCoverageApp();
    await start();
    await start({ dateOfBirth: '1981-03-11' });
    expect((await user()).purchase.partner?.appNumber).toBe(2);
    const [newer, older] = (await list()).applications;
    expect(newer?.supersedes).toBe(older?.id ?? 'none');
    await start();
    expect((await user()).purchase.partner?.appNumber).toBe(1);
    expect((await list()).applications).toHaveLength(2);
  });

  test('starts one application for each flow and each user', async () => {
    const { carrier, start, list } = await createCoverageApp();
    await Promise.all([start(), start({}, life), start({}, bob), start(), start({}, life), start({}, bob)]);
    expect(carrier.numbers.size).toBe(3);
    expect((await list('bob')).applications).toHaveLength(1);
    expect((await list('unknown')).applications).toEqual([]);
  });

  test('reuses an application for 30 days and starts another one after', async () => {
    const { carrier, start, pass } = await createCoverageApp();
    await start();
    pass(30 * dayMs - 1);
    await start();
    expect(carrier.numbers.size).toBe(1);
    pass(1);
    await start();
    expect(carrier.numbers.size).toBe(2);
  });

  test.each([
    ['declined', 'offers no policy'],
    ['not-filed', 'state'],
  ] as const)('returns 422 for a carrier refusal and repeats it for a day: %s', async (reason, detail) => {
    const { db, carrier, start, list, pass } = await createCoverageApp();
    carrier.respond = () => ({ ...declined, reason });
    expect(await start()).toMatchObject({
      status: 422,
      body: { type: '/problems/carrier-declined', code: 313, detail: expect.stringContaining(detail) },
    });
    pass(dayMs - 1);
    expect((await start()).status).toBe(422);
    expect(await db.$count(applicationAttempts)).toBe(1);
    pass(1);
    await start();
    expect(await db.$count(applicationAttempts)).toBe(2);
    expect((await list()).applications.map(({ state }) => state)).toEqual(['declined', 'declined']);
  });

  test.each<[change: object | null, pointers: string[]]>([
    [null, ['/firstName', '/lastName', '/dateOfBirth', '/gender', '/state', '/email']],
    [{ email: null }, ['/email']],
    [{ gender: 'f' }, ['/gender']],
    [{ dateOfBirth: '2026-03-11' }, ['/dateOfBirth']],
    [{ ssn: '1' }, ['/ssn']],
  ])('returns 422 with pointers and stores nothing for %j', async (change, pointers) => {
    const { testApp, db, carrier } = unchanged;
    const body = change === null ? {} : { ...applicant, ...change };
    const response = await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body });
    expect(response).toMatchObject({ status: 422, body: { errors: pointers.map((pointer) => ({ pointer })) } });
    expect([await db.$count(users), await db.$count(applications), carrier.calls.length]).toEqual([0, 0, 0]);
  });

  test('returns 412 and starts no application when If-Match is stale', async () => {
    const { db, saveProfile, start, user } = await createCoverageApp();
    const before = await saveProfile({ firstName: 'Augusta' });
    const current = await saveProfile({ heightCm: 165 });
    const ifMatch = (response: typeof before) => ({ headers: { 'if-match': response.headers.get('etag') ?? '' } });
    expect((await start({}, ifMatch(before))).status).toBe(412);
    expect(await db.$count(applications)).toBe(0);
    expect((await user()).profile).toEqual({ firstName: 'Augusta', heightCm: 165 });
    expect((await start({}, ifMatch(current))).status).toBe(200);
    expect((await user()).profile).toEqual({ ...applicant, firstName: 'Augusta', heightCm: 165 });
  });

  test.each([
    [1, 1],
    [20, 1],
    [21, 2],
    [39, 2],
    [600, 30],
  ])('with %d requests a minute allows %d applications', async (perMinute, quota) => {
    const rateLimits = createRateLimits({ perMinute, trustedProxyCount: 0 }, () => 0);
    const { start } = await createCoverageApp({ rateLimits });
    expect((await start()).headers.get('ratelimit-policy')).toContain(`"coverage";q=${quota};w=60`);
  });

  test('does not delay other requests while the carrier has not responded', async () => {
    const { testApp, carrier, start } = await createCoverageApp();
    const held = carrier.hold(50);
    const waiting = held.map((_, index) => start({}, { as: `slow-${index}` }));
    await Promise.all(held.map(({ arrived }) => arrived));
    expect((await testApp.call('GET', '/health/ready')).status).toBe(200);
    for (const { respond } of held) respond(unavailable());
    for (const { status } of await Promise.all(waiting)) expect(status).toBe(503);
  });

  test('keeps pricing that an earlier version stored', async () => {
    const { testApp, db, saveProfile, user } = await createCoverageApp();
    await saveProfile({});
    const [first] = carrierPricing;
    const terms = [{ years: 10.5, price: 0, riders: [] }];
    const partner = {
      appNumber: 7,
      pricing: [
        { ...first, terms: [] },
        { ...first, terms },
      ],
    };
    await db.update(users).set({ purchase: JSON.stringify({ partner }), version: 2 });
    await testApp.call('POST', '/v2/private/engine/matches?explain=true', { as: 'ada' });
    expect((await user()).purchase).toMatchObject({ partner });
  });
});

describe('the state of an applicant', () => {
  test('may be each USPS code, in any case', async () => {
    const { saveProfile, start, user } = await createCoverageApp();
    expect(stateCodes).toContainValues(['AA', 'AE', 'AP', 'FM', 'MH', 'PW']);
    for (const state of ['AA', 'AE', 'AP', 'FM', 'MH', 'PW', 'ae', ' Fm ']) {
      expect((await saveProfile({ state })).status).toBe(200);
      expect((await user()).profile.state).toBe(state.trim().toUpperCase());
      expect((await start({ state })).status).toBe(200);
    }
  });

  test.each(['XX', 'FX', 'UM', 'A', 'AEE', 'АЕ'])('returns 422 for %j, which USPS does not have', async (state) => {
    const { saveProfile } = unchanged;
    expect(await saveProfile({ state })).toMatchObject({ status: 422, body: { errors: [{ pointer: '/state' }] } });
  });
});

describe('the profile after an application', () => {
  const own = { ...applicant, email: 'own@example.com' };
  const spouse = {
    ...{ firstName: 'William', lastName: 'King', dateOfBirth: '1938-02-21', gender: 'Male', state: 'MD' },
    email: 'william@example.com',
  };
  const byrom = { lastName: 'Byrom' };
  const replies = { accepts: undefined, declines: () => declined, fails: unavailable };
  const save = (body: object) => ({ body, isApplication: false });
  const apply = (body: object) => ({ body, isApplication: true });

  test.each<[name: string, steps: ReturnType<typeof save>[], profile: object]>([
    ['keeps every answer when a spouse applies', [save(own), apply(spouse)], own],
    ['is filled when it is empty', [apply(spouse)], spouse],
    [
      'is filled in the fields without an answer',
      [save({ firstName: 'Augusta', tobacco: false }), apply({})],
      { tobacco: false, ...applicant, firstName: 'Augusta' },
    ],
    [
      'is filled in a field that was cleared',
      [save(own), save({ email: null, state: null }), apply(spouse)],
      { ...own, email: spouse.email, state: spouse.state },
    ],
    ['keeps the first identity when an application corrects it', [apply(byrom), apply({})], { ...applicant, ...byrom }],
    ['keeps a later correction', [apply(byrom), save({ lastName: 'Byron' }), apply(spouse)], applicant],
  ])('%s, whether the carrier accepts, declines or fails', async (_, steps, profile) => {
    for (const respond of Object.values(replies)) {
      const { carrier, saveProfile, start, user } = await createCoverageApp();
      if (respond !== undefined) carrier.respond = respond;
      for (const { body, isApplication } of steps) await (isApplication ? start(body) : saveProfile(body));
      expect((await user()).profile).toEqual(profile);
    }
  });

  test('gives the matches of the user, not of the spouse', async () => {
    const { testApp, saveProfile, start, user } = await createCoverageApp();
    const match = async () => {
      await testApp.call('POST', '/v2/private/engine/matches', { as: 'ada' });
      return (await user()).insurance;
    };
    await saveProfile({ ...own, seriousIllness: false });
    const matched = await match();
    await start(spouse);
    expect(await match()).toEqual(matched);
  });

  test('has its version and audit log when it was complete', async () => {
    const { db, saveProfile, start } = await createCoverageApp();
    await saveProfile(own);
    const first = await start();
    const events = () => db.select({ section: auditEvents.section, action: auditEvents.action }).from(auditEvents);
    const before = await events();
    expect(before.filter(({ section }) => section === 'profile')).toHaveLength(1);
    expect((await start()).headers.get('etag')).toBe(first.headers.get('etag'));
    expect(await events()).toEqual(before);
  });
});

describe('Idempotency-Key', () => {
  const key = { headers: { 'idempotency-key': 'one' } };
  const other = { state: 'NY' };

  test('repeats equal data and rejects other data, by path and user, for a day', async () => {
    const { carrier, start, pass } = await createCoverageApp();
    expect((await start({}, key)).status).toBe(200);
    expect((await start({}, key)).status).toBe(200);
    expect(await start(other, key)).toMatchObject({
      status: 422,
      body: { type: '/problems/idempotency-key-reused', code: 241 },
    });
    expect(carrier.calls).toHaveLength(1);
    expect((await start(other, { ...life, ...key })).status).toBe(200);
    expect((await start(other, { ...bob, ...key })).status).toBe(200);
    pass(dayMs + 1);
    expect((await start(other, key)).status).toBe(200);
  });

  test('is deleted after a day', async () => {
    const { db, start, pass } = await createCoverageApp();
    await start({}, key);
    pass(dayMs + 1);
    await start({}, { ...bob, headers: { 'idempotency-key': 'another' } });
    expect(await db.select({ key: idempotencyKeys.key }).from(idempotencyKeys)).toEqual([{ key: 'another' }]);
  });

  test('returns 422 when it has 256 characters', async () => {
    const response = await unchanged.start({}, { headers: { 'idempotency-key': 'a'.repeat(256) } });
    expect(response).toMatchObject({ status: 422, body: { errors: [{ pointer: 'idempotency-key' }] } });
  });
});

describe('the daily cap of applications', () => {
  const byName = (firstName: string) => ({ firstName });
  const names = Array.from({ length: 20 }, (_, index) => byName(`Ada${String.fromCharCode(65 + index)}`));

  test('returns 429 with the time until the next application fits', async () => {
    const { testApp, carrier, start, pass } = await createCoverageApp({ applicationsPerDay: 3 });
    for (const name of names.slice(0, 3)) {
      expect((await start(name)).status).toBe(200);
      pass(hourMs);
    }
    const before = await testApp.call('GET', '/v2/private/user', { as: 'ada' });
    const response = await start(byName('D'));
    expect(response).toMatchObject(limited);
    expect(response.headers.get('retry-after')).toBe(String(21 * 3600));
    expect(carrier.calls).toHaveLength(3);
    expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).text).toBe(before.text);
    pass(21 * hourMs);
    expect((await start(byName('D'))).status).toBe(200);
    expect(await start(byName('E'))).toMatchObject(limited);
  });

  test('leaves an idempotency key free for another body', async () => {
    const { db, start, pass } = await createCoverageApp({ applicationsPerDay: 1 });
    const key = { headers: { 'idempotency-key': 'one' } };
    expect((await start(byName('A'))).status).toBe(200);
    pass(23 * hourMs);
    expect(await start(byName('B'), key)).toMatchObject(limited);
    expect(await db.$count(idempotencyKeys)).toBe(0);
    pass(2 * hourMs);
    expect((await start(byName('C'), key)).status).toBe(200);
  });

  test('ignores repeated applications and other users', async () => {
    const { start } = await createCoverageApp({ applicationsPerDay: 2 });
    for (const name of ['A', 'A', 'B', 'A', 'B']) expect((await start(byName(name))).status).toBe(200);
    const key = { headers: { 'idempotency-key': 'one' } };
    for (const repeat of [key, key]) expect((await start(byName('A'), repeat)).status).toBe(200);
    expect(await start(byName('C'))).toMatchObject(limited);
    expect((await start(byName('C'), bob)).status).toBe(200);
  });

  test('counts both flows, declines, and applications that stay open for longer than a day', async () => {
    const { carrier, start, pass } = await createCoverageApp({ applicationsPerDay: 3 });
    carrier.respond = ({ count }) => (count === 1 ? declined : unavailable());
    expect((await start(byName('A'))).status).toBe(422);
    expect((await start(byName('B'))).status).toBe(503);
    expect((await start({}, life)).status).toBe(503);
    expect(await start(byName('C'))).toMatchObject(limited);
    pass(25 * hourMs);
    expect((await start(byName('C'))).status).toBe(503);
    pass(25 * hourMs);
    const response = await start(byName('D'));
    expect(response).toMatchObject(limited);
    expect(response.headers.get('retry-after')).toBe('3600');
  });

  test('holds across instances when many requests arrive at once', async () => {
    const one = await createCoverageApp({ applicationsPerDay: 5 });
    const other = await createCoverageApp({ applicationsPerDay: 5, db: one.db, carrier: one.carrier });
    const started = names.map((name, index) => (index % 2 ? one : other).start(name));
    const statuses = (await Promise.all(started)).map(({ status }) => status);
    expect(statuses.sort()).toEqual([...Array(5).fill(200), ...Array(15).fill(429)]);
    expect(await one.db.$count(applications)).toBe(5);
  });
});

describe('GET /v2/private/user/applications', () => {
  test('returns each application once, the newest first', async () => {
    const { testApp, db, start, list } = await createCoverageApp();
    await start({}, bob);
    await start();
    await db.$client.execute(`WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 44)
      INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state, attempt,
        attempt_started_at, created_at)
      SELECT 'id-' || (v * 7 % 45), 'ada', 'ltc', v, 0, '{}', 'unknown', 1, 0, v / 3 FROM n`);
    const { applications: all, next } = await list('ada', '?limit=100');
    expect([all.length, next]).toEqual([45, null]);
    expect(all).toEqual(all.toSorted((a, b) => (`${a.createdAt} ${a.id}` < `${b.createdAt} ${b.id}` ? 1 : -1)));
    expect(await list()).toEqual({ applications: all.slice(0, 20), next: all[19]?.id ?? '' });
    for (const [limit, sizes] of [
      ['20', [20, 20, 5]],
      ['45', [45]],
      ['1', Array(45).fill(1)],
    ] as const) {
      const pages = [await list('ada', `?limit=${limit}`)];
      for (let last = pages[0]; last?.next; pages.push(last))
        last = await list('ada', `?limit=${limit}&after=${last.next}`);
      expect(pages.map((page) => page.applications.length)).toEqual([...sizes]);
      expect(pages.flatMap((page) => page.applications)).toEqual(all);
    }
    expect((await list('ada', `?after=${all.at(-1)?.id}`)).applications).toEqual([]);
    const anothers = (await list('bob')).applications[0]?.id;
    for (const query of ['limit=0', 'limit=101', 'limit=x', 'limit=', 'after=', 'after=unknown', `after=${anothers}`]) {
      const { status } = await testApp.call('GET', `/v2/private/user/applications?${query}`, { as: 'ada' });
      expect({ query, status }).toEqual({ query, status: 422 });
    }
  });

  test.each([
    [undefined, 'user_id=?'],
    ['some-id', 'user_id=? AND created_at<?'],
  ])('searches an index after %p', async (after, columns) => {
    const plan = await explainFirst(unchanged.db, (watched) =>
      createApplicationStore(watched).listByUser({ userId: 'ada', limit: 20, after }),
    );
    expect(plan.join('\n')).toContain(`USING INDEX applications_by_user (${columns})`);
    expect(plan.join('\n')).not.toMatch(/SCAN|TEMP B-TREE/);
  });
});

describe('the credit of an application', () => {
  async function setUp() {
    const app = await createCoverageApp();
    const sales = createSalesStore(app.db);
    await sales.upsertStaff([manager('boss'), counselor('c1', 'boss'), counselor('c2', 'boss')], app.testApp.now);
    await app.saveProfile({});
    const ledger = () => app.db.select().from(activities).orderBy(activities.staffId, activities.kind);
    return {
      ...app,
      ledger,
      credits: async () => (await ledger()).map(({ staffId, kind }) => `${staffId} ${kind}`),
      assign: (counselorId: string | null) =>
        sales.assignCounselor({ userId: 'ada', counselorId, operator: testOperator, now: app.testApp.now }),
    };
  }

  test('is one quote and one application of the assigned counselor', async () => {
    const { testApp, assign, start, ledger } = await setUp();
    await assign('c1');
    for (let time = 0; time < 3; time += 1) expect((await start()).status).toBe(200);
    const credit = { staffId: 'c1', managerId: 'boss', amountCents: 0, occurredAt: testApp.now.getTime() };
    expect(await ledger()).toMatchObject([
      { ...credit, kind: 'application' },
      { ...credit, kind: 'quote' },
    ]);
    const path = '/v2/private/user/salesManager/monthly-glance?month=3';
    const glance = await testApp.call('GET', path, { as: 'boss', roles: ['salesManager'] });
    expect(glance.body).toMatchObject({
      data: { teamGlance: { glance: { qoutes: 1, applications: 1 }, totalMonthlyEarnings: 0 } },
    });
  });

  test('goes to a manager who is the assigned counselor', async () => {
    const { assign, start, ledger } = await setUp();
    await assign('boss');
    await start();
    expect(await ledger()).toMatchObject([{ staffId: 'boss', managerId: 'boss' }, { staffId: 'boss' }]);
  });

  test('is missing without an assigned counselor, also after a later assignment', async () => {
    const { assign, start, credits } = await setUp();
    await start();
    await assign('c1');
    await start();
    expect(await credits()).toEqual([]);
    await start({}, life);
    await assign(null);
    await start({ email: 'other@example.com' });
    expect(await credits()).toEqual(['c1 application', 'c1 quote']);
  });

  test('is added for each new number: another flow and corrected data', async () => {
    const { assign, start, credits } = await setUp();
    await assign('c1');
    await start();
    await start({}, life);
    await assign('c2');
    await start({ dateOfBirth: '1981-03-11' });
    expect(await credits()).toEqual([
      ...['c1 application', 'c1 application', 'c1 quote', 'c1 quote', 'c2 application', 'c2 quote'],
    ]);
  });

  test('is missing for a declined application', async () => {
    const { carrier, assign, start, credits } = await setUp();
    await assign('c1');
    carrier.respond = () => declined;
    expect((await start()).status).toBe(422);
    expect(await credits()).toEqual([]);
  });

  test('is added once when the reconciler settles the application and the user repeats it', async () => {
    const { carrier, assign, start, credits, pass, reconcile } = await setUp();
    await assign('c1');
    carrier.respond = unavailable;
    expect((await start()).status).toBe(503);
    expect(await credits()).toEqual([]);
    carrier.respond = carrier.acceptAll;
    pass(60_000);
    expect(await reconcile()).toBe(1);
    expect((await start()).status).toBe(200);
    expect(await credits()).toEqual(['c1 application', 'c1 quote']);
  });

  test('is added once when the carrier gives a later application of the same identity the same number', async () => {
    const { carrier, assign, start, list, credits, pass } = await setUp();
    carrier.respond = () => accepted(7);
    await assign('c1');
    await start();
    pass(31 * dayMs);
    expect((await start()).status).toBe(200);
    const same = { state: 'submitted', appNumber: 7 };
    expect((await list()).applications).toMatchObject([same, same]);
    expect(await credits()).toEqual(['c1 application', 'c1 quote']);
  });
});
