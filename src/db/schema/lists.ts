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

/** Sales managers and the counselors of their teams. `id` is the `sub` of the token. `managerId` is null for a manager. */
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

/** The sales ledger. Instants are epoch milliseconds. The index covers the monthly report. */
export const activities = sqliteTable(
  'activities',
  {
    externalId: text('external_id').primaryKey(),
    staffId: text('staff_id')
      .notNull()
      .references(() => staff.id),
    /** The manager at the time of the activity, so that a later move of the counselor does not change old months. */
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

/** The spans of `activity_sums`: a day, and a quarter of an hour, at which the day of every time zone begins. */
export const sumSpansMs = { quarter: 900_000, day: 86_400_000 } as const;

/**
 * Sums of `activities` by team, seller and UTC span. Triggers maintain them in the transaction of every change
 * (drizzle/0012). The table is `WITHOUT ROWID`. `activities` counts all rows, the other counters exclude corrections. The
 * row of a span stays, with zeros, when its activities are removed.
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
 * One row: the progress of summing up the activities that are older than `activity_sums`, in the order of `external_id`.
 * Null when all are summed up.
 */
export const activitySumsProgress = sqliteTable('activity_sums_progress', { summedUpTo: text('summed_up_to') });

/**
 * `orderKey` sorts names like `Intl.Collator('en')`, which SQLite does not have. Earlier builds stored the lower-case name
 * in that column. Instants are epoch milliseconds.
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

/** The options of the lists. `id` counts from 0 in each list. */
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
 * Row counts of large tables, or of a part of one (`applications:submitted`). Triggers maintain them in the transaction of
 * every change (drizzle/0004 and 0010), because counting takes longer than reading a page.
 */
export const rowCounts = sqliteTable('row_counts', {
  tableName: text('table_name').primaryKey(),
  rowCount: integer('row_count').notNull(),
});

/** The last success of each recurring task, such as a backup, in epoch milliseconds. Metrics show its age. */
export const completedTasks = sqliteTable('completed_tasks', {
  task: text('task', { enum: ['audit-retention', 'backup'] }).primaryKey(),
  completedAt: integer('completed_at').notNull(),
});

/**
 * One row: the id of the database, and the builds that can use its schema. A migration that breaks earlier builds sets
 * `minReader` to its own `when` in drizzle/meta/_journal.json; other migrations do not change it.
 */
export const schemaCompatibility = sqliteTable('schema_compatibility', {
  id: integer('id').primaryKey(),
  /** `when` of the newest migration that a build must carry, in epoch milliseconds. */
  minReader: integer('min_reader').notNull(),
  /** Random, so that a replica of another database is detected. */
  databaseId: text('database_id').notNull(),
  /** 1 if a start in development or with `--demo` created the database. Only such a database gets demo data. */
  forDevelopment: integer('for_development').notNull().default(0),
});

/** The versions of the catalogue; the newest complete one is in force. The penalty is in hundredths of a point. */
export const catalogVersions = sqliteTable('catalog_versions', {
  id: integer('id').primaryKey({ autoIncrement: true }),
  contentHash: text('content_hash').notNull(),
  source: text('source', { enum: ['shipped', 'imported'] }).notNull(),
  penaltyHundredths: integer('penalty_hundredths').notNull(),
  /** False until all rows are stored, which takes several transactions. Matching ignores incomplete versions. */
  isComplete: integer('is_complete', { mode: 'boolean' }).notNull(),
  createdAt: integer('created_at').notNull(),
});

const version = () =>
  integer('catalog_version')
    .notNull()
    .references(() => catalogVersions.id);

/** The condition of each disqualifier, by code. */
export const conditions = sqliteTable(
  'conditions',
  {
    catalogVersion: version(),
    position: integer('position').notNull(),
    code: text('code').notNull(),
    when: text('when', { mode: 'json' }).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.catalogVersion, table.code] }),
    check('conditions_when_is_json', sql`json_valid(${table.when})`),
  ],
);

export const products = sqliteTable(
  'products',
  {
    catalogVersion: version(),
    position: integer('position').notNull(),
    id: integer('id').notNull(),
    productName: text('product_name').notNull(),
    productWrapper: text('product_wrapper').notNull(),
    productIcon: text('product_icon').notNull(),
    isActive: integer('is_active', { mode: 'boolean' }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.catalogVersion, table.id] })],
);

/** Points are in hundredths. `textList` is the list to which a matching rule adds `text`. */
export const productRules = sqliteTable(
  'product_rules',
  {
    catalogVersion: version(),
    productId: integer('product_id').notNull(),
    position: integer('position').notNull(),
    id: text('id').notNull(),
    when: text('when', { mode: 'json' }).notNull(),
    pointsHundredths: integer('points_hundredths').notNull(),
    textList: text('text_list').notNull(),
    text: text('text').notNull(),
    reason: text('reason').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.catalogVersion, table.productId, table.id] }),
    check('product_rules_when_is_json', sql`json_valid(${table.when})`),
  ],
);

export const productDisqualifiers = sqliteTable(
  'product_disqualifiers',
  {
    catalogVersion: version(),
    productId: integer('product_id').notNull(),
    position: integer('position').notNull(),
    code: text('code').notNull(),
  },
  (table) => [primaryKey({ columns: [table.catalogVersion, table.productId, table.code] })],
);
