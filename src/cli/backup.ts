import { closeSync, linkSync, openSync, realpathSync, rmSync, type Stats, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { Argument, Command } from 'commander';
import * as v from 'valibot';
import { DatabaseUrl, EncryptionKey, NonEmpty } from '../config/validators';
import { copyDatabase } from '../db/backup';
import { type DatabaseSettings, localPath, placeOf } from '../db/client';
import { keyRemedy } from '../db/database-file';
import { DatabaseError, reasonOf } from '../db/errors';
import { recordCompletion } from '../db/queries';
import type { CopiedTable } from '../db/row-copy';
import type { DatabasePlace } from '../db/row-store';
import { OperatorError } from '../errors';
import { commandName } from '../shared/build';
import { type Context, readSecret, readSettings } from './context';
import {
  companionSuffixes,
  examine,
  existingFile,
  isSameFile,
  isTaken,
  renameDurably,
  statOrNothing,
  syncFolderOf,
  syncToDisk,
  toFileFailure,
  withOpened,
  withPartial,
} from './database';
import { counted, createProgress, printResult, readableSize } from './output';

interface BackupOptions {
  readonly json: boolean;
  readonly replace: boolean;
}

export function backupCommand(context: Context): Command {
  return new Command('backup')
    .description('Write a consistent copy of the database to one file, while the service runs')
    .addArgument(new Argument('<file>', 'a new file in an existing folder; readable by its owner only'))
    .option('--replace', 'replace an existing file, once the new one is complete', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The backup contains every save that was acknowledged before the command began. Every page of it is checked before it
gets its name, so a file of this name is a complete backup. A libSQL server is read in one transaction, table by table,
and every table is compared with the server. A killed run leaves a file that ends in .partial, which you may remove.
“${commandName} restore” puts a backup in place.`,
    )
    .action((file: string, options: BackupOptions) => backUp(context, resolve(context.cwd, file), options));
}

const noBackup = 'No backup was written';

/** A source that could be copied and a copy that cannot be read point to the disk. */
const copyRemedies = {
  'not a database': ', so check the disk',
  WRONG_ENCRYPTION_KEY: ', so check the disk',
  damaged: ', so check the database and the disk',
} as const;

async function backUp(context: Context, file: string, options: BackupOptions): Promise<void> {
  const settings = readSettings(context, 'backup').database;
  const { encryptionKey: key } = settings;
  const path = localPath(settings.url);
  const database = path === undefined ? undefined : existingFile(path);
  const source = database ?? placeOf(settings.url);
  requireTarget(file, database, options);
  const startedAt = new Date();
  await withPartial(context, file, async (partial, steps) => {
    steps.begin(`Copying ${source}`);
    if (database === undefined) {
      await copyDatabaseRows(settings, { url: `file:${partial}`, encryptionKey: key }, { command: 'copy' });
    } else {
      await copyDatabase(database, partial, key).catch((error: unknown) => {
        throw toFileFailure(error, noBackup, database, key, { target: file });
      });
    }
    steps.begin('Checking the copy');
    const contents = await examine(partial, key, noBackup, `the copy of ${source}`, copyRemedies);
    steps.begin('Syncing the copy to disk');
    await syncToDisk(partial);
    steps.commit('Renaming the copy');
    // Another process may have taken the name meanwhile.
    requireTarget(file, database, options);
    renameDurably(partial, file);
    await recordBackup(context, settings, startedAt);
    const bytes = statSync(file).size;
    const tookMs = Date.now() - startedAt.getTime();
    printResult(
      context,
      options,
      { file, bytes, ...contents, startedAt: startedAt.toISOString(), tookMs },
      `The backup is in ${file}: ${readableSize(bytes)}, ${counted(contents.persons, 'person')}, schema ` +
        `${contents.schema}, as of ${startedAt.toISOString()}; it took ${(tookMs / 1000).toFixed(1)} s.`,
    );
  });
}

/** Records the time for the metrics and their alerts. The backup is valid without it, also of an older schema. */
async function recordBackup(context: Context, settings: DatabaseSettings, startedAt: Date): Promise<void> {
  try {
    await withOpened(context, settings, (db) => recordCompletion(db, 'backup', startedAt));
  } catch (error) {
    context.stderr.write(`The time of this backup is not recorded for the metrics: ${reasonOf(error)}\n`);
  }
}

/** @throws OperatorError when a backup must not be written to the file */
function requireTarget(file: string, database: string | undefined, { replace }: BackupOptions): void {
  if (statOrNothing(dirname(file))?.isDirectory() !== true) {
    throw new OperatorError(`There is no folder ${dirname(file)}: create it first.`);
  }
  const found = statOrNothing(file);
  if (database !== undefined && belongsTo(database, file, found)) {
    throw new OperatorError(`${file} belongs to the database itself: name another file.`);
  }
  for (const suffix of companionSuffixes) {
    if (!isTaken(`${file}${suffix}`)) continue;
    throw new OperatorError(
      `${file}${suffix} exists, and would be read as part of the backup: move it away, or name another file.`,
    );
  }
  if (!isTaken(file)) return;
  if (!replace) throw new OperatorError(`${file} exists already: name a new file, or use --replace.`);
  if (found?.isFile() !== true) throw new OperatorError(`${file} is not a file: name another one.`);
}

function belongsTo(database: string, file: string, found: Stats | undefined): boolean {
  const name = join(realpathSync(dirname(file)), basename(file));
  const isNamed = ['', ...companionSuffixes].some((suffix) => name === `${database}${suffix}`);
  return isNamed || isSameFile(found, statOrNothing(database));
}

interface CopyOptions {
  readonly from?: string;
  readonly to: string;
  readonly toKeyFile?: string;
  readonly toTokenFile?: string;
  readonly json: boolean;
}

export function copyCommand(context: Context): Command {
  return new Command('copy')
    .description('Copy the database to an empty one of any kind: a file, an encrypted file or a libSQL server')
    .requiredOption('--to <url>', 'file:PATH of a new file, or a libSQL server without tables')
    .option('--from <url>', 'the database to copy; default: DATABASE_URL')
    .option('--to-key-file <file>', 'a file with the key that encrypts the new file')
    .option('--to-token-file <file>', 'a file with the token for the new server')
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The source is opened with DATABASE_ENCRYPTION_KEY and DATABASE_AUTH_TOKEN. The target has settings of its own:
TARGET_DATABASE_ENCRYPTION_KEY or --to-key-file, and TARGET_DATABASE_AUTH_TOKEN or --to-token-file.

The copy is the state of the source when the command began; the service may continue to save. To move a database, stop
the service first. At the end the row count and a SHA-256 checksum of every table are compared. To continue an
interrupted run, run the same command again; until it is complete, the service rejects the target. The copy gets its own
database id.`,
    )
    .action((options: CopyOptions) => copy(context, options));
}

async function copy(context: Context, options: CopyOptions): Promise<void> {
  const startedAtMs = performance.now();
  const env = { ...context.env, ...(options.from !== undefined && { DATABASE_URL: options.from }) };
  const source = readSettings({ env }, 'copy').database;
  const target = await targetOf(context, options);
  const sourcePath = localPath(source.url);
  if (sourcePath !== undefined) existingFile(sourcePath);
  const path = localPath(target.url);
  const tables = await (path === undefined
    ? copyDatabaseRows(source, target, { command: 'copy', context })
    : copyToFile(context, source, target, resolve(path)));
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  const tookMs = Math.round(performance.now() - startedAtMs);
  const [from, to] = [placeOf(source.url), placeOf(target.url)];
  printResult(
    context,
    options,
    { from, to, rows, tables, tookMs },
    `${counted(rows, 'row')} of ${counted(tables.length, 'table')} were copied from ${from} to ${to} and compared; ` +
      `it took ${(tookMs / 1000).toFixed(1)} s.`,
  );
}

async function targetOf(context: Context, { to, toKeyFile, toTokenFile }: CopyOptions): Promise<DatabasePlace> {
  const url = v.safeParse(DatabaseUrl, to);
  if (!url.success) throw new OperatorError(`--to ${url.issues[0].message}.`);
  const key = await readSecret(context, 'TARGET_DATABASE_ENCRYPTION_KEY', '--to-key-file', toKeyFile, EncryptionKey);
  const authToken = await readSecret(context, 'TARGET_DATABASE_AUTH_TOKEN', '--to-token-file', toTokenFile, NonEmpty);
  if (localPath(to) === undefined && key !== undefined) {
    throw new OperatorError('A libSQL server encrypts its own files: give no key for it.');
  }
  return { url: to, encryptionKey: key, authToken };
}

/** Copies under another name until the copy is complete. */
async function copyToFile(
  context: Context,
  source: DatabasePlace,
  target: DatabasePlace,
  path: string,
): Promise<CopiedTable[]> {
  for (const name of ['', ...companionSuffixes].map((suffix) => `${path}${suffix}`)) {
    if (isTaken(name)) throw new OperatorError(`${name} exists already: name a new file.`);
  }
  const unfinished = `${path}.unfinished-copy`;
  closeSync(openSync(unfinished, 'a', 0o600));
  const tables = await copyDatabaseRows(source, { ...target, url: `file:${unfinished}` }, { command: 'copy', context });
  await examine(unfinished, target.encryptionKey, 'The copy is not complete', unfinished);
  await syncToDisk(unfinished);
  linkSync(unfinished, path);
  rmSync(unfinished);
  syncFolderOf(path);
  return tables;
}

interface RowsCopy {
  /** A restore checks every page of the source first. */
  readonly command: 'copy' | 'restore';
  /** The terminal that shows the progress. */
  readonly context?: Context;
}

/**
 * Copies all rows of one database to another, which must be empty or hold an unfinished copy.
 *
 * @throws OperatorError
 */
export async function copyDatabaseRows(
  from: DatabasePlace,
  to: DatabasePlace,
  { command, context }: RowsCopy,
): Promise<CopiedTable[]> {
  // Most commands copy no rows, and start faster without these modules.
  const [{ copyRows, isIntact }, { openSnapshot, openTarget }] = await Promise.all([
    import('../db/row-copy'),
    import('../db/row-store'),
  ]);
  const failed =
    (verb: string, { url }: DatabasePlace) =>
    (error: unknown) => {
      if (!(error instanceof DatabaseError) || error.code === 'SQLITE_BUSY') throw error;
      throw new OperatorError(`${placeOf(url)} cannot be ${verb} (${error.code}).${keyRemedy(error.code)}`);
    };
  const progress = rowProgress(context);
  const source = await openSnapshot(from).catch(failed('read', from));
  try {
    if (command === 'restore' && !(await isIntact(source))) throw new OperatorError(`${placeOf(from.url)} is damaged.`);
    const target = await openTarget(to).catch(failed('written', to));
    try {
      return await copyRows(source, target, { command, onProgress: progress.show });
    } finally {
      await target.close();
    }
  } finally {
    progress.stop();
    await source.close();
  }
}

/** A bar that begins with the first row, when the total is known. */
function rowProgress(context: Context | undefined) {
  let progress: ReturnType<typeof createProgress> | undefined;
  let shown = 0;
  return {
    show(rows: number, total: number) {
      if (context === undefined) return;
      progress ??= createProgress(context, 'Copying', total);
      progress.countRows(rows - shown);
      progress.advance(rows - shown);
      shown = rows;
    },
    stop: () => progress?.stop(),
  };
}
