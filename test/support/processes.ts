import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { signToken } from '../../src/auth/signing';
import { describeConfigError } from '../../src/config/env-files';
import { ConfigError } from '../../src/config/settings';
import { OperatorError } from '../../src/errors';
import { openService } from '../../src/main';
import { lazy } from '../../src/shared/async';
import { type Call, callerOf, startSandbox } from './app';
import { programOf } from './artifacts';
import { createCommandLine } from './command';
import { createSaveHistory, saveMany } from './disks';
import { atEnd, runToEnd, temporaryFolder } from './resources';

const Tokens = v.object({ 'demo-user': v.string(), 'demo-manager': v.string() });

export interface Service {
  readonly address: string;
  readonly process: Bun.Subprocess;
  /** Everything written to standard output so far. */
  output(): string;
  token(): Promise<string>;
}

export interface Start {
  /** The program for Bun with its options first; by default the bundle. */
  readonly program?: readonly string[];
  /** Arguments of the program. */
  readonly args?: readonly string[];
  readonly cwd?: string;
  readonly environment?: Record<string, string>;
  /** Whether `output` includes standard error, which is otherwise inherited. */
  readonly hasErrorsInOutput?: boolean;
  /** A command that wraps the program, such as `strace` with its options. */
  readonly under?: readonly string[];
  /** The limit of file descriptors; by default that of the test process. */
  readonly descriptors?: number;
  /** Whether the service gets no signal of the terminal of this process. */
  readonly isDetached?: boolean;
}

/** Starts the service as a process in a temporary folder on a free port. */
export async function startService({
  program,
  args = [],
  cwd = temporaryFolder(),
  environment = {},
  hasErrorsInOutput = false,
  under = [],
  descriptors,
  isDetached = false,
}: Start = {}): Promise<Service> {
  const command = [...under, process.execPath, ...(program ?? [await programOf('src/main')]), ...args];
  const limited = ['sh', '-c', `ulimit -n ${descriptors}; exec "$0" "$@"`, ...command];
  const child = Bun.spawn(descriptors === undefined ? command : limited, {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'development', PORT: '0', DRAIN_MS: '0', ...environment },
    stdout: 'pipe',
    stderr: hasErrorsInOutput ? 'pipe' : 'inherit',
    detached: isDetached,
  });
  atEnd(async () => {
    child.kill('SIGKILL');
    await child.exited;
  });
  let output = '';
  let hasAddress = false;
  const address = Promise.withResolvers<string>();
  const reading = (async () => {
    for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
      output += chunk;
      // A search in all of a long output would take long for each of its chunks.
      if (hasAddress) continue;
      const found = /(?:address +|"address":")(http:\/\/[^\s"]+)/.exec(output)?.[1];
      if (found === undefined || !output.includes('\n', output.indexOf(found))) continue;
      hasAddress = true;
      address.resolve(found);
    }
  })();
  const { stderr } = child;
  if (stderr !== undefined) {
    void (async () => {
      for await (const chunk of stderr.pipeThrough(new TextDecoderStream())) output += chunk;
    })();
  }
  void reading.then(() => address.reject(new Error(`The service ended before it listened:\n${output}`)));
  return {
    address: await address.promise,
    process: child,
    output: () => output,
    token: async () => v.parse(Tokens, await Bun.file(join(cwd, 'data/demo-tokens.json')).json())['demo-user'],
  };
}

/** Runs a start that is expected to fail and waits for its exit. */
export async function failToStart({ args = [], cwd = temporaryFolder(), environment = {} }: Start) {
  const child = Bun.spawn([process.execPath, await programOf('src/main'), ...args], {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'development', PORT: '0', ...environment },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  return runToEnd(child);
}

const path = join(import.meta.dirname, 'child.ts');

/** Starts a task of `child.ts work` that runs until it is stopped, and collects its output lines. */
export function startWorker(url: string, task: string, argument: string, environment: Record<string, string> = {}) {
  const worker = Bun.spawn([process.execPath, path, 'work', url, task, argument], {
    env: { ...process.env, ...environment },
    stdout: 'pipe',
    stderr: 'inherit',
  });
  atEnd(() => worker.kill('SIGKILL'));
  let output = '';
  const reading = (async () => {
    for await (const chunk of worker.stdout.pipeThrough(new TextDecoderStream())) output += chunk;
  })();
  /** Complete lines only, because the last may be partial. */
  const lines = () => output.split('\n').slice(0, -1);
  return {
    lines,
    async until(count: number): Promise<void> {
      while (lines().length < count && worker.exitCode === null) await Bun.sleep(5);
    },
    async stop(): Promise<string[]> {
      worker.kill('SIGKILL');
      await worker.exited;
      await reading;
      return lines();
    },
  };
}

const issuer = 'https://issuer.example';
const audience = 'planning';
const authSecret = 'kI8sJd72bXqPz0VnM4tYwQe1RuA9cLf6';

/** Every setting that production requires; the carrier is not reachable. */
export const productionSettings = {
  NODE_ENV: 'production',
  AUTH_SECRET: authSecret,
  AUTH_ISSUER: issuer,
  AUTH_AUDIENCE: audience,
  CARRIER_URL: 'http://127.0.0.1:1',
  CARRIER_API_KEY: 'test-key',
  CHAT_ID: 'room-7',
  CHAT_TOKEN: 'q7Vd2mXc9Lz4',
} as const;

const LogLine = v.looseObject({ level: v.union([v.string(), v.number()]), msg: v.string() });

/** The lines of a log that are JSON, parsed. */
function parseLog(text: string): v.InferOutput<typeof LogLine>[] {
  return text.split('\n').flatMap((line) => {
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), LogLine), line);
    return parsed.success ? [parsed.output] : [];
  });
}

