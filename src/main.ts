import { isatty } from 'node:tty';
import { createApp, createServices } from './app';
import { readDevelopmentSecret } from './auth/signing';
import { createTokenVerifier } from './auth/verifier';
import { describeConfigError, loadSettings } from './config/env-files';
import { namesSecretFile } from './config/secrets';
import { ConfigError, readConfig } from './config/settings';
import { closeDatabase, localPath, placeOf, remainingWalWarning } from './db/client';
import { describeWriteFault } from './db/write-health';
import type { Demo } from './demo/demo';
import type { AppDeps, Lifecycle } from './deps';
import { OperatorError } from './errors';
import { createRateLimits } from './http/rate-limits';
import { createLog, describeError, openLogOutput } from './log';
import { listedFields, logFields } from './log-fields';
import { startAuditRetention } from './modules/audit/store';
import { startReconciler } from './modules/coverage/submissions';
import { startSummingActivities } from './modules/sales/store-sums';
import { announce } from './start/announce';
import { createLossReport, openConfiguredReplica, openPreparedDatabase } from './start/databases';
import type { StartFlags } from './start/flags';
import { addressOf, cannotListen, findFreePort, watchDescriptors } from './start/listen';
import { createSecrets, excludeLoopback, openCarrier, tokenSettings, watchTokens } from './start/services';
import { openTelemetry } from './telemetry/telemetry';

/** Signals that some tools send for functions that this service does not have, such as a new log file or a timer. */
const ignoredSignals = logFields.signal.options;

/** How long the last lines of the log may take to be written, where a reader stalls or a disk is full. */
const logPatienceMs = 1000;

/** How long the close of the database may take at least. */
const minCloseMs = 2000;

let output: ReturnType<typeof openLogOutput> | undefined;
try {
  await start();
} catch (error) {
  await output?.flush(logPatienceMs);
  if (error instanceof ConfigError) process.stderr.write(`${describeConfigError(error)}\n`);
  else if (error instanceof OperatorError) process.stderr.write(`${error.message}\n`);
  else process.stderr.write(`The start has failed: ${JSON.stringify(listedFields(describeError(error)))}\n`);
  process.exit(1);
}

