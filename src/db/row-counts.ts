import { like } from 'drizzle-orm';
import type { Database } from './client';
import { completedTasks, rowCounts } from './schema';

export type RecurringTask = (typeof completedTasks.$inferSelect)['task'];

/** How many rows a table has, by the parts of it that triggers count (`applications:submitted`), without a scan. */
export async function countParts(db: Database, tableName: string): Promise<Record<string, number>> {
  const prefix = `${tableName}:`;
  const rows = await db
    .select()
    .from(rowCounts)
    .where(like(rowCounts.tableName, `${prefix}%`));
  return Object.fromEntries(rows.map((row) => [row.tableName.slice(prefix.length), row.rowCount]));
}

/** Records that a recurring task has succeeded. */
export async function noteCompleted(db: Database, task: RecurringTask, now: Date): Promise<void> {
  const completedAt = now.getTime();
  await db
    .insert(completedTasks)
    .values({ task, completedAt })
    .onConflictDoUpdate({ target: completedTasks.task, set: { completedAt } });
}

/** When each recurring task last succeeded, in epoch milliseconds. */
export async function listCompletedTasks(db: Database): Promise<Record<string, number>> {
  const rows = await db.select().from(completedTasks);
  return Object.fromEntries(rows.map(({ task, completedAt }) => [task, completedAt]));
}
