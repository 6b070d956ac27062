import { drizzle } from 'drizzle-orm/libsql/sqlite3';
import type { DatabaseObserver } from '../telemetry/observers';
import type { Database, DatabaseSettings } from './client';
import { findDatabaseError } from './errors';
import { observeClient } from './observed-client';
import { openReplicaServer, readThrough } from './read-through';
import { openReplicaFile } from './replica-file';
import { schemaFit } from './schema-fit';
import { gateBySchema } from './schema-gate';

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
