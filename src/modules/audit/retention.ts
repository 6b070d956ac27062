import type { auditRetention } from '../../db/schema/people';

export const dayMs = 24 * 60 * 60_000;
/** The largest difference between the clock and the retention's time that is followed at once. */
const maxJumpMs = dayMs;
/** A clock that is further ahead needs a confirmation. */
const maxCatchUpMs = 31 * dayMs;
/** Upper bound of the time that counts as passed since the previous run. */
const maxRunMs = 2 * 60 * 60_000;
const maxSharePerDay = 0.1;
const smallestBoundPerDay = 1_000;
const maxPerRun = 250_000;
/** An earlier build kept events longer than the setting, because it removed them once an hour. */
const graceDays = 2;

export type RetentionState = Omit<typeof auditRetention.$inferSelect, 'id'>;

/** Instants are epoch milliseconds. */
export interface AuditLogFacts {
  readonly oldest: number | undefined;
  readonly newest: number | undefined;
  /** The approximate number of events. */
  readonly events: number;
  /** The state that earlier runs have stored. */
  readonly state: RetentionState | undefined;
}

/** Why the retention removes less than the setting and the clock demand. */
export type RetentionHold = 'clock-ahead' | 'clock-behind' | 'shortened';

interface RetentionPlan {
  readonly next: RetentionState;
  /** Events from before this instant have expired. */
  readonly before: number;
  /** The largest number of events that this run may remove. */
  readonly atMost: number;
  readonly holds: readonly RetentionHold[];
  /** How far the clock is ahead of the retention's time; negative if it is behind. */
  readonly aheadMs: number;
}

/**
 * Plans a run of the retention. A removed event cannot be restored, so the retention has its own stored time. It follows
 * the clock by up to a day. It catches up with a clock that is further ahead, as after a stop of some days, at twice the
 * speed of time. It does not follow a clock that is more than 31 days ahead, and removes nothing while the clock is more
 * than a day behind.
 */
export function planRetention(
  { state, oldest, newest, events }: AuditLogFacts,
  days: number,
  now: number,
): RetentionPlan {
  const before = state ?? firstState({ oldest, newest }, days, now);
  const aheadMs = now - before.asOf;
  const isAhead = aheadMs > maxCatchUpMs;
  const isBehind = aheadMs < -maxJumpMs;
  const asOf = isAhead || isBehind ? before.asOf : followed(before, now);
  const isSameDay = Math.abs(now - before.dayBeganAt) < dayMs;
  const removed = isSameDay ? before.removed : 0;
  const perDay = Math.max(smallestBoundPerDay, Math.floor(events * maxSharePerDay));
  const isStopped = isAhead || isBehind;
  return {
    next: {
      days: Math.max(days, before.days),
      asOf,
      checkedAt: now,
      dayBeganAt: isSameDay ? before.dayBeganAt : now,
      removed,
    },
    before: Math.min(asOf, now) - Math.max(days, before.days) * dayMs,
    atMost: isStopped ? 0 : Math.min(maxPerRun, Math.max(0, perDay - removed)),
    holds: [
      ...(aheadMs > maxJumpMs ? (['clock-ahead'] as const) : []),
      ...(isBehind ? (['clock-behind'] as const) : []),
      ...(days < before.days ? (['shortened'] as const) : []),
    ],
    aheadMs,
  };
}

/** The state after an operator has confirmed the clock and the setting. */
export function confirmedState({ state }: AuditLogFacts, days: number, now: number): RetentionState {
  const { dayBeganAt = now, removed = 0 } = state ?? {};
  return { days, asOf: now, checkedAt: now, dayBeganAt, removed };
}

/**
 * The state before the first run. An audit log that reaches further back than the setting was kept by a longer setting.
 * Its newest event is the latest time that is known to be right.
 */
function firstState({ oldest, newest }: Pick<AuditLogFacts, 'oldest' | 'newest'>, days: number, now: number) {
  const asOf = Math.min(now, newest ?? now);
  const age = Math.ceil((asOf - (oldest ?? asOf)) / dayMs);
  return { days: age > days + graceDays ? age : days, asOf, checkedAt: now, dayBeganAt: now, removed: 0 };
}

function followed({ asOf, checkedAt }: RetentionState, now: number): number {
  if (now - asOf <= maxJumpMs) return Math.max(asOf, now);
  const passedMs = Math.min(Math.max(now - checkedAt, 0), maxRunMs);
  return Math.min(now, asOf + 2 * passedMs);
}
