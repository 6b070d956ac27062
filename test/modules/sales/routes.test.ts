import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { markForDevelopment } from '../../../src/db/migrate';
import { MonthlyGlanceBody } from '../../../src/modules/sales/model';
import { createSalesStore } from '../../../src/modules/sales/store';
import { seedDatabase } from '../../../src/seed';
import { activity, counselor, createTestApp, manager, testConfig } from '../../support/app';
import { explainFirst } from '../../support/database';

const path = '/v2/private/user/salesManager/monthly-glance';
const roles = ['salesManager'];

async function setUp(reportTimeZone = 'UTC') {
  const testApp = await createTestApp({ config: { ...testConfig, reportTimeZone } });
  const store = createSalesStore(testApp.db);
  const call = (query: string, as = 'boss', callerRoles: readonly string[] = roles) =>
    testApp.call('GET', `${path}${query}`, { as, roles: callerRoles });
  const glance = async (query: string, as = 'boss') => {
    const response = await call(query, as);
    if (response.status !== 200) throw new Error(`${query} returned ${response.status}: ${response.text}`);
    return v.parse(MonthlyGlanceBody, response.body).data;
  };
  return { testApp, store, call, glance };
}

const zeros = { cemetryPlans: 0, qoutes: 0, qoutesAndContract: 0, applications: 0 };

describe('GET /v2/private/user/salesManager/monthly-glance', () => {
  test('returns exactly the fields of the contract and the period', async () => {
    const { testApp, store, call } = await setUp();
    const { now } = testApp;
    await store.upsertStaff([manager('boss', 'Somerville', 'Mary'), counselor('c1', 'boss', 'Noether', 'Emmy')], now);
    await store.upsertActivities(
      [
        activity('boss', '2026-03-02T00:00:00Z', { kind: 'monthlyPlan', amountCents: 4990 }),
        activity('boss', '2026-03-03T00:00:00Z', { kind: 'semiAnnualPlan', amountCents: 27440 }),
        activity('boss', '2026-03-04T00:00:00Z', { kind: 'application', amountCents: 1 }),
        activity('c1', '2026-03-05T00:00:00Z', { kind: 'cemeteryPlan', amountCents: 10 }),
        activity('c1', '2026-03-05T00:00:00Z', { kind: 'quote', amountCents: 20 }),
        activity('c1', '2026-03-05T00:00:00Z', { kind: 'quoteAndContract', amountCents: -5 }),
        activity('c1', '2026-03-05T00:00:00Z', { kind: 'quoteAndContract' }),
      ],
      now,
    );
    const response = await call('?month=March');
    expect(response.status).toBe(200);
    expect(response.headers.get('cache-control')).toBe('private, no-store');
    expect(response.text).toBe(
      JSON.stringify({
        data: {
          teamGlance: {
            glance: { cemetryPlans: 1, qoutes: 1, qoutesAndContract: 1, applications: 1 },
            totalMonthlyEarnings: 324.56,
          },
          managerReport: {
            glance: { monthlyPlan: 1, semiAnnualPlan: 1, ...zeros, applications: 1 },
            totalEarnings: 324.31,
          },
          counselorsReport: [
            {
              glance: { cemetryPlans: 1, qoutes: 1, qoutesAndContract: 1, applications: 0 },
              totalMonthlyEarnings: 0.25,
              name: { first: 'Emmy', last: 'Noether' },
            },
          ],
          period: {
            month: '2026-03',
            timeZone: 'UTC',
            from: '2026-03-01T00:00:00.000Z',
            until: '2026-04-01T00:00:00.000Z',
          },
        },
      }),
    );
  });

  test('returns zeros for every counselor in a month without data', async () => {
    const { testApp, store, glance } = await setUp();
    await store.upsertStaff([manager('boss'), counselor('c1', 'boss'), counselor('c2', 'boss')], testApp.now);
    const { teamGlance, managerReport, counselorsReport } = await glance('?month=1999-01');
    expect(teamGlance).toEqual({ glance: zeros, totalMonthlyEarnings: 0 });
    expect(managerReport).toEqual({ glance: { monthlyPlan: 0, semiAnnualPlan: 0, ...zeros }, totalEarnings: 0 });
    expect(counselorsReport).toHaveLength(2);
    for (const each of counselorsReport) expect(each).toMatchObject({ glance: zeros, totalMonthlyEarnings: 0 });
  });

  test('sorts counselors by last name, first name and id', async () => {
    const { testApp, store, glance } = await setUp();
    const people = [
      counselor('z', 'boss', 'Zed', 'A'),
      counselor('b', 'boss', 'Öl', 'B'),
      counselor('a', 'boss', 'ode', 'B'),
      counselor('same-2', 'boss', 'Same', 'Same'),
      counselor('same-1', 'boss', 'Same', 'Same'),
      counselor('v', 'boss', 'von Neumann', 'John'),
      counselor('m', 'boss', 'O’Neil', 'Ann'),
      counselor('n', 'boss', 'O’Neil', 'Al'),
    ];
    await store.upsertStaff([manager('boss'), ...people], testApp.now);
    await store.upsertActivities(
      [activity('same-1', '2026-03-01T00:00:00Z'), activity('same-2', '2026-03-01T00:00:00Z', { amountCents: 100 })],
      testApp.now,
    );
    const { counselorsReport } = await glance('?month=3');
    expect(counselorsReport.map(({ name }) => `${name.last} ${name.first}`)).toEqual([
      'O’Neil Al',
      'O’Neil Ann',
      'ode B',
      'Öl B',
      'Same Same',
      'Same Same',
      'von Neumann John',
      'Zed A',
    ]);
    expect(counselorsReport.slice(4, 6).map(({ totalMonthlyEarnings }) => totalMonthlyEarnings)).toEqual([0, 1]);
  });

  test('sums earnings in integer cents', async () => {
    const { testApp, store, glance } = await setUp();
    await store.upsertStaff([manager('boss'), counselor('c1', 'boss')], testApp.now);
    const dimes = Array.from({ length: 30 }, () => activity('c1', '2026-03-01T00:00:00Z', { amountCents: 10 }));
    await store.upsertActivities(dimes, testApp.now);
    await store.upsertActivities([activity('boss', '2026-03-01T00:00:00Z', { amountCents: 20 })], testApp.now);
    expect((await glance('?month=3')).teamGlance.totalMonthlyEarnings).toBe(3.2);
  });
});

