import type { Database } from './db/client';
import { demoCemeteries } from './modules/cemeteries/demo';
import { createCemeteryStore } from './modules/cemeteries/store';
import { demoActivities, demoStaff } from './modules/sales/demo';
import { createSalesStore } from './modules/sales/store';

/** Stores demo cemeteries and a demo sales team, and keeps those of them that are stored already. */
export async function seedDemo(db: Database, now: Date): Promise<void> {
  const sales = createSalesStore(db);
  const keepsStored = true;
  await createCemeteryStore(db).upsert(demoCemeteries, { createdBy: 'demo', now, keepsStored });
  await sales.upsertStaff(demoStaff, now, { keepsStored });
  await sales.upsertActivities(demoActivities(now), now, keepsStored);
}
