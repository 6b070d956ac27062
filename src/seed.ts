import type { Database } from './db/client';
import { demoCemeteries } from './modules/cemeteries/demo';
import { createCemeteryStore } from './modules/cemeteries/store';
import { createReferenceStore } from './modules/reference/store';

/** Stores what the service ships with. Running it again changes nothing. */
export async function seedDatabase(db: Database, { withDemo, now }: { withDemo: boolean; now: Date }): Promise<void> {
  await createReferenceStore(db).seed();
  if (withDemo) await createCemeteryStore(db).upsert(demoCemeteries, { createdBy: 'demo', now });
}
