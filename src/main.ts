import { resolve } from 'node:path';
import { type App, createApp } from './app';
import type { DemoTokens } from './auth/development-key';
import { keptDevelopmentSecret } from './auth/kept-secret';
import { createTokenVerifier, type TokenSettings } from './auth/token-verifier';
import { type Config, ConfigError, readConfig } from './config';
import { type Database, type DatabaseWatch, localPath, openDatabase, openServiceDatabase, placeOf } from './db/client';
import { keyRemedy } from './db/encryption';
import { findDatabaseError, reasonOf } from './db/errors';
import { migrateDatabase } from './db/migrate';
import { schemaFit, unfitDetail } from './db/schema-fit';
import type { AppDeps, Lifecycle } from './deps';
import { createRateLimits } from './http/rate-limits';
import { createLog, describeError, type Log } from './log';
import { listedFields } from './log-fields';
import { openLogOutput } from './log-output';
import { startAuditRetention } from './modules/audit/retention';
import type { Carrier } from './modules/coverage/carrier/carrier';
import type { HttpCarrierSettings } from './modules/coverage/carrier/http-carrier';
import { startReconciler } from './modules/coverage/reconciler';
import { onceLoaded } from './once-loaded';
import { seedDatabase } from './seed';
import { openTelemetry, type Telemetry } from './telemetry/telemetry';

/**
 * How long after SIGTERM the service goes on accepting, with `Connection: close` on every answer and 503 from
 * `/health/ready`. Without it, a request that a caller has just sent on an idle connection would be lost when the
 * server closes that connection.
 */
const closingMs = 500;

/** How long the last lines of the log may take to be written, where a reader stalls or a disk is full. */
const logPatienceMs = 1000;

/** A start that cannot go on, for a reason that the operator can mend. */
class StartError extends Error {
  override readonly name = 'StartError';
}

try {
  await start();
} catch (error) {
  if (error instanceof ConfigError || error instanceof StartError) process.stderr.write(`${error.message}\n`);
  else process.stderr.write(`The start has failed: ${JSON.stringify(listedFields(describeError(error)))}\n`);
  process.exit(1);
}

async function start(): Promise<void> {
  const config = readConfig(process.env, keptDevelopmentSecret());
  const output = openLogOutput(1);
  const log = createLog(config.logLevel, output);
  for (const { key, rule } of config.warnings) log.warn({ setting: key, rule }, 'a setting leaves something open');
  const clock = () => new Date();
  const lifecycle: Lifecycle = { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined };

  const telemetry = await openTelemetry(config, log);
  const { metrics, tracing } = telemetry;
  const db = await openPreparedDatabase(config, log, clock(), {
    observers: telemetry.databaseObservers('primary'),
    onSyncFailure(failure) {
      lifecycle.hasLostDisk = true;
      log.fatal(
        describeError(failure),
        'the disk has failed: no save is acknowledged until the service is started anew',
      );
    },
    onSchemaChange(code) {
      if (code === undefined) log.info('the schema fits this build');
      else log.error({ code }, 'the schema does not fit this build: nothing is sent to the database');
    },
  });
  const { reads, replica } = await openConfiguredReplica(config, db, log, telemetry);
  const tokens = await tokenSettings(config, clock());
  const { carrier, sandbox } = await openCarrier(config, clock, telemetry);
  let reconciler: ReturnType<typeof startReconciler> | undefined;
  let retention: ReturnType<typeof startAuditRetention> | undefined;
  let publicUrl = config.publicUrl ?? '';
  const deps: AppDeps = {
    config,
    carrier,
    db,
    reads,
    replica,
    clock,
    log,
    lifecycle,
    rateLimits: createRateLimits(config.rateLimit, clock),
    metrics,
    tracing,
    verifyToken: await createTokenVerifier(tokens.settings, clock),
    demoTokens: tokens.demo?.tokens,
    newId: () => Bun.randomUUIDv7(),
    publicUrl: () => publicUrl,
  };
  const app = createApp(deps);

  const drain = async (closingMs: number) => {
    const isReconciled = reconciler?.stop().catch((error: unknown) => log.error(describeError(error), 'not settled'));
    await closeConnections(lifecycle, closingMs);
    const timeout = Bun.sleep(config.shutdownTimeoutMs).then(() => false);
    const isDrained = await Promise.race([app.stop().then(() => true), timeout]);
    if (!isDrained) {
      log.warn('requests were cut off');
      await app.stop(true);
    }
    await Promise.race([Promise.all([isReconciled, retention?.stop()]), timeout]);
    await sandbox?.stop();
    await finishedLogging();
    await tracing?.stop();
    replica?.$client.close();
    db.$client.close();
  };
  /** Whoever asks a second time does not want to wait. */
  const stop = async (exitCode: number, closingMs: number) => {
    let finalCode = exitCode;
    try {
      if (!lifecycle.isDraining) {
        log.info('stopping');
        await drain(closingMs);
      }
    } catch (error) {
      finalCode = 1;
      log.error(describeError(error), 'the stop has failed');
    } finally {
      await output.flush(logPatienceMs);
      process.exit(finalCode);
    }
  };
  process.on('SIGTERM', () => stop(0, closingMs));
  process.on('SIGINT', () => stop(0, 0));
  // Nobody may be reading, or the disk behind it may be full.
  process.stdout.on('error', () => undefined);
  process.on('unhandledRejection', (error) => log.error(describeError(error), 'unhandled rejection'));
  process.on('uncaughtException', (error) => {
    log.fatal(describeError(error), 'uncaught exception');
    void stop(1, 0);
  });

  const address = listen(app, config);
  publicUrl ||= address;
  reconciler = startReconciler(deps);
  retention = startAuditRetention(deps, config.auditRetentionDays);
  announce(address, config, log, tokens.demo);
}

