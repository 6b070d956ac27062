import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';
import type { SettingSources } from '../config/env-files';
import type { Config } from '../config/settings';
import { placeOf } from '../db/client';
import { errorCode, OperatorError } from '../errors';
import { isLoopbackName } from '../http/rate-limits';
import type { Log } from '../log';
import { buildIdentity, commandName } from '../shared/build';
import { describeZone } from '../shared/calendar';
import type { StoredTokens } from './services';

const remedies: Readonly<Record<string, string>> = {
  EADDRINUSE: ' Another program does; set PORT to a free one.',
  EADDRNOTAVAIL: ' This machine does not have that address; set HOST to one that it has.',
  EACCES: ' This user may not use that port; set PORT to another one.',
};

/**
 * Checks that the service can listen, and returns the port; 0 gets a free one.
 *
 * @throws OperatorError
 */
export function findFreePort(host: string, port: number): number {
  try {
    const probe = Bun.listen({ hostname: host, port, socket: { data() {} } });
    const found = probe.port;
    probe.stop(true);
    return found;
  } catch (error) {
    throw cannotListen(host, port, error);
  }
}

export function addressOf(host: string, port: number): string {
  return `http://${withBrackets(host)}:${port}`;
}

export function cannotListen(host: string, port: number, error: unknown): OperatorError {
  const code = errorCode(error);
  return new OperatorError(
    `The service cannot listen on ${withBrackets(host)}:${port} (${code}).${remedies[code] ?? ''}`,
  );
}

function withBrackets(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

const checkIntervalMs = 2_000;

/**
 * Logs once when the process has no free file descriptor, and once when it has one again. Bun does not report a failed
 * accept and retries at once.
 */
export function watchDescriptors(log: Pick<Log, 'error' | 'info'>): void {
  let isOut = false;
  setInterval(() => {
    const code = descriptorFault();
    if ((code !== undefined) === isOut) return;
    isOut = code !== undefined;
    if (code === undefined) log.info('file descriptors are free again');
    else log.error({ code }, 'no file descriptor is free: new connections wait until one is');
  }, checkIntervalMs).unref();
}

function descriptorFault(): string | undefined {
  try {
    closeSync(openSync(devNull, 'r'));
    return undefined;
  } catch (error) {
    const code = errorCode(error);
    return code === 'EMFILE' || code === 'ENFILE' ? code : undefined;
  }
}

export interface DemoNotice {
  /** The instant at which --now freezes the clock. */
  readonly frozenAt: Date | undefined;
  /** The last names for which the sandbox carrier fails. */
  readonly failingNames: readonly string[];
}

interface Started {
  readonly config: Config;
  readonly sources: SettingSources;
  readonly tokens: StoredTokens | undefined;
  readonly demo: DemoNotice | undefined;
}

interface Announcing {
  readonly log: Log;
  readonly print: (text: string) => void;
}

/** Prints the addresses and a first request for a terminal. In production, writes one log line. */
export function announce(address: string, { log, print, ...started }: Started & Announcing): void {
  const { config } = started;
  if (!config.isProduction) {
    print(announcement(address, started));
    return;
  }
  const docs = `${config.publicUrl ?? address}/swagger`;
  const timeZone = describeZone(config.reportTimeZone, new Date());
  log.info({ address, docs, database: placeOf(config.database.url), timeZone, ...buildIdentity }, 'listening');
}

/** The addresses and a first request, for a terminal. */
export function announcement(address: string, { config, sources, tokens, demo }: Started): string {
  const base = config.publicUrl ?? address;
  const timeZone = describeZone(config.reportTimeZone, new Date());
  const hint = config.auth.key.kind === 'secret' ? `${commandName} token --sub NAME signs one` : 'of your issuer';
  const token = tokens?.tokens['demo-user'] ?? '<token>';
  // The demo page requires a loopback name, and 0.0.0.0 is not one.
  const ownAddress = address.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
  const hasPage = tokens !== undefined && isLoopbackName(new URL(ownAddress).hostname);
  const page = hasPage ? `  page     ${ownAddress}/\n` : '';
  return `
Personal planning service
  address  ${base}
${page}  docs     ${config.publicUrl ?? ownAddress}/swagger
  data     ${placeOf(config.database.url)}
  tokens   ${tokens?.path ?? hint}
  mode     ${sources.mode}, with settings from the environment${sources.files.map((file) => ` and ${file}`).join('')}
${config.reportTimeZone === 'UTC' ? '' : `  months   ${timeZone}\n`}${demo === undefined ? '' : demoLines(demo)}
Try it:
  curl ${base}/v2/private/healthAndCare/ -H 'Authorization: Bearer ${token}'

`;
}

function demoLines({ frozenAt, failingNames }: DemoNotice): string {
  const clock = frozenAt === undefined ? '' : ` The clock is frozen at ${frozenAt.toISOString()}.`;
  return `
Demo data, created again by each start with --demo. A start without --demo serves your data.${clock}
The carrier fails for the last names ${failingNames.join(', ')}.
`;
}
