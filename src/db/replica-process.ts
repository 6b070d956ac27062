import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import { packageRoot } from '../package-root';
import { SyncReport, type SyncSettings } from './replica-messages';

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
  readonly authToken?: string | undefined;
  readonly intervalMs: number;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly isPrimaryAnswering: () => Promise<boolean>;
  /** Called when the outcome of syncing is another than before, and each time that the file was made anew. */
  readonly onSyncChange: (report: SyncReport) => void;
}

/**
 * Runs the process that syncs a replica's file, and starts it anew when it ends.
 *
 * `isCurrent` tells whether the file is as new as can be had: it was synced lately, or the primary is away, or another
 * process keeps it. A process that says nothing may stand still because the primary does, so that one is asked.
 */
export function startReplicaProcess(settings: ReplicaProcessSettings): { isCurrent(): boolean; stop(): void } {
  const { path, intervalMs, environment, isPrimaryAnswering, onSyncChange } = settings;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const maxLagMs = Math.max(10 * intervalMs, leastLagMs);
  let lastReport: SyncReport | undefined;
  let reportedAtMs = Number.NEGATIVE_INFINITY;
  let syncedAtMs = Number.NEGATIVE_INFINITY;
  let isPrimaryAway = false;
  let isAsking = false;
  let isStopped = false;
  let syncing: Bun.Subprocess | undefined;

  const isSyncedLately = () => performance.now() - syncedAtMs <= maxLagMs;
  const hear = (report: SyncReport) => {
    const isChange = report.kind !== lastReport?.kind || report.reason !== lastReport.reason;
    lastReport = report;
    reportedAtMs = performance.now();
    if (report.kind === 'synced') syncedAtMs = performance.now();
    if (report.reason === 'made-anew') syncedAtMs = Number.NEGATIVE_INFINITY;
    if (isChange || report.reason === 'made-anew') onSyncChange(report);
  };
  const start = () => {
    if (isStopped) return;
    const onEnd = () => {
      if (isStopped) return;
      hear({ kind: 'failed', reason: 'process-ended' });
      setTimeout(start, watchedEveryMs);
    };
    try {
      syncing = Bun.spawn([process.execPath, '--no-install', syncProgram], {
        // The driver's own lines would stand between those of the log.
        env: { ...Object.fromEntries(passedOn.map((name) => [name, environment[name]])), RUST_LOG: 'off' },
        stdio: ['ignore', 'ignore', 'inherit'],
        ipc: (message) => hear(v.parse(SyncReport, message)),
        onExit: onEnd,
      });
      syncing.send(syncSettings(settings));
    } catch {
      // No process can be had right now.
      onEnd();
    }
  };
  const watch = async () => {
    if (isSyncedLately() || isAsking) return;
    isAsking = true;
    isPrimaryAway = !(await isPrimaryAnswering());
    isAsking = false;
    // Its last word was that all is well, or none.
    if (!isPrimaryAway && !isSyncedLately() && lastReport?.kind === 'synced') {
      hear({ kind: 'failed', reason: 'stands-still' });
    }
  };
  start();
  const watching = setInterval(() => void watch(), watchedEveryMs);

  /** For longer than it takes to ask the primary, once reports stay away. */
  const isExcused = () => {
    const { reason } = lastReport ?? {};
    if (performance.now() - reportedAtMs > 2 * maxLagMs) return false;
    return reason === 'primary-away' || reason === 'held-by-another-process';
  };

  return {
    isCurrent: () => isSyncedLately() || isPrimaryAway || isExcused(),
    stop() {
      isStopped = true;
      clearInterval(watching);
      // It may stand still in a sync for seconds; a replica whose process is killed goes on from where it was.
      syncing?.kill('SIGKILL');
    },
  };
}

function syncSettings({ path, primaryUrl, authToken, intervalMs }: ReplicaProcessSettings): SyncSettings {
  return { path, syncUrl: httpAddress(primaryUrl), intervalMs, ...(authToken === undefined ? {} : { authToken }) };
}

/** Replication speaks http, whichever protocol statements are sent by. */
function httpAddress(url: string): string {
  const { protocol, host, pathname, searchParams } = new URL(url);
  const isPlain = protocol === 'http:' || protocol === 'ws:' || searchParams.get('tls') === '0';
  return `${isPlain ? 'http' : 'https'}://${host}${pathname.replace(/\/$/, '')}`;
}
