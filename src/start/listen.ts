import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';
import { errorCode, OperatorError } from '../errors';
import type { Log } from '../log';

const remedies: Readonly<Record<string, string>> = {
  EADDRINUSE: ' Another program does; set PORT to a free one.',
  EADDRNOTAVAIL: ' This machine does not have that address; set HOST to one that it has.',
  EACCES: ' This user may not use that port; set PORT to another one.',
};

/**
 * Checks that the service can listen, and returns the port: a free one for 0. Without `reusePort`, a port is taken even if
 * the other program shares it.
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

const everyMs = 2_000;

/**
 * Logs once when the process has no free file descriptor, and once when it has one again. Bun does not report a failed
 * accept and retries at once.
 */
export function watchDescriptors(log: Pick<Log, 'error' | 'info'>): void {
  let isOut = false;
  setInterval(() => {
    const code = failureOfOpening();
    if ((code !== undefined) === isOut) return;
    isOut = code !== undefined;
    if (code === undefined) log.info('file descriptors are free again');
    else log.error({ code }, 'no file descriptor is free: new connections wait until one is');
  }, everyMs).unref();
}

function failureOfOpening(): string | undefined {
  try {
    closeSync(openSync(devNull, 'r'));
    return undefined;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    return code === 'EMFILE' || code === 'ENFILE' ? code : undefined;
  }
}