/**
 * A `file:` is brought up to date by the start itself; a remote database by `planning migrate`, as a release step. While
 * that one is away, requests are answered as unavailable, and its schema is looked at once it is back.
 */
async function openPreparedDatabase(config: Config, log: Log, now: Date, watch: DatabaseWatch): Promise<Database> {
  const place = placeOf(config.database.url);
  const db = await openDatabase(config.database).catch((error: unknown) => {
    throw new StartError(`The database ${place} cannot be opened (${codeOf(error)}).${keyRemedy(codeOf(error))}`);
  });
  if (localPath(config.database.url) !== undefined) {
    try {
      await migrateDatabase(db);
      await seedDatabase(db, { withDemo: config.seedDemo, now });
    } catch (error) {
      throw new StartError(`The database ${place} cannot be brought up to date: ${reasonOf(error)}`);
    }
  }
  try {
    const fit = await schemaFit(db.$client);
    if (fit === 'too-old') throw new StartError(`${unfitDetail[fit]} Run \`bun planning migrate\` first.`);
    if (fit === 'too-new') throw new StartError(`${unfitDetail[fit]} Start a newer build.`);
  } catch (error) {
    if (error instanceof StartError) throw error;
    if (findDatabaseError(error)?.isUnavailable !== true) {
      if (codeOf(error) === 'UNKNOWN') throw new StartError(`${place} does not answer as a libSQL server.`);
      throw new StartError(`The database ${place} refuses this service (${codeOf(error)}).`);
    }
    log.warn({ code: codeOf(error) }, 'the database is away; requests are refused until it is back');
  }
  db.$client.close();
  return openServiceDatabase(config.database, watch);
}

async function openConfiguredReplica(
  config: Config,
  db: Database,
  log: Log,
  { metrics, databaseObservers }: Telemetry,
): Promise<Pick<AppDeps, 'reads' | 'replica'>> {
  if (config.replica === undefined) return { reads: db, replica: undefined };
  const { openReplica, replicaOrPrimary } = await import('./db/replica');
  let replica: Database;
  try {
    replica = openReplica(config.replica, db, config.database, {
      environment: process.env,
      observers: databaseObservers('replica'),
      onSynced: () => metrics?.replicaSynced(),
      onChange(reason) {
        metrics?.replicaChanged(reason === undefined);
        if (reason === undefined) log.info('the replica follows the primary');
        else log.warn({ reason }, 'the replica cannot follow the primary');
      },
    });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
    throw new StartError(`DATABASE_REPLICA_PATH is in a folder that cannot be made (${code}).`);
  }
  return { reads: replicaOrPrimary(replica, db), replica };
}

