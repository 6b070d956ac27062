import type { Database } from './db/client';
import { demoCemeteries } from './modules/cemeteries/demo';
import { createCemeteryStore } from './modules/cemeteries/store';
import { seedCatalog } from './modules/matching/seed-catalog';
import { createCatalogStore } from './modules/matching/store';
import { createReferenceStore } from './modules/reference/store';
import { demoActivities, demoStaff } from './modules/sales/demo';
import { createSalesStore } from './modules/sales/store';

/** Stores what the service ships with. Running it again changes nothing, and takes nothing back that was changed. */
export async function seedDatabase(db: Database, { withDemo, now }: { withDemo: boolean; now: Date }): Promise<void> {
  await createReferenceStore(db).seed();
  await seedCatalog(createCatalogStore(db), now);
  if (withDemo) await seedDemo(db, now);
}

async function seedDemo(db: Database, now: Date): Promise<void> {
  const sales = createSalesStore(db);
  const keepsStored = true;
  await createCemeteryStore(db).upsert(demoCemeteries, { createdBy: 'demo', now, keepsStored });
  await sales.upsertStaff(demoStaff, now, keepsStored);
  await sales.upsertActivities(demoActivities(now), now, keepsStored);
}
