import { and, asc, desc, eq, gte, inArray, isNull, lt, lte, type SQL, type SQLWrapper, sql } from 'drizzle-orm';
import { unionAll } from 'drizzle-orm/sqlite-core';
import * as v from 'valibot';
import { type Database, writeBatch } from '../../db/client';
import { databaseClock, recordCompletion } from '../../db/queries';
import type { AuditEvent } from '../../db/schema/people';
import { auditEvents, auditRetention } from '../../db/schema/people';
import type { AppDeps } from '../../deps';
import { describeError } from '../../log';
import { every } from '../../shared/async';
import { type AuditLogFacts, dayMs, planRetention, type RetentionHold, type RetentionState } from './retention';

/** The id of the request; null for a change by the service itself. */
export type RequestId = string | null;

/** The operator of a command, and the id of its run. */
export interface Operator {
  readonly actorId: string;
  readonly requestId: string;
}

/** An action on a user's data, or by a user. */
export interface NewEvent extends Pick<AuditEvent, 'action' | 'actor' | 'requestId'> {
  readonly userId: string | SQLWrapper;
  readonly actorId?: string;
  readonly section?: string;
  readonly applicationId?: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Which events to read. All conditions must hold. */
export interface AuditFilter {
  readonly userId?: string | undefined;
  /** The login name of an operator, or the id of a person or member of staff. */
  readonly by?: string | undefined;
  readonly action?: AuditEvent['action'] | undefined;
  /** Epoch milliseconds, inclusive. */
  readonly sinceMs?: number | undefined;
  /** Epoch milliseconds, exclusive. */
  readonly untilMs?: number | undefined;
}

/** The user id of an event without a user. No token has an empty `sub`. */
export const noUserId = '';

const pageRows = 1_000;
/** Removed by one statement, to keep the waits of other writers short. */
const expiredAtOnce = 500;
const refusalsEveryMs = 60 * 60_000;
const Facts = v.object({
  oldest: v.nullable(v.number()),
  newest: v.nullable(v.number()),
  events: v.nullable(v.number()),
});

/**
 * The statement that adds an event. Run it in the transaction of the change.
 *
 * @param source a `WHERE` clause that must hold, or a `FROM` clause that adds one event a row
 */
export function eventStatement(db: Database, event: NewEvent, source: SQL = sql``) {
  const { now, userId, actor, actorId = null, action, section = null, applicationId = null, requestId } = event;
  return db.insert(auditEvents).select(sql`SELECT NULL, ${now}, ${userId}, ${actor}, ${actorId}, ${action}, ${section},
    ${applicationId}, ${requestId} ${source}`);
}

export function createAuditStore(db: Database) {
  return {
    async record(event: NewEvent): Promise<void> {
      await eventStatement(db, event);
    },

    /** Records a refusal, at most once an hour for each user, so that requests cannot fill the table. */
    async recordRefusal(event: NewEvent & { readonly userId: string }): Promise<void> {
      const recent = and(
        eq(auditEvents.userId, event.userId),
        gte(auditEvents.occurredAt, event.now - refusalsEveryMs),
        // An event that a wrong clock dated years ahead must not suppress the others.
        lte(auditEvents.occurredAt, event.now + refusalsEveryMs),
        eq(auditEvents.action, 'refused'),
      );
      await eventStatement(db, event, sql`WHERE NOT EXISTS (SELECT 1 FROM ${auditEvents} WHERE ${recent})`);
    },

    /** Records an access to a user's events. Returns false, and records nothing, if the user has none. */
    async recordAccess(event: NewEvent & { readonly userId: string }): Promise<boolean> {
      const own = eq(auditEvents.userId, event.userId);
      const rows = await eventStatement(
        db,
        event,
        sql`WHERE EXISTS (SELECT 1 FROM ${auditEvents} WHERE ${own})`,
      ).returning({ id: auditEvents.id });
      return rows.length > 0;
    },

    /** Yields the events that match, newest first, in pages, because the audit log may be larger than memory. */
    async *pages(filter: AuditFilter & { readonly limit?: number | undefined }): AsyncGenerator<AuditEvent[]> {
      let left = filter.limit ?? Number.POSITIVE_INFINITY;
      let last: AuditEvent | undefined;
      while (left > 0) {
        const page = await readPage(db, filter, last, Math.min(left, pageRows));
        last = page.at(-1);
        if (last === undefined) return;
        yield page;
        left -= page.length;
      }
    },

    /** Reads the input of the retention. The range of ids approximates the number of events without a scan. */
    async findFacts(): Promise<AuditLogFacts> {
      const found = await db.get(sql`SELECT (SELECT min(${auditEvents.occurredAt}) FROM ${auditEvents}) AS oldest,
        (SELECT max(${auditEvents.occurredAt}) FROM ${auditEvents}) AS newest,
        (SELECT max(${auditEvents.id}) FROM ${auditEvents}) - (SELECT min(${auditEvents.id}) FROM ${auditEvents}) + 1
          AS events`);
      const { oldest, newest, events } = v.parse(Facts, found);
      const [state] = await db.select().from(auditRetention);
      return { oldest: oldest ?? undefined, newest: newest ?? undefined, events: events ?? 0, state };
    },

    /** Stores the state of a run. Returns false if another process has stored one since `before` was read. */
    async advance(before: RetentionState | undefined, next: RetentionState): Promise<boolean> {
      const row = { id: 1, ...next };
      const stored =
        before === undefined
          ? await db.insert(auditRetention).values(row).onConflictDoNothing().returning({ id: auditRetention.id })
          : await db
              .update(auditRetention)
              .set(row)
              .where(and(eq(auditRetention.checkedAt, before.checkedAt), eq(auditRetention.removed, before.removed)))
              .returning({ id: auditRetention.id });
      return stored.length > 0;
    },

    /** Stores the state that an operator has confirmed, and its audit event. */
    async confirm(next: RetentionState, { operator, now }: { operator: Operator; now: number }): Promise<void> {
      const row = { id: 1, ...next };
      const pruned = { userId: noUserId, action: 'pruned', actor: 'operator', section: 'audit', now } as const;
      await writeBatch(db, [
        db.insert(auditRetention).values(row).onConflictDoUpdate({ target: auditRetention.id, set: row }),
        eventStatement(db, { ...pruned, ...operator }),
      ]);
    },

    /** Counts the events from before an instant, up to `limit`. */
    async countExpired(before: number, limit?: number): Promise<number> {
      const expired = db.select({ id: auditEvents.id }).from(auditEvents).where(lt(auditEvents.occurredAt, before));
      return db.$count(limit === undefined ? expired.as('expired') : expired.limit(limit).as('expired'));
    },

    /**
     * Removes the oldest events from before an instant, in steps. Several processes may run it at the same time.
     *
     * @param isStopping called before each step
     * @param sleep called after each step, with the time that it took, which leaves as much to other writers
     * @returns the number of events that this process removed
     */
    async removeExpired(
      { before, atMost = Number.POSITIVE_INFINITY }: { before: number; atMost?: number },
      isStopping: () => boolean,
      sleep: (ms: number) => Promise<unknown> = Bun.sleep,
    ): Promise<number> {
      let removed = 0;
      while (removed < atMost && !isStopping()) {
        const startedAtMs = performance.now();
        const step = Math.min(expiredAtOnce, atMost - removed);
        // By time, not by id: a clock that was set back puts expired events behind younger ones.
        const oldest = db
          .select({ id: auditEvents.id })
          .from(auditEvents)
          .where(lt(auditEvents.occurredAt, before))
          .orderBy(asc(auditEvents.occurredAt))
          .limit(step);
        const rows = await db
          .delete(auditEvents)
          .where(inArray(auditEvents.id, oldest))
          .returning({ id: auditEvents.id });
        removed += rows.length;
        if (rows.length < step) break;
        await sleep(performance.now() - startedAtMs);
      }
      return removed;
    },
  };
}

export type AuditStore = ReturnType<typeof createAuditStore>;

/** The index of a query. Without statistics the planner would scan all saves for those of one user. */
type Driver = 'user' | 'actor' | 'action' | 'time';

function readPage(db: Database, filter: AuditFilter, last: AuditEvent | undefined, limit: number) {
  const { userId, by } = filter;
  const select = (driver: Driver, own?: SQL) =>
    db
      .select()
      .from(auditEvents)
      .where(and(own, ...conditionsOf(filter, driver, last)));
  const order = [desc(auditEvents.occurredAt), desc(auditEvents.id)];
  if (by === undefined) {
    const driver = userId !== undefined ? 'user' : isRare(filter.action) ? 'action' : 'time';
    return select(driver)
      .orderBy(...order)
      .limit(limit);
  }
  const asOperator = select('actor', eq(auditEvents.actorId, by));
  if (userId !== undefined && userId !== by) return asOperator.orderBy(...order).limit(limit);
  const asUser = select(
    'user',
    and(eq(auditEvents.userId, by), isNull(auditEvents.actorId), inArray(auditEvents.actor, ['person', 'staff'])),
  );
  return unionAll(asOperator, asUser)
    .orderBy(...order)
    .limit(limit);
}

function isRare(action: AuditFilter['action']): boolean {
  return action !== undefined && action !== 'saved';
}

function conditionsOf({ userId, action, sinceMs, untilMs }: AuditFilter, driver: Driver, last: AuditEvent | undefined) {
  const column = (name: Driver, own: SQLWrapper) => (driver === name ? sql`${own}` : sql`+${own}`);
  return [
    userId === undefined ? undefined : sql`${column('user', auditEvents.userId)} = ${userId}`,
    action === undefined ? undefined : sql`${column('action', auditEvents.action)} = ${action}`,
    // The condition of the partial index.
    driver === 'action' ? sql`${auditEvents.action} <> 'saved'` : undefined,
    sinceMs === undefined ? undefined : gte(auditEvents.occurredAt, sinceMs),
    untilMs === undefined ? undefined : lt(auditEvents.occurredAt, untilMs),
    last && sql`(${auditEvents.occurredAt}, ${auditEvents.id}) < (${last.occurredAt}, ${last.id})`,
  ];
}

const intervalMs = 60 * 60_000;

/** The texts of the log and of `planning doctor`. */
export const holdTexts = {
  'clock-ahead': 'the clock is ahead of the audit log: events expire later, until `planning audit prune` confirms it',
  'clock-behind': 'the clock is behind the audit log: no event is removed, until `planning audit prune` confirms it',
  shortened: 'is smaller than the retention in force: `planning audit prune` applies it',
} as const satisfies Record<RetentionHold, string>;

/**
 * Removes expired events of the audit log now and every hour. `stop` waits for the current step; a later run removes the
 * rest.
 */
export function startAuditRetention(
  store: AuditStore,
  { db, clock, log }: Pick<AppDeps, 'db' | 'clock' | 'log'>,
  retentionDays: number,
): { stop(): Promise<void> } {
  let logged = '';
  /** Logs each reason once, until it changes. */
  const logHolds = (holds: readonly (RetentionHold | 'clocks-differ')[], days = 0) => {
    if (logged === holds.join()) return;
    logged = holds.join();
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
  return every({
    intervalMs,
    async run(isStopping) {
      const clocks = [clock().getTime(), Math.floor(await databaseClock(db))] as const;
      const differenceMs = Math.abs(clocks[0] - clocks[1]);
      if (differenceMs > dayMs) return logHolds(['clocks-differ'], Math.floor(differenceMs / dayMs));
      const facts = await store.findFacts();
      // The earlier clock decides, so that an event expires by both.
      const { next, before, atMost, holds, aheadMs } = planRetention(facts, retentionDays, Math.min(...clocks));
      logHolds(holds, Math.floor(Math.abs(aheadMs) / dayMs));
      const events = atMost === 0 ? 0 : await store.countExpired(before, atMost);
      const isOwn = await store.advance(facts.state, { ...next, removed: next.removed + events });
      // Otherwise another process has begun the same run.
      if (isOwn && events > 0) {
        log.info({ events, days: next.days }, 'removing expired audit events');
        await store.removeExpired({ before, atMost: events }, isStopping);
      }
      if (holds.every((hold) => hold === 'shortened')) await recordCompletion(db, 'audit-retention', new Date());
    },
    onFailure: (error) => log.error(describeError(error), 'could not remove old audit events'),
  });
}
