import { expect, test } from 'bun:test';
import fc from 'fast-check';
import { activityKinds } from '../../../src/db/schema/lists';
import type { ActivityRecord } from '../../../src/modules/sales/model';
import { createSalesStore } from '../../../src/modules/sales/store';
import { calendarDateAt } from '../../../src/shared/calendar';
import { activity, counselor, createTestApp, manager, testConfig } from '../../support/app';
import { amount } from '../../support/resources';

const zones = ['UTC', 'America/New_York', 'Asia/Kathmandu'];
const apps = await Promise.all(
  zones.map((reportTimeZone) => createTestApp({ config: { ...testConfig, reportTimeZone } })),
);
const from = Date.UTC(2026, 1, 27);
const until = Date.UTC(2026, 3, 3);
const counselors = 4;
let ledgers = 0;

/** Counts activities with a non-negative amount; a negative amount is a correction. */
function sales(of: readonly ActivityRecord[], kind: string): number {
  return of.filter((each) => each.kind === kind && each.amountCents >= 0).length;
}

const startOf = (date: string, timeZone: string) =>
  new Date(Temporal.ZonedDateTime.from(`${date}[${timeZone}]`).epochMilliseconds).toISOString();

/** Two teams; counselors change teams between sales. */
const ledger = fc.record({
  zone: fc.nat(zones.length - 1),
  steps: fc.array(
    fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({
          seller: fc.nat(counselors + 1),
          kind: fc.constantFrom(...activityKinds),
          amountCents: fc.oneof(fc.constantFrom(-1, 0, 1), fc.integer({ min: -1_000_000_000, max: 1_000_000_000 })),
          occurredAt: fc.integer({ min: from, max: until }),
        }),
      },
      { weight: 1, arbitrary: fc.record({ mover: fc.nat(counselors - 1), to: fc.nat(1) }) },
    ),
    { maxLength: 40 },
  ),
});

const spelled = {
  cemetryPlans: 'cemeteryPlan',
  qoutes: 'quote',
  qoutesAndContract: 'quoteAndContract',
  applications: 'application',
};

test('monthly glance equals a plain recount of the ledger for random teams, moves and time zones', async () => {
  await fc.assert(
    fc.asyncProperty(ledger, async ({ zone, steps }) => {
      const [testApp, timeZone] = [apps[zone], zones[zone]];
      if (testApp === undefined || timeZone === undefined) throw new Error('Unknown time zone');
      const store = createSalesStore(testApp.db);
      ledgers += 1;
      const leaders = [`boss-${ledgers}`, `other-${ledgers}`];
      const teamOf = new Map<string, string>();
      const people = [...leaders, ...Array.from({ length: counselors }, (_, index) => `c${index}-${ledgers}`)];
      const move = async (id: string, to: string) => {
        teamOf.set(id, to);
        await store.upsertStaff([counselor(id, to, `Last ${id}`)], testApp.now);
      };
      for (const id of leaders) await store.upsertStaff([manager(id)], testApp.now);
      for (const [index, id] of people.slice(2).entries()) await move(id, leaders[index % 2] ?? '');

      const sold: (ActivityRecord & { team: string })[] = [];
      for (const step of steps) {
        if ('mover' in step) await move(people[2 + step.mover] ?? '', leaders[step.to] ?? '');
        else {
          const id = people[step.seller] ?? '';
          const isPlan = step.kind === 'monthlyPlan' || step.kind === 'semiAnnualPlan';
          const kind = isPlan && step.seller > 1 ? 'quote' : step.kind;
          const record = activity(id, step.occurredAt, { kind, amountCents: step.amountCents });
          sold.push({ ...record, team: teamOf.get(id) ?? id });
          await store.upsertActivities([record], testApp.now);
        }
      }
      // An equal import after the moves changes nothing.
      const again = sold.map(({ team: _, ...record }) => record);
      expect(await store.upsertActivities(again, testApp.now)).toEqual({
        added: 0,
        changed: 0,
        unchanged: sold.length,
      });

      for (const boss of leaders) {
        const month = sold.filter(
          ({ team, occurredAt }) =>
            team === boss && calendarDateAt(new Date(occurredAt), timeZone).startsWith('2026-03-'),
        );
        const counts = (of: readonly ActivityRecord[]) =>
          Object.fromEntries(Object.entries(spelled).map(([name, kind]) => [name, sales(of, kind)]));
        const earnings = (of: readonly ActivityRecord[]) =>
          of.reduce((sum, { amountCents }) => sum + amountCents, 0) / 100;
        const listed = people.filter(
          (id) => id !== boss && (teamOf.get(id) === boss || month.some((each) => each.staffId === id)),
        );
        const own = month.filter(({ staffId }) => staffId === boss);

        const response = await testApp.call('GET', '/v2/private/user/salesManager/monthly-glance?month=2026-03', {
          as: boss,
          roles: ['salesManager'],
        });
        expect(response.body).toEqual({
          data: {
            teamGlance: { glance: counts(month), totalMonthlyEarnings: earnings(month) },
            managerReport: {
              glance: {
                monthlyPlan: sales(own, 'monthlyPlan'),
                semiAnnualPlan: sales(own, 'semiAnnualPlan'),
                ...counts(own),
              },
              totalEarnings: earnings(own),
            },
            counselorsReport: listed.toSorted().map((id) => {
              const theirs = month.filter(({ staffId }) => staffId === id);
              const name = { first: 'A', last: `Last ${id}` };
              return { glance: counts(theirs), totalMonthlyEarnings: earnings(theirs), name };
            }),
            period: {
              month: '2026-03',
              timeZone,
              from: startOf('2026-03-01', timeZone),
              until: startOf('2026-04-01', timeZone),
            },
          },
        });
      }
    }),
    { numRuns: amount({ long: 300, short: 30 }) },
  );
});
