import { and, eq, sql } from 'drizzle-orm';
import type { Database } from './client';
import { leases } from './schema';

/**
 * Whether this holder may do the named work for so many seconds, by the clock of the database. A lease that ends
 * later than one of now would was taken before that clock was set back, and holds nobody up.
 */
export async function acquireLease(db: Database, name: string, holder: string, seconds: number): Promise<boolean> {
  const expiresAt = sql`unixepoch() + ${seconds}`;
  const rows = await db
    .insert(leases)
    .values({ name, holder, expiresAt })
    .onConflictDoUpdate({
      target: leases.name,
      set: { holder, expiresAt },
      setWhere: sql`${leases.expiresAt} NOT BETWEEN unixepoch() + 1 AND unixepoch() + ${seconds}
        OR ${leases.holder} = ${holder}`,
    })
    .returning();
  return rows.length > 0;
}

export async function releaseLease(db: Database, name: string, holder: string): Promise<void> {
  await db.delete(leases).where(and(eq(leases.name, name), eq(leases.holder, holder)));
}
