import { createSalesStore } from '../../src/modules/sales/store';
import { createTestApp, type TestApp } from '../support/app';
import { type Figure, median } from './figure';

const kinds = ['cemeteryPlan', 'quote', 'quoteAndContract', 'application'] as const;
const now = new Date('2026-03-31T12:00:00Z');
const inMonth = Date.UTC(2026, 2, 1);
const inThreeYears = Date.UTC(2023, 2, 1);
const dayMs = 86_400_000;
const teams = 50;
const counselorsATeam = 10;
const chunk = 5_000;
const rounds = 1_100;
const warmUpRounds = 100;

/** A month of 1,000 activities of the measured team, and the given number of other teams and months. */
async function createLedger(others: number): Promise<TestApp> {
  const testApp = await createTestApp();
  testApp.now = now;
  const store = createSalesStore(testApp.db);
  const teamOf = (team: number) => [
    { id: `m${team}`, role: 'salesManager', firstName: 'First', lastName: `Last ${team}` } as const,
    ...Array.from(
      { length: counselorsATeam },
      (_, index) =>
        ({
          id: `c${team}-${index}`,
          role: 'counselor',
          firstName: 'First',
          lastName: `Last ${index}`,
          managerId: `m${team}`,
        }) as const,
    ),
  ];
  await store.upsertStaff(Array.from({ length: teams }, (_, team) => teamOf(team)).flat(), now);
  const activity = (index: number, team: number, occurredAt: number) => ({
    externalId: `${team}-${occurredAt}-${index}`,
    staffId: `c${team}-${index % counselorsATeam}`,
    kind: kinds[index % kinds.length] ?? 'quote',
    amountCents: (index * 37) % 100_000,
    occurredAt,
    managerId: undefined,
  });
  const asked = Array.from({ length: 1_000 }, (_, index) =>
    activity(index, 0, inMonth + ((index * 7919) % 30) * dayMs),
  );
  await store.upsertActivities(asked, now);
  for (let from = 0; from < others; from += chunk) {
    const beside = Array.from({ length: Math.min(chunk, others - from) }, (_, index) => {
      const at = from + index;
      const isOwnTeam = at % 20 === 0;
      // The same team gets only other months, the other teams get every month.
      const day = isOwnTeam ? (at * 7919) % 1_000 : (at * 7919) % 1_120;
      return activity(at, isOwnTeam ? 0 : 1 + (at % (teams - 1)), inThreeYears + day * dayMs);
    });
    await store.upsertActivities(beside, now);
  }
  return testApp;
}

/** The duration of the whole request and of the query alone. */
const measured = {
  response: async ({ call }: TestApp) => {
    const { status } = await call('GET', '/v2/private/user/salesManager/monthly-glance?month=2026-03', {
      as: 'm0',
      roles: ['salesManager'],
    });
    if (status !== 200) throw new Error(`The glance returned ${status}`);
  },
  query: async ({ db }: TestApp) => {
    await createSalesStore(db).findTeamMonth('m0', { from: inMonth, until: inMonth + 31 * dayMs });
  },
};

/** The slow-down of a monthly report of 1,000 activities with 999,000 activities of other teams and months. */
export async function compareLedgers(report: (name: string) => void): Promise<Figure[]> {
  report('storing 1,000,000 activities');
  const ledgers = { alone: await createLedger(0), beside: await createLedger(999_000) };
  const figures: Figure[] = [];
  for (const [what, measure] of Object.entries(measured)) {
    const times: Record<keyof typeof ledgers, number[]> = { alone: [], beside: [] };
    for (let round = 0; round < rounds; round += 1) {
      // Alternating and in both orders, so that other load affects both equally.
      for (const which of round % 2 === 0 ? (['alone', 'beside'] as const) : (['beside', 'alone'] as const)) {
        const startedAtMs = performance.now();
        await measure(ledgers[which]);
        if (round >= warmUpRounds) times[which].push(performance.now() - startedAtMs);
      }
    }
    figures.push({
      name: `glance, ${what}, beside 999,000 others`,
      p50Ms: median(times.beside),
      beside: `alone, ${median(times.alone).toFixed(2)} ms`,
      // A rate, like the other ratios.
      value: median(times.alone) / median(times.beside),
      unit: '×',
      atLeast: 0.8,
    });
  }
  return figures;
}
