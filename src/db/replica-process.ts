import { mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import { packageRoot } from '../package-root';
import { encryptionOption } from './encryption';
import type { TokenSource } from './remote-client';
import { SyncReport, type SyncSettings, syncedMark } from './replica-messages';

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
  readonly authToken?: TokenSource;
  readonly encryptionKey?: string | undefined;
  readonly intervalMs: number;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly isPrimaryAnswering: () => Promise<boolean>;
  /** Called when the outcome of syncing is another than before, and each time that the file was made anew. */
  readonly onSyncChange: (report: SyncReport) => void;
  /** Called each time that it was synced. */
  readonly onSynced?: (() => void) | undefined;
}

/**
 * Runs the process that syncs a replica's file, and starts it anew when it ends.
 *
 * `isCurrent` tells whether the file is as new as can be had: it was synced lately, by this process or another that keeps
 * it, or the primary is away. Of that, what the primary answers when it is asked counts more than what a sync says: one
 * that says nothing may stand still because the primary does, and one that fails may do so for a reason of its own.
 */
export function startReplicaProcess(settings: ReplicaProcessSettings): { isCurrent(): boolean; stop(): void } {
  const { path, intervalMs, environment, isPrimaryAnswering, onSyncChange } = settings;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const maxLagMs = Math.max(10 * intervalMs, leastLagMs);
  let lastReport: SyncReport | undefined;
  let syncedAtMs = Number.NEGATIVE_INFINITY;
  let primary: 'not-asked' | 'there' | 'away' = 'not-asked';
  let isAsking = false;
  let isStopped = false;
  let syncing: Bun.Subprocess | undefined;
  let token: string | undefined;
  let hasOldToken = false;

  const lagMs = () => performance.now() - syncedAtMs;
  const isKeptByAnother = () => {
    if (lastReport?.reason !== 'held-by-another-process') return false;
    const mark = statSync(syncedMark(path), { throwIfNoEntry: false });
    return mark !== undefined && Date.now() - mark.mtimeMs <= maxLagMs;
  };
  const hear = (report: SyncReport) => {
    const isChange = report.kind !== lastReport?.kind || report.reason !== lastReport.reason;
    lastReport = report;
    if (report.kind === 'synced') {
      syncedAtMs = performance.now();
      settings.onSynced?.();
    }
    if (report.reason === 'made-anew') syncedAtMs = Number.NEGATIVE_INFINITY;
    if (isChange || report.reason === 'made-anew') onSyncChange(report);
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
      hear({ kind: 'failed', reason: 'process-ended' });
      setTimeout(start, watchedEveryMs);
    };
    try {
      syncing = Bun.spawn([process.execPath, '--no-install', '--no-env-file', syncProgram], {
        // The driver's own lines would stand between those of the log.
        env: { ...Object.fromEntries(passedOn.map((name) => [name, environment[name]])), RUST_LOG: 'off' },
        stdio: ['ignore', 'ignore', 'inherit'],
        ipc: (message) => hear(v.parse(SyncReport, message)),
        onExit: onEnd,
      });
      token = currentToken(settings.authToken);
      syncing.send(syncSettings(settings, token));
    } catch {
      // No process can be had right now.
      onEnd();
    }
  };
  const watch = async () => {
    if (currentToken(settings.authToken) !== token && !hasOldToken) {
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
    primary = (await isPrimaryAnswering()) ? 'there' : 'away';
    isAsking = false;
    // Its last word was that all is well.
    if (primary === 'there' && lagMs() > maxLagMs && lastReport?.kind === 'synced') {
      hear({ kind: 'failed', reason: 'stands-still' });
    }
  };
  start();
  const watching = setInterval(() => void watch(), watchedEveryMs);

  return {
    isCurrent() {
      if (lagMs() <= maxLagMs || primary === 'away' || isKeptByAnother()) return true;
      return primary === 'not-asked' && (lastReport?.kind === 'synced' || lastReport?.reason === 'primary-away');
    },
    stop() {
      isStopped = true;
      clearInterval(watching);
      // It may stand still in a sync for seconds; a replica whose process is killed goes on from where it was.
      syncing?.kill('SIGKILL');
    },
  };
}

function currentToken(source: TokenSource): string | undefined {
  return typeof source === 'function' ? source() : source;
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
