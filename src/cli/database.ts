import {
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  lstatSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Config } from '../config/settings';
import { type Contents, examineCopy, UnusableFileError, withExclusiveLock } from '../db/backup';
import {
  absenceOf,
  closeDatabase,
  type Database,
  type DatabaseSettings,
  openDatabase,
  placeOf,
  remainingWalWarning,
} from '../db/client';
import { DatabaseFileError, keyFaultOf, keyRemedy, rejectOrphanedWal } from '../db/database-file';
import { DatabaseError } from '../db/errors';
import { damageMessage, reportSchema } from '../db/migrate';
import { incompatibilityMessage, incompatibilityOf, schemaState } from '../db/schema-check';
import { OperatorError } from '../errors';
import { commandName } from '../shared/build';
import type { Context } from './context';
import { createSteps, type Steps } from './output';

/**
 * Opens the configured database for one command and closes it afterwards. The database must exist and be migrated: with a
 * mistyped path, the command would create an empty one, and a dry run would migrate that of a running service.
 */
export async function withDatabase<Result>(
  context: Context,
  config: Pick<Config, 'database'>,
  work: (db: Database) => Promise<Result>,
): Promise<Result> {
  const absence = absenceOf(config.database.url);
  if (absence !== undefined) throw new OperatorError(`${absence} Run \`${commandName} migrate\` first.`);
  return withOpened(context, config.database, async (db) => {
    const state = await schemaState(db.$client);
    if (state !== 'compatible') throw new OperatorError(incompatibilityMessage(state, placeOf(config.database.url)));
    const { blocking } = await reportSchema(db);
    if (blocking.length > 0) throw new OperatorError(damageMessage(blocking));
    return work(db);
  });
}

/**
 * Opens a database of this service, or an empty one, and closes it afterwards.
 *
 * @throws OperatorError for a file of another program, which it does not change, and for an incompatible schema
 */
export async function withOpened<Result>(
  { stderr }: Pick<Context, 'stderr'>,
  settings: DatabaseSettings,
  work: (db: Database) => Promise<Result>,
): Promise<Result> {
  const place = placeOf(settings.url);
  try {
    const db = await openDatabase({ ...settings, isOwn: true });
    try {
      return await work(db);
    } finally {
      const code = await closeDatabase(db);
      if (code !== undefined) stderr.write(`${place}: ${remainingWalWarning(code)}.\n`);
    }
  } catch (error) {
    const state = incompatibilityOf(error);
    throw state === undefined ? error : new OperatorError(incompatibilityMessage(state, place));
  }
}

/** The suffixes of the files that SQLite keeps beside a database. A stale one would be read as part of the database. */
export const companionSuffixes = ['-wal', '-shm', '-journal'] as const;

/**
 * The file of a database with every link followed, because SQLite keeps its log beside the file itself.
 *
 * @throws OperatorError when it does not exist
 */
export function existingFile(path: string): string {
  rejectOrphanedWal(path);
  if (!existsSync(path)) throw new OperatorError(`There is no database at ${resolve(path)}.`);
  return realpathSync(path);
}

const unusableReasons: Readonly<Record<UnusableFileError['kind'], string>> = {
  'not a database': 'is not a database',
  NOT_ENCRYPTED: 'is not encrypted, but DATABASE_ENCRYPTION_KEY is set',
  WRONG_ENCRYPTION_KEY: 'is encrypted with another key, or is not a database',
  ENCRYPTION_KEY_NEEDED: 'is encrypted, but DATABASE_ENCRYPTION_KEY is not set; or it is not a database',
  damaged: 'is damaged or incomplete',
  foreign: 'is not a database of this service, or was never migrated',
  newer: 'has a newer schema than this build supports: use the build that wrote it',
};

/**
 * Checks every page of a finished copy.
 *
 * @param subject the copy or its source, as the message names it
 * @param remedies the next step of the operator, for some reasons
 * @throws OperatorError that begins with `outcome`
 */
