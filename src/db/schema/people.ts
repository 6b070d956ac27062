import { type SQL, sql } from 'drizzle-orm';
import {
  type AnySQLiteColumn,
  check,
  index,
  integer,
  primaryKey,
  sqliteTable,
  text,
  uniqueIndex,
} from 'drizzle-orm/sqlite-core';
import type { Applicant, CarrierPricing } from '../../shared/carrier';
import { staff } from './lists';

/** 64 random bits in hexadecimal. */
export const randomRevision: SQL<string> = sql`(lower(hex(randomblob(8))))`;

/**
 * One row per user. Each JSON column is a section of the user object and the unit of a merge; NULL means a section without
 * answers. Drizzle does not parse the columns, because most reads return the stored text. Instants are epoch milliseconds.
 */
export const users = sqliteTable(
  'users',
  {
    id: text('id').primaryKey(),
    profile: text('profile'),
    insurance: text('insurance'),
    ltcLifetimeCare: text('ltc_lifetime_care'),
    purchase: text('purchase'),
    lifeInsurance: text('life_insurance'),
    lifetimeCare: text('lifetime_care'),
    /** JSON: the section with the newest answer to each question that two sections share; not in the user object. */
    newestAnswers: text('newest_answers'),
    /** The counselor who is credited with the applications; not in the user object. */
    counselorId: text('counselor_id').references(() => staff.id),
    version: integer('version').notNull(),
    /**
     * Random and new with every version, so that ETags stay unique after an erasure or a restore. Older builds insert
     * without it, so it has a default.
     */
    revision: text('revision').notNull().default(randomRevision),
    /** The request of the last change, for the triggers (drizzle/0008, 0009); null if the service made the change. */
    requestId: text('request_id'),
    /** The version that the request created. A later change without a request id has another version. */
    requestVersion: integer('request_version'),
    /** The time of the request. `updatedAt` never decreases, also when the clock is set back. */
    requestedAt: integer('requested_at'),
    createdAt: integer('created_at').notNull(),
    updatedAt: integer('updated_at').notNull(),
  },
  (table) => [
    check('users_profile_is_json', isNullOrJson(table.profile)),
    check('users_insurance_is_json', isNullOrJson(table.insurance)),
    check('users_ltc_lifetime_care_is_json', isNullOrJson(table.ltcLifetimeCare)),
    check('users_purchase_is_json', isNullOrJson(table.purchase)),
    check('users_life_insurance_is_json', isNullOrJson(table.lifeInsurance)),
    check('users_lifetime_care_is_json', isNullOrJson(table.lifetimeCare)),
  ],
);

export type UserRow = typeof users.$inferSelect;

/** Before SQLite 3.42 `json_valid(NULL)` is 0, and an older tool would report each row as a violation. */
function isNullOrJson(column: AnySQLiteColumn): SQL {
  return sql`${column} IS NULL OR json_valid(${column})`;
}

export const applicationStates = ['submitting', 'submitted', 'declined', 'unknown'] as const;
export const applicationFlows = ['ltc', 'life'] as const;

/** The user of applications whose user was erased: no token has an empty `sub`. */
export const erasedUserId = '';

/**
 * Applications at the carrier, which knows each by its `id`. There is one per user, flow and canonical identity;
 * `generation` counts the repeated applications after the previous one has expired. Instants are epoch milliseconds.
 */
export const applications = sqliteTable(
  'applications',
  {
    id: text('id').primaryKey(),
    userId: text('user_id').notNull(),
    flow: text('flow', { enum: applicationFlows }).notNull(),
    identityHash: text('identity_hash').notNull(),
    generation: integer('generation').notNull(),
    /** The previous application of the same user and flow, with another identity. */
    supersedes: text('supersedes'),
    applicant: text('applicant', { mode: 'json' }).$type<Applicant>().notNull(),
    state: text('state', { enum: applicationStates }).notNull(),
    declineReason: text('decline_reason', { enum: ['declined', 'not-filed'] }),
    applicationNumber: integer('application_number'),
    /** The carrier that assigned the number; null for numbers of earlier builds. */
    carrier: text('carrier'),
    pricing: text('pricing', { mode: 'json' }).$type<CarrierPricing>(),
    /** Fencing token: each claim increments it, and only the latest holder may settle. */
    attempt: integer('attempt').notNull(),
    attemptStartedAt: integer('attempt_started_at').notNull(),
    /** How often the carrier rejected the request itself, counting only rejections after `reconcileAt`. */
    refusals: integer('refusals').notNull().default(0),
    /** From the `Retry-After` of the carrier, by the clock of this machine: no request is sent before. */
    retryAt: integer('retry_at'),
    /** The reconciler sends no request before this instant of the clock of this machine; a user may. */
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

/** The outcome of each attempt; `reply` is the beginning of the response of the carrier. */
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

/** Leases for work that one process does at a time; `expiresAt` is in seconds of the database clock. */
export const leases = sqliteTable('leases', {
  name: text('name').primaryKey(),
  holder: text('holder').notNull(),
  expiresAt: integer('expires_at').notNull(),
});

const auditActors = ['person', 'staff', 'operator', 'service', 'unknown'] as const;
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
 * The audit log, without any value. Triggers (drizzle/0008, 0009) add an event in the statement that changes a record,
 * and reject a change, a replacement or an early removal of an event.
 */
export const auditEvents = sqliteTable(
  'audit_events',
  {
    id: integer('id').primaryKey(),
    /** Epoch milliseconds. */
    occurredAt: integer('occurred_at').notNull(),
    /** The user or member of staff whose data it is; a pseudonym after an erasure. */
    userId: text('user_id').notNull(),
    actor: text('actor', { enum: auditActors }).notNull(),
    /** Null if the actor is the user or the service. */
    actorId: text('actor_id'),
    action: text('action', { enum: auditActions }).notNull(),
    /** The path in the user object, or the name of another resource; null for the whole record. */
    section: text('section'),
    applicationId: text('application_id'),
    requestId: text('request_id'),
  },
  (table) => [
    index('audit_events_by_user').on(table.userId, table.occurredAt),
    index('audit_events_by_time').on(table.occurredAt),
    // Most events are saves without an actor id. The partial indexes exclude them, so that a save updates neither.
    index('audit_events_by_actor').on(table.actorId, table.occurredAt).where(sql`${table.actorId} IS NOT NULL`),
    index('audit_events_by_action').on(table.action, table.occurredAt).where(sql`${table.action} <> 'saved'`),
  ],
);

/** One row: the state of the audit retention. Instants are epoch milliseconds. */
export const auditRetention = sqliteTable('audit_retention', {
  id: integer('id').primaryKey(),
  /** The retention in force. A shorter one needs a confirmation. */
  days: integer('days').notNull(),
  /** The clock of the retention. It follows the clock of the machine, but not a jump. */
  asOf: integer('as_of').notNull(),
  /** The clock at the last run. */
  checkedAt: integer('checked_at').notNull(),
  /** The begin of the day that `removed` counts. */
  dayBeganAt: integer('day_began_at').notNull(),
  /** Events removed since then. */
  removed: integer('removed').notNull(),
});

export type AuditEvent = typeof auditEvents.$inferSelect;
