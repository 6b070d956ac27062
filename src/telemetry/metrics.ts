import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { databaseOutcome } from '../db/errors';
import { carrierOutcome } from '../shared/carrier';
import type { BreakerState, CarrierEndpoint, CarrierObserver, DatabaseName, DatabaseObserver, Metrics } from './events';
import { registerDatabaseFiles, registerProcessMetrics } from './process-metrics';

const requestSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const databaseSeconds = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const carrierSeconds = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40];
const groupSizes = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const breakerNumbers: Readonly<Record<BreakerState, number>> = { closed: 0, 'half-open': 1, open: 2 };
const endpoints = ['start', 'find'] as const satisfies CarrierEndpoint[];

interface PrometheusSettings {
  /** A replica server counts as in sync until a change is reported. */
  readonly replica: 'server' | 'file' | undefined;
  readonly hasJwks?: boolean;
  /** The file of a local database. */
  readonly databasePath?: string | undefined;
}

/** No label has a value of a person, and each has few values. */
export function createPrometheusMetrics({ replica, hasJwks = false, databasePath }: PrometheusSettings): Metrics {
  const registry = new Registry();
  const registers = [registry];
  registerProcessMetrics(registry);
  if (databasePath !== undefined) registerDatabaseFiles(registry, databasePath);

  const requests = new Counter({
    name: 'http_requests_total',
    help: 'Completed requests',
    labelNames: ['method', 'route', 'status'],
    registers,
  });
  const requestDuration = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'Time from the arrival of a request to its response',
    labelNames: ['method', 'route'],
    buckets: requestSeconds,
    registers,
  });
  const inFlight = new Gauge({
    name: 'http_requests_in_flight',
    help: 'Requests without a response yet, the scrape included',
    registers,
  });
  const applications = new Gauge({
    name: 'planning_applications',
    help: 'Applications in the database by state, the same on every instance; absent while the database is unreachable',
    labelNames: ['state'],
    registers,
  });
  const oldestUnknown = new Gauge({
    name: 'planning_applications_oldest_unknown_seconds',
    help: 'Age of the oldest application without a decision of the carrier, 0 if there is none; absent while the database is unreachable',
    registers,
  });
  const completedTasks = new Gauge({
    name: 'planning_task_last_success_timestamp_seconds',
    help: 'When a recurring task last succeeded, the same on every instance: backup (planning backup) or audit-retention',
    labelNames: ['task'],
    registers,
  });
  const writesAvailable = new Gauge({
    name: 'planning_writes_available',
    help: '1 while the database takes writes, 0 otherwise',
    registers,
  });
  const databaseLost = new Gauge({
    name: 'planning_database_lost',
    help: '1 after the database file or its disk was lost: no save is acknowledged until a restart',
    registers,
  });
  const numbersTaken = new Counter({
    name: 'planning_application_numbers_taken_total',
    help: 'Application numbers from the carrier that another application already holds',
    registers,
  });
  const catalogVersion = new Gauge({
    name: 'planning_catalog_version',
    help: 'Version of the catalogue in use, 0 before the first match',
    registers,
  });
  const replicaMetrics = replica === undefined ? undefined : createReplicaMetrics(registers);
  replicaMetrics?.isInSync.set(replica === 'server' ? 1 : 0);
  const database = createDatabaseMetrics(registers);
  let keysFetchedAtMs = performance.now();
  if (hasJwks) {
    new Gauge({
      name: 'planning_jwks_age_seconds',
      help: 'Time since the last successful fetch of AUTH_JWKS_URL, or since the start before the first one',
      registers,
      collect() {
        this.set(secondsSince(keysFetchedAtMs));
      },
    });
  }

  return {
    requestCompleted({ method, route = 'none', status, durationMs }) {
      requests.inc({ method, route, status });
      requestDuration.observe({ method, route }, durationMs / 1000);
    },
    requestCrashed: () => requests.inc({ method: 'other', route: 'none', status: 500 }),
    database,
    carrier: createCarrierMetrics(registers),
    applicationNumberTaken: () => numbersTaken.inc(),
    catalogLoaded: (loaded) => catalogVersion.set(loaded),
    replicaChanged: (isInSync) => replicaMetrics?.isInSync.set(isInSync ? 1 : 0),
    replicaSynced: () => replicaMetrics?.syncedAt.setToCurrentTime(),
    keysFetched() {
      keysFetchedAtMs = performance.now();
    },
    print({ database: facts, ...scrape }) {
      inFlight.set(scrape.inFlight);
      writesAvailable.set(scrape.isWritable ? 1 : 0);
      databaseLost.set(scrape.hasLostDatabase ? 1 : 0);
      applications.reset();
      for (const [state, count] of Object.entries(facts?.applications ?? {})) applications.set({ state }, count);
      if (facts === undefined) oldestUnknown.remove();
      else oldestUnknown.set(facts.oldestUnknownSeconds ?? 0);
      completedTasks.reset();
      for (const [task, atMs] of Object.entries(facts?.completedTasks ?? {})) completedTasks.set({ task }, atMs / 1000);
      return registry.metrics();
    },
    contentType: registry.contentType,
  };
}

