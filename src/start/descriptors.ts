import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';
import type { Log } from '../log';

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
