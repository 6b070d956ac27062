import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { markForDevelopment } from '../../../src/db/migrate';
import type { activityKinds } from '../../../src/db/schema/lists';
import { MonthlyGlanceBody } from '../../../src/modules/sales/model';
import { createSalesStore } from '../../../src/modules/sales/store';
import { seedDatabase } from '../../../src/seed';
import { activity, counselor, createTestApp, manager, testConfig } from '../../support/app';
import { explainFirst } from '../../support/database';

const path = '/v2/private/user/salesManager/monthly-glance';
const roles = ['salesManager'];
const zeros = { cemetryPlans: 0, qoutes: 0, qoutesAndContract: 0, applications: 0 };

type Sale = readonly [staffId: string, kind: (typeof activityKinds)[number], cents: number, at?: string];

/** An app with the team of `boss`: counselors `c1` and `c2`. */
async function setUp({ reportTimeZone = 'UTC', now = '2026-03-10T12:00:00Z' } = {}) {
  const testApp = await createTestApp({ config: { ...testConfig, reportTimeZone } });
  testApp.now = new Date(now);
  const store = createSalesStore(testApp.db);
  const addStaff = (...staff: Parameters<typeof store.upsertStaff>[0]) => store.upsertStaff(staff, testApp.now);
  await addStaff(manager('boss'), counselor('c1', 'boss'), counselor('c2', 'boss'));
  const call = (query: string, as = 'boss', callerRoles: readonly string[] = roles) =>
    testApp.call('GET', `${path}${query}`, { as, roles: callerRoles });
  return {
    ...{ testApp, store, addStaff, call },
    sell: (...sales: readonly Sale[]) =>
      store.upsertActivities(
        sales.map(([id, kind, amountCents, at = '2026-03-02T12:00:00Z']) => activity(id, at, { kind, amountCents })),
        testApp.now,
      ),
    async glance(query: string, as = 'boss') {
      const response = await call(query, as);
      if (response.status !== 200) throw new Error(`${query} returned ${response.status}: ${response.text}`);
      return v.parse(MonthlyGlanceBody, response.body).data;
    },
  };
}

/** The app of the tests that store nothing. */
const unchanged = await setUp();

