import type { Database } from './db/client';
import { demoCemeteries } from './modules/cemeteries/demo';
import { createCemeteryStore } from './modules/cemeteries/store';
import { demoActivities, demoStaff } from './modules/sales/demo';
import { createSalesStore } from './modules/sales/store';

/** Stores made-up cemeteries and a sales team, and leaves alone what of them is there already. */
export async function seedDemo(db: Database, now: Date): Promise<void> {
  const sales = createSalesStore(db);
  const keepsStored = true;
  await createCemeteryStore(db).upsert(demoCemeteries, { createdBy: 'demo', now, keepsStored });
  await sales.upsertStaff(demoStaff, now, { keepsStored });
  await sales.upsertActivities(demoActivities(now), now, keepsStored);
}
