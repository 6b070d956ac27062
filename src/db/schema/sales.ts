import { sql } from 'drizzle-orm';
import { type AnySQLiteColumn, check, index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

export const staffRoles = ['salesManager', 'counselor'] as const;
export const activityKinds = [
  'monthlyPlan',
  'semiAnnualPlan',
  'cemeteryPlan',
  'quote',
  'quoteAndContract',
  'application',
] as const;

/**
 * Who sells: sales managers, and the counselors of each one's team. `id` is the `sub` of the person's token.
 * `managerId` is null for a manager.
 */
export const staff = sqliteTable(
  'staff',
  {
    id: text('id').primaryKey(),
    role: text('role', { enum: staffRoles }).notNull(),
    firstName: text('first_name').notNull(),
    lastName: text('last_name').notNull(),
    managerId: text('manager_id').references((): AnySQLiteColumn => staff.id),
    createdAt: integer('created_at').notNull(),
    updatedAt: integer('updated_at').notNull(),
    version: integer('version').notNull(),
  },
  (table) => [
    index('staff_by_manager').on(table.managerId),
    check('staff_manager_of_counselor', sql`(${table.role} = 'counselor') = (${table.managerId} IS NOT NULL)`),
  ],
);

export type StaffRow = typeof staff.$inferSelect;

/**
 * The ledger of what was sold, by whom and in whose team at the time. Instants are epoch milliseconds; the index holds
 * all that a month's report sums, so that the report never reads the rows.
 */
export const activities = sqliteTable(
  'activities',
  {
    externalId: text('external_id').primaryKey(),
    staffId: text('staff_id')
      .notNull()
      .references(() => staff.id),
    /** Whose team it counts for: of the day, so that moving a counselor later leaves old months alone. */
    managerId: text('manager_id')
      .notNull()
      .references(() => staff.id),
    kind: text('kind', { enum: activityKinds }).notNull(),
    amountCents: integer('amount_cents').notNull(),
    occurredAt: integer('occurred_at').notNull(),
    createdAt: integer('created_at').notNull(),
    updatedAt: integer('updated_at').notNull(),
    version: integer('version').notNull(),
  },
  (table) => [
    index('activities_by_team').on(table.managerId, table.occurredAt, table.staffId, table.kind, table.amountCents),
    check(
      'activities_plan_of_manager',
      sql`${table.kind} NOT IN ('monthlyPlan', 'semiAnnualPlan') OR ${table.staffId} = ${table.managerId}`,
    ),
  ],
);