describe('monthly glance of a team', () => {
  test('excludes the counselors and sales of other managers', async () => {
    const { testApp, store, glance } = await setUp();
    await store.upsertStaff(
      [manager('boss'), counselor('own', 'boss', 'Own'), manager('other'), counselor('theirs', 'other', 'Theirs')],
      testApp.now,
    );
    await store.upsertActivities(
      [
        activity('own', '2026-03-01T00:00:00Z', { amountCents: 1 }),
        activity('theirs', '2026-03-01T00:00:00Z', { amountCents: 100 }),
        activity('other', '2026-03-01T00:00:00Z', { amountCents: 100 }),
      ],
      testApp.now,
    );
    const { teamGlance, counselorsReport } = await glance('?month=3');
    expect(teamGlance.totalMonthlyEarnings).toBe(0.01);
    expect(counselorsReport.map(({ name }) => name.last)).toEqual(['Own']);
    expect((await glance('?month=3', 'other')).teamGlance.totalMonthlyEarnings).toBe(2);
  });

  test('keeps the earlier sales of a counselor who moved to another team', async () => {
    const { testApp, store, glance } = await setUp();
    const { now } = testApp;
    await store.upsertStaff([manager('boss'), manager('new'), counselor('mover', 'boss', 'Mover')], now);
    const before = activity('mover', '2026-02-10T00:00:00Z', { amountCents: 500 });
    await store.upsertActivities([before], now);
    await store.upsertStaff([counselor('mover', 'new', 'Mover')], now);
    await store.upsertActivities([before, activity('mover', '2026-03-10T00:00:00Z', { amountCents: 700 })], now);

    expect((await glance('?month=2')).counselorsReport).toMatchObject([
      { name: { last: 'Mover' }, totalMonthlyEarnings: 5 },
    ]);
    expect((await glance('?month=3')).counselorsReport).toEqual([]);
    expect((await glance('?month=2', 'new')).counselorsReport).toMatchObject([
      { name: { last: 'Mover' }, totalMonthlyEarnings: 0 },
    ]);
    expect((await glance('?month=3', 'new')).counselorsReport).toMatchObject([{ totalMonthlyEarnings: 7 }]);
  });

  test('lists a counselor who became a manager in months with earlier sales', async () => {
    const { testApp, store, glance } = await setUp();
    await store.upsertStaff([manager('boss'), counselor('riser', 'boss', 'Riser')], testApp.now);
    await store.upsertActivities([activity('riser', '2026-02-10T00:00:00Z', { amountCents: 100 })], testApp.now);
    await store.upsertStaff([manager('riser', 'Riser')], testApp.now);
    await store.upsertActivities(
      [activity('riser', '2026-02-11T00:00:00Z', { amountCents: 300, kind: 'monthlyPlan' })],
      testApp.now,
    );
    expect((await glance('?month=2')).counselorsReport).toMatchObject([
      { name: { last: 'Riser' }, totalMonthlyEarnings: 1 },
    ]);
    expect((await glance('?month=2', 'riser')).managerReport.totalEarnings).toBe(3);
  });
});

describe('monthly glance authorization', () => {
  test.each([
    ['a plain user', 'plain-user', []],
    ['a counselor', 'c1', ['counselor']],
    ['a counselor with the role of a manager', 'c1', roles],
    ['a manager who is not in staff', 'outsider', roles],
    ['a role in another case', 'boss', ['SalesManager']],
    ['a manager without the role', 'boss', []],
  ])('returns 403 for %s', async (_, as, callerRoles) => {
    const { testApp, store, call } = await setUp();
    await store.upsertStaff([manager('boss'), counselor('c1', 'boss')], testApp.now);
    const response = await call('?month=3', as, callerRoles);
    expect(response).toMatchObject({ status: 403, body: { type: '/problems/forbidden', code: 220 } });
    expect(response.text).not.toContain('Counselor');
  });

  test('returns 403 before it validates the query', async () => {
    const { call } = await setUp();
    expect((await call('?month=13', 'plain-user', [])).status).toBe(403);
    expect((await call('?month=13', 'outsider')).status).toBe(422);
  });
});

