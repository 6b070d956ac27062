import { drizzle } from 'drizzle-orm/libsql/sqlite3';
import type { Database, DatabaseSettings } from './client';
import { findDatabaseError } from './errors';
import { openReplicaServer, readThrough } from './read-through';
import { openReplicaFile } from './replica-file';
import type { ReplicaProcessSettings } from './replica-process';
import { schemaFit } from './schema-fit';
import { gateBySchema } from './schema-gate';

type Place =
  | { readonly kind: 'server'; readonly url: string }
  | { readonly kind: 'file'; readonly path: string; readonly intervalMs: number };

/**
 * Opens a replica of a libSQL server. It fails with DatabaseError while it is away, does not have the schema of this
 * build yet, or is not ready.
 */
export function openReplica(
  place: Place,
  primary: Database,
  { url, authToken, timeoutMs }: DatabaseSettings,
  process: Pick<ReplicaProcessSettings, 'environment' | 'onSyncChange'>,
): Database {
  const client =
    place.kind === 'server'
      ? openReplicaServer({ url: place.url, authToken, timeoutMs })
      : openReplicaFile({
          ...place,
          ...process,
          primaryUrl: url,
          authToken,
          isPrimaryAnswering: () =>
            // Whoever refuses answers too.
            schemaFit(primary.$client).then(
              () => true,
              (error: unknown) => findDatabaseError(error)?.isUnavailable !== true,
            ),
        });
  return drizzle({ client: gateBySchema(client, { timeoutMs }) });
}

/** The replica, and in its place the primary whenever the replica cannot answer. */
export function replicaOrPrimary(replica: Database, primary: Database): Database {
  return drizzle({ client: readThrough(replica.$client, primary.$client) });
}
