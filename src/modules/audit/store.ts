import { and, asc, desc, eq, gt, gte, lt, lte, type SQL, type SQLWrapper, sql } from 'drizzle-orm';
import type { Database } from '../../db/client';
import { auditEvents } from '../../db/schema';
import type { AuditEvent } from '../../db/schema/audit';

/** The request that does something; null for what the service does by itself. */
export type RequestId = string | null;

/** Somebody at the command line, and the one run of it. */
export interface Operator {
  readonly actorId: string;
  readonly requestId: string;
}

/** Something that is done to a user's data, or that a user does. */
export interface NewEvent extends Pick<AuditEvent, 'action' | 'actor' | 'requestId'> {
  readonly userId: string | SQLWrapper;
  readonly actorId?: string;
  readonly section?: string;
  readonly applicationId?: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

const pageRows = 1_000;
/** Read and removed at once, so that no writer waits for long. */
const expiredAtOnce = 500;
const refusalsEveryMs = 60 * 60_000;

/**
 * The statement that adds an event, to be sent in one transaction with what it tells of.
 *
 * @param source `WHERE` what must hold for it, or `FROM` rows of which each adds one
 */
export function eventStatement(db: Database, event: NewEvent, source: SQL = sql``) {
  const { now, userId, actor, actorId = null, action, section = null, applicationId = null, requestId } = event;
  return db.insert(auditEvents).select(sql`SELECT NULL, ${now}, ${userId}, ${actor}, ${actorId}, ${action}, ${section},
    ${applicationId}, ${requestId} ${source}`);
}

export function createAuditStore(db: Database) {
  const since = (userId: string, sinceMs: number) =>
    and(eq(auditEvents.userId, userId), gte(auditEvents.occurredAt, sinceMs));

  return {
    async record(event: NewEvent): Promise<void> {
      await eventStatement(db, event);
    },

    /** Notes that somebody was refused, at most once an hour, so that nobody fills the table by asking. */
    async recordRefusal(event: NewEvent & { readonly userId: string }): Promise<void> {
      const recent = and(since(event.userId, event.now - refusalsEveryMs), eq(auditEvents.action, 'refused'));
      await eventStatement(db, event, sql`WHERE NOT EXISTS (SELECT 1 FROM ${auditEvents} WHERE ${recent})`);
    },

    /** Notes a look at a user's events, if there are any, and gives whether there are. */
    async recordLook(event: NewEvent & { readonly userId: string }): Promise<boolean> {
      const own = eq(auditEvents.userId, event.userId);
      const rows = await eventStatement(
        db,
        event,
        sql`WHERE EXISTS (SELECT 1 FROM ${auditEvents} WHERE ${own})`,
      ).returning({ id: auditEvents.id });
      return rows.length > 0;
    },

    /** A user's events, the newest first, in pages; there may be more of them than memory holds. */
    async *pages(userId: string, { sinceMs = 0, limit = Number.POSITIVE_INFINITY } = {}): AsyncGenerator<AuditEvent[]> {
      let left = limit;
      let after: SQL | undefined;
      while (left > 0) {
        const page = await db
          .select()
          .from(auditEvents)
          .where(and(since(userId, sinceMs), after))
          .orderBy(desc(auditEvents.occurredAt), desc(auditEvents.id))
          .limit(Math.min(left, pageRows));
        const last = page.at(-1);
        if (last === undefined) return;
        yield page;
        left -= page.length;
        after = sql`(${auditEvents.occurredAt}, ${auditEvents.id}) < (${last.occurredAt}, ${last.id})`;
      }
    },

    /**
     * Removes the oldest events from before an instant, some at a time; several processes may at once.
     *
     * @param isStopping asked before each time
     * @returns how many were removed by this process
     */
    async removeExpired({ before, now }: { before: number; now: number }, isStopping: () => boolean): Promise<number> {
      let removed = 0;
      let afterId = 0;
      while (!isStopping()) {
        const startedAtMs = performance.now();
        const oldest = await db
          .select({ id: auditEvents.id, occurredAt: auditEvents.occurredAt })
          .from(auditEvents)
          .where(gt(auditEvents.id, afterId))
          .orderBy(asc(auditEvents.id))
          .limit(expiredAtOnce);
        const lastId = oldest.at(-1)?.id ?? afterId;
        if (oldest.some(({ occurredAt }) => occurredAt < before)) {
          const expired = and(
            gt(auditEvents.id, afterId),
            lte(auditEvents.id, lastId),
            lt(auditEvents.occurredAt, before),
          );
          removed += (await db.delete(auditEvents).where(expired).returning({ id: auditEvents.id })).length;
        }
        // They stand in the order of their making, but for those that a clock dated into the future.
        const isPast = oldest.some(({ occurredAt }) => occurredAt >= before && occurredAt <= now);
        if (isPast || oldest.length < expiredAtOnce) break;
        afterId = lastId;
        // Half of the time is the other writers'.
        await Bun.sleep(performance.now() - startedAtMs);
      }
      return removed;
    },
  };
}
