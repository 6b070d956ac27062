import type { Client, InArgs, InStatement } from '@libsql/client';
import { findDatabaseError } from './errors';
import { kindOf, toStatement } from './statement';
import { wrapClient } from './wrap-client';

const describe = <Reason extends string, Remedy extends string>(reason: Reason, remedy: Remedy) => ({
  reason,
  remedy,
  line: `the database takes no writes: ${reason}. ${remedy}` as const,
});
const serverIsAway = describe('its server cannot be reached', 'Start the server, or check the network.');

const writeFaults = {
  SQLITE_FULL: describe('its disk is full', 'Free space on the disk.'),
  SQLITE_BUSY: describe('another process holds the write lock', 'Wait for that process, or stop it.'),
  SQLITE_READONLY: describe('its file or its disk is read-only', 'Make both writable.'),
  SQLITE_CANTOPEN: describe('its file or its log cannot be opened', 'Check their owner and mode.'),
  SQLITE_IOERR: describe('its disk fails to read or write', 'Check the disk.'),
  DEADLINE_EXCEEDED: describe('no row could be written within DATABASE_TIMEOUT_MS', 'Check its load and its disk.'),
  ECONNREFUSED: serverIsAway,
  ECONNRESET: serverIsAway,
  ENOTFOUND: serverIsAway,
  ConnectionRefused: serverIsAway,
  ConnectionClosed: serverIsAway,
  FailedToOpenSocket: serverIsAway,
  HRANA_WEBSOCKET_ERROR: describe(
    'its server closes the connection',
    'Check the server, and that DATABASE_AUTH_TOKEN may write.',
  ),
} as const;

/** Why no row can be written, what an operator can do, and the line that the log has for it. */
export function describeWriteFault(code: string) {
  return isWriteFault(code) ? writeFaults[code] : undefined;
}

function isWriteFault(code: string): code is keyof typeof writeFaults {
  return Object.hasOwn(writeFaults, code);
}

/** A database that writes again counts as available once no write has failed for this time. */
const recoveredAfterMs = 1_000;

/**
 * Returns the client and reports when its writes begin to fail, with the code, and when they work again.
 *
 * A write that is refused for itself does not count, nor does one beyond what the database can take.
 */
export function watchWrites(client: Client, onChange: (code?: string) => void): Client {
  let isFailing = false;
  let failedAtMs = 0;
  const watch = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      const result = await work();
      if (isFailing && performance.now() - failedAtMs > recoveredAfterMs) {
        isFailing = false;
        onChange();
      }
      return result;
    } catch (error) {
      const code = findDatabaseError(error)?.code;
      if (code === undefined || describeWriteFault(code) === undefined) throw error;
      failedAtMs = performance.now();
      if (!isFailing) onChange(code);
      isFailing = true;
      throw error;
    }
  };
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      const run = () => client.execute(whole);
      return kindOf(whole) === 'write' ? watch(run) : run();
    },
    batch: (statements, mode) => {
      const run = () => client.batch(statements, mode);
      return mode === 'read' ? run() : watch(run);
    },
  });
}