function createReplicaMetrics(registers: Registry[]) {
  return {
    isInSync: new Gauge({
      name: 'planning_replica_in_sync',
      help: '1 while reads use the replica, 0 while they use the primary',
      registers,
    }),
    syncedAt: new Gauge({
      name: 'planning_replica_last_sync_timestamp_seconds',
      help: 'When an embedded replica last synced, 0 for a replica server',
      registers,
    }),
  };
}

function createDatabaseMetrics(registers: Registry[]): (name: DatabaseName) => DatabaseObserver {
  const calls = new Counter({
    name: 'planning_database_calls_total',
    help: 'Database calls by outcome: ok, busy, deadline, overloaded, unavailable or error',
    labelNames: ['database', 'kind', 'outcome'],
    registers,
  });
  const duration = new Histogram({
    name: 'planning_database_call_duration_seconds',
    help: 'Time of a database call, its wait in the queue included',
    labelNames: ['database', 'kind'],
    buckets: databaseSeconds,
    registers,
  });
  const queued = new Gauge({
    name: 'planning_write_queue_units',
    help: 'Write batches without an outcome',
    registers,
  });
  const wait = new Histogram({
    name: 'planning_write_wait_seconds',
    help: 'Time from the queueing of a write batch to the start of its transaction',
    buckets: databaseSeconds,
    registers,
  });
  const groupUnits = new Histogram({
    name: 'planning_write_group_units',
    help: 'Write batches in one transaction',
    buckets: groupSizes,
    registers,
  });
  const groupStatements = new Histogram({
    name: 'planning_write_group_statements',
    help: 'Statements in one transaction',
    buckets: groupSizes,
    registers,
  });
  let overdueSinceMs: number | undefined;
  new Gauge({
    name: 'planning_database_checkpoint_overdue_seconds',
    help: 'Time since a checkpoint of the database file first failed or was blocked by a reader, 0 after a complete one',
    registers,
    collect() {
      this.set(overdueSinceMs === undefined ? 0 : secondsSince(overdueSinceMs));
    },
  });

  return (database) => ({
    async observe(kind, work) {
      const startedAtMs = performance.now();
      let outcome = 'ok';
      try {
        return await work();
      } catch (error) {
        outcome = databaseOutcome(error);
        throw error;
      } finally {
        calls.inc({ database, kind, outcome });
        duration.observe({ database, kind }, secondsSince(startedAtMs));
      }
    },
    batchQueued() {
      const addedAtMs = performance.now();
      return () => wait.observe(secondsSince(addedAtMs));
    },
    groupStarted(batches, statements) {
      groupUnits.observe(batches);
      groupStatements.observe(statements);
    },
    pendingChanged: (batches) => queued.set(batches),
    checkpointEnded(isComplete) {
      overdueSinceMs = isComplete ? undefined : (overdueSinceMs ?? performance.now());
    },
  });
}

function createCarrierMetrics(registers: Registry[]): CarrierObserver {
  const duration = new Histogram({
    name: 'planning_carrier_call_duration_seconds',
    help: 'Time of a carrier call with its retries, by outcome: accepted, declined, timeout, unavailable, bad-answer or not-asked',
    labelNames: ['outcome'],
    buckets: carrierSeconds,
    registers,
  });
  const attempts = new Counter({
    name: 'planning_carrier_attempts_total',
    help: 'Requests sent to the carrier by outcome: the class of its status, timeout, unavailable or bad-answer',
    labelNames: ['endpoint', 'outcome'],
    registers,
  });
  const breaker = new Gauge({
    name: 'planning_carrier_breaker_state',
    help: 'Circuit breaker of a carrier endpoint: 0 closed, 1 half open, 2 open (until the next call after its pause)',
    labelNames: ['endpoint'],
    registers,
  });
  for (const endpoint of endpoints) breaker.set({ endpoint }, breakerNumbers.closed);

  return {
    async observeCall(work) {
      const startedAtMs = performance.now();
      let outcome = 'error';
      try {
        const decision = await work();
        outcome = decision.kind;
        return decision;
      } catch (error) {
        outcome = carrierOutcome(error);
        throw error;
      } finally {
        duration.observe({ outcome }, secondsSince(startedAtMs));
      }
    },
    async observeAttempt(endpoint, send) {
      let outcome = 'error';
      try {
        const response = await send({});
        outcome = `${Math.trunc(response.status / 100)}xx`;
        return response;
      } catch (error) {
        outcome = carrierOutcome(error);
        throw error;
      } finally {
        attempts.inc({ endpoint, outcome });
      }
    },
    breakerChanged: (endpoint, state) => breaker.set({ endpoint }, breakerNumbers[state]),
  };
}

function secondsSince(startedAtMs: number): number {
  return (performance.now() - startedAtMs) / 1000;
}
