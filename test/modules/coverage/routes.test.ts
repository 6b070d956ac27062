import { describe, expect, test } from 'bun:test';
import { activities } from '../../../src/db/schema/lists';
import { applicationAttempts, applications, idempotencyKeys, users } from '../../../src/db/schema/people';
import { createApplicationStore } from '../../../src/modules/coverage/store';
import { createSalesStore } from '../../../src/modules/sales/store';
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

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const life = { flow: 'life' };
const bob = { as: 'bob' };
const key = { headers: { 'idempotency-key': 'one' } };
const limited = { status: 429, body: { type: '/problems/rate-limited' } };
const shared = await createCoverageApp();

/** The app of every test, which begins without people, applications and sales. */
async function setUp(options: Parameters<typeof shared.reset>[0] = {}) {
  await shared.reset(options);
  return shared;
}

describe('POST /v2/private/{ltc,life}/totalCoverage', () => {
  test.each(['ltc', 'life'])(
    'returns the number and prices of the carrier and saves the identity: %s',
    async (flow) => {
      const { testApp, start, list } = await setUp();
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

  test('starts one application for each flow and user, in any case and spacing of the identity', async () => {
    const { carrier, start, list, user } = await setUp();
    const spelled = { email: 'ADA@example.COM', firstName: ' Ada  ', dateOfBirth: '1981-03-10T00:00:00.000Z' };
    await Promise.all([start(), start({}, life), start({}, bob), start(spelled), start({}, life), start({}, bob)]);
    expect(carrier.numbers.size).toBe(3);
    await start();
    const { purchase } = await user();
    expect((await start(spelled)).status).toBe(200);
    expect([(await user()).purchase, carrier.calls.length]).toEqual([purchase, 3]);
    expect((await list('bob')).applications).toHaveLength(1);
    expect((await list('unknown')).applications).toEqual([]);
  });

  test('starts a new application with supersedes when the birth date is corrected', async () => {
    const { start, list, user } = await setUp();
    await start({ dateOfBirth: '1981-03-12' }, { as: 'bob' });
    await start({ dateOfBirth: '1981-03-12' }, { flow: 'life' });
    await start();
    await start({ dateOfBirth: '1981-03-11' });
    expect((await user()).purchase.partner?.appNumber).toBe(4);
    const [newer, older] = (await list()).applications;
    expect([older?.supersedes, newer?.supersedes]).toEqual([null, older?.id ?? 'none']);
    await start();
    expect((await user()).purchase.partner?.appNumber).toBe(3);
    expect((await list()).applications).toHaveLength(3);
  });

  test('reuses an application for 30 days and starts another one after', async () => {
    const { carrier, start, pass } = await setUp();
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
    const { db, start, list, pass } = await setUp({ respond: () => ({ ...declined, reason }) });
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

  test.each<[change: object | null, pointers: string[], headers?: Record<string, string>]>([
    [null, ['/firstName', '/lastName', '/dateOfBirth', '/gender', '/state', '/email']],
    [{ email: null }, ['/email']],
    [{ gender: 'f' }, ['/gender']],
    [{ dateOfBirth: '2026-03-11' }, ['/dateOfBirth']],
    [{ ssn: '1' }, ['/ssn']],
    [{}, ['idempotency-key'], { 'idempotency-key': 'a'.repeat(256) }],
  ])('returns 422 with pointers and stores nothing for %j', async (change, pointers, headers = {}) => {
    const { testApp, db, carrier } = await setUp();
    const body = change === null ? {} : { ...applicant, ...change };
    const response = await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body, headers });
    expect(response).toMatchObject({ status: 422, body: { errors: pointers.map((pointer) => ({ pointer })) } });
    expect([await db.$count(users), await db.$count(applications), carrier.calls.length]).toEqual([0, 0, 0]);
  });

  test('does not delay other requests while the carrier has not responded', async () => {
    const { testApp, carrier, start } = await setUp();
    const held = carrier.hold(50);
    const waiting = held.map((_, index) => start({}, { as: `slow-${index}` }));
    await Promise.all(held.map(({ arrived }) => arrived));
    expect((await testApp.call('GET', '/health/ready')).status).toBe(200);
    for (const { respond } of held) respond(unavailable());
    for (const { status } of await Promise.all(waiting)) expect(status).toBe(503);
  });

  test('keeps pricing that an earlier version stored', async () => {
    const { testApp, db, saveProfile, user } = await setUp();
    await saveProfile({});
    const [first] = carrierPricing;
    const withTerms = (...terms: object[]) => ({ ...first, terms });
    const partner = { appNumber: 7, pricing: [withTerms(), withTerms({ years: 10.5, price: 0, riders: [] })] };
    await db.update(users).set({ purchase: JSON.stringify({ partner }), version: 2 });
    await testApp.call('POST', '/v2/private/engine/matches?explain=true', { as: 'ada' });
    expect((await user()).purchase).toMatchObject({ partner });
  });
});

describe('the profile after an application', () => {
  const own = { ...applicant, email: 'own@example.com' };
  const spouse = {
    ...{ firstName: 'William', lastName: 'King', dateOfBirth: '1938-02-21', gender: 'Male', state: 'MD' },
    email: 'william@example.com',
  };
  const byrom = { lastName: 'Byrom' };
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
    for (const respond of [undefined, () => declined, unavailable]) {
      const { saveProfile, start, user } = await setUp(respond && { respond });
      for (const { body, isApplication } of steps) await (isApplication ? start(body) : saveProfile(body));
      expect((await user()).profile).toEqual(profile);
    }
  });
});

