import { mkdirSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { magicLastNames } from '../carrier-sandbox/server';
import { type Config, ConfigError, readConfig } from '../config/settings';
import type { Environment } from '../config/validators';
import { lockFile } from '../db/database-file';
import type { AppDeps } from '../deps';
import { OperatorError } from '../errors';
import { createLog } from '../log';
import { parseInstant } from '../shared/calendar';
import { type DemoNotice, findFreePort } from '../start/listen';
import { demoAnswers } from './page';

/**
 * Generates UUIDv7 values of 1 January 2026 from a series number and a counter, so that the same requests get the same ids.
 */
export function createRepeatableIds(series: number): () => string {
  const head = `019b76da-a800-7${series.toString(16).padStart(3, '0')}-8000`;
  let count = 0;
  return () => {
    count += 1;
    return `${head}-${count.toString(16).padStart(12, '0')}`;
  };
}

/** Settings for which a demo has its own values, so that it never uses other data or another carrier. */
const excluded = ['DATABASE_URL', 'SANDBOX_DATABASE_URL', 'CARRIER_URL', 'SEED_DEMO'] as const;

export interface Demo extends DemoNotice {
  readonly config: Config;
  readonly clock: () => Date;
  readonly tokens: { readonly issuedAt: Date; readonly path: string };
  readonly ids: Pick<AppDeps, 'newId' | 'newRequestId'>;
  /** Saves answers, matches and an application of the demo user. */
  walkJourney(createApp: CreateApp, deps: AppDeps): Promise<void>;
}

/**
 * Prepares a demo. Removes the files of an earlier demo on the port, after a check that neither is in use.
 *
 * @param now a date or date-time that freezes the clock; a date means its start in REPORT_TIME_ZONE
 * @throws ConfigError OperatorError
 */
export function openDemo(environment: Environment, now: string | undefined): Demo {
  const settings = readSettings(environment);
  const port = lockPort(settings.host, settings.port);
  const files = filesOf(port);
  removeFiles([files.database, files.carrier]);
  // A random port is not used again.
  if (settings.port === 0) process.on('exit', () => removeFiles(Object.values(files)));
  const config = {
    ...settings,
    port,
    database: { ...settings.database, url: `file:${files.database}` },
    sandboxDatabaseUrl: `file:${files.carrier}`,
  };
  const frozenAtMs = now === undefined ? undefined : parseInstant(now, config.reportTimeZone);
  const clock = () => (frozenAtMs === undefined ? new Date() : new Date(frozenAtMs));
  return {
    config,
    frozenAt: frozenAtMs === undefined ? undefined : clock(),
    failingNames: Object.keys(magicLastNames),
    clock,
    // The tokens are the same at each start of a year.
    tokens: { issuedAt: new Date(Date.UTC(clock().getUTCFullYear(), 0)), path: files.tokens },
    // Separate series: the number of requests varies, the number of applications does not.
    ids: { newId: createRepeatableIds(1), newRequestId: createRepeatableIds(2) },
    walkJourney,
  };
}

function readSettings(environment: Environment): Config {
  const faults = [
    ...excluded
      .filter((key) => environment[key] !== undefined)
      .map((key) => ({ key, rule: 'must not be set with --demo, which has its own value' })),
    ...(environment.NODE_ENV === 'production' ? [{ key: 'NODE_ENV', rule: 'must not be production with --demo' }] : []),
  ];
  if (faults.length > 0) throw new ConfigError(faults);
  return readConfig(environment);
}

/** Each port has its own files, so that demos in one folder are separate from each other and from other data. */
function filesOf(port: number) {
  const stem = `data/demo-${port}`;
  return {
    database: `${stem}.db`,
    carrier: `${stem}-carrier.db`,
    tokens: `${stem}-tokens.json`,
    lock: `${stem}.lock`,
  };
}

/**
 * Returns the port before anything listens, because links in stored matches contain it. Locks its files first: a demo on
 * another HOST, or one that does not listen yet, may use them.
 */
function lockPort(host: string, port: number): number {
  const wanted = port === 0 ? findFreePort(host, 0) : port;
  const { lock } = filesOf(wanted);
  mkdirSync(dirname(lock), { recursive: true, mode: 0o700 });
  if (!lockFile(lock)) throw new OperatorError(`Another demo in this folder has port ${wanted}: set PORT.`);
  return findFreePort(host, wanted);
}

function removeFiles(paths: readonly string[]): void {
  for (const path of paths) {
    for (const suffix of ['', '-wal', '-shm', '-journal']) rmSync(`${path}${suffix}`, { force: true });
  }
}

const { firstName, lastName, dateOfBirth, gender, state, email } = demoAnswers.profile;

/** The requests of a frontend, in order. */
const journey = [
  ['/user/profile', demoAnswers.profile],
  ['/ltc/lifetimeCare', demoAnswers.ltc],
  ['/deepDives/lifeInsurance', demoAnswers.lifeInsurance],
  ['/deepDives/lifetimeCare', demoAnswers.lifetimeCare],
  ['/engine/matches', {}],
  ['/ltc/totalCoverage', { firstName, lastName, dateOfBirth, gender, state, email }],
] as const;

type CreateApp = (deps: AppDeps) => { handle(request: Request): Promise<Response> };

/** Sends the journey of the demo user to a separate app, without tokens, limits, logs and metrics. */
async function walkJourney(createApp: CreateApp, deps: AppDeps): Promise<void> {
  const app = createApp({
    ...deps,
    verifyToken: async () => ({ id: 'demo-user', roles: [] }),
    log: createLog('silent'),
    rateLimits: undefined,
    metrics: undefined,
    tracing: undefined,
  });
  for (const [path, body] of journey) {
    const response = await app.handle(
      new Request(`http://localhost/v2/private${path}`, {
        method: 'POST',
        headers: { authorization: 'Bearer demo', 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    );
    if (!response.ok) {
      throw new OperatorError(`The demo user cannot be created: ${path} returned ${response.status}.`);
    }
  }
}
