import { sql } from 'drizzle-orm';
import { check, index, integer, primaryKey, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core';
import type { Applicant, CarrierPricing } from '../../modules/coverage/carrier/carrier';

export const applicationStates = ['submitting', 'submitted', 'declined', 'unknown'] as const;
export const applicationFlows = ['ltc', 'life'] as const;

/** Stands for the person of an application whose person was erased: no token has an empty `sub`. */
export const erasedUserId = '';

/**
 * One application at the carrier; `id` is the reference that the carrier knows it by. There is one a person, flow and
 * canonical identity; `generation` counts the ones that were started anew after the last had its time. Instants are
 * epoch milliseconds.
 */
export const applications = sqliteTable(
  'applications',
  {
    id: text('id').primaryKey(),
    userId: text('user_id').notNull(),
    flow: text('flow', { enum: applicationFlows }).notNull(),
    identityHash: text('identity_hash').notNull(),
    generation: integer('generation').notNull(),
    /** The person's application of the same flow before this one, with another identity. */
    supersedes: text('supersedes'),
    applicant: text('applicant', { mode: 'json' }).$type<Applicant>().notNull(),
    state: text('state', { enum: applicationStates }).notNull(),
    declineReason: text('decline_reason', { enum: ['declined', 'not-filed'] }),
    applicationNumber: integer('application_number'),
    /** Which carrier gave the number; null for numbers of earlier builds. */
    carrier: text('carrier'),
    pricing: text('pricing', { mode: 'json' }).$type<CarrierPricing>(),
    /** Counts takeovers; only the latest attempt may settle. */
    attempt: integer('attempt').notNull(),
    attemptStartedAt: integer('attempt_started_at').notNull(),
    /** How often the carrier has refused the request itself, counting only refusals after `reconcileAt`. */
    refusals: integer('refusals').notNull().default(0),
    /** The `Retry-After` of the carrier, by the machine's clock: no request is sent before it. */
    retryAt: integer('retry_at'),
    /** The reconciler sends no request before this instant of the machine's clock; a person may. */
    reconcileAt: integer('reconcile_at'),
    /**
     * When the reconciler gave up on an open application. `state` stays `unknown`, because earlier builds know only
     * the four states.
     */
    abandonedAt: integer('abandoned_at'),
    createdAt: integer('created_at').notNull(),
    settledAt: integer('settled_at'),
  },
  (table) => [
    uniqueIndex('applications_once').on(table.userId, table.flow, table.identityHash, table.generation),
    index('applications_by_user').on(table.userId, table.createdAt, table.id),
    index('applications_by_number').on(table.applicationNumber, table.carrier),
    index('applications_open').on(table.attemptStartedAt).where(sql`${table.state} IN ('submitting', 'unknown')`),
    check('applications_applicant_is_json', sql`json_valid(${table.applicant})`),
    check('applications_pricing_is_json', sql`${table.pricing} IS NULL OR json_valid(${table.pricing})`),
  ],
);

export type ApplicationRow = typeof applications.$inferSelect;

/** What became of each attempt; `reply` is a bounded part of what the carrier said. */
export const applicationAttempts = sqliteTable(
  'application_attempts',
  {
    applicationId: text('application_id')
      .notNull()
      .references(() => applications.id, { onDelete: 'cascade' }),
    attempt: integer('attempt').notNull(),
    startedAt: integer('started_at').notNull(),
    endedAt: integer('ended_at').notNull(),
    outcome: text('outcome').notNull(),
    reply: text('reply').notNull(),
  },
  (table) => [primaryKey({ columns: [table.applicationId, table.attempt] })],
);

export const idempotencyKeys = sqliteTable(
  'idempotency_keys',
  {
    userId: text('user_id').notNull(),
    path: text('path').notNull(),
    key: text('key').notNull(),
    bodyHash: text('body_hash').notNull(),
    createdAt: integer('created_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.userId, table.path, table.key] }),
    index('idempotency_keys_by_age').on(table.createdAt),
  ],
);

/** Who may do what only one process does at a time; `expiresAt` is in seconds of the database's own clock. */
export const leases = sqliteTable('leases', {
  name: text('name').primaryKey(),
  holder: text('holder').notNull(),
  expiresAt: integer('expires_at').notNull(),
});
