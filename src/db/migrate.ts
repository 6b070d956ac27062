import { sql } from 'drizzle-orm';
import { migrate } from 'drizzle-orm/libsql/migrator';
import type { Database } from './client';
import { findDatabaseError } from './errors';
import { migrationsFolder, schemaFit, unfitDetail } from './schema-fit';

const lockDeadlineMs = 30_000;

/** A newer build has migrated the database, and this one cannot read it. */
export class SchemaTooNewError extends Error {
  override readonly name = 'SchemaTooNewError';
}

/**
 * Brings the schema to the newest version; several processes may call it at once. Drizzle's `migrate` lets two
 * starters both apply a migration (drizzle-orm#874): the unique index makes the loser's whole batch fail, and
 * the loser tries again only when the journal shows that somebody else did get on, or waits for a lock.
 *
 * @throws SchemaTooNewError
 */
export async function migrateDatabase(db: Database, folder = migrationsFolder): Promise<void> {
  // What follows a migration, such as a seed, would write to what this build does not know.
  if ((await schemaFit(db.$client)) === 'too-new') throw new SchemaTooNewError(unfitDetail['too-new']);
  const deadlineMs = performance.now() + lockDeadlineMs;
  let reached = -1;
  for (;;) {
    try {
      await db.run(sql`CREATE TABLE IF NOT EXISTS __drizzle_migrations
        (id SERIAL PRIMARY KEY, hash text NOT NULL, created_at numeric)`);
      await db.run(sql`CREATE UNIQUE INDEX IF NOT EXISTS __drizzle_migrations_once
        ON __drizzle_migrations (created_at)`);
      reached = await appliedMigration(db);
      await migrate(db, { migrationsFolder: folder });
      return;
    } catch (error) {
      const isLocked = findDatabaseError(error)?.code === 'SQLITE_BUSY' && performance.now() < deadlineMs;
      if (!isLocked && (await appliedMigration(db)) <= reached) throw error;
      await Bun.sleep(50 + Math.random() * 150);
    }
  }
}

async function appliedMigration(db: Database): Promise<number> {
  const [row] = await db.values<[number | null]>(sql`SELECT max(created_at) FROM __drizzle_migrations`);
  return row?.[0] ?? -1;
}