export async function examine(
  copy: string,
  key: string | undefined,
  outcome: string,
  subject: string,
  remedies: Partial<Record<UnusableFileError['kind'], string>> = {},
): Promise<Contents> {
  try {
    return await examineCopy(copy, key);
  } catch (error) {
    if (!(error instanceof UnusableFileError)) throw error;
    throw new OperatorError(`${outcome}: ${subject} ${unusableReasons[error.kind]}${remedies[error.kind] ?? ''}.`);
  }
}

/**
 * Translates a failure to read or copy a database file to an OperatorError that begins with `outcome`; any other error
 * stays.
 *
 * @param advice follows the message about a file that cannot be read; `target` is the file that is written
 */
export function toFileFailure(
  error: unknown,
  outcome: string,
  database: string,
  key: string | undefined,
  { advice = '', target = database }: { advice?: string | undefined; target?: string } = {},
): unknown {
  if (!(error instanceof DatabaseError) || error instanceof DatabaseFileError) return error;
  switch (error.code) {
    case 'SQLITE_BUSY':
      return error;
    case 'SQLITE_FULL':
      return new OperatorError(`${outcome}: the disk of ${dirname(target)} is full (SQLITE_FULL).`);
    case 'SQLITE_NOTADB':
      return new OperatorError(
        `${outcome}: ${database} cannot be read (${error.code}).${keyRemedy(keyFaultOf(database, key))}${advice}`,
      );
    case 'SQLITE_CORRUPT':
      return new OperatorError(`${outcome}: ${database} is damaged (${error.code}).${advice}`);
    default:
      return new OperatorError(`${outcome}: ${database} cannot be copied (${error.code}).`);
  }
}

/**
 * Runs `work` while no other connection can use the database, and empties the log of a service that was killed.
 *
 * @throws OperatorError that begins with `outcome`
 */
export async function useAlone<Result>(
  database: string,
  key: string | undefined,
  outcome: string,
  work: Parameters<typeof withExclusiveLock<Result>>[2],
  advice?: string,
): Promise<Result> {
  try {
    return await withExclusiveLock(database, key, work);
  } catch (error) {
    if (error instanceof DatabaseError && error.code === 'SQLITE_BUSY') {
      throw new OperatorError(`${outcome}: another process has ${database} open. Stop the service first.`);
    }
    throw toFileFailure(error, outcome, database, key, { advice });
  }
}

/** Writes a file under a temporary name, and removes it when the work fails or a signal ends it. */
export async function withPartial(
  context: Context,
  path: string,
  work: (partial: string, steps: Steps) => Promise<void>,
): Promise<void> {
  const partial = `${path}.${crypto.randomUUID()}.partial`;
  const remove = () => {
    for (const suffix of ['', ...companionSuffixes]) rmSync(`${partial}${suffix}`, { force: true });
  };
  const steps = createSteps(context, remove);
  try {
    // SQLite gives its journal the same mode.
    closeSync(openSync(partial, 'wx', 0o600));
    await work(partial, steps);
  } finally {
    steps.stop();
    remove();
  }
}

/** Renames a file, so that the new name survives a power cut. */
export function renameDurably(from: string, to: string): void {
  renameSync(from, to);
  syncFolderOf(to);
}

/**
 * Calls fsync on a file, off the event loop. Never on a database that this process has open: closing any descriptor of a
 * file releases every lock that the process holds on it.
 */
export async function syncToDisk(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Calls fsync on the folder of a file, so that new, renamed and removed names survive a power cut. */
export function syncFolderOf(path: string): void {
  const descriptor = openSync(dirname(path), 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Follows a link; undefined for a name that does not exist. */
export function statOrNothing(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false });
}

/** Whether a name exists, including as a dangling link. */
export function isTaken(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Whether two names are links to one file. */
export function isSameFile(a: Stats | undefined, b: Stats | undefined): boolean {
  return a !== undefined && b !== undefined && a.dev === b.dev && a.ino === b.ino;
}

/** Gives a new file the owner of the file that it replaces, so that the service can open it if another user runs the command. */
export function keepOwner(partial: string, database: string): void {
  const before = statOrNothing(database);
  const now = statOrNothing(partial);
  if (before !== undefined && (before.uid !== now?.uid || before.gid !== now.gid)) {
    chownSync(partial, before.uid, before.gid);
  }
}