function codeOf(error: unknown): string {
  return findDatabaseError(error)?.code ?? 'UNKNOWN';
}

/** The configured carrier, or in development the sandbox, on a port and with a key that only this process knows. */
async function openCarrier(config: Config, clock: () => Date, { carrierObservers: observers }: Telemetry) {
  const { url } = config.carrier;
  if (url !== undefined)
    return { carrier: carrierOnFirstCall({ ...config.carrier, url, observers }), sandbox: undefined };
  const { listenCarrierSandbox } = await import('./carrier-sandbox/server');
  const apiKey = crypto.randomUUID();
  const sandbox = await listenCarrierSandbox({ config, clock, apiKey, port: 0 }).catch((error: unknown) => {
    const code = codeOf(error);
    const setting = 'The sandbox carrier’s database SANDBOX_DATABASE_URL';
    throw new StartError(`${setting} cannot be used (${code}).${keyRemedy(code)}`);
  });
  return { carrier: carrierOnFirstCall({ ...config.carrier, url: sandbox.url, apiKey, observers }), sandbox };
}

/** What speaks to a carrier is loaded with the first application, so that no start waits for it. */
function carrierOnFirstCall(settings: HttpCarrierSettings): Carrier {
  const carrier = onceLoaded(async () => {
    const { createHttpCarrier } = await import('./modules/coverage/carrier/http-carrier');
    return createHttpCarrier(settings);
  });
  return { start: async (application, mayBeKnown) => (await carrier()).start(application, mayBeKnown) };
}

interface Demo {
  readonly tokens: DemoTokens;
  readonly path: string;
}

async function tokenSettings(config: Config, now: Date): Promise<{ settings: TokenSettings; demo?: Demo }> {
  const { key, ...claims } = config.auth;
  if (key.kind !== 'development') return { settings: { key, ...claims } };
  const { demoTokensPath, developmentSecret, writeDemoTokens } = await import('./auth/development-key');
  const secret = developmentSecret();
  const demo = { tokens: await writeDemoTokens(secret, claims, now), path: resolve(demoTokensPath) };
  return { settings: { key: { kind: 'secret', secret }, ...claims }, demo };
}

function listen(app: App, { host, port }: Config): string {
  try {
    app.listen({ hostname: host, port });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
    throw new StartError(`The service cannot listen on ${host}:${port} (${code}).`);
  }
  return `http://${host.includes(':') ? `[${host}]` : host}:${app.server?.port}`;
}

/**
 * Resolves after `durationMs`, by a timer or by the clock of the next request: Bun's timers stand still while callers
 * open one connection after the other, which is what they do now.
 */
function closeConnections(lifecycle: Lifecycle, durationMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const endsAtMs = performance.now() + durationMs;
  lifecycle.isDraining = true;
  lifecycle.onRequestWhileDraining = () => {
    if (performance.now() >= endsAtMs) resolve();
  };
  setTimeout(resolve, durationMs);
  return promise;
}

/** Elysia logs a request in a later turn of the event loop than it answers it. */
function finishedLogging(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** People at a terminal get lines to read and paste; production gets one line of JSON like every other. */
function announce(address: string, config: Config, log: Log, demo: Demo | undefined): void {
  const base = config.publicUrl ?? address;
  if (config.isProduction) {
    log.info({ address, docs: `${base}/swagger`, database: placeOf(config.database.url) }, 'listening');
    return;
  }
  const token = demo?.tokens['demo-user'] ?? '<token>';
  process.stdout.write(`
Personal planning service
  address  ${base}
  docs     ${base}/swagger
  data     ${placeOf(config.database.url)}
${demo === undefined ? '' : `  tokens   ${demo.path}\n`}
Try it:
  curl ${base}/v2/private/healthAndCare/ -H 'Authorization: Bearer ${token}'

`);
}
