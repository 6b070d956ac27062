import { existsSync } from 'node:fs';
import type { Client, InArgs, InStatement, ResultSet } from '@libsql/client';
import { CircuitState, ConsecutiveBreaker, circuitBreaker, handleAll } from 'cockatiel';
import { drizzle } from 'drizzle-orm/libsql/sqlite3';
import Connection from 'libsql';
import type { DatabaseObserver } from '../telemetry/events';
import type { Database, DatabaseSettings } from './client';
import { createStatementCache } from './connection';
import { encryptionOption } from './encryption';
import { DatabaseError, findDatabaseError, toDatabaseError } from './errors';
import { kindOf, observeClient, toStatement, wrapClient } from './layers';
import { openRemoteClient, type RemoteSettings } from './remote-client';
import { inodeOf, type ReplicaProcessSettings, startReplicaProcess, syncedMark } from './replica-process';
import { gateBySchema, schemaFit } from './schema-gate';

/** How long a replica that has failed is left alone. */
const leftAloneMs = 1_000;
const maxPatienceMs = 500;

/** Reads from a replica, and from the primary whatever the replica cannot answer. */
export function readThrough(replica: Client, primary: Client): Client {
  return wrapClient(primary, {
    execute: async (statement: InStatement, args?: InArgs) => {
      const whole = toStatement(statement, args);
      // A replica server hands writes on: one whose outcome is unknown would be sent twice.
      if (kindOf(whole) !== 'read') return primary.execute(whole);
      try {
        return await replica.execute(whole);
      } catch {
        return primary.execute(whole);
      }
    },
    close: () => replica.close(),
  });
}

/**
 * A libSQL server that replicates another. It gets a part of the deadline, so that the primary can still be asked, and
 * is left alone for a while when it fails.
 *
 * @param onChange called when it is left alone, and when it answers again
 */
export function openReplicaServer(
  { url, authToken, timeoutMs }: RemoteSettings,
  onChange: (isAnswering: boolean) => void,
): Client {
  const client = openRemoteClient({ url, authToken, timeoutMs: Math.min(timeoutMs / 4, maxPatienceMs) });
  const breaker = circuitBreaker(handleAll, { halfOpenAfter: leftAloneMs, breaker: new ConsecutiveBreaker(3) });
  let wasAnswering = true;
  breaker.onStateChange((state) => {
    const isAnswering = state === CircuitState.Closed;
    if (isAnswering !== wasAnswering && state !== CircuitState.HalfOpen) onChange(isAnswering);
    if (state !== CircuitState.HalfOpen) wasAnswering = isAnswering;
  });
  return wrapClient(client, {
    execute: (statement: InStatement, args?: InArgs) =>
      breaker.execute(() => client.execute(toStatement(statement, args))),
  });
}

/**
 * An embedded replica: a file beside this process that a process of its own keeps up to date, and that is read here
 * through a connection that cannot write.
 *
 * Reads throw DatabaseError `REPLICA_NOT_READY` until the file has been whole once, and while it is older than it should
 * be.
 */
export function openReplicaFile(settings: ReplicaProcessSettings): Client {
  const { path, encryptionKey } = settings;
  const syncing = startReplicaProcess(settings);
  let reader: Reader | undefined;
  let isClosed = false;

  const closeReader = () => {
    reader?.connection.close();
    reader = undefined;
  };
  const read = (statement: InStatement): ResultSet => {
    if (kindOf(statement) !== 'read') throw new TypeError('A replica is only read');
    if (isClosed) throw new DatabaseError('CLIENT_CLOSED', true);
    if (!syncing.isCurrent()) throw new DatabaseError('REPLICA_NOT_READY', true);
    // Another process may have made it anew: what was removed would be read for ever.
    if (reader !== undefined && inodeOf(path) !== reader.inode) closeReader();
    if (reader === undefined) {
      if (!existsSync(syncedMark(path)) || !existsSync(path)) throw new DatabaseError('REPLICA_NOT_READY', true);
      reader = openReader(path, encryptionKey);
    }
    try {
      return reader.statements.run(statement, true);
    } catch (error) {
      // After a lock, what the connection says next may be wrong (local-client.ts).
      closeReader();
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
    reconnect: closeReader,
    close() {
      isClosed = true;
      closeReader();
      syncing.stop();
    },
    get closed() {
      return isClosed;
    },
    protocol: 'file',
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

/** The look at a replica's schema, the reading there and then the primary's own deadline follow one another. */
const maxGateMs = 800;

type Place =
  | { readonly kind: 'server'; readonly url: string }
  | { readonly kind: 'file'; readonly path: string; readonly intervalMs: number };

interface ReplicaWatch {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Called when the replica is not read any more, with the reason, and when it is read again. */
  readonly onChange: (reason?: string) => void;
  /** Called each time that the file of an embedded replica was brought up to date. */
  readonly onSynced?: () => void;
  readonly observers?: readonly DatabaseObserver[];
}

/**
 * Opens a replica of a libSQL server. It fails with DatabaseError while it is away, does not have the schema of this
 * build yet, is of another database, or is not ready.
 */
export function openReplica(
  place: Place,
  { $client: primary }: Database,
  { url, authToken, encryptionKey, timeoutMs }: DatabaseSettings,
  { environment, onChange, onSynced, observers = [] }: ReplicaWatch,
): Database {
  const client =
    place.kind === 'server'
      ? openReplicaServer({ url: place.url, authToken, timeoutMs }, (isAnswering) =>
          onChange(isAnswering ? undefined : 'replica-unreachable'),
        )
      : openReplicaFile({
          ...place,
          environment,
          primaryUrl: url,
          authToken,
          encryptionKey,
          onSyncChange: ({ reason }) => onChange(reason),
          onSynced,
          isPrimaryAnswering: () =>
            // A primary that refuses the token is not away.
            schemaFit(primary).then(
              () => true,
              (error: unknown) => {
                const failure = findDatabaseError(error);
                return failure?.isUnavailable !== true || failure.code === 'TOKEN_REFUSED';
              },
            ),
        });
  const gated = gateBySchema(client, { timeoutMs: Math.min(timeoutMs, maxGateMs), replicaOf: primary, onChange });
  return drizzle({ client: observeClient(gated, observers) });
}

/** The replica, and in its place the primary whenever the replica cannot answer. */
export function replicaOrPrimary(replica: Database, primary: Database): Database {
  return drizzle({ client: readThrough(replica.$client, primary.$client) });
}
