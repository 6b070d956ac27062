import { existsSync } from 'node:fs';
import { CircuitState, ConsecutiveBreaker, circuitBreaker, handleAll } from 'cockatiel';
import Connection from 'libsql';
import type { Environment } from '../config/validators';
import type { DatabaseObserver } from '../telemetry/events';
import { type Database, type DatabaseSettings, toDatabase } from './client';
import { createStatementCache } from './connection';
import { encryptionOption } from './database-file';
import { DatabaseError, findDatabaseError, toDatabaseError } from './errors';
import { openRemoteClient, type RemoteSettings } from './remote-client';
import { inodeOf, type ReplicaProcessSettings, startReplicaProcess, syncMarkerOf } from './replica-process';
import { requireCompatibleSchema, schemaState } from './schema-check';
import { intercept, observeCalls, type SqlClient } from './sql-client';

/** How long the circuit stays open after a replica server has failed. */
const circuitOpenMs = 1_000;
const maxReplicaTimeoutMs = 500;

/** Reads from a replica with fallback to the primary. Everything else goes to the primary. */
export function readWithFallback(replica: Pick<SqlClient, 'read' | 'close'>, primary: SqlClient): SqlClient {
  return {
    ...primary,
    read: (sql, args) => replica.read(sql, args).catch(() => primary.read(sql, args)),
    close: () => replica.close(),
  };
}

/**
 * Connects to a libSQL server that replicates the primary, behind a circuit breaker. Its deadline is a part of the whole, so
 * that there is time for the fallback.
 *
 * @param onChange called when the circuit opens and when it closes
 */
function openReplicaServer(
  { url, authToken, timeoutMs }: RemoteSettings,
  onChange: (isReachable: boolean) => void,
): SqlClient {
  const client = openRemoteClient({ url, authToken, timeoutMs: Math.min(timeoutMs / 4, maxReplicaTimeoutMs) });
  const breaker = circuitBreaker(handleAll, { halfOpenAfter: circuitOpenMs, breaker: new ConsecutiveBreaker(3) });
  let wasReachable = true;
  breaker.onStateChange((state) => {
    const isReachable = state === CircuitState.Closed;
    if (isReachable !== wasReachable && state !== CircuitState.HalfOpen) onChange(isReachable);
    if (state !== CircuitState.HalfOpen) wasReachable = isReachable;
  });
  return intercept(client, (_, call) => breaker.execute(call));
}

/**
 * Opens an embedded replica: a local file that a child process syncs, read through a connection that cannot write.
 *
 * Reads throw DatabaseError `REPLICA_NOT_READY` before the first complete sync, and while the file is too old.
 */
export function openReplicaFile(settings: ReplicaProcessSettings): SqlClient {
  const { path, encryptionKey } = settings;
  const syncing = startReplicaProcess(settings);
  let reader: Reader | undefined;
  let isClosed = false;

  const closeReader = () => {
    reader?.connection.close();
    reader = undefined;
  };
  const use = (): Reader => {
    if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
    if (!syncing.isCurrent()) throw new DatabaseError('REPLICA_NOT_READY', true);
    // The child process may have rebuilt the file: a connection to the removed one would never see a change.
    if (reader !== undefined && inodeOf(path) !== reader.inode) closeReader();
    if (reader === undefined) {
      if (!existsSync(syncMarkerOf(path)) || !existsSync(path)) throw new DatabaseError('REPLICA_NOT_READY', true);
      reader = openReader(path, encryptionKey);
    }
    return reader;
  };
  const refuse = () => Promise.reject(new TypeError('A replica is read-only'));

  return {
    async read(sql, args) {
      const { statements } = use();
      try {
        return statements.run({ sql, args }, true);
      } catch (error) {
        // After SQLITE_BUSY the driver may return wrong rows (libsql-client-ts#352).
        closeReader();
        throw toDatabaseError(error);
      }
    },
    write: refuse,
    exec: refuse,
    migrate: refuse,
    close() {
      isClosed = true;
      closeReader();
      syncing.stop();
    },
  };
}

interface Reader {
  readonly inode: number | undefined;
  readonly connection: Connection.Database;
  readonly statements: ReturnType<typeof createStatementCache>;
}

function openReader(path: string, encryptionKey: string | undefined): Reader {
  try {
    const inode = inodeOf(path);
    const connection = new Connection(path, { timeout: 0, ...encryptionOption(encryptionKey) });
    connection.exec('PRAGMA query_only = ON');
    return { inode, connection, statements: createStatementCache(connection) };
  } catch (error) {
    throw toDatabaseError(error);
  }
}

/** The schema check, the read from the replica and the deadline of the primary follow one another. */
const maxCheckedReadMs = 800;

type Place =
  | { readonly kind: 'server'; readonly url: string }
  | { readonly kind: 'file'; readonly path: string; readonly intervalMs: number };

interface ReplicaWatch {
  readonly environment: Environment;
  /** Called with the reason when reads stop using the replica, and without one when they use it again. */
  readonly onChange: (reason?: string) => void;
  /** Called after each sync of an embedded replica. */
  readonly onSynced?: () => void;
  readonly observers?: readonly DatabaseObserver[];
}

/**
 * Opens a replica of a libSQL server. Reads fail with DatabaseError while it is unreachable, not ready, a replica of another
 * database, or without the schema of this build.
 */
export function openReplica(
  place: Place,
  { $client: primary }: Database,
  { url, authToken, encryptionKey, timeoutMs }: DatabaseSettings,
  { environment, onChange, onSynced, observers = [] }: ReplicaWatch,
): Database {
  const client =
    place.kind === 'server'
      ? openReplicaServer({ url: place.url, authToken, timeoutMs }, (isReachable) =>
          onChange(isReachable ? undefined : 'replica-unreachable'),
        )
      : openReplicaFile({
          ...place,
          environment,
          primaryUrl: url,
          authToken,
          encryptionKey,
          onSyncChange: ({ reason }) => onChange(reason),
          onSynced,
          isPrimaryReachable: () =>
            schemaState(primary).then(
              () => true,
              (error: unknown) => {
                const failure = findDatabaseError(error);
                // A primary that refuses the token is reachable.
                return failure?.isUnavailable !== true || failure.code === 'TOKEN_REFUSED';
              },
            ),
        });
  const checked = requireCompatibleSchema(client, {
    timeoutMs: Math.min(timeoutMs, maxCheckedReadMs),
    replicaOf: primary,
    onChange,
  });
  return toDatabase(observeCalls(checked, observers));
}

/** Returns a database that reads from the replica with fallback to the primary. */
export function replicaOrPrimary(replica: Database, primary: Database): Database {
  return toDatabase(readWithFallback(replica.$client, primary.$client));
}