test('an Idempotency-Key repeats equal data and rejects other data, by path and user, until it is deleted after a day', async () => {
  const { db, carrier, start, pass } = await setUp();
  const other = { state: 'NY' };
  expect((await start({}, key)).status).toBe(200);
  expect((await start({}, key)).status).toBe(200);
  const reused = { status: 422, body: { type: '/problems/idempotency-key-reused', code: 241 } };
  expect(await start(other, key)).toMatchObject(reused);
  expect(carrier.calls).toHaveLength(1);
  for (const elsewhere of [life, bob]) expect((await start(other, { ...elsewhere, ...key })).status).toBe(200);
  expect((await start({}, key)).status).toBe(200);
  pass(dayMs + 1);
  expect((await start(other, key)).status).toBe(200);
  expect(await db.$count(idempotencyKeys)).toBe(1);
});

describe('the daily cap of applications', () => {
  const byName = (firstName: string) => ({ firstName });

  test('returns 429 with the time until the next application fits, and leaves the idempotency key free', async () => {
    const { testApp, db, carrier, start, pass } = await setUp({ applicationsPerDay: 3 });
    for (const name of ['A', 'B', 'C']) {
      expect((await start(byName(name))).status).toBe(200);
      pass(hourMs);
    }
    const before = await testApp.call('GET', '/v2/private/user', { as: 'ada' });
    const response = await start(byName('D'), key);
    expect(response).toMatchObject(limited);
    expect(response.headers.get('retry-after')).toBe(String(21 * 3600));
    expect([carrier.calls.length, await db.$count(idempotencyKeys)]).toEqual([3, 0]);
    expect((await testApp.call('GET', '/v2/private/user', { as: 'ada' })).text).toBe(before.text);
    pass(21 * hourMs);
    expect((await start(byName('E'), key)).status).toBe(200);
    expect(await start(byName('F'))).toMatchObject(limited);
  });

  test('ignores repeated applications and other users', async () => {
    const { start } = await setUp({ applicationsPerDay: 2 });
    for (const name of ['A', 'A', 'B', 'A', 'B']) expect((await start(byName(name))).status).toBe(200);
    for (const repeat of [key, key]) expect((await start(byName('A'), repeat)).status).toBe(200);
    expect(await start(byName('C'))).toMatchObject(limited);
    expect((await start(byName('C'), bob)).status).toBe(200);
  });

  test('counts both flows, declines, and applications that stay open for longer than a day', async () => {
    const { start, pass } = await setUp({
      applicationsPerDay: 3,
      respond: ({ count }) => (count === 1 ? declined : unavailable()),
    });
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
    const one = await setUp({ applicationsPerDay: 5 });
    const other = await createCoverageApp({ applicationsPerDay: 5, db: one.db, carrier: one.carrier });
    const names = Array.from({ length: 20 }, (_, index) => byName(`Ada${String.fromCharCode(65 + index)}`));
    const started = names.map((name, index) => (index % 2 ? one : other).start(name));
    const statuses = (await Promise.all(started)).map(({ status }) => status);
    expect(statuses.sort()).toEqual([...Array(5).fill(200), ...Array(15).fill(429)]);
    expect(await one.db.$count(applications)).toBe(5);
  });
});

