import { databaseClock } from '../../db/clock';
import type { AppDeps } from '../../deps';
import { startRounds } from '../../rounds';
import { createAuditStore } from './store';

const everyMs = 60 * 60_000;
const dayMs = 24 * 60 * 60_000;

/**
 * Removes what the audit trail holds for longer than so many days, at once and then every hour. `stop` lets the few
 * rows that are being removed go, and begins no others; whatever is left is removed by another process, or later.
 */
export function startAuditRetention(
  { db, clock, log }: Pick<AppDeps, 'db' | 'clock' | 'log'>,
  days: number,
): { stop(): Promise<void> } {
  const store = createAuditStore(db);
  return startRounds({
    everyMs,
    async work(isStopping) {
      // What is removed cannot be had back, so both clocks must have it that it is old.
      const now = Math.min(clock().getTime(), await databaseClock(db));
      const removed = await store.removeExpired({ before: now - days * dayMs, now }, isStopping);
      if (removed > 0) log.info({ removed }, 'old audit events were removed');
    },
    onFailure: (failure) => log.error(failure, 'old audit events could not be removed'),
  });
}
