import { existsSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Client, InArgs, InStatement, ResultSet } from '@libsql/client';
import Connection from 'libsql';
import * as v from 'valibot';
import { packageRoot } from '../package-root';
import { DatabaseError, toDatabaseError } from './errors';
import { createStatementCache } from './kept-statements';
import { SyncReport, type SyncSettings, syncedMark } from './replica-messages';
import { kindOf, toStatement } from './statement';

/** Its ending is left to Bun: it differs between the sources and the bundle. */
const syncProgram = fileURLToPath(new URL('src/db/replica-sync', packageRoot));
const restartMs = 1_000;

export interface ReplicaFileSettings {
  readonly path: string;
  readonly primaryUrl: string;
  readonly authToken?: string | undefined;
  readonly intervalMs: number;
  /** Of the process that syncs. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Called when the outcome of syncing is another than before. */
  readonly onSyncChange: (report: SyncReport) => void;
}

/**
 * An embedded replica: a file beside this process that a process of its own keeps up to date, and that is read here
 * through a connection that cannot write.
 *
 * Reads throw DatabaseError `REPLICA_NOT_READY` until the file has been whole once, and until it has been synced in this
 * run or the primary is known to be away: before, what it holds may be as old as the last run.
 */
export function openReplicaFile({ onSyncChange, environment, ...settings }: ReplicaFileSettings): Client {
  const { path } = settings;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  let lastReport: SyncReport | undefined;
  let isAsNewAsCanBe = false;
  let reader: Reader | undefined;
  let isClosed = false;
  let syncing: Bun.Subprocess | undefined;

  const hear = (message: unknown) => {
    const report = v.parse(SyncReport, message);
    const isChange = report.kind !== lastReport?.kind || report.reason !== lastReport.reason;
    lastReport = report;
    isAsNewAsCanBe ||=
      report.kind === 'synced' || report.reason === 'primary-away' || report.reason === 'held-by-another-process';
    if (isChange) onSyncChange(report);
  };
  const startSyncing = () => {
    if (isClosed) return;
    syncing = Bun.spawn([process.execPath, '--no-install', syncProgram], {
      // The driver's own lines would stand between those of the log.
      env: { ...environment, RUST_LOG: 'off' },
      stdio: ['ignore', 'ignore', 'inherit'],
      ipc: hear,
      onExit: () => {
        if (isClosed) return;
        hear({ kind: 'failed', reason: 'process-ended' });
        setTimeout(startSyncing, restartMs);
      },
    });
    syncing.send(syncSettings(settings));
  };
  startSyncing();

  const read = (statement: InStatement): ResultSet => {
    if (kindOf(statement) !== 'read') throw new TypeError('A replica is only read');
    if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
    if (reader === undefined) {
      if (!isAsNewAsCanBe || !existsSync(syncedMark(path)) || !existsSync(path)) {
        throw new DatabaseError('REPLICA_NOT_READY', true);
      }
      reader = openReader(path);
    }
    try {
      return reader.statements.run(statement, true);
    } catch (error) {
      // After a lock, what the connection says next may be wrong (local-client.ts).
      reader.connection.close();
      reader = undefined;
      throw toDatabaseError(error);
    }
  };
  const refuse = () => Promise.reject(new TypeError('A replica is only read'));

  return {
    execute: async (statement: InStatement, args?: InArgs) => read(toStatement(statement, args)),
    batch: refuse,
    executeMultiple: refuse,
    migrate: refuse,
    transaction: refuse,
    sync: refuse,
    reconnect: () => undefined,
    close() {
      isClosed = true;
      // It may stand still in a sync for seconds; a replica whose process is killed goes on from where it was.
      syncing?.kill('SIGKILL');
    },
    get closed() {
      return isClosed;
    },
    protocol: 'file',
  };
}

interface Reader {
  readonly connection: Connection.Database;
  readonly statements: ReturnType<typeof createStatementCache>;
}

function openReader(path: string): Reader {
  try {
    const connection = new Connection(path, { timeout: 0 });
    connection.exec('PRAGMA query_only = ON');
    return { connection, statements: createStatementCache(connection) };
  } catch (error) {
    throw toDatabaseError(error);
  }
}

function syncSettings({
  path,
  primaryUrl,
  authToken,
  intervalMs,
}: Omit<ReplicaFileSettings, 'environment' | 'onSyncChange'>): SyncSettings {
  return { path, syncUrl: httpAddress(primaryUrl), intervalMs, ...(authToken === undefined ? {} : { authToken }) };
}

/** Replication speaks http, whichever protocol statements are sent by. */
function httpAddress(url: string): string {
  const { protocol, host, pathname, searchParams } = new URL(url);
  const isPlain = protocol === 'http:' || protocol === 'ws:' || searchParams.get('tls') === '0';
  return `${isPlain ? 'http' : 'https'}://${host}${pathname.replace(/\/$/, '')}`;
}
