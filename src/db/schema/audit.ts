import { sql } from 'drizzle-orm';
import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

export const auditActors = ['person', 'staff', 'operator', 'service', 'unknown'] as const;
export const auditActions = [
  'saved',
  'started',
  'accepted',
  'declined',
  'unsettled',
  'abandoned',
  'read',
  'refused',
  'exported',
  'erased',
  'assigned',
  'imported',
  'pruned',
] as const;

/**
 * Who did what to which section when, without any value. Triggers (drizzle/0006) add each change of a record in the
 * statement that makes it, and refuse that an event is changed, replaced, or removed before its time.
 */
export const auditEvents = sqliteTable(
  'audit_events',
  {
    id: integer('id').primaryKey(),
    /** Epoch milliseconds. */
    occurredAt: integer('occurred_at').notNull(),
    /** Whose data: the person, or the member of staff. After an erasure an id that leads nowhere. */
    userId: text('user_id').notNull(),
    actor: text('actor', { enum: auditActors }).notNull(),
    /** Null where the actor is the user, or the service. */
    actorId: text('actor_id'),
    action: text('action', { enum: auditActions }).notNull(),
    /** By its path in the user object, or the name of what else was meant; null for the whole. */
    section: text('section'),
    applicationId: text('application_id'),
    requestId: text('request_id'),
  },
  (table) => [
    index('audit_events_by_user').on(table.userId, table.occurredAt),
    index('audit_events_by_time').on(table.occurredAt),
    // Most events are saves without an actor id. The partial indexes leave them out, so that a save pays for neither.
    index('audit_events_by_actor').on(table.actorId, table.occurredAt).where(sql`${table.actorId} IS NOT NULL`),
    index('audit_events_by_action').on(table.action, table.occurredAt).where(sql`${table.action} <> 'saved'`),
  ],
);

/** One row, made by the first run of the retention: what it has applied so far. Instants are epoch milliseconds. */
export const auditRetention = sqliteTable('audit_retention', {
  id: integer('id').primaryKey(),
  /** The retention that is in force. A smaller setting needs a confirmation. */
  days: integer('days').notNull(),
  /** The time that the retention goes by. It follows the clock, but it does not follow a jump. */
  asOf: integer('as_of').notNull(),
  /** The clock at the last run. */
  checkedAt: integer('checked_at').notNull(),
  /** When the day began to which `removed` belongs. */
  dayBeganAt: integer('day_began_at').notNull(),
  /** Events removed since then. */
  removed: integer('removed').notNull(),
});

export type AuditEvent = typeof auditEvents.$inferSelect;
