import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

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
