import { drizzle } from 'drizzle-orm/libsql/sqlite3';
import type { Database, DatabaseSettings } from './client';
import { openReplicaServer, readThrough } from './read-through';
import { openReplicaFile, type ReplicaFileSettings } from './replica-file';
import { gateBySchema } from './schema-gate';

type Place =
  | { readonly kind: 'server'; readonly url: string }
  | { readonly kind: 'file'; readonly path: string; readonly intervalMs: number };

/**
 * Opens what is read instead of the primary, which is asked whenever the replica cannot answer: it is away, does not
 * have the schema of this build yet, or is not ready.
 */
export function openReplica(
  place: Place,
  primary: Database,
  { url, authToken, timeoutMs }: DatabaseSettings,
  process: Pick<ReplicaFileSettings, 'environment' | 'onSyncChange'>,
): Database {
  const client =
    place.kind === 'server'
      ? openReplicaServer({ url: place.url, authToken, timeoutMs })
      : openReplicaFile({ ...place, ...process, primaryUrl: url, authToken });
  return drizzle({ client: readThrough(gateBySchema(client), primary.$client) });
}