/** Opens the service in this process, in production mode on a free port. A setting that is undefined is not set. */
export async function openInProcess(
  environment: Readonly<Record<string, string | undefined>>,
  args: readonly string[] = [],
) {
  let log = '';
  const service = await openService({
    args,
    environment: { ...productionSettings, PORT: '0', ...environment },
    output: {
      write(line) {
        log += line;
      },
      flush: async () => undefined,
    },
  });
  const stop = lazy(() => service.stop(0, 0));
  atEnd(stop);
  return { service, stop, logLines: () => parseLog(log) };
}

/** Starts the service in this process, in production mode on a free port. */
export async function startInProcess(
  environment: Readonly<Record<string, string | undefined>>,
  args: readonly string[] = [],
) {
  const { service, stop, logLines } = await openInProcess(environment, args);
  await service.listen();
  const address = String(logLines().find(({ msg }) => msg === 'listening')?.address);
  return { address, logLines, stop, reloadSecrets: service.reloadSecrets, ...requestsTo(address) };
}

/** The message of a start in this process that fails; `the service is open` for one that does not. */
export async function refusedStart(environment: Record<string, string>, args: readonly string[] = []): Promise<string> {
  try {
    await (await openInProcess(environment, args)).stop();
    return 'the service is open';
  } catch (error) {
    if (error instanceof ConfigError) return describeConfigError(error);
    if (error instanceof OperatorError) return error.message;
    throw error;
  }
}

interface DeploymentOptions {
  /** Without a database, instead of one that is migrated and seeded. */
  readonly isEmpty?: boolean;
  /** Settings of production that are not set. */
  readonly without?: readonly string[];
}

const settingsFor = (environment: Readonly<Record<string, string>>, without: readonly string[] = []) =>
  Object.fromEntries(
    Object.entries({ ...productionSettings, ...environment }).filter(([key]) => !without.includes(key)),
  );

/** A deployment like that of `createProduction`, whose commands and services run in this process. */
export async function createDeployment(
  environment: Record<string, string> = {},
  { isEmpty = false, without = [] }: DeploymentOptions = {},
) {
  const given = settingsFor(environment, without);
  const line = await createCommandLine(given, { isEmpty });
  const unset = Object.fromEntries(without.map((key) => [key, undefined]));
  const settings = { DATABASE_URL: line.databaseUrl, ...given, ...unset };
  return {
    ...line,
    settings,
    databasePath: join(line.cwd, 'data/planning.db'),
    start: () => startInProcess(settings),
    refusedStart: () => refusedStart(settings),
  };
}

/** A deployment as a killed service leaves it: the WAL has the saves of `history`, which the file lacks. */
export async function createKilledDeployment(environment: Record<string, string> = {}) {
  const running = await createDeployment(environment);
  const service = await running.start();
  const history = createSaveHistory();
  await saveMany(service.call, history, 8);
  const deployment = await createDeployment(environment, { isEmpty: true });
  const folder = join(deployment.cwd, 'data');
  mkdirSync(folder);
  for (const suffix of ['', '-wal', '-shm']) {
    copyFileSync(`${running.databasePath}${suffix}`, `${deployment.databasePath}${suffix}`);
  }
  await service.stop();
  return { ...deployment, folder, history };
}

/** Requests to a production service with tokens of `productionSettings`. */
function requestsTo(address: string) {
  const send = callerOf(address);
  const call: Call = async (method, path, { as, roles, headers, ...options } = {}) => {
    const token = as === undefined ? {} : { authorization: `Bearer ${await productionToken(as, roles)}` };
    return send(method, path, { ...options, headers: { ...token, ...headers } });
  };
  const health = async (path: 'live' | 'ready' = 'ready') => (await fetch(`${address}/health/${path}`)).status;
  return { call, health };
}

export interface Production extends Service {
  /** Sends a request with a token of this service; `as` names the subject. */
  readonly call: Call;
  /** The lines of the log so far that are JSON, parsed. */
  logLines(): v.InferOutput<typeof LogLine>[];
  /** HTTP status of a health path. */
  health(path?: 'live' | 'ready'): Promise<number>;
}

/** A token that a production service with `productionSettings` accepts. */
export function productionToken(id: string, roles: readonly string[] = []): Promise<string> {
  return signToken({
    id,
    roles,
    secret: authSecret,
    issuer,
    audience,
    rolesClaim: 'roles',
    ttlSeconds: 3600,
    now: new Date(),
  });
}

/**
 * A deployment in production mode: the built bundle in a working folder of its own, with a database at `data/planning.db`,
 * and the real sandbox carrier.
 *
 * `planning` runs the command line with the same settings, `start` the service.
 */
export async function createProduction(
  environment: Record<string, string> = {},
  { isEmpty = false, without = [] }: DeploymentOptions = {},
) {
  const sandbox = await startSandbox(() => new Date());
  const settings = settingsFor({ CARRIER_URL: sandbox.url, ...environment }, without);
  const line = await createCommandLine(settings, { isEmpty, isProcess: true });
  return {
    ...line,
    sandbox,
    settings,
    databasePath: join(line.cwd, 'data/planning.db'),
    async start(start: Start = {}): Promise<Production> {
      const service = await startService({
        cwd: line.cwd,
        hasErrorsInOutput: true,
        ...start,
        environment: { ...settings, ...start.environment },
      });
      return { ...service, ...requestsTo(service.address), logLines: () => parseLog(service.output()) };
    },
  };
}
