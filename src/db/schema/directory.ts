import { sql } from 'drizzle-orm';
import { type AnySQLiteColumn, check, index, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core';

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
 * The ledger of what was sold, by whom and in whose team at the time. Instants are epoch milliseconds. The index covers
 * the month's report.
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

/** The lengths of the spans of `activity_sums`: a quarter of an hour, which every time zone's day begins with, and a day. */
export const sumSpansMs = { quarter: 900_000, day: 86_400_000 } as const;

/**
 * Sums of `activities` by team, seller and UTC span. Triggers maintain them in the transaction of every change
 * (drizzle/0012). The table is `WITHOUT ROWID`. `activities` counts all rows, the other counters those that are no
 * correction. A span whose activities were removed keeps its row, with zeros.
 */
export const activitySums = sqliteTable(
  'activity_sums',
  {
    managerId: text('manager_id').notNull(),
    spanMs: integer('span_ms').notNull(),
    startsAt: integer('starts_at').notNull(),
    staffId: text('staff_id').notNull(),
    activities: integer('activities').notNull(),
    monthlyPlan: integer('monthly_plan').notNull(),
    semiAnnualPlan: integer('semi_annual_plan').notNull(),
    cemeteryPlan: integer('cemetery_plan').notNull(),
    quote: integer('quote').notNull(),
    quoteAndContract: integer('quote_and_contract').notNull(),
    application: integer('application').notNull(),
    amountCents: integer('amount_cents').notNull(),
  },
  (table) => [primaryKey({ columns: [table.managerId, table.spanMs, table.startsAt, table.staffId] })],
);

/**
 * How far `activity_sums` has got with the activities that were stored before the table was: those up to this
 * `external_id` are in it, all where it is null. One row.
 */
export const activitySumsProgress = sqliteTable('activity_sums_progress', { summedUpTo: text('summed_up_to') });

/**
 * `orderKey` orders as the names do by `Intl.Collator('en')`, which SQLite does not have. Earlier builds stored the name
 * in lower case in that column. Instants are epoch milliseconds.
 */
export const cemeteries = sqliteTable(
  'cemeteries',
  {
    id: text('id').primaryKey(),
    externalId: text('external_id').notNull().unique(),
    name: text('name').notNull(),
    orderKey: text('sort_name').notNull(),
    street: text('street').notNull(),
    city: text('city').notNull(),
    state: text('state').notNull(),
    zip: text('zip').notNull(),
    createdBy: text('created_by').notNull(),
    createdAt: integer('created_at').notNull(),
    updatedAt: integer('updated_at').notNull(),
    version: integer('version').notNull(),
  },
  (table) => [index('cemeteries_by_name').on(table.orderKey, table.id)],
);

export type CemeteryRow = typeof cemeteries.$inferSelect;

export const referenceLists = sqliteTable('reference_lists', {
  name: text('name').primaryKey(),
});

/** One option of a list; `id` counts from 0 within its list. */
export const referenceOptions = sqliteTable(
  'reference_options',
  {
    list: text('list')
      .notNull()
      .references(() => referenceLists.name),
    id: integer('id').notNull(),
    title: text('title').notNull(),
  },
  (table) => [primaryKey({ columns: [table.list, table.id] })],
);

/**
 * How many rows a large table has, or a part of it (`applications:submitted`), which triggers keep right in the
 * transaction of every change (drizzle/0004 and 0010): to count them takes longer than to read a page of them.
 */
export const rowCounts = sqliteTable('row_counts', {
  tableName: text('table_name').primaryKey(),
  rowCount: integer('row_count').notNull(),
});

/** When a recurring task, such as a backup, last succeeded, in epoch milliseconds. Metrics show its age. */
export const completedTasks = sqliteTable('completed_tasks', {
  task: text('task', { enum: ['audit-retention', 'backup'] }).primaryKey(),
  completedAt: integer('completed_at').notNull(),
});

/**
 * One row: which database this is, and which builds may still serve on its schema. A migration that takes something away from the builds before it
 * sets `minReader` to its own `when` in drizzle/meta/_journal.json; any other leaves it.
 */
export const schemaCompatibility = sqliteTable('schema_compatibility', {
  id: integer('id').primaryKey(),
  /** `when` of the newest migration that a build must carry, in epoch milliseconds. */
  minReader: integer('min_reader').notNull(),
  /** Made by chance with the database, so that a replica of another one is told from its own. */
  databaseId: text('database_id').notNull(),
  /** 1 if a start in development or with `--demo` created the database. No other database takes demo data. */
  forDevelopment: integer('for_development').notNull().default(0),
});
