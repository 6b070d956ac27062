/**
 * The process that keeps an embedded replica's file up to date, started by replica-file.ts. It is one of its own because
 * the driver stands still while it opens or syncs, for seconds when the primary is away, and because it writes lines of
 * its own to standard output.
 */
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import Connection from 'libsql';
import * as v from 'valibot';
import { isBusy } from './errors';
import { type SyncReport, SyncSettings, syncedMark } from './replica-messages';

const lockRetryMs = 200;

// The driver makes files that everybody can read.
process.umask(0o077);

process.once('message', (message) => keepSynced(v.parse(SyncSettings, message)));
process.on('disconnect', () => process.exit(0));
// Ctrl-C reaches the whole group of processes, and the service still reads while it stops.
process.on('SIGINT', () => undefined);

async function keepSynced({ path, intervalMs, ...primary }: SyncSettings): Promise<never> {
  const lock = await untilAlone(`${path}-sync-lock`);
  // What is made anew is not whole.
  if (!existsSync(path)) rmSync(syncedMark(path), { force: true });
  let replica: Connection.Database | undefined;
  for (;;) {
    const startedAtMs = performance.now();
    try {
      replica ??= new Connection(path, primary);
      replica.sync();
      writeFileSync(syncedMark(path), '', { mode: 0o600 });
      report({ kind: 'synced' });
    } catch (error) {
      replica?.close();
      replica = undefined;
      report({ kind: 'failed', reason: failureOf(error) });
    }
    await Bun.sleep(Math.max(1, intervalMs - (performance.now() - startedAtMs)));
    // A connection that nothing refers to is closed.
    if (!lock.open) throw new Error('The lock is gone');
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

function failureOf(error: unknown): SyncReport['reason'] {
  const message = error instanceof Error ? error.message : '';
  if (/Unauthenticated|PermissionDenied|\b40[13]\b/.test(message)) return 'refused';
  return /onnect|Timeout|Unavailable|timed out/.test(message) ? 'primary-away' : 'unknown';
}

function report(outcome: SyncReport): void {
  process.send?.(outcome);
}
