import * as v from 'valibot';
import type { Database } from './db/client';
import { createCemeteryStore } from './modules/cemeteries/store';
import { seedCatalog } from './modules/matching/seed-catalog';
import { createCatalogStore } from './modules/matching/store';
import { createReferenceStore } from './modules/reference/store';
import { seedDemo } from './seed-demo';

/**
 * Stores the lists and the catalogue of the package; with `withDemo` also demo data, but only in a database that is marked
 * for development. A second run changes nothing and keeps what operators changed.
 */
export async function seedDatabase(db: Database, { withDemo, now }: { withDemo: boolean; now: Date }): Promise<void> {
  await createReferenceStore(db).seed();
  await seedCatalog(createCatalogStore(db), now);
  await createCemeteryStore(db).repairOrder();
  if (!withDemo || !(await findDemoTraces(db)).isMarked) return;
  await seedDemo(db, now);
}

const Traces = v.object({ mark: v.nullable(v.number()), rows: v.number() });

/** Whether a database is marked for development, and whether it seems to hold demo rows; by index, at any size. */
export async function findDemoTraces(db: Database): Promise<{ isMarked: boolean; hasRows: boolean }> {
  const found = await db.$client.execute(`SELECT (SELECT max(for_development) FROM schema_compatibility) AS mark,
    EXISTS (SELECT 1 FROM staff WHERE id = 'demo-manager' AND last_name = 'Somerville')
      OR EXISTS (SELECT 1 FROM cemeteries WHERE external_id = 'demo-01' AND created_by = 'demo') AS rows`);
  const { mark, rows } = v.parse(Traces, found.rows[0]);
  return { isMarked: mark === 1, hasRows: rows === 1 };
}
