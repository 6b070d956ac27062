import { describe, expect, test } from 'bun:test';
import { sql } from 'drizzle-orm';
import fc from 'fast-check';
import journal from '../../../drizzle/meta/_journal.json';
import { type Database, openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { activityKinds } from '../../../src/db/schema/lists';
import { createLog } from '../../../src/log';
import { monthBounds } from '../../../src/modules/sales/model';
import { createSalesStore } from '../../../src/modules/sales/store';
import { startSummingActivities, sumNextActivities, teamTotals } from '../../../src/modules/sales/store-sums';
import { activity, counselor, manager } from '../../support/app';
import { earlierMigrations, temporaryDatabase } from '../../support/database';
import { startInProcess } from '../../support/processes';
import { amount, atEnd, temporaryFolder, until } from '../../support/resources';

const month = { month: 3, year: 2026 };
const monthStart = Date.UTC(2026, 2, 1);
const nepal = monthBounds(month, 'Asia/Kathmandu');
const now = new Date('2026-04-01T00:00:00Z');

type Range = ReturnType<typeof monthBounds>;

/** Recounts the sales of each seller of a team, row by row. */
function recount(db: Database, managerId: string, { from, until }: Range) {
  return db.all(sql`SELECT staff_id, count(*) AS activities,
    sum(kind = 'monthlyPlan' AND amount_cents >= 0) AS monthly_plan,
    sum(kind = 'semiAnnualPlan' AND amount_cents >= 0) AS semi_annual_plan,
    sum(kind = 'cemeteryPlan' AND amount_cents >= 0) AS cemetery_plan,
    sum(kind = 'quote' AND amount_cents >= 0) AS quote,
    sum(kind = 'quoteAndContract' AND amount_cents >= 0) AS quote_and_contract,
    sum(kind = 'application' AND amount_cents >= 0) AS application,
    sum(amount_cents) AS amount_cents
    FROM activities WHERE manager_id = ${managerId} AND occurred_at >= ${from} AND occurred_at < ${until}
    GROUP BY staff_id ORDER BY staff_id`);
}

const readSums = (db: Database, managerId: string, range: Range) =>
  db.all(sql`SELECT * FROM (${teamTotals(managerId, range)}) ORDER BY staff_id`);

async function expectCorrectSums(db: Database, ranges: readonly Range[]): Promise<void> {
  for (const range of ranges) {
    for (const managerId of ['boss', 'other']) {
      expect(await readSums(db, managerId, range)).toEqual(await recount(db, managerId, range));
    }
  }
}

const progressOf = (db: Database) => db.all(sql`SELECT summed_up_to FROM activity_sums_progress`);
const complete = [{ summed_up_to: null }];
const insertBoss = sql`INSERT INTO staff VALUES ('boss', 'salesManager', 'A', 'B', NULL, 0, 0, 0)`;

/** Activities of one team, spread over March. */
const insertActivities = (count: number) =>
  sql.raw(`WITH RECURSIVE number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < ${count - 1})
    INSERT INTO activities SELECT printf('a%08d', n), 'boss', 'boss',
      CASE n % 4 WHEN 0 THEN 'cemeteryPlan' WHEN 1 THEN 'quote' WHEN 2 THEN 'quoteAndContract' ELSE 'application' END,
      n * 37 % 100000 - 3000, ${monthStart} + (n * 7919 % 1000000) * 2678, 0, 0, 0 FROM number`);

const id = fc.integer({ min: 0, max: 30 }).map((number) => `a${number}`);
const instant = fc.oneof(
  fc.integer({ min: monthStart - 2 * 86_400_000, max: monthStart + 33 * 86_400_000 }),
  // The edges of the summed spans.
  fc.integer({ min: 0, max: 33 * 96 }).map((quarter) => monthStart - 86_400_000 + quarter * 900_000),
);
const sale = fc.record({
  store: id,
  seller: fc.constantFrom('boss', 'other', 'c1', 'c2', 'c3'),
  kind: fc.constantFrom(...activityKinds),
  amountCents: fc.integer({ min: -5_000, max: 5_000 }),
  occurredAt: instant,
});
const step = fc.oneof(
  { weight: 6, arbitrary: sale },
  { weight: 2, arbitrary: fc.record({ remove: id }) },
  { weight: 2, arbitrary: fc.record({ rename: id, to: id }) },
  { weight: 2, arbitrary: fc.record({ sumNext: fc.integer({ min: 1, max: 5 }) }) },
  { weight: 1, arbitrary: fc.constant({ forget: true }) },
);

describe('the sums of activities', () => {
  test('equal a recount after random imports, corrections, removals and erasures, whether complete or not', async () => {
    const { db } = await temporaryDatabase();
    const store = createSalesStore(db);
    await store.upsertStaff([manager('boss'), manager('other')], now);
    await store.upsertStaff([counselor('c1', 'boss'), counselor('c2', 'boss'), counselor('c3', 'other')], now);
    const zones = ['UTC', 'America/New_York', 'Asia/Kathmandu', 'Pacific/Kiritimati', 'Africa/Monrovia'];
    const ranges = [
      ...zones.map((zone) => monthBounds(month, zone)),
      { from: monthStart + 1, until: monthStart + 10 },
      { from: monthStart + 7, until: monthStart + 40 * 3_600_000 },
      { from: monthStart - 900_001, until: monthStart + 5 * 86_400_000 + 17 },
    ];
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        await db.run(sql`DELETE FROM activities`);
        for (const each of steps) {
          if ('store' in each) {
            const { store: externalId, seller, ...sold } = each;
            const kind = seller.startsWith('c') && sold.kind.endsWith('Plan') ? 'quote' : sold.kind;
            await store.upsertActivities([{ ...activity(seller, sold.occurredAt), ...sold, kind, externalId }], now);
          } else if ('remove' in each) {
            await db.run(sql`DELETE FROM activities WHERE external_id = ${each.remove}`);
          } else if ('rename' in each) {
            await db.run(
              sql`UPDATE OR IGNORE activities SET external_id = ${each.to} WHERE external_id = ${each.rename}`,
            );
          } else if ('sumNext' in each) {
            await sumNextActivities(db, each.sumNext);
          } else {
            // The state after the migration of a database with activities.
            await db.run(sql`DELETE FROM activity_sums`);
            await db.run(sql`UPDATE activity_sums_progress SET summed_up_to = ''`);
          }
        }
        await expectCorrectSums(db, ranges);
        while (!(await sumNextActivities(db, 3)));
        await expectCorrectSums(db, ranges);
      }),
      { numRuns: amount({ long: 500, short: 20 }) },
    );
  });

  test('are added in small batches by a start of the service on a database of an earlier build', async () => {
    const url = `file:${temporaryFolder()}/planning.db`;
    const db = await openDatabase({ url, timeoutMs: 2_000 });
    atEnd(() => db.$client.close());
    const before = journal.entries.findIndex(({ tag }) => tag === '0012_activity_sums');
    await migrateDatabase(db, await earlierMigrations(before));
    await db.run(insertBoss);
    await db.run(insertActivities(1_200));
    await migrateDatabase(db);
    expect(await progressOf(db)).toEqual([{ summed_up_to: '' }]);
    const service = await startInProcess({ DATABASE_URL: url });
    await until(() => service.logLines().some(({ msg }) => msg === 'the sums of activities are complete'));
    expect(await progressOf(db)).toEqual(complete);
    await expectCorrectSums(db, [nepal]);
    await service.stop();
  });

  test('are rebuilt by a running service after a repair has removed them', async () => {
    const { db } = await temporaryDatabase();
    await db.run(insertBoss);
    const lines: string[] = [];
    const log = createLog('info', { write: (line) => lines.push(line) });
    const summing = startSummingActivities({ db, log }, 10);
    atEnd(() => summing.stop());
    await db.run(sql`DROP TRIGGER activities_sums_added`);
    await db.run(insertActivities(1_200));
    const { repaired } = await migrateDatabase(db, undefined, { repair: true });
    expect(repaired).toEqual(['trigger activities_sums_added']);
    await until(() => lines.some((line) => line.includes('the sums of activities are complete')));
    expect(await progressOf(db)).toEqual(complete);
    await expectCorrectSums(db, [nepal]);
  });

  test('of a month are read without its activities', async () => {
    const { db } = await temporaryDatabase();
    await db.run(insertBoss);
    await db.run(insertActivities(1_200));
    const sums = await readSums(db, 'boss', nepal);
    expect(sums).toEqual(await recount(db, 'boss', nepal));
    await db.run(sql`DROP TRIGGER activities_sums_removed`);
    await db.run(sql`DELETE FROM activities`);
    expect(await readSums(db, 'boss', nepal)).toEqual(sums);
  });
});
