import { isatty } from 'node:tty';
import { createApp, createServices } from './app';
import { readDevelopmentSecret } from './auth/signing';
import { createTokenVerifier } from './auth/verifier';
import type { StartFlags } from './cli/context';
import { describeConfigError, loadSettings, type SettingSources } from './config/env-files';
import { namesSecretFile } from './config/secrets';
import { type Config, ConfigError, readConfig } from './config/settings';
import { closeDatabase, placeOf, remainingWalWarning } from './db/client';
import type { Demo } from './demo/demo';
import type { AppDeps, Lifecycle } from './deps';
import { OperatorError } from './errors';
import { createRateLimits } from './http/rate-limits';
import { createLog, describeError, type Log, type LogOutput, openLogOutput } from './log';
import { listedFields, logFields } from './log-fields';
import { startAuditRetention } from './modules/audit/store';
import { startReconciler } from './modules/coverage/submissions';
import { startSummingActivities } from './modules/sales/store-sums';
import { nextTurn, withTimeout } from './shared/async';
import { openConfiguredReplica, openPreparedDatabase, watchDatabase } from './start/databases';
import { addressOf, announce, cannotListen, findFreePort, watchDescriptors } from './start/listen';
import { createSecrets, excludeLoopback, openCarrier, tokenSettings, watchTokens } from './start/services';
import { openTelemetry } from './telemetry/telemetry';

/** Signals for functions that this service does not have. Without a handler, they end the process. */
const ignoredSignals = logFields.signal.options;
const [logFlushMs, minCloseMs] = [1_000, 2_000];
/** The first requests need not wait for the background tasks and for the modules of the carrier. */
const tasksAfterMs = 100;

interface ServiceContext {
  readonly args: readonly string[];
  readonly environment: Record<string, string | undefined>;
  readonly output: LogOutput;
  /** Called when the service has a log and its settings, before it opens anything. */
  readonly onConfigured?: (config: Config, log: Log) => void;
}

interface Service {
  readonly log: Log;
  readonly config: Config;
  /** Accepts requests and starts the background tasks. Throws OperatorError if the address is not available. */
  listen(): Promise<void>;
  /** Closes everything after `drainMs` and returns the exit code. A second call returns at once. */
  stop(exitCode: number, drainMs: number): Promise<number>;
  /** Calls run one after the other. */
  reloadSecrets(): void;
}

if (import.meta.main) {
  // The code of a start that ends while a promise is pending: Bun ends a process once no handle is open.
  process.exitCode = 1;
  void runProcess();
}

/** Runs the service as this process: arguments, environment, signals and exit code. */
export async function runProcess(): Promise<void> {
  // A closed terminal is no longer a terminal.
  const isAtTerminal = isatty(0);
  let onHangUp: () => void = () => undefined;
  let onIgnoredSignal: (signal: (typeof ignoredSignals)[number]) => void = () => undefined;
  process.on('SIGHUP', () => onHangUp());
  for (const signal of ignoredSignals) process.on(signal, () => onIgnoredSignal(signal));
  // A terminal that closes ends a development service; SIGHUP reloads the secrets otherwise.
  const endsOnHangUp = (config: Config) => isAtTerminal && !config.isProduction && !namesSecretFile(process.env);
  const output = openLogOutput(1);
  const fail = async (error: unknown) => {
    await output.flush(logFlushMs);
    process.stderr.write(`${startFailure(error)}\n`);
    process.exit(1);
  };
  const service = await openService({
    args: process.argv.slice(2),
    environment: process.env,
    output,
    onConfigured(config, log) {
      if (endsOnHangUp(config)) onHangUp = () => process.exit(129);
      onIgnoredSignal = (signal) => log.info({ signal }, 'the signal is ignored');
    },
  }).catch(fail);

  const { log, config } = service;
  const stop = async (exitCode: number, drainMs: number) => {
    // The WAL stays while the connection of the start is open, which the driver closes when its statements are collected.
    Bun.gc(true);
    process.exit(await service.stop(exitCode, drainMs));
  };
  onHangUp = () => (endsOnHangUp(config) ? void stop(0, 0) : service.reloadSecrets());
  for (const signal of ['SIGTERM', 'SIGQUIT'] as const) process.on(signal, () => stop(0, config.drainMs));
  process.on('SIGINT', () => stop(0, 0));
  process.on('unhandledRejection', (error) => log.error(describeError(error), 'unhandled rejection'));
  process.on('uncaughtException', (error) => {
    log.fatal(describeError(error), 'uncaught exception');
    void stop(1, 0);
  });
  await service.listen().catch(fail);
}

