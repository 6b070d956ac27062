import { sql } from 'drizzle-orm';
import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import type { Database } from '../db/client';
import type { Pricing } from './tariff';

/** The sandbox's own database: it knows nothing of the service's tables. */
const carrierApplications = sqliteTable('carrier_applications', {
  applicationNumber: integer('application_number').primaryKey({ autoIncrement: true }),
  clientReference: text('client_reference').notNull().unique(),
  flow: text('flow').notNull(),
  applicant: text('applicant', { mode: 'json' }).$type<object>().notNull(),
  pricing: text('pricing', { mode: 'json' }).$type<Pricing[]>().notNull(),
  createdAt: integer('created_at').notNull(),
});

export type CarrierApplication = typeof carrierApplications.$inferSelect;

/** Makes the table where it is not there yet. Numbers begin at 100001. */
export async function createSandboxStore(db: Database) {
  await db.run(sql`CREATE TABLE IF NOT EXISTS carrier_applications (
    application_number integer PRIMARY KEY AUTOINCREMENT, client_reference text NOT NULL UNIQUE, flow text NOT NULL,
    applicant text NOT NULL, pricing text NOT NULL, created_at integer NOT NULL)`);
  await db.run(sql`INSERT INTO sqlite_sequence (name, seq) SELECT 'carrier_applications', 100000
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'carrier_applications')`);

  const find = async (clientReference: string): Promise<CarrierApplication | undefined> => {
    const [row] = await db
      .select()
      .from(carrierApplications)
      .where(sql`${carrierApplications.clientReference} = ${clientReference}`);
    return row;
  };

  return {
    find,

    /** Accepts the application, or gives the one that was accepted under its reference before. */
    async accept(application: Omit<CarrierApplication, 'applicationNumber'>): Promise<CarrierApplication> {
      const [row] = await db.insert(carrierApplications).values(application).onConflictDoNothing().returning();
      const accepted = row ?? (await find(application.clientReference));
      if (accepted === undefined) throw new Error('An accepted application is not there');
      return accepted;
    },

    async count(): Promise<number> {
      return db.$count(carrierApplications);
    },
  };
}

export type SandboxStore = Awaited<ReturnType<typeof createSandboxStore>>;
