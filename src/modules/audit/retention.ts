import { databaseClock } from '../../db/clock';
import { noteCompleted } from '../../db/row-counts';
import type { AppDeps } from '../../deps';
import { describeError } from '../../log';
import { startRounds } from '../../rounds';
import { dayMs, planRetention, type RetentionHold } from './retention-plan';
import { createAuditStore } from './store';

const everyMs = 60 * 60_000;

/** What the log and `planning doctor` say of each. */
export const holdTexts = {
  'clock-ahead': 'the clock is ahead of the audit trail: events expire later, until `planning audit prune` confirms it',
  'clock-behind': 'the clock is behind the audit trail: no event is removed, until `planning audit prune` confirms it',
  shortened: 'is smaller than the retention in force: `planning audit prune` applies it',
} as const satisfies Record<RetentionHold, string>;

/**
 * Removes expired events of the audit trail at once and then every hour. `stop` waits for the step that runs. Another
 * process, or a later run, removes the rest.
 */
export function startAuditRetention(
  { db, clock, log }: Pick<AppDeps, 'db' | 'clock' | 'log'>,
  retentionDays: number,
): { stop(): Promise<void> } {
  const store = createAuditStore(db);
  let said = '';
  /** Logs each reason once, until it has changed. */
  const say = (holds: readonly (RetentionHold | 'clocks-differ')[], days = 0) => {
    if (said === holds.join()) return;
    said = holds.join();
    for (const hold of holds) {
      if (hold === 'shortened') {
        log.warn({ setting: 'AUDIT_RETENTION_DAYS', rule: holdTexts[hold] }, 'a setting needs attention');
      } else if (hold === 'clocks-differ') {
        log.warn(
          { days },
          'the clock of the database differs from the clock of the service: no audit event is removed',
        );
      } else log.warn({ days }, holdTexts[hold]);
    }
  };
  return startRounds({
    everyMs,
    async work(isStopping) {
      const clocks = [clock().getTime(), Math.floor(await databaseClock(db))] as const;
      const differenceMs = Math.abs(clocks[0] - clocks[1]);
      if (differenceMs > dayMs) return say(['clocks-differ'], Math.floor(differenceMs / dayMs));
      const facts = await store.findFacts();
      // An event expires only when it is old by both clocks.
      const { next, before, atMost, holds, aheadMs } = planRetention(facts, retentionDays, Math.min(...clocks));
      say(holds, Math.floor(Math.abs(aheadMs) / dayMs));
      const events = atMost === 0 ? 0 : await store.countExpired(before, atMost);
      const isOwn = await store.advance(facts.state, { ...next, removed: next.removed + events });
      // Otherwise another process has just begun the same run.
      if (isOwn && events > 0) {
        log.info({ events, days: next.days }, 'audit events that are older than this are removed');
        await store.removeExpired({ before, atMost: events }, isStopping);
      }
      if (holds.every((hold) => hold === 'shortened')) await noteCompleted(db, 'audit-retention', new Date());
    },
    onFailure: (error) => log.error(describeError(error), 'old audit events could not be removed'),
  });
}
