import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import * as v from 'valibot';
import { activitiesImport } from '../../src/cli/import-kinds';
import { activityKinds } from '../../src/db/schema/lists';
import { MonthlyGlanceBody } from '../../src/modules/sales/model';
import { createSalesStore } from '../../src/modules/sales/store';
import { activity, counselor, createTestApp, manager, testConfig } from '../support/app';
import { importContent } from '../support/command';
import { amount } from '../support/resources';

type Sale = readonly [staffId: string, kind: (typeof activityKinds)[number], cents: number, at?: string];

async function setUp({ reportTimeZone = 'UTC', now = '2026-03-10T12:00:00Z' } = {}) {
  const testApp = await createTestApp({ config: { ...testConfig, reportTimeZone } });
  testApp.now = new Date(now);
  const store = createSalesStore(testApp.db);
  await store.upsertStaff([manager('boss'), counselor('c1', 'boss'), counselor('c2', 'boss')], testApp.now);
  const sell = (...sales: readonly Sale[]) =>
    store.upsertActivities(
      sales.map(([id, kind, amountCents, at = '2026-03-02T12:00:00Z']) => activity(id, at, { kind, amountCents })),
      testApp.now,
    );
  const glance = async (query: string) => {
    const path = `/v2/private/user/salesManager/monthly-glance?${query}`;
    return v.parse(MonthlyGlanceBody, (await testApp.call('GET', path, { as: 'boss', roles: ['salesManager'] })).body)
      .data;
  };
  return { testApp, store, sell, glance };
}

describe('a correction', () => {
  test.each<[string, Sale[], object, number]>([
    [
      'a chargeback',
      [
        ['c1', 'quoteAndContract', 50_000],
        ['c1', 'quoteAndContract', -50_000],
      ],
      { qoutesAndContract: 1 },
      0,
    ],
    [
      'a partial refund',
      [
        ['c1', 'cemeteryPlan', 50_000],
        ['c1', 'cemeteryPlan', -12_345],
      ],
      { cemetryPlans: 1 },
      376.55,
    ],
    ['a chargeback alone in its month', [['c1', 'application', -9_500]], { applications: 0 }, -95],
    ['the smallest amount', [['c1', 'quote', -1]], { qoutes: 0 }, -0.01],
    [
      'a correction of another kind',
      [
        ['c1', 'quote', 100],
        ['c1', 'application', -100],
      ],
      { qoutes: 1, applications: 0 },
      0,
    ],
    [
      'a correction of another seller',
      [
        ['c1', 'quote', 100],
        ['c2', 'quote', -100],
      ],
      { qoutes: 1 },
      0,
    ],
    [
      'a correction of the manager’s own sale',
      [
        ['boss', 'quote', 100],
        ['boss', 'quote', -100],
      ],
      { qoutes: 1 },
      0,
    ],
    [
      'several corrections of one sale',
      [
        ['c1', 'quote', 100],
        ['c1', 'quote', -60],
        ['c1', 'quote', -60],
      ],
      { qoutes: 1 },
      -0.2,
    ],
    [
      'an amount of 0, which is no correction',
      [
        ['c1', 'quote', 0],
        ['c1', 'application', 0],
      ],
      { qoutes: 1, applications: 1 },
      0,
    ],
  ])('D7 raises no counter and lowers the earnings: %s', async (_, sales, counters, earnings) => {
    const { sell, glance } = await setUp();
    await sell(...sales);
    expect((await glance('month=2026-03')).teamGlance).toMatchObject({
      glance: counters,
      totalMonthlyEarnings: earnings,
    });
  });

  test('D7 raises no counter of the manager’s plans', async () => {
    const { sell, glance } = await setUp();
    await sell(['boss', 'monthlyPlan', 4990], ['boss', 'monthlyPlan', -4990], ['boss', 'semiAnnualPlan', -27_440]);
    expect((await glance('month=3')).managerReport).toMatchObject({
      glance: { monthlyPlan: 1, semiAnnualPlan: 0 },
      totalEarnings: -274.4,
    });
  });

  test('D7 lowers the month in which it happens and leaves the month of the sale', async () => {
    const { sell, glance } = await setUp({ reportTimeZone: 'America/New_York' });
    await sell(
      ['c1', 'quoteAndContract', 50_000, '2026-02-28T23:00:00Z'],
      ['c1', 'quoteAndContract', -50_000, '2026-03-01T05:00:00Z'],
    );
    const [february, march] = [await glance('month=2026-02'), await glance('month=2026-03')];
    expect(february.teamGlance).toMatchObject({ glance: { qoutesAndContract: 1 }, totalMonthlyEarnings: 500 });
    expect(march.teamGlance).toMatchObject({ glance: { qoutesAndContract: 0 }, totalMonthlyEarnings: -500 });
  });

  test('D7 imports from a negative amount, and a second import changes nothing', async () => {
    const { testApp, glance } = await setUp();
    const rows = ['s1,c1,quoteAndContract,500,2026-03-02', 's1-back,c1,quoteAndContract,-500.00,2026-03-03'];
    const content = ['externalId,staffId,kind,amount,occurredAt', ...rows].join('\n');
    for (let run = 0; run < 2; run += 1) {
      expect((await importContent(activitiesImport, testApp.db, { content })).refusal).toBe('');
      expect((await glance('month=3')).counselorsReport[0]).toMatchObject({
        glance: { qoutesAndContract: 1 },
        totalMonthlyEarnings: 0,
      });
    }
  });

  test('D7 keeps the team the sum of its parts, earnings exact and counters of zero or more', async () => {
    const { testApp, store, glance } = await setUp();
    const sale = fc.record({
      staffId: fc.constantFrom('boss', 'c1', 'c2'),
      kind: fc.constantFrom(...activityKinds),
      amountCents: fc.oneof(fc.constantFrom(-1, 0, 1), fc.integer({ min: -1_000_000_000, max: 1_000_000_000 })),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(sale, { maxLength: 30 }), async (sales) => {
        await testApp.db.$client.execute('DELETE FROM activities');
        await store.upsertActivities(
          sales.map(({ staffId, kind, amountCents }) => {
            const isPlan = kind === 'monthlyPlan' || kind === 'semiAnnualPlan';
            const seller = isPlan ? 'boss' : staffId;
            return activity(seller, '2026-03-02T12:00:00Z', { kind, amountCents });
          }),
          testApp.now,
        );
        const { teamGlance, managerReport, counselorsReport } = await glance('month=3');
        const parts = [
          { glance: managerReport.glance, earnings: managerReport.totalEarnings },
          ...counselorsReport.map((each) => ({ glance: each.glance, earnings: each.totalMonthlyEarnings })),
        ];
        const cents = (earnings: number) => Math.round(earnings * 100);
        expect(cents(teamGlance.totalMonthlyEarnings)).toBe(parts.reduce((sum, part) => sum + cents(part.earnings), 0));
        expect(cents(teamGlance.totalMonthlyEarnings)).toBe(sales.reduce((sum, each) => sum + each.amountCents, 0));
        for (const counter of ['cemetryPlans', 'qoutes', 'qoutesAndContract', 'applications'] as const) {
          expect(teamGlance.glance[counter]).toBe(parts.reduce((sum, part) => sum + part.glance[counter], 0));
        }
        const counted = [
          ...Object.values(teamGlance.glance),
          managerReport.glance.monthlyPlan,
          managerReport.glance.semiAnnualPlan,
        ];
        expect(counted.reduce((sum, count) => sum + count, 0)).toBe(
          sales.filter((each) => each.amountCents >= 0).length,
        );
      }),
      { numRuns: amount({ long: 500, short: 40 }) },
    );
  });
});

