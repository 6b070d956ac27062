import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

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
