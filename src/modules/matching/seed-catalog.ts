import { createHash } from 'node:crypto';
import { readShippedCatalog, shippedFile } from './shipped-catalog';
import type { CatalogStore } from './store';

/** Stores the shipped catalogue, unless it is in force already or an operator has imported one. */
export async function seedCatalog(store: CatalogStore, now: Date): Promise<void> {
  const latest = await store.findLatestVersion();
  const contentHash = hashCatalog(shippedFile);
  // Saves the work; what decides is the store's own condition.
  if (latest?.source === 'imported' || latest?.contentHash === contentHash) return;
  await store.add(readShippedCatalog(), { source: 'shipped', contentHash, now });
}

/** The same for the same catalogue as it was read, however its file is laid out. */
export function hashCatalog(catalog: { readonly $schema?: unknown }): string {
  const { $schema: _, ...content } = catalog;
  return createHash('sha256').update(JSON.stringify(content)).digest('hex');
}
