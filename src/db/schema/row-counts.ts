import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';

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
