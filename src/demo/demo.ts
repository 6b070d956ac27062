import { rmSync } from 'node:fs';
import { parseInstant } from '../calendar';
import { type Config, ConfigError, readConfig } from '../config';
import { localPath } from '../db/client';
import type { AppDeps } from '../deps';
import { cannotListen } from '../start/start-error';
import { type CreateApp, walkJourney } from './journey';
import { createRepeatableIds } from './repeatable-ids';

/** What would lead a demo to data, or to a carrier, that is somebody's; it has its own. */
const excluded = ['DATABASE_URL', 'SANDBOX_DATABASE_URL', 'CARRIER_URL', 'SEED_DEMO'] as const;

/** What a start on demo data has in the place of the usual. */
export interface Demo {
  readonly config: Config;
  /** When the clock stands still, if it does. */
  readonly stoppedAt: Date | undefined;
  readonly clock: () => Date;
  readonly tokensIssuedAt: Date;
  readonly ids: Pick<AppDeps, 'newId' | 'newRequestId'>;
  /** Gives the demo user answers, matches and an application. */
  walkJourney(createApp: CreateApp, deps: AppDeps): Promise<void>;
}

/**
 * Begins a demo: removes what an earlier one on this port has left, once nobody has the port.
 *
 * @param now a date or date-time at which the clock stands still; a date means its beginning where reports are made
 * @throws ConfigError StartError
 */
export function openDemo(environment: Readonly<Record<string, string | undefined>>, now: string | undefined): Demo {
  const config = readDemoConfig(environment);
  forgetEarlier(config);
  const stoppedAtMs = now === undefined ? undefined : parseInstant(now, config.reportTimeZone);
  const clock = () => (stoppedAtMs === undefined ? new Date() : new Date(stoppedAtMs));
  return {
    config,
    stoppedAt: stoppedAtMs === undefined ? undefined : clock(),
    clock,
    // So that they are the same at each start of a year.
    tokensIssuedAt: new Date(Date.UTC(clock().getUTCFullYear(), 0)),
    // Apart, since how often a frontend asks is told by the moment, and what it starts is not.
    ids: { newId: createRepeatableIds(1), newRequestId: createRepeatableIds(2) },
    walkJourney,
  };
}

/** The settings of the environment, with databases for each port, so that demos of one folder do not meet. */
function readDemoConfig(environment: Readonly<Record<string, string | undefined>>): Config {
  const faults = [
    ...excluded
      .filter((key) => environment[key] !== undefined)
      .map((key) => ({ key, rule: 'must not be set with --demo, which has its own' })),
    ...(environment.NODE_ENV === 'production' ? [{ key: 'NODE_ENV', rule: 'must not be production with --demo' }] : []),
  ];
  if (faults.length > 0) throw new ConfigError(faults);
  const config = readConfig(environment);
  const port = takeFreePort(config.host, config.port);
  return {
    ...config,
    port,
    database: { ...config.database, url: `file:data/demo-${port}.db` },
    sandboxDatabaseUrl: `file:data/demo-${port}-carrier.db`,
  };
}

/** Known before anything listens: the links in stored matches name it, and nobody's database is taken away. */
function takeFreePort(host: string, port: number): number {
  try {
    const probe = Bun.listen({ hostname: host, port, socket: { data() {} } });
    const taken = probe.port;
    probe.stop(true);
    return taken;
  } catch (error) {
    throw cannotListen(host, port, error);
  }
}

function forgetEarlier({ database, sandboxDatabaseUrl }: Config): void {
  const paths = [database.url, sandboxDatabaseUrl].flatMap((url) => localPath(url) ?? []);
  for (const path of paths) {
    for (const suffix of ['', '-wal', '-shm', '-journal']) rmSync(`${path}${suffix}`, { force: true });
  }
}
