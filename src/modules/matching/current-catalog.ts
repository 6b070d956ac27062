import type { AppDeps } from '../../deps';
import { type CompiledCatalog, compileCatalog } from './match';
import type { CatalogStore } from './store';

/** How long an import by another process may stay unseen here. */
const checkedEveryMs = 5_000;
const noCatalog: CompiledCatalog = { version: 0, penaltyHundredths: 1, products: [] };

/**
 * The catalogue in force, compiled once a version. Whether there is a newer one is asked with the first request after
 * some seconds, so that no request pays for it twice and an idle process asks nothing.
 */
export function createCurrentCatalog({
  store,
  clock,
  publicUrl,
}: { store: CatalogStore } & Pick<AppDeps, 'clock' | 'publicUrl'>) {
  let compiled = noCatalog;
  let checkedAtMs = Number.NEGATIVE_INFINITY;
  let checking: Promise<void> | undefined;

  const check = async () => {
    const latest = await store.findLatestVersion();
    if (latest !== undefined && latest.id !== compiled.version) {
      const stored = await store.find(latest.id);
      if (stored !== undefined) {
        compiled = compileCatalog({
          ...stored,
          products: stored.products.map((product) => ({ ...product, productIcon: absolute(product.productIcon) })),
        });
      }
    }
    checkedAtMs = clock().getTime();
  };
  const absolute = (icon: string) => (icon.startsWith('/') ? `${publicUrl()}${icon}` : icon);

  return async (): Promise<CompiledCatalog> => {
    if (clock().getTime() - checkedAtMs >= checkedEveryMs) {
      checking ??= check().finally(() => {
        checking = undefined;
      });
      await checking;
    }
    return compiled;
  };
}
