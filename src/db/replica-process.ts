import { mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import { currentSecret, type SecretSource } from '../config/secrets';
import type { Environment } from '../config/validators';
import { packageRoot } from '../shared/build';
import { encryptionOption } from './database-file';

/** The first message to the child process. */
export const SyncSettings = v.object({
  path: v.string(),
  syncUrl: v.string(),
  authToken: v.optional(v.string()),
  encryptionKey: v.optional(v.string()),
  intervalMs: v.number(),
});
export type SyncSettings = v.InferOutput<typeof SyncSettings>;

/** Why a sync failed; `rebuilt` means that the file was unusable and is created again. */
const replicaFaults = [
  'primary-unreachable',
  'refused',
  'held-by-another-process',
  'rebuilt',
  'not-a-replica',
  'not-encrypted',
  'stalled',
  'process-ended',
  'unknown',
] as const;

/** The child process reports each sync. */
export const SyncReport = v.object({
  kind: v.picklist(['synced', 'failed']),
  reason: v.optional(v.picklist(replicaFaults)),
});
export type SyncReport = v.InferOutput<typeof SyncReport>;

/**
 * Returns the path of the sync marker. It exists after the first complete sync, and its mtime is the time of the last one.
 * A reader must not open the replica before: it would create files with which the driver rejects the replica permanently.
 */
export function syncMarkerOf(path: string): string {
  return `${path}-synced`;
}

/** Returns the inode of a file; undefined if it does not exist. */
export function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}

/** Without extension, which differs between the sources and the bundle. */
const syncProgram = fileURLToPath(new URL('src/db/replica-sync', packageRoot));
const watchIntervalMs = 1_000;
/** The duration of a sync of many changes. */
const defaultMinLagMs = 5_000;
/** The environment of the child process; a message has its settings. */
const passedVariables = ['PATH', 'HOME', 'TMPDIR', 'SSL_CERT_FILE', 'SSL_CERT_DIR'];

export interface ReplicaProcessSettings {
  readonly path: string;
  readonly primaryUrl: string;
  readonly authToken?: SecretSource;
  readonly encryptionKey?: string | undefined;
  readonly intervalMs: number;
  /** The file counts as too old after this time without a sync, or after ten intervals if they are longer. */
  readonly minLagMs?: number;
  readonly environment: Environment;
  readonly isPrimaryReachable: () => Promise<boolean>;
  /** Called when the outcome of a sync differs from the previous one, and each time that the file is rebuilt. */
  readonly onSyncChange: (report: SyncReport) => void;
  /** Called after each sync. */
  readonly onSynced?: (() => void) | undefined;
}

/**
 * Runs the child process that syncs the file of a replica, and restarts it when it exits.
 *
 * `isCurrent` returns whether the file is as new as possible: a process synced it recently, or the primary is unreachable. A
 * probe decides whether the primary is reachable, because a sync can stall or fail for other reasons.
 */
export function startReplicaProcess(settings: ReplicaProcessSettings): { isCurrent(): boolean; stop(): void } {
  const { path, intervalMs, minLagMs = defaultMinLagMs, environment, isPrimaryReachable, onSyncChange } = settings;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const maxLagMs = Math.max(10 * intervalMs, minLagMs);
  let lastReport: SyncReport | undefined;
  let syncedAtMs = Number.NEGATIVE_INFINITY;
  let primary: 'unknown' | 'reachable' | 'unreachable' = 'unknown';
  let isProbing = false;
  let isStopped = false;
  let syncing: Bun.Subprocess | undefined;
  let token: string | undefined;
  let hasStaleToken = false;

  const lagMs = () => performance.now() - syncedAtMs;
  const isSyncedByAnother = () => {
    if (lastReport?.reason !== 'held-by-another-process') return false;
    const marker = statSync(syncMarkerOf(path), { throwIfNoEntry: false });
    return marker !== undefined && Date.now() - marker.mtimeMs <= maxLagMs;
  };
  const receive = (report: SyncReport) => {
    const isChange = report.kind !== lastReport?.kind || report.reason !== lastReport.reason;
    lastReport = report;
    if (report.kind === 'synced') {
      syncedAtMs = performance.now();
      settings.onSynced?.();
    }
    if (report.reason === 'rebuilt') syncedAtMs = Number.NEGATIVE_INFINITY;
    if (isChange || report.reason === 'rebuilt') onSyncChange(report);
  };
  const start = () => {
    if (isStopped) return;
    const onEnd = () => {
      if (isStopped) return;
      if (hasStaleToken) {
        hasStaleToken = false;
        start();
        return;
      }
      receive({ kind: 'failed', reason: 'process-ended' });
      setTimeout(start, watchIntervalMs);
    };
    try {
      syncing = Bun.spawn([process.execPath, '--no-install', '--no-env-file', syncProgram], {
        // The driver must not write its own lines into the log.
        env: { ...Object.fromEntries(passedVariables.map((name) => [name, environment[name]])), RUST_LOG: 'off' },
        stdio: ['ignore', 'ignore', 'inherit'],
        ipc: (message) => receive(v.parse(SyncReport, message)),
        onExit: onEnd,
      });
      token = currentSecret(settings.authToken);
      syncing.send(syncSettings(settings, token));
    } catch {
      // The system cannot start a process now.
      onEnd();
    }
  };
  const watch = async () => {
    if (currentSecret(settings.authToken) !== token && !hasStaleToken) {
      hasStaleToken = true;
      syncing?.kill('SIGKILL');
    }
    // Early enough that the result is known before the file is too old.
    if (lagMs() < maxLagMs - 2 * watchIntervalMs) {
      primary = 'unknown';
      return;
    }
    if (isProbing) return;
    isProbing = true;
    primary = (await isPrimaryReachable()) ? 'reachable' : 'unreachable';
    isProbing = false;
    // The last report was a success, and no report has followed.
    if (primary === 'reachable' && lagMs() > maxLagMs && lastReport?.kind === 'synced') {
      receive({ kind: 'failed', reason: 'stalled' });
    }
  };
  start();
  const watching = setInterval(() => void watch(), watchIntervalMs);

  return {
    isCurrent() {
      if (lagMs() <= maxLagMs || primary === 'unreachable' || isSyncedByAnother()) return true;
      return primary === 'unknown' && (lastReport?.kind === 'synced' || lastReport?.reason === 'primary-unreachable');
    },
    stop() {
      isStopped = true;
      clearInterval(watching);
      // A sync can block the process for seconds. The next sync continues where this one was killed.
      syncing?.kill('SIGKILL');
    },
  };
}

function syncSettings(settings: ReplicaProcessSettings, authToken: string | undefined): SyncSettings {
  const { path, primaryUrl, encryptionKey, intervalMs } = settings;
  return {
    path,
    syncUrl: httpAddress(primaryUrl),
    intervalMs,
    ...(authToken === undefined ? {} : { authToken }),
    ...encryptionOption(encryptionKey),
  };
}

/** Replication uses http for every scheme of DATABASE_URL. */
function httpAddress(url: string): string {
  const { protocol, host, pathname, searchParams } = new URL(url);
  const isPlain = protocol === 'http:' || protocol === 'ws:' || searchParams.get('tls') === '0';
  return `${isPlain ? 'http' : 'https'}://${host}${pathname.replace(/\/$/, '')}`;
}
