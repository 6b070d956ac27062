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
import { staff } from './directory';

/** 64 random bits in hexadecimal. */
export const randomRevision: SQL<string> = sql`(lower(hex(randomblob(8))))`;

/**
 * One row a signed-in person. Each JSON column is one section of the user object and the unit of a merge;
 * NULL means that the section holds no answer. They stay text: a record is mostly answered as it is stored, and what
 * reads answers out of one parses it. Instants are epoch milliseconds.
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
    /** JSON: the section that answered each question last that two sections ask; not part of the user object. */
    newestAnswers: text('newest_answers'),
    /** Who is credited with the person's applications; not part of the user object. */
    counselorId: text('counselor_id').references(() => staff.id),
    version: integer('version').notNull(),
    /**
     * A random part that changes with every version, so that no other record, erased record or restored database repeats
     * an entity tag. The default serves inserts, those of an older build too.
     */
    revision: text('revision').notNull().default(randomRevision),
    /** The request of the last change, for the trail that triggers write (drizzle/0006); null for one by the service. */
    requestId: text('request_id'),
    /** The version that it made: a change by whoever names no request is not taken for one of the last that did. */
    requestVersion: integer('request_version'),
    /** When that request said that it was; `updatedAt` waits for a clock that was ahead. */
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

/** `json_valid(NULL)` is NULL, which passes a check, only from SQLite 3.42: an older tool calls each row a violation. */
function isNullOrJson(column: AnySQLiteColumn): SQL {
  return sql`${column} IS NULL OR json_valid(${column})`;
}

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
