import { asc, eq } from 'drizzle-orm';
import type { Database } from '../../src/db/client';
import { auditEvents } from '../../src/db/schema/index';

/** What the audit trail tells of a user, the oldest first. */
export function trailOf({ db }: { readonly db: Database }, userId: string) {
  return db.select().from(auditEvents).where(eq(auditEvents.userId, userId)).orderBy(asc(auditEvents.id));
}

/** The same in short: `action section actor request`. */
export async function storyOf(testApp: { readonly db: Database }, userId: string): Promise<string[]> {
  const events = await trailOf(testApp, userId);
  return events.map(
    ({ action, section, actor, requestId }) => `${action} ${section ?? '-'} ${actor} ${requestId ?? '-'}`,
  );
}

/** Adds events of `ada` and `bob` by turns, at the instants that an expression over `value` gives, which counts from 1. */
export async function fillEvents({ $client }: Database, rows: number, instant: string): Promise<void> {
  const atOnce = 10_000;
  for (let from = 1; from <= rows; from += atOnce) {
    const to = Math.min(rows, from + atOnce - 1);
    await $client.execute(`WITH RECURSIVE numbers(value) AS (SELECT ${from} UNION ALL SELECT value + 1 FROM numbers
        WHERE value < ${to})
      INSERT INTO audit_events (occurred_at, user_id, actor, action, request_id)
      SELECT ${instant}, iif(value % 2, 'bob', 'ada'), 'person', 'saved', 'request-' || value FROM numbers`);
  }
}