describe(`GET ${path}`, () => {
  test('returns exactly the fields of the contract and the period', async () => {
    const { addStaff, sell, call } = await setUp();
    await addStaff(manager('mary', 'Somerville', 'Mary'), counselor('emmy', 'mary', 'Noether', 'Emmy'));
    await sell(
      ['mary', 'monthlyPlan', 4990],
      ['mary', 'semiAnnualPlan', 27440],
      ['mary', 'application', 1],
      ['emmy', 'cemeteryPlan', 10],
      ['emmy', 'quote', 20],
      ['emmy', 'quoteAndContract', -5],
      ['emmy', 'quoteAndContract', 0],
    );
    const response = await call('?month=March', 'mary');
    expect(response.headers.get('cache-control')).toBe('private, no-store');
    const counted = { cemetryPlans: 1, qoutes: 1, qoutesAndContract: 1 };
    const name = { first: 'Emmy', last: 'Noether' };
    const report = { glance: { ...counted, applications: 0 }, totalMonthlyEarnings: 0.25, name };
    const period = { month: '2026-03', timeZone: 'UTC', from: '2026-03-01T00:00:00.000Z' };
    const data = {
      teamGlance: { glance: { ...counted, applications: 1 }, totalMonthlyEarnings: 324.56 },
      managerReport: {
        glance: { monthlyPlan: 1, semiAnnualPlan: 1, ...zeros, applications: 1 },
        totalEarnings: 324.31,
      },
      counselorsReport: [report],
      period: { ...period, until: '2026-04-01T00:00:00.000Z' },
    };
    expect([response.status, response.text]).toEqual([200, JSON.stringify({ data })]);
  });

  test('sorts counselors by last name, first name and id', async () => {
    const { addStaff, sell, glance } = await setUp();
    await addStaff(
      manager('sorted'),
      ...[
        ['z', 'Zed', 'A'],
        ['b', 'Öl', 'B'],
        ['a', 'ode', 'B'],
        ['same-2', 'Same', 'Same'],
        ['same-1', 'Same', 'Same'],
        ['v', 'von Neumann', 'John'],
        ['m', 'O’Neil', 'Ann'],
        ['n', 'O’Neil', 'Al'],
      ].map(([id = '', last, first]) => counselor(id, 'sorted', last, first)),
    );
    await sell(['same-2', 'quote', 100]);
    const { counselorsReport } = await glance('?month=3', 'sorted');
    const rows = counselorsReport.map(
      ({ name, totalMonthlyEarnings }) => `${name.last} ${name.first} ${totalMonthlyEarnings}`,
    );
    expect(rows).toEqual([
      ...['O’Neil Al 0', 'O’Neil Ann 0', 'ode B 0', 'Öl B 0', 'Same Same 0', 'Same Same 1', 'von Neumann John 0'],
      'Zed A 0',
    ]);
  });

  test('lists a counselor who became a manager in months with earlier sales', async () => {
    const { addStaff, sell, glance } = await setUp();
    await addStaff(manager('old'), counselor('riser', 'old', 'Riser'));
    await sell(['riser', 'quote', 100, '2026-02-10T00:00:00Z']);
    await addStaff(manager('riser', 'Riser'));
    await sell(['riser', 'monthlyPlan', 300, '2026-02-11T00:00:00Z']);
    expect((await glance('?month=2', 'old')).counselorsReport).toMatchObject([
      { name: { last: 'Riser' }, totalMonthlyEarnings: 1 },
    ]);
    expect((await glance('?month=2', 'riser')).managerReport.totalEarnings).toBe(3);
  });

  test.each<[name: string, as: string, roles: string[]]>([
    ['a plain user', 'plain-user', []],
    ['a counselor', 'c1', ['counselor']],
    ['a counselor with the role of a manager', 'c1', roles],
    ['a manager who is not in staff', 'outsider', roles],
    ['a role in another case', 'boss', ['SalesManager']],
    ['a manager without the role', 'boss', []],
  ])('returns 403 for %s', async (_, as, callerRoles) => {
    const response = await unchanged.call('?month=3', as, callerRoles);
    expect(response).toMatchObject({ status: 403, body: { type: '/problems/forbidden', code: 220 } });
    expect(response.text).not.toContain('Counselor');
  });

  test('returns 403 before it validates the query', async () => {
    const { call } = unchanged;
    expect((await call('?month=13', 'plain-user', [])).status).toBe(403);
    expect((await call('?month=13', 'outsider')).status).toBe(422);
  });

  test.each([
    ...['', '?month', '?month=', '?month=13', '?year=2026', '?month=3&month=4'].map((query) => [query, 'month']),
    ...['?month=3&year=26', '?month=3&year=', '?month=2025-03&year=2026'].map((query) => [query, 'year']),
  ])('returns 422 for %j, with the pointer %s', async (query = '', pointer) => {
    const response = await unchanged.call(query);
    expect(response).toMatchObject({ status: 422, body: { code: 201, errors: [{ pointer }] } });
  });

  const november = '2026-11-20T12:00:00Z';
  const newYork = 'America/New_York';
  test.each([
    ['month=December', november, 'UTC', '2025-12', '2025-12-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z'],
    ['month=2024-02&year=2024', november, 'UTC', '2024-02', '2024-02-01T00:00:00.000Z', '2024-03-01T00:00:00.000Z'],
    ['month=july&year=2019', november, newYork, '2019-07', '2019-07-01T04:00:00.000Z', '2019-08-01T04:00:00.000Z'],
    ['month=Mar', '2026-03-01T04:59:59Z', newYork, '2025-03', '2025-03-01T05:00:00.000Z', '2025-04-01T04:00:00.000Z'],
  ])('for %s at %s in %s counts exactly the milliseconds of %s', async (query, now, timeZone, month, from, until) => {
    const { sell, glance } = await setUp({ reportTimeZone: timeZone, now });
    const before = (instant: string) => new Date(Date.parse(instant) - 1).toISOString();
    await sell(
      ['c1', 'quote', 1000, before(from)],
      ['c1', 'quote', 1, from],
      ['c1', 'quote', 10, before(until)],
      ['c1', 'quote', 100, until],
    );
    const { period, teamGlance } = await glance(`?${query}`);
    expect(period).toEqual({ month, timeZone, from, until });
    expect(teamGlance).toMatchObject({ totalMonthlyEarnings: 0.11, glance: { qoutes: 2 } });
  });

  test('searches indexes and scans no table', async () => {
    const plan = await explainFirst(unchanged.testApp.db, (watched) =>
      createSalesStore(watched).findTeamMonth('boss', { from: 0, until: 1 }),
    );
    expect(plan.join('\n')).toContain(
      'SEARCH activities USING COVERING INDEX activities_by_team (manager_id=? AND occurred_at>? AND occurred_at<?)',
    );
    expect(plan.filter((line) => /^SCAN (activities|staff)\b/.test(line))).toEqual([]);
  });
});

describe('demo team', () => {
  test('has sales in every month, and a second seed keeps later changes', async () => {
    const { testApp, store, addStaff, glance } = await setUp();
    const { db, now } = testApp;
    await db.$client.execute(markForDevelopment);
    const seed = () => seedDatabase(db, { withDemo: true, now });
    await seed();
    for (let month = 1; month <= 12; month += 1) {
      const { teamGlance, counselorsReport } = await glance(`?month=${month}`, 'demo-manager');
      expect(teamGlance.totalMonthlyEarnings).toBeGreaterThan(0);
      expect(counselorsReport).toHaveLength(4);
    }
    await addStaff(counselor('demo-counselor-1', 'boss', 'Changed'));
    const before = await glance('?month=3', 'demo-manager');
    await seed();
    expect((await store.findStaff('demo-counselor-1'))?.lastName).toBe('Changed');
    expect(await glance('?month=3', 'demo-manager')).toEqual(before);
  });
});
