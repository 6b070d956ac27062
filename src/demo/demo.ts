import { mkdirSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Config, ConfigError, readConfig } from '../config/settings';
import { lockFile } from '../db/database-file';
import type { AppDeps } from '../deps';
import { OperatorError } from '../errors';
import { parseInstant } from '../shared/calendar';
import { findFreePort } from '../start/listen';
import { type CreateApp, walkJourney } from './journey';

/**
 * Counts in ids that have the form of a UUIDv7: 1 January 2026, the number of the series, and how many there were. The
 * same requests get the same ids, whatever the clock says.
 */
export function createRepeatableIds(series: number): () => string {
  const head = `019b76da-a800-7${series.toString(16).padStart(3, '0')}-8000`;
  let count = 0;
  return () => {
    count += 1;
    return `${head}-${count.toString(16).padStart(12, '0')}`;
  };
}

/** What would lead a demo to data, or to a carrier, that is somebody's; it has its own. */
const excluded = ['DATABASE_URL', 'SANDBOX_DATABASE_URL', 'CARRIER_URL', 'SEED_DEMO'] as const;

/** What a start on demo data has in the place of the usual. */
export interface Demo {
  readonly config: Config;
  /** When the clock stands still, if it does. */
  readonly frozenAt: Date | undefined;
  readonly clock: () => Date;
  readonly tokens: { readonly issuedAt: Date; readonly path: string };
  readonly ids: Pick<AppDeps, 'newId' | 'newRequestId'>;
  /** Gives the demo user answers, matches and an application. */
  walkJourney(createApp: CreateApp, deps: AppDeps): Promise<void>;
}

/**
 * Begins a demo: removes what an earlier one on this port has left, once nobody has that or the port.
 *
 * @param now a date or date-time at which the clock stands still; a date means its beginning where reports are made
 * @throws ConfigError OperatorError
 */
export function openDemo(environment: Readonly<Record<string, string | undefined>>, now: string | undefined): Demo {
  const settings = readSettings(environment);
  const port = claimPort(settings.host, settings.port);
  const files = filesOf(port);
  forget([files.database, files.carrier]);
  // Nobody finds a port again that was any free one.
  if (settings.port === 0) process.on('exit', () => forget(Object.values(files)));
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
    clock,
    // So that they are the same at each start of a year.
    tokens: { issuedAt: new Date(Date.UTC(clock().getUTCFullYear(), 0)), path: files.tokens },
    // Apart, since how often a frontend asks is told by the moment, and what it starts is not.
    ids: { newId: createRepeatableIds(1), newRequestId: createRepeatableIds(2) },
    walkJourney,
  };
}

function readSettings(environment: Readonly<Record<string, string | undefined>>): Config {
  const faults = [
    ...excluded
      .filter((key) => environment[key] !== undefined)
      .map((key) => ({ key, rule: 'must not be set with --demo, which has its own' })),
    ...(environment.NODE_ENV === 'production' ? [{ key: 'NODE_ENV', rule: 'must not be production with --demo' }] : []),
  ];
  if (faults.length > 0) throw new ConfigError(faults);
  return readConfig(environment);
}

/** For each port, so that demos of one folder do not meet, nor what is somebody's own. */
function filesOf(port: number) {
  const stem = `data/demo-${port}`;
  return {
    database: `${stem}.db`,
    carrier: `${stem}-carrier.db`,
    tokens: `${stem}-tokens.json`,
    claim: `${stem}.lock`,
  };
}

/**
 * The port of a demo, known before anything listens since links in stored matches name it. Its files are claimed first:
 * another demo may have them whose port is one of another HOST, or that does not listen yet.
 */
function claimPort(host: string, port: number): number {
  const wanted = port === 0 ? findFreePort(host, 0) : port;
  const { claim } = filesOf(wanted);
  mkdirSync(dirname(claim), { recursive: true, mode: 0o700 });
  if (!lockFile(claim)) throw new OperatorError(`Another demo in this folder has port ${wanted}: set PORT.`);
  return findFreePort(host, wanted);
}

function forget(paths: readonly string[]): void {
  for (const path of paths) {
    for (const suffix of ['', '-wal', '-shm', '-journal']) rmSync(`${path}${suffix}`, { force: true });
  }
}
