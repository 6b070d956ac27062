import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { describeError } from '../../log';
import { inSlices } from '../../rounds';
import { type CompiledCatalog, compileInSteps } from './match';
import type { CatalogStore } from './store';

/** How long an import by another process may stay unseen here. */
const checkedEveryMs = 5_000;

/**
 * The catalogue in force, compiled once a version. Whether there is a newer one is asked with the first request after
 * some seconds, so that no request pays for it twice and an idle process asks nothing.
 *
 * @throws AppError `database-unavailable` before any catalogue was stored
 */
export function createCurrentCatalog({
  store,
  machineClock,
  publicUrl,
  log,
  metrics,
}: { store: CatalogStore } & Pick<AppDeps, 'machineClock' | 'publicUrl' | 'log' | 'metrics'>) {
  let compiled: CompiledCatalog | undefined;
  let checkedAtMs = Number.NEGATIVE_INFINITY;
  let checking: Promise<void> | undefined;

  const check = async () => {
    const latest = await store.findLatestVersion();
    if (latest !== undefined && latest.id !== compiled?.version) {
      const stored = await store.find(latest.id);
      if (stored !== undefined) {
        compiled = await inSlices(compileInSteps(stored, absolute));
        metrics?.catalogLoaded(compiled.version);
      }
    }
    checkedAtMs = machineClock().getTime();
  };
  const absolute = (icon: string) => new URL(icon, `${publicUrl()}/`).href;

  /** A clock that was set back must not keep an import unseen. */
  const isDue = () => Math.abs(machineClock().getTime() - checkedAtMs) >= checkedEveryMs;

  return async (): Promise<CompiledCatalog> => {
    if (isDue()) {
      checking ??= check().finally(() => {
        checking = undefined;
      });
      try {
        await checking;
      } catch (error) {
        if (compiled === undefined) throw error;
        log.warn(describeError(error), 'products are matched by the catalogue as it was');
      }
    }
    if (compiled === undefined) throw new AppError('database-unavailable', { detail: 'There is no catalogue yet.' });
    return compiled;
  };
}
