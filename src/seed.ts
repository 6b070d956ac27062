import type { Database } from './db/client';
import { createCemeteryStore } from './modules/cemeteries/store';
import { seedCatalog } from './modules/matching/seed-catalog';
import { createCatalogStore } from './modules/matching/store';
import { createReferenceStore } from './modules/reference/store';

/** Stores what the service ships with. Running it again changes nothing, and takes nothing back that was changed. */
export async function seedDatabase(db: Database, { withDemo, now }: { withDemo: boolean; now: Date }): Promise<void> {
  await createReferenceStore(db).seed();
  await seedCatalog(createCatalogStore(db), now);
  await createCemeteryStore(db).repairOrder();
  if (!withDemo) return;
  const { seedDemo } = await import('./seed-demo');
  await seedDemo(db, now);
}
