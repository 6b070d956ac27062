import type { Database } from './db/client';
import { demoCemeteries } from './modules/cemeteries/demo';
import { createCemeteryStore } from './modules/cemeteries/store';
import { seedCatalog } from './modules/matching/seed-catalog';
import { createCatalogStore } from './modules/matching/store';
import { createReferenceStore } from './modules/reference/store';

/** Stores what the service ships with. Running it again changes nothing. */
export async function seedDatabase(db: Database, { withDemo, now }: { withDemo: boolean; now: Date }): Promise<void> {
  await createReferenceStore(db).seed();
  await seedCatalog(createCatalogStore(db), now);
  if (withDemo) await createCemeteryStore(db).upsert(demoCemeteries, { createdBy: 'demo', now });
}
