import { createHash } from 'node:crypto';
import * as v from 'valibot';
import type { Database } from './db/client';
import { createCemeteryStore } from './modules/cemeteries/store';
import { readShippedCatalog, shippedFile } from './modules/matching/catalog-model';
import { type CatalogStore, createCatalogStore } from './modules/matching/catalog-store';
import { createReferenceStore } from './modules/reference/store';
import { createSalesStore } from './modules/sales/store';

/** Stores the shipped catalogue, unless it is in force or an operator has imported a catalogue. */
export async function seedCatalog(store: CatalogStore, now: Date): Promise<void> {
  const latest = await store.findLatestVersion();
  const contentHash = hashCatalog(shippedFile);
  // Only an optimisation: the store checks the condition again in its transaction.
  if (latest?.source === 'imported' || latest?.contentHash === contentHash) return;
  await store.add(readShippedCatalog(), { source: 'shipped', contentHash, now });
}

/** Hashes the content of a catalogue, not the layout of its file. */
export function hashCatalog(catalog: { readonly $schema?: unknown }): string {
  const { $schema: _, ...content } = catalog;
  return createHash('sha256').update(JSON.stringify(content)).digest('hex');
}

/** Stores demo cemeteries and a demo sales team. Existing rows stay unchanged. */
export async function seedDemo(db: Database, now: Date): Promise<void> {
  const { demoActivities, demoCemeteries, demoStaff } = await import('./modules/demo-data/store');
  const sales = createSalesStore(db);
  const keepsStored = true;
  await createCemeteryStore(db).upsert(demoCemeteries, { createdBy: 'demo', now, keepsStored });
  await sales.upsertStaff(demoStaff, now, { keepsStored });
  await sales.upsertActivities(demoActivities(now), now, keepsStored);
}

/**
 * Stores the shipped lists and the shipped catalogue, and with `withDemo` demo data if the database is marked for
 * development. A second run changes nothing, and changes of operators stay.
 */
export async function seedDatabase(db: Database, { withDemo, now }: { withDemo: boolean; now: Date }): Promise<void> {
  await createReferenceStore(db).seed();
  await seedCatalog(createCatalogStore(db), now);
  await createCemeteryStore(db).repairOrder();
  if (!withDemo || !(await findDemoTraces(db)).isMarked) return;
  await seedDemo(db, now);
}

const Traces = v.object({ mark: v.nullable(v.number()), rows: v.number() });

/** Whether a database is marked for development, and whether it has demo rows. Uses indexes only. */
export async function findDemoTraces(db: Database): Promise<{ isMarked: boolean; hasRows: boolean }> {
  const found = await db.$client.read(`SELECT (SELECT max(for_development) FROM schema_compatibility) AS mark,
    EXISTS (SELECT 1 FROM staff WHERE id = 'demo-manager' AND last_name = 'Somerville')
      OR EXISTS (SELECT 1 FROM cemeteries WHERE external_id = 'demo-01' AND created_by = 'demo') AS rows`);
  const { mark, rows } = v.parse(Traces, found.rows[0]);
  return { isMarked: mark === 1, hasRows: rows === 1 };
}
