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
  (table) => [index('audit_events_by_user').on(table.userId, table.occurredAt)],
);

export type AuditEvent = typeof auditEvents.$inferSelect;