async function start(): Promise<void> {
  // Read here, because a terminal that was closed is none.
  const isAtTerminal = isatty(0);
  // Without a handler, these signals end the process. During the start there is nothing to read again.
  let onHangUp: () => void = () => undefined;
  process.on('SIGHUP', () => onHangUp());
  let onIgnoredSignal: (signal: (typeof ignoredSignals)[number]) => void = () => undefined;
  for (const signal of ignoredSignals) process.on(signal, () => onIgnoredSignal(signal));
  const flags = await readFlags(process.argv.slice(2));
  const sources = loadSettings(process.env, { execArgv: process.execArgv, envFile: flags.envFile, isDemo: flags.demo });
  excludeLoopback(process.env);
  const demo = flags.demo ? await openDemo(flags.now) : undefined;
  const readSettings = () => readConfig(process.env, readDevelopmentSecret());
  const config = demo?.config ?? readSettings();
  // A closed terminal ends what a developer started in it.
  const endsOnHangUp = isAtTerminal && !config.isProduction && !namesSecretFile(process.env);
  if (endsOnHangUp) onHangUp = () => process.exit(129);
  // Before anything is opened: a start that cannot serve changes nothing.
  findFreePort(config.host, config.port);
  const logOutput = openLogOutput(1);
  output = logOutput;
  const log = createLog(config.logLevel, logOutput);
  onIgnoredSignal = (signal) => log.info({ signal }, 'the signal is ignored');
  if (config.isProduction) {
    log.info({ mode: 'production', settings: ['environment', ...sources.files], folder: sources.folder }, 'starting');
  }
  for (const { key, rule } of config.warnings) log.warn({ setting: key, rule }, 'a setting needs attention');
  const systemClock = () => new Date();
  const clock = demo?.clock ?? systemClock;
  const monotonicMs = () => performance.now();
  const lifecycle: Lifecycle = { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined };

  const secrets = createSecrets(config);
  const telemetry = await openTelemetry(config, log);
  const { metrics, tracing } = telemetry;
  const origin = { now: clock(), isDemo: demo !== undefined };
  const db = await openPreparedDatabase(config, log, origin, {
    observers: telemetry.databaseObservers('primary'),
    databaseToken: secrets.databaseToken,
    onTokenChange(code) {
      const setting = 'DATABASE_AUTH_TOKEN';
      if (code === undefined) log.info({ setting }, 'the database accepts the token');
      else if (code === 'TOKEN_REFUSED')
        log.fatal({ setting, code }, 'the database refuses this token: nothing can be read or saved');
      else log.fatal({ setting, code }, 'the database lets this token only read: nothing can be saved');
    },
    onLoss: createLossReport(log, lifecycle, localPath(config.database.url)),
    onCheckpointChange(code) {
      if (code === undefined) log.info('checkpoints succeed again');
      else log.warn({ code }, 'the write-ahead log cannot be written to the database file, and grows');
    },
    onWritesChange(code) {
      const database = placeOf(config.database.url);
      const fault = code === undefined ? undefined : describeWriteFault(code);
      if (fault === undefined) log.info({ database }, 'the database takes writes again');
      else log.error({ code, database }, fault.line);
    },
    onSchemaChange(code, schemaObjects) {
      if (code === undefined) log.info('the schema fits this build');
      else
        log.fatal({ code, schemaObjects }, 'the schema does not fit this build: no statement is sent to the database');
    },
  });
  const { reads, replica } = await openConfiguredReplica(
    config,
    db,
    log,
    { ...telemetry, databaseToken: secrets.databaseToken },
    process.env,
  );
  const tokens = await tokenSettings(config, demo?.tokens ?? { issuedAt: clock() });
  const { carrier, loadCarrier, sandbox } = await openCarrier(config, clock, telemetry, secrets.carrierKey);
  let reconciler: ReturnType<typeof startReconciler> | undefined;
  let retention: ReturnType<typeof startAuditRetention> | undefined;
  let summing: ReturnType<typeof startSummingActivities> | undefined;
  let publicUrl = config.publicUrl ?? addressOf(config.host, config.port);
  const verifyToken = await createTokenVerifier(
    tokens.settings,
    clock,
    monotonicMs,
    watchTokens(log, telemetry.metrics),
  );
  const deps: AppDeps = {
    config: { ...config, metricsToken: config.metricsToken && secrets.metricsToken },
    carrier,
    db,
    reads,
    replica,
    clock,
    systemClock,
    monotonicMs,
    log,
    lifecycle,
    rateLimits: createRateLimits(config.rateLimit, monotonicMs),
    metrics,
    tracing,
    verifyToken,
    hasTokenKeys: verifyToken.hasKeys,
    demoTokens: tokens.kept?.tokens,
    newId: () => Bun.randomUUIDv7(),
    newRequestId: () => Bun.randomUUIDv7(),
    ...demo?.ids,
    publicUrl: () => publicUrl,
  };
  const services = createServices(deps);
  const app = createApp(deps, services);
  await demo?.walkJourney(createApp, deps);

  const drain = async (drainMs: number) => {
    const isReconciled = reconciler?.stop().catch((error: unknown) => log.error(describeError(error), 'not settled'));
    await closeConnections(lifecycle, drainMs);
    const closesByMs = performance.now() + config.shutdownTimeoutMs;
    const timeout = Bun.sleep(config.shutdownTimeoutMs).then(() => false);
    const isDrained = await Promise.race([app.stop().then(() => true), timeout]);
    if (!isDrained) {
      log.warn('requests were cut off');
      await app.stop(true);
    }
    await Promise.race([Promise.all([isReconciled, retention?.stop(), summing?.stop()]), timeout]);
    await sandbox?.stop();
    await finishedLogging();
    await tracing?.stop();
    replica?.$client.close();
    // It also waits for the rescue of a lost database.
    const patienceMs = Math.max(minCloseMs, closesByMs - performance.now());
    const closing = closeDatabase(db).then((code) => ({ code }));
    const closed = await Promise.race([closing, Bun.sleep(patienceMs)]);
    if (closed === undefined) log.error('the database was not closed in time');
    else if (closed.code !== undefined && !lifecycle.hasLostDisk) {
      log.warn({ code: closed.code, database: placeOf(config.database.url) }, remainingWalWarning(closed.code));
    }
  };
  /** A second signal ends the process at once. */
  const stop = async (exitCode: number, drainMs: number) => {
    let finalCode = exitCode;
    try {
      if (!lifecycle.isDraining) {
        log.info({ drainMs }, 'stopping');
        await drain(drainMs);
      }
    } catch (error) {
      finalCode = 1;
      log.error(describeError(error), 'the stop has failed');
    } finally {
      log.summarize();
      await logOutput.flush(logPatienceMs);
      process.exit(finalCode);
    }
  };
  const reloadSecrets = async () => {
    if (demo !== undefined) return;
    await secrets
      .reload(readSettings, verifyToken, log)
      .catch((error: unknown) => log.error(describeError(error), 'the secrets are not read again'));
  };
  let reloading = Promise.resolve();
  onHangUp = () => {
    if (endsOnHangUp) void stop(0, 0);
    else reloading = reloading.then(reloadSecrets);
  };
  for (const signal of ['SIGTERM', 'SIGQUIT'] as const) process.on(signal, () => stop(0, config.drainMs));
  process.on('SIGINT', () => stop(0, 0));
  // The reader may have ended, or the disk may be full.
  process.stdout.on('error', () => undefined);
  process.on('unhandledRejection', (error) => log.error(describeError(error), 'unhandled rejection'));
  process.on('uncaughtException', (error) => {
    log.fatal(describeError(error), 'uncaught exception');
    void stop(1, 0);
  });

  // The text for a terminal comes after the lines of the log that were written before it.
  if (!config.isProduction) await logOutput.flush(logPatienceMs);
  const { host, port } = config;
  try {
    app.listen({ hostname: host, port });
  } catch (error) {
    throw cannotListen(host, port, error);
  }
  const address = addressOf(host, app.server?.port ?? port);
  void loadCarrier().catch((error: unknown) => log.error(describeError(error), 'the carrier client is not loaded'));
  watchDescriptors(log);
  publicUrl = config.publicUrl ?? address;
  reconciler = startReconciler(services.submissions, deps);
  // A demo has a clock of its own, and its data are removed at the next start.
  if (demo === undefined) retention = startAuditRetention(services.audit, deps, config.auditRetentionDays);
  summing = startSummingActivities(deps);
  announce(address, { config, sources, log, tokens: tokens.kept, demo });
}

/** Reads the flags of the start. A start without flags does not load what reads them. */
async function readFlags(args: readonly string[]): Promise<StartFlags> {
  const taken = ['demo', 'now', 'env-file'].find((flag) => {
    return process.env[`npm_config_${flag.replace('-', '_')}`] !== undefined;
  });
  if (taken !== undefined) {
    throw new OperatorError(`npm has taken --${taken} for itself. Its own flags end with --: npm start -- --${taken}`);
  }
  return args.length === 0 ? {} : (await import('./start/flags')).readStartFlags(args);
}

/** Prepares a demo. A start without one does not load it. */
async function openDemo(now: string | undefined): Promise<Demo> {
  return (await import('./demo/demo')).openDemo(process.env, now);
}

/**
 * Accepts requests for `durationMs` while `/health/ready` returns 503 and every response has `Connection: close`, so that
 * load balancers move on and no idle connection is left for the server to close under a request.
 *
 * The next request ends it too, because Bun's timers do not fire while clients open one connection after another.
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