describe('monthly glance query', () => {
  test.each(['', '?month', '?month=', '?month=Setpember', '?month=13', '?month=0', '?month=Dezember', '?year=2026'])(
    'returns 422 for %j instead of the current month',
    async (query) => {
      const { testApp, store, call } = await setUp();
      await store.upsertStaff([manager('boss')], testApp.now);
      const response = await call(query);
      expect(response).toMatchObject({ status: 422, body: { code: 201, errors: [{ pointer: 'month' }] } });
    },
  );

  test.each([
    ['?month=3&year=26', 'year'],
    ['?month=3&year=', 'year'],
    ['?month=2025-03&year=2026', 'year'],
    ['?month=3&month=4', 'month'],
  ])('returns 422 with a pointer for %j', async (query, pointer) => {
    const { call } = await setUp();
    expect((await call(query)).body).toMatchObject({ status: 422, errors: [{ pointer }] });
  });

  test.each([
    ['?month=December', 2025],
    ['?month=March', 2026],
    ['?month=dec&year=2024', 2024],
    ['?month=2024-12', 2024],
    ['?month=2024-12&year=2024', 2024],
  ])('resolves %s to the year %i', async (query, year) => {
    const { testApp, store, glance } = await setUp();
    await store.upsertStaff([manager('boss')], testApp.now);
    const sales = [2024, 2025, 2026].flatMap((each) =>
      ['03', '12'].map((month) => activity('boss', `${each}-${month}-15T00:00:00Z`, { amountCents: each })),
    );
    await store.upsertActivities(sales, testApp.now);
    expect((await glance(query)).teamGlance.totalMonthlyEarnings).toBe(year / 100);
  });

  test.each([
    ['UTC', '2026-02', '2026-02-01T00:00:00.000Z', '2026-02-28T23:59:59.999Z'],
    ['UTC', '2024-02', '2024-02-01T00:00:00.000Z', '2024-02-29T23:59:59.999Z'],
    ['America/New_York', '2026-03', '2026-03-01T05:00:00.000Z', '2026-04-01T03:59:59.999Z'],
    ['America/New_York', '2026-11', '2026-11-01T04:00:00.000Z', '2026-12-01T04:59:59.999Z'],
  ])('includes exactly the milliseconds of the month in %s, %s', async (timeZone, month, first, last) => {
    const { testApp, store, glance } = await setUp(timeZone);
    await store.upsertStaff([manager('boss')], testApp.now);
    const at = (instant: string, byMs: number, amountCents: number) =>
      activity('boss', Date.parse(instant) + byMs, { amountCents });
    await store.upsertActivities(
      [at(first, -1, 100_000), at(first, 0, 1), at(last, 0, 20), at(last, 1, 10_000_000)],
      testApp.now,
    );
    expect((await glance(`?month=${month}`)).teamGlance).toMatchObject({
      totalMonthlyEarnings: 0.21,
      glance: { qoutes: 2 },
    });
  });
});

describe('query plan of the monthly glance', () => {
  test('searches indexes and scans no table', async () => {
    const { testApp } = await setUp();
    const plan = await explainFirst(testApp.db, (db) =>
      createSalesStore(db).findTeamMonth('boss', { from: 0, until: 1 }),
    );
    expect(plan.join('\n')).toContain(
      'SEARCH activities USING COVERING INDEX activities_by_team (manager_id=? AND occurred_at>? AND occurred_at<?)',
    );
    expect(plan.filter((line) => /^SCAN (activities|staff)\b/.test(line))).toEqual([]);
  });
});

describe('demo team', () => {
  test('has sales in every month, and a second seed keeps later changes', async () => {
    const { testApp, store, glance } = await setUp();
    const { db, now } = testApp;
    await db.$client.execute(markForDevelopment);
    const seed = () => seedDatabase(db, { withDemo: true, now });
    await seed();
    for (let month = 1; month <= 12; month += 1) {
      const { teamGlance, counselorsReport } = await glance(`?month=${month}`, 'demo-manager');
      expect(teamGlance.totalMonthlyEarnings).toBeGreaterThan(0);
      expect(counselorsReport).toHaveLength(4);
    }
    await store.upsertStaff([manager('boss'), counselor('demo-counselor-1', 'boss', 'Changed')], now);
    const before = await glance('?month=3', 'demo-manager');
    await seed();
    expect((await store.findStaff('demo-counselor-1'))?.lastName).toBe('Changed');
    expect(await glance('?month=3', 'demo-manager')).toEqual(before);
  });
});
