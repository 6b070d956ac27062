import type { Config } from '../config/settings';
import { localPath } from '../db/client';
import type { Log } from '../log';
import { buildIdentity } from '../shared/build';
import type { CarrierObserver, DatabaseName, DatabaseObserver, Metrics, Tracing } from './events';
import { createAttemptLog } from './outcomes';

/** What watches the service, as far as the settings ask for it. */
export interface Telemetry {
  readonly metrics: Metrics | undefined;
  readonly tracing: Tracing | undefined;
  databaseObservers(name: DatabaseName): DatabaseObserver[];
  readonly carrierObservers: readonly CarrierObserver[];
}

/** Loads nothing of what is not asked for. */
export async function openTelemetry(
  {
    metricsToken,
    tracing: exporter,
    replica,
    auth,
    database,
  }: Pick<Config, 'metricsToken' | 'tracing' | 'replica'> &
    Partial<Pick<Config, 'auth'>> & { readonly database: Pick<Config['database'], 'url'> },
  log: Log,
): Promise<Telemetry> {
  const { version } = buildIdentity;
  const metrics =
    metricsToken === undefined
      ? undefined
      : (await import('./metrics')).createPrometheusMetrics({
          replica: replica?.kind,
          hasJwks: auth?.key.kind === 'jwks',
          databasePath: localPath(database.url),
        });
  const onExportChange = (reason?: string) => {
    if (reason === undefined) log.info('spans are exported');
    else log.warn({ reason }, 'spans cannot be exported');
  };
  const tracing =
    exporter === undefined
      ? undefined
      : (await import('./tracing')).createTracing({ ...exporter, version, onExportChange });
  const watchers = [tracing, metrics].filter((watcher) => watcher !== undefined);
  return {
    metrics,
    tracing,
    databaseObservers: (name) => watchers.map((watcher) => watcher.database(name)),
    carrierObservers: [...watchers.map(({ carrier }) => carrier), createAttemptLog(log)],
  };
}