function startFailure(error: unknown): string {
  if (error instanceof ConfigError) return describeConfigError(error);
  if (error instanceof OperatorError) return error.message;
  return `The start has failed: ${JSON.stringify(listedFields(describeError(error)))}`;
}

/**
 * Reads the settings and opens everything that the service needs, from the database to the demo data.
 *
 * @throws ConfigError OperatorError
 */
export async function openService({ args, environment, output, onConfigured }: ServiceContext): Promise<Service> {
  const flags = await readFlags(args, environment);
  const sources = loadSettings(environment, { execArgv: process.execArgv, envFile: flags.envFile, isDemo: flags.demo });
  excludeLoopback(environment);
  // A start without --demo does not load the demo.
  const demo = flags.demo ? (await import('./demo/demo')).openDemo(environment, flags.now) : undefined;
  const readSettings = () => readConfig(environment, readDevelopmentSecret());
  const config = demo?.config ?? readSettings();
  const { host, port } = config;
  // Checked first, so that a start that cannot listen changes nothing.
  findFreePort(host, port);
  const log = createLog(config.logLevel, output);
  onConfigured?.(config, log);
  logSettings(config, sources, log);

  const opened = await openDependencies(config, demo, log, environment);
  const { deps, secrets, tokens, verifyToken } = opened;
  const services = createServices(deps);
  const app = createApp(deps, services);
  await demo?.walkJourney(createApp, deps);
  const tasks: BackgroundTask[] = [];
  const startTasks = () => {
    const onFailure = (error: unknown) => log.error(describeError(error), 'the carrier client is not loaded');
    opened.loadCarrier().catch(onFailure);
    watchDescriptors(log);
    tasks.push(startReconciler(services.submissions, deps), startSummingActivities(deps));
    // The clock of a demo may be wrong, and each start of a demo creates its data again.
    if (demo === undefined) tasks.push(startAuditRetention(services.audit, deps, config.auditRetentionDays));
  };
  let starting: Timer | undefined;
  let reloading = Promise.resolve();
  return {
    log,
    config,
    async listen() {
      try {
        app.listen({ hostname: host, port });
      } catch (error) {
        throw cannotListen(host, port, error);
      }
      const address = addressOf(host, app.server?.port ?? port);
      opened.setAddress(address);
      announce(address, { config, sources, log, print: output.write, tokens: tokens.stored, demo });
      starting = setTimeout(startTasks, tasksAfterMs);
    },
    async stop(exitCode, drainMs) {
      let finalCode = exitCode;
      clearTimeout(starting);
      try {
        if (!deps.lifecycle.isDraining) {
          log.info({ drainMs }, 'stopping');
          await closeService({ ...opened, config, app, tasks }, drainMs);
        }
      } catch (error) {
        finalCode = 1;
        log.error(describeError(error), 'the stop has failed');
      }
      log.summarize();
      await output.flush(logFlushMs);
      return finalCode;
    },
    reloadSecrets() {
      if (demo !== undefined) return;
      reloading = reloading
        .then(() => secrets.reload(readSettings, verifyToken, log))
        .catch((error: unknown) => log.error(describeError(error), 'the secrets are not read again'));
    },
  };
}

/** Reads the flags of the start. A start without flags does not load their parser. */
async function readFlags(args: readonly string[], environment: ServiceContext['environment']): Promise<StartFlags> {
  const taken = ['demo', 'now', 'env-file'].find(
    (flag) => environment[`npm_config_${flag.replace('-', '_')}`] !== undefined,
  );
  if (taken !== undefined) {
    throw new OperatorError(`npm has taken --${taken} for itself. Its own flags end with --: npm start -- --${taken}`);
  }
  return args.length === 0 ? {} : (await import('./cli/context')).readStartFlags(args);
}

function logSettings(config: Config, sources: SettingSources, log: Log): void {
  if (config.isProduction) {
    log.info({ mode: 'production', settings: ['environment', ...sources.files], folder: sources.folder }, 'starting');
  }
  for (const { key, rule } of config.warnings) log.warn({ setting: key, rule }, 'a setting needs attention');
}

