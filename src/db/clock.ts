import { sql } from 'drizzle-orm';
import type { Database } from './client';

/** The time that the database's machine has, in epoch milliseconds. */
export async function databaseClock(db: Database): Promise<number> {
  const { now } = await db.get<{ now: number }>(sql`SELECT unixepoch('subsec') * 1000 AS now`);
  return now;
}
