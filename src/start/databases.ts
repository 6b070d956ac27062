import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import type { Config } from '../config/settings';
import type { Environment } from '../config/validators';
import { backUpBeforeMigration, UnusableFileError } from '../db/backup';
import {
  absenceOf,
  type Database,
  type DatabaseWatch,
  localPath,
  openDatabase,
  openServiceDatabase,
  placeOf,
} from '../db/client';
import { DatabaseFileError, keyRemedy, realPathOf } from '../db/database-file';
import { findDatabaseError, reasonOf } from '../db/errors';
import { describeLoss, type OnLoss } from '../db/file-watch';
import { damageMessage, migrateDatabase, migrationTimeoutMs, reportSchema } from '../db/migrate';
import { incompatibilityMessage, incompatibilityOf, schemaState } from '../db/schema-check';
import { describeWriteFault } from '../db/sql-client';
import type { AppDeps, Lifecycle } from '../deps';
import { errorCode, OperatorError } from '../errors';
import { describeError, type Log } from '../log';
import { findDemoTraces, seedDatabase } from '../seed';
import { commandName } from '../shared/build';
import type { Telemetry } from '../telemetry/telemetry';

const createFirst = `Run \`${commandName} migrate\` to create it, or correct DATABASE_URL.`;

interface DatabaseToken {
  /** Returns the current token of a libSQL server. */
  readonly databaseToken: () => string | undefined;
}

/** Logs the changes of a database, and keeps its loss for readiness. */
export function watchDatabase(url: string, log: Log, lifecycle: Lifecycle): DatabaseWatch {
  return {
    onTokenChange(code) {
      const setting = 'DATABASE_AUTH_TOKEN';
      if (code === undefined) log.info({ setting }, 'the database accepts the token');
      else if (code === 'TOKEN_REFUSED')
        log.fatal({ setting, code }, 'the database refuses this token: nothing can be read or saved');
      else log.fatal({ setting, code }, 'the database lets this token only read: nothing can be saved');
    },
    onLoss: createLossReport(log, lifecycle, localPath(url)),
    onCheckpointChange(code) {
      if (code === undefined) log.info('checkpoints succeed again');
      else log.warn({ code }, 'the write-ahead log cannot be written to the database file, and grows');
    },
    onWritesChange(code) {
      const database = placeOf(url);
      const fault = code === undefined ? undefined : describeWriteFault(code);
      if (fault === undefined) log.info({ database }, 'the database takes writes again');
      else log.error({ code, database }, fault.line);
    },
    onSchemaChange(code, schemaObjects) {
      if (code === undefined) log.info('the schema fits this build');
      else
        log.fatal({ code, schemaObjects }, 'the schema does not fit this build: no statement is sent to the database');
    },
  };
}

interface Origin {
  readonly now: Date;
  readonly isDemo: boolean;
}

/**
 * Opens the database. A `file:` database is migrated and seeded, and created in development; `planning migrate` does this
 * for a remote one. While a remote database is unreachable, requests get 503 and the schema is checked later.
 *
 * @throws OperatorError
 */
export async function openPreparedDatabase(
  config: Config,
  log: Log,
  origin: Origin,
  { databaseToken, ...watch }: DatabaseWatch & DatabaseToken,
): Promise<Database> {
  const place = placeOf(config.database.url);
  const absence = absenceOrFault(config.database.url);
  if (absence !== undefined && config.isProduction) throw new OperatorError(`${absence} ${createFirst}`);
  const path = localPath(config.database.url);
  const corruption = path === undefined ? '' : corruptionRemedy(path);
  const timeoutMs = path !== undefined ? migrationTimeoutMs : config.database.timeoutMs;
  const db = await openDatabase({ ...config.database, isOwn: true, timeoutMs }).catch((error: unknown) => {
    if (error instanceof DatabaseFileError) throw new OperatorError(error.advice);
    const state = incompatibilityOf(error);
    if (state !== undefined) throw new OperatorError(incompatibilityMessage(state, place));
    const remedy = `${keyRemedy(codeOf(error))}${isCorrupt(error) ? corruption : ''}`;
    throw new OperatorError(`The database ${place} cannot be opened (${codeOf(error)}).${remedy}`);
  });
  if (path !== undefined) {
    await migrateFile(db, path, config, log, origin).catch((error: unknown) => {
      if (error instanceof OperatorError) throw error;
      const state = incompatibilityOf(error);
      if (state !== undefined) throw new OperatorError(incompatibilityMessage(state, place));
      if (isCorrupt(error))
        throw new OperatorError(`The database ${place} is corrupt (${codeOf(error)}).${corruption}`);
      throw new OperatorError(`The database ${place} cannot be brought up to date: ${reasonOf(error)}`);
    });
  }
  await checkSchema(db, config, log).catch((error: unknown) => {
    if (error instanceof OperatorError) throw error;
    const remedy = keyRemedy(codeOf(error));
    if (remedy !== '') throw new OperatorError(`The database ${place} cannot be used (${codeOf(error)}).${remedy}`);
    if (findDatabaseError(error)?.isUnavailable !== true) {
      if (codeOf(error) === 'UNKNOWN') throw new OperatorError(`${place} is not a libSQL server.`);
      throw new OperatorError(`The database ${place} refuses this service (${codeOf(error)}).`);
    }
    log.warn({ code: codeOf(error) }, 'the database is unreachable: requests get 503 until it responds');
  });
  // The connection of the service is opened before the other closes, so that the write-ahead log stays the same file.
  const serviceDatabase = await openServiceDatabase({ ...config.database, authToken: databaseToken }, watch);
  db.$client.close();
  return serviceDatabase;
}

