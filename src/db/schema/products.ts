import { sql } from 'drizzle-orm';
import { check, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core';

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
