import { mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import { currentSecret, type SecretSource } from '../config/secrets';
import { packageRoot } from '../shared/build';
import { encryptionOption } from './encryption';

/** What the process that syncs a replica is told when it starts. */
export const SyncSettings = v.object({
  path: v.string(),
  syncUrl: v.string(),
  authToken: v.optional(v.string()),
  encryptionKey: v.optional(v.string()),
  intervalMs: v.number(),
});
export type SyncSettings = v.InferOutput<typeof SyncSettings>;

/** Why a replica is not brought up to date; 'rebuilt' says that its file could not be continued. */
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

/** The report of each try. */
export const SyncReport = v.object({
  kind: v.picklist(['synced', 'failed']),
  reason: v.optional(v.picklist(replicaFaults)),
});
export type SyncReport = v.InferOutput<typeof SyncReport>;

/**
 * The file that says that a replica has been whole once, and by its time when it was synced last. Until then it holds a
 * part of what the primary has, and a reader that opens it too early leaves behind what the driver refuses as a replica
 * for good.
 */
export function syncMarkerOf(path: string): string {
  return `${path}-synced`;
}

/** Which file has a name now; undefined for none. */
export function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}

/** Its ending is left to Bun: it differs between the sources and the bundle. */
const syncProgram = fileURLToPath(new URL('src/db/replica-sync', packageRoot));
const watchedEveryMs = 1_000;
/** A sync of many changes takes as long without having failed. */
const leastLagMs = 5_000;
/** All that the process needs of the environment; what it must know beside that is sent to it. */
const passedOn = ['PATH', 'HOME', 'TMPDIR', 'SSL_CERT_FILE', 'SSL_CERT_DIR'];

export interface ReplicaProcessSettings {
  readonly path: string;
  readonly primaryUrl: string;
  readonly authToken?: SecretSource;
  readonly encryptionKey?: string | undefined;
  readonly intervalMs: number;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly isPrimaryReachable: () => Promise<boolean>;
  /** Called when the outcome of syncing is another than before, and each time that the file was rebuilt. */
  readonly onSyncChange: (report: SyncReport) => void;
  /** Called each time that it was synced. */
  readonly onSynced?: (() => void) | undefined;
}

/**
 * Runs the process that syncs a replica's file, and restarts it when it ends.
 *
 * `isCurrent` tells whether the file is as new as possible: this process or another one has synced it lately, or the primary
 * is unreachable. A probe of the primary decides that, not the outcome of a sync: a sync can stall because the primary does,
 * and it can fail for a reason of its own.
 */
export function startReplicaProcess(settings: ReplicaProcessSettings): { isCurrent(): boolean; stop(): void } {
  const { path, intervalMs, environment, isPrimaryReachable, onSyncChange } = settings;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const maxLagMs = Math.max(10 * intervalMs, leastLagMs);
  let lastReport: SyncReport | undefined;
  let syncedAtMs = Number.NEGATIVE_INFINITY;
  let primary: 'not-asked' | 'reachable' | 'unreachable' = 'not-asked';
  let isAsking = false;
  let isStopped = false;
  let syncing: Bun.Subprocess | undefined;
  let token: string | undefined;
  let hasOldToken = false;

  const lagMs = () => performance.now() - syncedAtMs;
  const isKeptByAnother = () => {
    if (lastReport?.reason !== 'held-by-another-process') return false;
    const mark = statSync(syncMarkerOf(path), { throwIfNoEntry: false });
    return mark !== undefined && Date.now() - mark.mtimeMs <= maxLagMs;
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
      if (hasOldToken) {
        hasOldToken = false;
        start();
        return;
      }
      receive({ kind: 'failed', reason: 'process-ended' });
      setTimeout(start, watchedEveryMs);
    };
    try {
      syncing = Bun.spawn([process.execPath, '--no-install', '--no-env-file', syncProgram], {
        // The driver's own lines would stand between those of the log.
        env: { ...Object.fromEntries(passedOn.map((name) => [name, environment[name]])), RUST_LOG: 'off' },
        stdio: ['ignore', 'ignore', 'inherit'],
        ipc: (message) => receive(v.parse(SyncReport, message)),
        onExit: onEnd,
      });
      token = currentSecret(settings.authToken);
      syncing.send(syncSettings(settings, token));
    } catch {
      // No process can be had right now.
      onEnd();
    }
  };
  const watch = async () => {
    if (currentSecret(settings.authToken) !== token && !hasOldToken) {
      hasOldToken = true;
      syncing?.kill('SIGKILL');
    }
    // Soon enough that the answer is there when the file would be too old.
    if (lagMs() < maxLagMs - 2 * watchedEveryMs) {
      primary = 'not-asked';
      return;
    }
    if (isAsking) return;
    isAsking = true;
    primary = (await isPrimaryReachable()) ? 'reachable' : 'unreachable';
    isAsking = false;
    // Its last word was that all is well.
    if (primary === 'reachable' && lagMs() > maxLagMs && lastReport?.kind === 'synced') {
      receive({ kind: 'failed', reason: 'stalled' });
    }
  };
  start();
  const watching = setInterval(() => void watch(), watchedEveryMs);

  return {
    isCurrent() {
      if (lagMs() <= maxLagMs || primary === 'unreachable' || isKeptByAnother()) return true;
      return primary === 'not-asked' && (lastReport?.kind === 'synced' || lastReport?.reason === 'primary-unreachable');
    },
    stop() {
      isStopped = true;
      clearInterval(watching);
      // A sync can block it for seconds. A replica whose process was killed continues at its position.
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

/** Replication speaks http, whichever protocol statements are sent by. */
function httpAddress(url: string): string {
  const { protocol, host, pathname, searchParams } = new URL(url);
  const isPlain = protocol === 'http:' || protocol === 'ws:' || searchParams.get('tls') === '0';
  return `${isPlain ? 'http' : 'https'}://${host}${pathname.replace(/\/$/, '')}`;
}
