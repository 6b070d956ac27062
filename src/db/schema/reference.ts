import { integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core';

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
