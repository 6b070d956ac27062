import { asc, eq } from 'drizzle-orm';
import type { Database } from '../../src/db/client';
import { auditEvents } from '../../src/db/schema/people';

/** The audit events of a user, oldest first. */
export function auditEventsOf({ db }: { readonly db: Database }, userId: string) {
  return db.select().from(auditEvents).where(eq(auditEvents.userId, userId)).orderBy(asc(auditEvents.id));
}

/** The audit events of a user as lines: `action section actor request`. */
export async function auditLinesOf(testApp: { readonly db: Database }, userId: string): Promise<string[]> {
  const events = await auditEventsOf(testApp, userId);
  return events.map(
    ({ action, section, actor, requestId }) => `${action} ${section ?? '-'} ${actor} ${requestId ?? '-'}`,
  );
}

/** Inserts events of `ada` and `bob` alternately; `instant` is an SQL expression over `value`, which counts from 1. */
export async function fillEvents({ $client }: Database, rows: number, instant: string): Promise<void> {
  const batchSize = 10_000;
  for (let from = 1; from <= rows; from += batchSize) {
    const to = Math.min(rows, from + batchSize - 1);
    await $client.execute(`WITH RECURSIVE numbers(value) AS (SELECT ${from} UNION ALL SELECT value + 1 FROM numbers
        WHERE value < ${to})
      INSERT INTO audit_events (occurred_at, user_id, actor, action, request_id)
      SELECT ${instant}, iif(value % 2, 'bob', 'ada'), 'person', 'saved', 'request-' || value FROM numbers`);
  }
}
