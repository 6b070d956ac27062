import type { Config } from '../config/settings';
import { localPath } from '../db/client';
import type { Log } from '../log';
import { buildIdentity } from '../shared/build';
import { CarrierError } from '../shared/carrier';
import type { CarrierObserver, DatabaseName, DatabaseObserver, Metrics, Tracing } from './events';

export interface Telemetry {
  readonly metrics: Metrics | undefined;
  readonly tracing: Tracing | undefined;
  databaseObservers(name: DatabaseName): DatabaseObserver[];
  readonly carrierObservers: readonly CarrierObserver[];
}

/** Creates the metrics and the tracing that the settings enable. Loads no module of the others. */
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
  const enabled = [tracing, metrics].filter((each) => each !== undefined);
  return {
    metrics,
    tracing,
    databaseObservers: (name) => enabled.map((each) => each.database(name)),
    carrierObservers: [...enabled.map(({ carrier }) => carrier), createAttemptLog(log)],
  };
}

/** Logs each attempt at the carrier at level `debug`. */
function createAttemptLog(log: Log): CarrierObserver {
  return {
    observeCall: (work) => work(),
    async observeAttempt(endpoint, send) {
      const startedAtMs = performance.now();
      const write = (code: string) =>
        log.debug({ endpoint, code, durationMs: Math.round(performance.now() - startedAtMs) }, 'carrier request');
      try {
        const response = await send({});
        write(`HTTP_${response.status}`);
        return response;
      } catch (error) {
        write(error instanceof CarrierError ? error.code : 'UNKNOWN');
        throw error;
      }
    },
    breakerChanged: () => undefined,
  };
}