describe('the period of a monthly glance', () => {
  test.each([
    [
      'month=December',
      '2026-11-20T12:00:00Z',
      'UTC',
      '2025-12',
      '2025-12-01T00:00:00.000Z',
      '2026-01-01T00:00:00.000Z',
    ],
    ['month=11', '2026-11-20T12:00:00Z', 'UTC', '2026-11', '2026-11-01T00:00:00.000Z', '2026-12-01T00:00:00.000Z'],
    ['month=2026-12', '2026-11-20T12:00:00Z', 'UTC', '2026-12', '2026-12-01T00:00:00.000Z', '2027-01-01T00:00:00.000Z'],
    [
      'month=july&year=2019',
      '2026-11-20T12:00:00Z',
      'UTC',
      '2019-07',
      '2019-07-01T00:00:00.000Z',
      '2019-08-01T00:00:00.000Z',
    ],
    [
      'month=March',
      '2026-03-10T12:00:00Z',
      'America/New_York',
      '2026-03',
      '2026-03-01T05:00:00.000Z',
      '2026-04-01T04:00:00.000Z',
    ],
    [
      'month=Mar',
      '2026-03-01T04:59:59Z',
      'America/New_York',
      '2025-03',
      '2025-03-01T05:00:00.000Z',
      '2025-04-01T04:00:00.000Z',
    ],
    [
      'month=1',
      '2025-12-31T20:00:00Z',
      'Asia/Tokyo',
      '2026-01',
      '2025-12-31T15:00:00.000Z',
      '2026-01-31T15:00:00.000Z',
    ],
    [
      'month=2012-04',
      '2026-03-10T12:00:00Z',
      'America/Havana',
      '2012-04',
      '2012-04-01T05:00:00.000Z',
      '2012-05-01T04:00:00.000Z',
    ],
  ])('B20 resolves %s at %s in %s', async (query, now, timeZone, month, from, until) => {
    const { glance } = await setUp({ reportTimeZone: timeZone, now });
    expect((await glance(query)).period).toEqual({ month, timeZone, from, until });
  });

  test('B20 covers exactly the activities that are counted', async () => {
    const { sell, glance } = await setUp({ reportTimeZone: 'Asia/Kathmandu' });
    const { from, until } = (await glance('month=2026-02')).period;
    const before = (instant: string) => new Date(Date.parse(instant) - 1).toISOString();
    await sell(
      ['c1', 'quote', 1, before(from)],
      ['c1', 'quote', 10, from],
      ['c1', 'quote', 100, before(until)],
      ['c1', 'quote', 1000, until],
    );
    expect((await glance('month=2026-02')).teamGlance).toMatchObject({
      glance: { qoutes: 2 },
      totalMonthlyEarnings: 1.1,
    });
  });
});
