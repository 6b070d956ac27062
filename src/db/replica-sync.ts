import { existsSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import Connection from 'libsql';
import * as v from 'valibot';
import { describeError } from '../log';
import { listedFields } from '../log-fields';
import { isBusy } from './errors';
import { inodeOf, type SyncReport, SyncSettings, syncMarkerOf } from './replica-process';

/**
 * The child process that syncs the file of an embedded replica, started by replica-process.ts. It is a process because the
 * driver blocks while it opens or syncs, for seconds if the primary is unreachable, and writes to standard output.
 */

const lockRetryMs = 200;

// The driver would create files that all users can read.
process.umask(0o077);

// The runtime would print the whole error, which may contain the token of the primary.
process.on('uncaughtException', (error) => {
  process.stderr.write(`Syncing has failed: ${JSON.stringify(listedFields(describeError(error)))}\n`);
  process.exit(1);
});
process.once('message', (message) => keepSynced(v.parse(SyncSettings, message)));
process.on('disconnect', () => process.exit(0));
// Ctrl-C reaches the whole process group, and the service still reads the replica while it stops.
for (const signal of ['SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const) {
  process.on(signal, () => undefined);
}

async function keepSynced({ path, intervalMs, ...primary }: SyncSettings): Promise<never> {
  const lock = await lockReplica(`${path}-sync-lock`);
  // An interrupted rebuild left an incomplete file.
  if (isReplica(path) && !isComplete(path)) removeReplica(path);
  let replica: Connection.Database | undefined;
  let opened: number | undefined;
  let isChecked = false;
  /** If the file is removed, the driver creates an empty one and continues. */
  const isGone = () => opened !== undefined && (!isComplete(path) || inodeOf(path) !== opened);
  for (;;) {
    const startedAtMs = performance.now();
    try {
      replica ??= new Connection(path, primary);
      opened ??= inodeOf(path);
      if (primary.encryptionKey !== undefined && !isChecked) rejectPlain(path);
      replica.sync();
      if (isGone()) throw new Error('The replica was removed');
      if (primary.encryptionKey !== undefined && !isChecked) rejectPlain(path);
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
    // Keeps a reference: the garbage collector would close the connection, and with it release the lock.
    if (!lock.open) throw new Error('The lock is gone');
  }
}

/** Whether the file and the driver's metadata exist; a replica needs both. */
function isComplete(path: string): boolean {
  return existsSync(path) && existsSync(`${path}-client_wal_index`);
}

/** Whether the path is free or has a replica that this program created, not the database of another program. */
function isReplica(path: string): boolean {
  return !existsSync(path) || existsSync(syncMarkerOf(path)) || existsSync(`${path}-client_wal_index`);
}

/** Removes a replica that this process opened, and quarantines any other file under another name. */
function removeReplica(path: string, opened?: number): void {
  rmSync(syncMarkerOf(path), { force: true });
  for (const metadata of ['client_wal_index', 'info']) rmSync(`${path}-${metadata}`, { force: true });
  const isOwn = opened !== undefined && inodeOf(path) === opened;
  const quarantined = `${path}.set-aside-${Date.now()}`;
  for (const ending of ['', '-wal', '-shm']) {
    if (isOwn) rmSync(`${path}${ending}`, { force: true });
    else if (existsSync(`${path}${ending}`)) renameSync(`${path}${ending}`, `${quarantined}${ending}`);
  }
}

/** Takes the file lock: two processes that sync one replica would destroy it. The lock ends with the process. */
async function lockReplica(lockPath: string): Promise<Connection.Database> {
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
 * Throws if the replica is not encrypted although there is a key: the driver silently ignores the key for the data of some
 * servers (libsql#2165), or the file is older than the key. Does not open the database of another program.
 */
function rejectPlain(path: string): void {
  if (!(isComplete(path) || existsSync(`${path}-info`)) || statSync(path).size === 0) return;
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

/** The driver reports these failures by message only. */
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
