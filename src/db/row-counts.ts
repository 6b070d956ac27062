import { like } from 'drizzle-orm';
import type { Database } from './client';
import { rowCounts } from './schema';

/** How many rows a table has, by the parts of it that triggers count (`applications:submitted`), without a scan. */
export async function countParts(db: Database, tableName: string): Promise<Record<string, number>> {
  const prefix = `${tableName}:`;
  const rows = await db
    .select()
    .from(rowCounts)
    .where(like(rowCounts.tableName, `${prefix}%`));
  return Object.fromEntries(rows.map((row) => [row.tableName.slice(prefix.length), row.rowCount]));
}