async function openDependencies(
  config: Config,
  demo: Demo | undefined,
  log: Log,
  environment: ServiceContext['environment'],
) {
  const systemClock = () => new Date();
  const clock = demo?.clock ?? systemClock;
  const monotonicMs = () => performance.now();
  const lifecycle: Lifecycle = { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined };
  const secrets = createSecrets(config);
  const telemetry = await openTelemetry(config, log);
  const { metrics, tracing } = telemetry;
  const { databaseToken } = secrets;
  const observers = telemetry.databaseObservers('primary');
  const watch = { ...watchDatabase(config.database.url, log, lifecycle), observers };
  const origin = { now: clock(), isDemo: demo !== undefined };
  const db = await openPreparedDatabase(config, log, origin, { ...watch, databaseToken });
  const { reads, replica } = await openConfiguredReplica(config, db, log, { ...telemetry, databaseToken }, environment);
  const tokens = await tokenSettings(config, demo?.tokens ?? { issuedAt: clock() });
  const { carrier, loadCarrier, sandbox } = await openCarrier(config, clock, telemetry, secrets.carrierKey);
  const verifyToken = await createTokenVerifier(tokens.settings, clock, monotonicMs, watchTokens(log, metrics));
  let publicUrl = config.publicUrl ?? addressOf(config.host, config.port);
  const setAddress = (address: string) => {
    publicUrl = config.publicUrl ?? address;
  };
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
    demoTokens: tokens.stored?.tokens,
    newId: () => Bun.randomUUIDv7(),
    newRequestId: () => Bun.randomUUIDv7(),
    ...demo?.ids,
    publicUrl: () => publicUrl,
  };
  return { deps, secrets, tokens, verifyToken, sandbox, loadCarrier, setAddress };
}

type BackgroundTask = Pick<ReturnType<typeof startReconciler>, 'stop'>;

interface RunningService extends Pick<Awaited<ReturnType<typeof openDependencies>>, 'deps' | 'sandbox'> {
  readonly config: Config;
  readonly app: ReturnType<typeof createApp>;
  readonly tasks: readonly BackgroundTask[];
}

async function closeService({ deps, sandbox, config, app, tasks }: RunningService, drainMs: number): Promise<void> {
  const { db, lifecycle, log } = deps;
  const stopTask = (task: BackgroundTask) =>
    task.stop().catch((error: unknown) => log.error(describeError(error), 'a background task was not stopped'));
  const stopped = Promise.all(tasks.map(stopTask));
  await drain(lifecycle, drainMs);
  const closesByMs = performance.now() + config.shutdownTimeoutMs;
  const leftMs = () => Math.max(0, closesByMs - performance.now());
  const drained = app.server === null ? Promise.resolve(true) : app.stop().then(() => true);
  if (!(await withTimeout(drained, leftMs(), () => false))) {
    log.warn('requests were cut off');
    await app.stop(true);
  }
  await withTimeout(stopped, leftMs(), () => undefined);
  await sandbox?.stop();
  // Elysia logs a request one turn after its response.
  await nextTurn();
  await deps.tracing?.stop();
  deps.replica?.$client.close();
  // Closing also waits for the rescue of a lost database.
  const closing = closeDatabase(db).then((code) => ({ code }));
  const closed = await withTimeout(closing, Math.max(minCloseMs, leftMs()), () => undefined);
  if (closed === undefined) log.error('the database was not closed in time');
  else if (closed.code !== undefined && !lifecycle.hasLostDisk) {
    log.warn({ code: closed.code, database: placeOf(config.database.url) }, remainingWalWarning(closed.code));
  }
}

/**
 * Accepts requests for `durationMs` while `/health/ready` returns 503 and every response has `Connection: close`, so that
 * load balancers move on and no idle connection is left for the server to close under a request.
 *
 * A request after that time ends it too, because Bun's timers do not fire while clients open one connection after another.
 */
function drain(lifecycle: Lifecycle, durationMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const endsAtMs = performance.now() + durationMs;
  lifecycle.isDraining = true;
  lifecycle.onRequestWhileDraining = () => {
    if (performance.now() >= endsAtMs) resolve();
  };
  setTimeout(resolve, durationMs);
  return promise;
}
