import { getTableColumns, isNotNull, type SQL, sql } from 'drizzle-orm';
import { type Database, writeBatch } from '../../db/client';
import { activities, type activityKinds, activitySums, activitySumsProgress, sumSpansMs } from '../../db/schema/lists';
import type { AppDeps } from '../../deps';
import { describeError } from '../../log';
import { every } from '../../shared/async';

/** Keeps a step to some milliseconds of the event loop. */
const activitiesAStep = 500;

const kindColumns = {
  monthly_plan: 'monthlyPlan',
  semi_annual_plan: 'semiAnnualPlan',
  cemetery_plan: 'cemeteryPlan',
  quote: 'quote',
  quote_and_contract: 'quoteAndContract',
  application: 'application',
} as const satisfies Record<string, (typeof activityKinds)[number]>;
const counterColumns = sql.raw(Object.keys(kindColumns).join(', '));
const summedColumns = ['activities', ...Object.keys(kindColumns), 'amount_cents'];
/** The values of `summedColumns` for one activity. A correction is not a sale. */
const valuesOfOne = sql.raw(
  [
    '1 AS activities',
    ...Object.entries(kindColumns).map(
      ([column, kind]) => `activities.kind = '${kind}' AND activities.amount_cents >= 0 AS ${column}`,
    ),
    'activities.amount_cents',
  ].join(', '),
);
const totals = sql.raw(summedColumns.map((column) => `sum(${column}) AS ${column}`).join(', '));

interface Range {
  readonly from: number;
  readonly until: number;
}

/**
 * The query of the sales of each seller of a team in a half-open range of epoch milliseconds. It adds the sums of whole
 * days, the sums of quarters of an hour at both ends, and single activities where an end lies within a quarter. While
 * the sums are incomplete it reads activities only.
 */
export function teamTotals(managerId: string, { from, until }: Range): SQL {
  const { quarter, day } = sumSpansMs;
  const [firstDay, lastDay] = [ceilTo(day, from), floorTo(day, until)];
  const [firstQuarter, lastQuarter] = [ceilTo(quarter, from), floorTo(quarter, until)];
  const ends = firstDay <= lastDay ? { firstQuarter, firstDay, lastDay, lastQuarter } : noDay(from);
  // The outer table has one row or none, so that SQLite skips the inner loop in the other state.
  const single = (range: Range, isSummed: boolean) => sql`
    SELECT activities.staff_id, ${valuesOfOne} FROM ${activitySumsProgress} CROSS JOIN ${activities}
    WHERE ${activitySumsProgress.summedUpTo} IS ${isSummed ? sql`NULL` : sql`NOT NULL`}
    AND ${activities.managerId} = ${managerId}
    AND ${activities.occurredAt} >= ${range.from} AND ${activities.occurredAt} < ${range.until}`;
  const summed = (spanMs: number, range: Range) => sql`
    SELECT activity_sums.staff_id, activities, ${counterColumns}, amount_cents FROM ${activitySumsProgress} CROSS JOIN ${activitySums}
    WHERE ${activitySumsProgress.summedUpTo} IS NULL
    AND ${activitySums.managerId} = ${managerId} AND ${activitySums.spanMs} = ${spanMs}
    AND ${activitySums.startsAt} >= ${range.from} AND ${activitySums.startsAt} < ${range.until}`;
  return sql`SELECT staff_id, ${totals} FROM (
    ${single({ from, until }, false)}
    UNION ALL ${single({ from, until: ends.firstQuarter }, true)}
    UNION ALL ${summed(quarter, { from: ends.firstQuarter, until: ends.firstDay })}
    UNION ALL ${summed(day, { from: ends.firstDay, until: ends.lastDay })}
    UNION ALL ${summed(quarter, { from: ends.lastDay, until: ends.lastQuarter })}
    UNION ALL ${single({ from: ends.lastQuarter, until }, true)}
    ) GROUP BY staff_id HAVING sum(activities) > 0`;
}

/** A range without a whole day is read from the activities. */
function noDay(from: number) {
  return { firstQuarter: from, firstDay: from, lastDay: from, lastQuarter: from };
}

function ceilTo(spanMs: number, instant: number): number {
  return Math.ceil(instant / spanMs) * spanMs;
}

function floorTo(spanMs: number, instant: number): number {
  return Math.floor(instant / spanMs) * spanMs;
}

/**
 * Adds the next activities that are not in the sums, in one transaction. Several processes may run it at the same time.
 *
 * @returns whether the sums are complete
 */
export async function sumNextActivities(db: Database, limit = activitiesAStep): Promise<boolean> {
  const next = sql`SELECT * FROM activities WHERE external_id > (SELECT summed_up_to FROM activity_sums_progress)
    ORDER BY external_id LIMIT ${limit}`;
  const { managerId, spanMs, startsAt, staffId, ...sums } = getTableColumns(activitySums);
  const added = Object.entries(sums).map(([name, column]) => [
    name,
    sql`${column} + excluded.${sql.identifier(column.name)}`,
  ]);
  const [, progress = []] = await writeBatch(db, [
    db
      .insert(activitySums)
      .select(
        sql`SELECT manager_id, span_ms, occurred_at - (occurred_at % span_ms + span_ms) % span_ms AS starts_at, staff_id, ${totals}
          FROM (SELECT activities.manager_id, activities.staff_id, activities.occurred_at, ${valuesOfOne} FROM (${next}) AS activities),
          (SELECT value AS span_ms FROM json_each(${JSON.stringify(Object.values(sumSpansMs))}))
          GROUP BY manager_id, span_ms, starts_at, staff_id`,
      )
      .onConflictDoUpdate({ target: [managerId, spanMs, startsAt, staffId], set: Object.fromEntries(added) }),
    // After the last activity `max` is null, which means that the sums are complete.
    db
      .update(activitySumsProgress)
      .set({ summedUpTo: sql`(SELECT max(external_id) FROM (${next}))` })
      .where(isNotNull(activitySumsProgress.summedUpTo))
      .returning(),
  ]);
  return progress.every(({ summed_up_to }) => summed_up_to === null);
}

/**
 * Completes the sums in the background: for activities that are older than the sums, and after a repair that removed
 * the sums.
 */
export function startSummingActivities(
  { db, log }: Pick<AppDeps, 'db' | 'log'>,
  intervalMs = 60_000,
): { stop(): Promise<void> } {
  return every({
    intervalMs,
    async run(isStopping) {
      const open = await db.select().from(activitySumsProgress).where(isNotNull(activitySumsProgress.summedUpTo));
      let isComplete = open.length === 0;
      if (isComplete) return;
      const startedAtMs = performance.now();
      while (!isComplete && !isStopping()) {
        const stepAtMs = performance.now();
        isComplete = await sumNextActivities(db);
        // Leaves half of the time to other writers.
        await Bun.sleep(performance.now() - stepAtMs);
      }
      if (isComplete) log.info({ durationMs: performance.now() - startedAtMs }, 'the sums of activities are complete');
    },
    onFailure: (error) => log.warn(describeError(error), 'could not add activities to the sums; retrying'),
  });
}
