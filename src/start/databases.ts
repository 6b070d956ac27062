import type { Config } from '../config';
import { type Database, type DatabaseWatch, localPath, openDatabase, openServiceDatabase, placeOf } from '../db/client';
import { keyRemedy } from '../db/encryption';
import { findDatabaseError, reasonOf } from '../db/errors';
import { damageMessage, migrateDatabase, reportSchema, SchemaDamageError } from '../db/migrate';
import { schemaFit, unfitDetail } from '../db/schema-fit';
import type { AppDeps } from '../deps';
import type { Log } from '../log';
import { seedDatabase } from '../seed';
import type { Telemetry } from '../telemetry/telemetry';
import { StartError } from './start-error';

interface DatabaseToken {
  /** Gives the token of now for a libSQL server. */
  readonly databaseToken: () => string | undefined;
}

/**
 * A `file:` is brought up to date by the start itself; a remote database by `planning migrate`, as a release step. While
 * that one is away, requests are answered as unavailable, and its schema is looked at once it is back.
 */
export async function openPreparedDatabase(
  config: Config,
  log: Log,
  now: Date,
  { databaseToken, ...watch }: DatabaseWatch & DatabaseToken,
): Promise<Database> {
  const place = placeOf(config.database.url);
  const db = await openDatabase(config.database).catch((error: unknown) => {
    throw new StartError(`The database ${place} cannot be opened (${codeOf(error)}).${keyRemedy(codeOf(error))}`);
  });
  if (localPath(config.database.url) !== undefined) {
    try {
      const { isNew, applied } = await migrateDatabase(db);
      if (!isNew && applied.length > 0) {
        log.info({ migrations: applied.map(({ name }) => name) }, 'the start has migrated the database');
      }
      await seedDatabase(db, { withDemo: config.seedDemo, now });
    } catch (error) {
      if (error instanceof SchemaDamageError) throw new StartError(error.message);
      throw new StartError(`The database ${place} cannot be brought up to date: ${reasonOf(error)}`);
    }
  }
  try {
    const fit = await schemaFit(db.$client);
    if (fit === 'too-old') throw new StartError(`${unfitDetail[fit]} Run \`bun planning migrate\` first.`);
    if (fit === 'too-new') throw new StartError(`${unfitDetail[fit]} Start a newer build.`);
    const { blocking, warnings } = await reportSchema(db);
    if (blocking.length > 0) throw new StartError(damageMessage(blocking));
    for (const { detail } of warnings) log.warn({ schemaObject: detail }, 'the schema differs from the migrations');
  } catch (error) {
    if (error instanceof StartError) throw error;
    const remedy = keyRemedy(codeOf(error));
    if (remedy !== '') throw new StartError(`The database ${place} cannot be used (${codeOf(error)}).${remedy}`);
    if (findDatabaseError(error)?.isUnavailable !== true) {
      if (codeOf(error) === 'UNKNOWN') throw new StartError(`${place} does not answer as a libSQL server.`);
      throw new StartError(`The database ${place} refuses this service (${codeOf(error)}).`);
    }
    log.warn({ code: codeOf(error) }, 'the database is away; requests are refused until it is back');
  }
  // The service's connection is opened first, so that the log stays the same file.
  const serviceDatabase = await openServiceDatabase({ ...config.database, authToken: databaseToken }, watch);
  db.$client.close();
  return serviceDatabase;
}

/** What reads are served from: the replica that is configured, or the database itself. */
export async function openConfiguredReplica(
  config: Config,
  db: Database,
  log: Log,
  { metrics, databaseObservers, databaseToken }: Telemetry & DatabaseToken,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Pick<AppDeps, 'reads' | 'replica'>> {
  if (config.replica === undefined) return { reads: db, replica: undefined };
  const { openReplica, replicaOrPrimary } = await import('../db/replica');
  let replica: Database;
  try {
    replica = openReplica(
      config.replica,
      db,
      { ...config.database, authToken: databaseToken },
      {
        environment,
        observers: databaseObservers('replica'),
        onSynced: () => metrics?.replicaSynced(),
        onChange(reason) {
          metrics?.replicaChanged(reason === undefined);
          if (reason === undefined) log.info('the replica follows the primary');
          else log.warn({ reason }, 'the replica cannot follow the primary');
        },
      },
    );
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
    throw new StartError(`DATABASE_REPLICA_PATH is in a folder that cannot be made (${code}).`);
  }
  return { reads: replicaOrPrimary(replica, db), replica };
}

function codeOf(error: unknown): string {
  return findDatabaseError(error)?.code ?? 'UNKNOWN';
}