describe('GET /v2/private/user/applications', () => {
  test('returns each application once, the newest first', async () => {
    const { testApp, db, start, list } = await setUp();
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
    const plan = await explainFirst(shared.db, (watched) =>
      createApplicationStore(watched).listByUser({ userId: 'ada', limit: 20, after }),
    );
    expect(plan.join('\n')).toContain(`USING INDEX applications_by_user (${columns})`);
    expect(plan.join('\n')).not.toMatch(/SCAN|TEMP B-TREE/);
  });
});

describe('the credit of an application', () => {
  async function setUpTeam() {
    const app = await setUp();
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
  const ofC1 = ['c1 application', 'c1 quote'];

  test('is one quote and one application of the assigned counselor for each new number', async () => {
    const { testApp, assign, start, ledger, credits } = await setUpTeam();
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
    await start({}, life);
    await assign('c2');
    await start({ dateOfBirth: '1981-03-11' });
    expect(await credits()).toEqual([...ofC1, ...ofC1, 'c2 application', 'c2 quote'].sort());
  });

  test('goes to a manager who is the assigned counselor', async () => {
    const { assign, start, ledger } = await setUpTeam();
    await assign('boss');
    await start();
    expect(await ledger()).toMatchObject([{ staffId: 'boss', managerId: 'boss' }, { staffId: 'boss' }]);
  });

  test('is missing without an assigned counselor, also after a later assignment', async () => {
    const { assign, start, credits } = await setUpTeam();
    await start();
    await assign('c1');
    await start();
    expect(await credits()).toEqual([]);
    await start({}, life);
    await assign(null);
    await start({ email: 'other@example.com' });
    expect(await credits()).toEqual(ofC1);
  });

  test('is missing for a decline, and added once when the reconciler settles and the user repeats', async () => {
    const { carrier, assign, start, credits, pass, reconcile } = await setUpTeam();
    await assign('c1');
    carrier.respond = ({ count }) => (count === 1 ? declined : unavailable());
    expect((await start({}, life)).status).toBe(422);
    expect((await start()).status).toBe(503);
    expect(await credits()).toEqual([]);
    carrier.respond = carrier.acceptAll;
    pass(60_000);
    expect(await reconcile()).toBe(1);
    expect((await start()).status).toBe(200);
    expect(await credits()).toEqual(ofC1);
  });

  test('is added once when the carrier gives a later application of the same identity the same number', async () => {
    const { carrier, assign, start, list, credits, pass } = await setUpTeam();
    carrier.respond = () => accepted(7);
    await assign('c1');
    await start();
    pass(31 * dayMs);
    expect((await start()).status).toBe(200);
    const same = { state: 'submitted', appNumber: 7 };
    expect((await list()).applications).toMatchObject([same, same]);
    expect(await credits()).toEqual(ofC1);
  });
});
