import { createHash } from 'node:crypto';
import type { Catalog } from './catalog-model';
import { shippedCatalog } from './shipped-catalog';
import type { CatalogStore } from './store';

/** Stores the shipped catalogue, unless it is in force already or an operator has imported one. */
export async function seedCatalog(store: CatalogStore, now: Date): Promise<void> {
  const latest = await store.findLatestVersion();
  const contentHash = hashCatalog(shippedCatalog);
  // Saves the work; what decides is the store's own condition.
  if (latest?.source === 'imported' || latest?.contentHash === contentHash) return;
  await store.add(shippedCatalog, { source: 'shipped', contentHash, now });
}

/** The same for the same catalogue, however its file is laid out. */
export function hashCatalog(catalog: Catalog): string {
  const { $schema: _, ...content } = catalog;
  return createHash('sha256').update(JSON.stringify(content)).digest('hex');
}
