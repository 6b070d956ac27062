import { existsSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import Connection from 'libsql';
import * as v from 'valibot';
import { describeError } from '../log';
import { listedFields } from '../log-fields';
import { isBusy } from './errors';
import { inodeOf, type SyncReport, SyncSettings, syncMarkerOf } from './replica-process';

/**
 * The process that keeps an embedded replica's file up to date, started by replica-file.ts. It is one of its own because
 * the driver blocks while it opens or syncs, for seconds when the primary is unreachable, and because it writes lines of
 * its own to standard output.
 */

const lockRetryMs = 200;

// The driver makes files that everybody can read.
process.umask(0o077);

// Left to the runtime, an error is shown whole, and may hold the token of the primary.
process.on('uncaughtException', (error) => {
  process.stderr.write(`Syncing has failed: ${JSON.stringify(listedFields(describeError(error)))}\n`);
  process.exit(1);
});
process.once('message', (message) => keepSynced(v.parse(SyncSettings, message)));
process.on('disconnect', () => process.exit(0));
// Ctrl-C reaches the whole group of processes, and the service still reads while it stops.
for (const signal of ['SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const) {
  process.on(signal, () => undefined);
}

async function keepSynced({ path, intervalMs, ...primary }: SyncSettings): Promise<never> {
  const lock = await untilAlone(`${path}-sync-lock`);
  // A file that is being rebuilt is not whole.
  if (isReplica(path) && !isThere(path)) removeReplica(path);
  let replica: Connection.Database | undefined;
  let opened: number | undefined;
  let isChecked = false;
  /** The driver makes an empty file in the place of one that is gone, and goes on. */
  const isGone = () => opened !== undefined && (!isThere(path) || inodeOf(path) !== opened);
  for (;;) {
    const startedAtMs = performance.now();
    try {
      replica ??= new Connection(path, primary);
      opened ??= inodeOf(path);
      if (primary.encryptionKey !== undefined && !isChecked) refusePlain(path);
      replica.sync();
      if (isGone()) throw new Error('The replica was removed');
      if (primary.encryptionKey !== undefined && !isChecked) refusePlain(path);
      isChecked = true;
      writeFileSync(syncMarkerOf(path), '', { mode: 0o600 });
      report({ kind: 'synced' });
    } catch (error) {
      const isPlain = error instanceof PlainReplicaError;
      const reason = isPlain ? 'not-encrypted' : isGone() ? 'rebuilt' : failureOf(error);
      replica?.close();
      replica = undefined;
      const isOurs = opened !== undefined || isReplica(path);
      if ((reason === 'rebuilt' || isPlain) && isOurs) removeReplica(path, opened);
      opened = undefined;
      isChecked = false;
      report({ kind: 'failed', reason: isOurs ? reason : 'not-a-replica' });
    }
    await Bun.sleep(Math.max(1, intervalMs - (performance.now() - startedAtMs)));
    // A connection that nothing refers to is closed.
    if (!lock.open) throw new Error('The lock is gone');
  }
}

/** Whether the file and the driver's own note about it are there; one is no replica without the other. */
function isThere(path: string): boolean {
  return existsSync(path) && existsSync(`${path}-client_wal_index`);
}

/** Whether what lies there, if anything does, is what this program has made: never somebody's database. */
function isReplica(path: string): boolean {
  return !existsSync(path) || existsSync(syncMarkerOf(path)) || existsSync(`${path}-client_wal_index`);
}

/** What is not known to be a copy of the primary's, whoever has put it there, is kept under another name. */
function removeReplica(path: string, opened?: number): void {
  rmSync(syncMarkerOf(path), { force: true });
  for (const note of ['client_wal_index', 'info']) rmSync(`${path}-${note}`, { force: true });
  const isOwn = opened !== undefined && inodeOf(path) === opened;
  const aside = `${path}.set-aside-${Date.now()}`;
  for (const ending of ['', '-wal', '-shm']) {
    if (isOwn) rmSync(`${path}${ending}`, { force: true });
    else if (existsSync(`${path}${ending}`)) renameSync(`${path}${ending}`, `${aside}${ending}`);
  }
}

/** Two that write to one replica would destroy it. The lock ends with this process, however that ends. */
async function untilAlone(lockPath: string): Promise<Connection.Database> {
  for (;;) {
    try {
      const lock = new Connection(lockPath, { timeout: 0 });
      lock.exec('BEGIN EXCLUSIVE');
      return lock;
    } catch (error) {
      report({ kind: 'failed', reason: isBusy(error) ? 'held-by-another-process' : 'unknown' });
      await Bun.sleep(lockRetryMs);
    }
  }
}

class PlainReplicaError extends Error {
  override readonly name = 'PlainReplicaError';
}

/**
 * Of what some servers send, the driver makes a file without the key, and says nothing (libsql#2165). One that was made
 * before there was a key is plain too. Only of a replica: somebody's own database is left alone.
 */
function refusePlain(path: string): void {
  if (!(isThere(path) || existsSync(`${path}-info`)) || statSync(path).size === 0) return;
  let connection: Connection.Database | undefined;
  try {
    connection = new Connection(path, { timeout: 0 });
    connection.prepare('SELECT count(*) FROM sqlite_schema').all();
  } catch {
    return;
  } finally {
    connection?.close();
  }
  throw new PlainReplicaError();
}

/** The driver has no codes for it. */
function failureOf(error: unknown): SyncReport['reason'] {
  const message = error instanceof Error ? error.message : '';
  if (/delete the database|not a database|malformed/.test(message)) return 'rebuilt';
  if (/Unauthenticated|PermissionDenied|\b40[13]\b/.test(message)) return 'refused';
  return /HandshakeTimeout|trying to connect|tcp connect|ConnectError|Unavailable|timed out/.test(message)
    ? 'primary-unreachable'
    : 'unknown';
}

function report(outcome: SyncReport): void {
  process.send?.(outcome);
}