async function migrateFile(db: Database, path: string, config: Config, log: Log, { now, isDemo }: Origin) {
  const place = placeOf(config.database.url);
  const beforeChange = async () => {
    await backUpBeforeMigration(path, config.database.encryptionKey);
    log.info('the database file was backed up before its migration');
  };
  const isNew = (await schemaState(db.$client)) === 'empty';
  if (isNew && config.isProduction) throw new OperatorError(incompatibilityMessage('empty', place));
  if (isNew && !isDemo) log.warn({ database: place }, 'a new database is created');
  const { applied } = await migrateDatabase(db, undefined, {
    forDevelopment: !config.isProduction,
    beforeChange: config.database.isBackedUpBeforeMigration ? beforeChange : undefined,
  });
  if (!isNew && applied.length > 0) {
    log.info({ migrations: applied.map(({ name }) => name) }, 'the start has migrated the database');
  }
  await seedDatabase(db, { withDemo: config.seedDemo ?? !config.isProduction, now });
}

async function checkSchema(db: Database, config: Config, log: Log): Promise<void> {
  const place = placeOf(config.database.url);
  const state = await schemaState(db.$client);
  if (state !== 'compatible') throw new OperatorError(incompatibilityMessage(state, place));
  const { blocking, warnings } = await reportSchema(db);
  if (blocking.length > 0) throw new OperatorError(damageMessage(blocking));
  for (const { detail } of warnings) log.warn({ schemaObject: detail }, 'the schema differs from the migrations');
  if (!config.isProduction) return;
  const { isMarked, hasRows } = await findDemoTraces(db);
  if (isMarked) log.warn({ database: place }, 'development created this database: run planning doctor');
  else if (hasRows) log.warn({ database: place }, 'this database contains demo data: run planning doctor');
}

/** Opens the configured replica. Without one, reads use the database itself. */
export async function openConfiguredReplica(
  config: Config,
  db: Database,
  log: Log,
  { metrics, databaseObservers, databaseToken }: Telemetry & DatabaseToken,
  environment: Environment,
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
    throw new OperatorError(`DATABASE_REPLICA_PATH is in a folder that cannot be created (${errorCode(error)}).`);
  }
  return { reads: replicaOrPrimary(replica, db), replica };
}

/** @throws OperatorError when a missing or empty file has a write-ahead log */
function absenceOrFault(url: string): string | undefined {
  try {
    return absenceOf(url);
  } catch (error) {
    throw error instanceof DatabaseFileError ? new OperatorError(error.advice) : error;
  }
}

const corruptCodes = new Set(['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'WRONG_ENCRYPTION_KEY', 'ENCRYPTION_KEY_NEEDED']);

function isCorrupt(error: unknown): boolean {
  return corruptCodes.has(codeOf(error));
}

/** Must be called before the file is opened, which creates a log. */
function corruptionRemedy(path: string): string {
  const log = `${realPathOf(path)}-wal`;
  return existsSync(log)
    ? ` The WAL ${log} may belong to another file, as after a backup was copied over the file. If it does, move the WAL ` +
        `away and run \`${commandName} doctor --deep\`; else restore a backup.`
    : ` Run \`${commandName} doctor --deep\`, and restore a backup if it fails.`;
}

function codeOf(error: unknown): string {
  return findDatabaseError(error)?.code ?? 'UNKNOWN';
}

const keptCopy = 'Every acknowledged save is in the rescued copy that the log names. Stop the service and restore it.';
const copyFirst = 'Before you stop the service, copy the files that it has open: see its log.';

/** Logs the loss of the database and the result of its rescue, and gives readiness the reason and the remedy. */
function createLossReport(log: Log, lifecycle: Lifecycle, path: string | undefined): OnLoss {
  // Resolved now: after the file was removed, the path may name another file.
  const database = path === undefined ? undefined : realPathOf(path);
  return (failure, rescued) => {
    const { reason, remedy, line } = describeLoss(failure.code);
    lifecycle.hasLostDisk = true;
    lifecycle.lossReason = reason;
    lifecycle.lossRemedy = remedy;
    log.fatal(describeError(failure), line);
    rescued?.then(
      (copy) => {
        lifecycle.lossRemedy = keptCopy;
        log.error(
          { rescued: copy },
          'every acknowledged save is in the rescued copy: stop the service and put the copy in place with planning restore',
        );
      },
      (error: unknown) => {
        lifecycle.lossRemedy = copyFirst;
        const fields = error instanceof UnusableFileError ? {} : describeError(error);
        log.fatal(
          { ...fields, descriptors: database === undefined ? [] : descriptorsOf(database) },
          'the rescue of the database has failed: before you stop the service, copy the file and its log (-wal) from /proc/PID/fd',
        );
      },
    );
  };
}

/** The descriptors of a database file and its log, such as `/proc/7/fd/12 -> /data/planning.db (deleted)`. */
function descriptorsOf(database: string): string[] {
  const folder = `/proc/${process.pid}/fd`;
  // The files, or their folder, may have been moved.
  const file = basename(database);
  const found = new Map<string, string>();
  try {
    for (const descriptor of readdirSync(folder)) {
      const target = targetOf(`${folder}/${descriptor}`);
      const name = basename(target.replace(/ \(deleted\)$/, ''));
      if (name === file || name === `${file}-wal`) found.set(target, `${folder}/${descriptor} -> ${target}`);
    }
  } catch {
    // Only Linux has the folder.
  }
  return [...found.values()];
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    return '';
  }
}
