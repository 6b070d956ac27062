import { existsSync, realpathSync, renameSync, type Stats, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { Argument, Command } from 'commander';
import { copyDatabase, examineCopy, UnfitError } from '../db/backup';
import { type DatabaseSettings, localPath, openDatabase, placeOf } from '../db/client';
import { DatabaseFileError, requireOwnLog } from '../db/database-file';
import { keyFaultOf, keyRemedy } from '../db/encryption';
import { DatabaseError, reasonOf } from '../db/errors';
import { noteCompleted } from '../db/statements';
import { OperatorError } from '../errors';
import { commandName } from '../shared/build';
import { closeOfCommand } from './context';
import { copyDatabaseRows } from './copy';
import { companionSuffixes, isSameFile, isTaken, statOrNothing, syncFolderOf, syncToDisk, withPartial } from './files';
import { counted, printResult, readableSize } from './output';
import { readSettings } from './settings';

interface BackupOptions {
  readonly json: boolean;
  readonly replace: boolean;
}

export function backupCommand(): Command {
  return new Command('backup')
    .description('Write a consistent copy of the database to one file, while the service goes on saving')
    .addArgument(new Argument('<file>', 'a new file in a folder that is there; readable by its owner alone'))
    .option('--replace', 'replace the file if it is there, once the new one is whole', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Every save that was answered before the command began is in it. The copy is checked page by page before it gets its
name, so a file of this name is a whole backup. A libSQL server is read in one transaction, table by table, and every
table is compared with it. A run that was killed leaves a file that ends in .partial, which may be removed.
“${commandName} restore” puts a backup in place.`,
    )
    .action((file: string, options: BackupOptions) => backUp(resolve(file), options));
}

async function backUp(file: string, options: BackupOptions): Promise<void> {
  const settings = readSettings('backup').database;
  const path = localPath(settings.url);
  const database = path === undefined ? undefined : databaseToBackUp(path);
  refuseTarget(file, database, options);
  const startedAt = new Date();
  await withPartial(file, async (partial, steps) => {
    steps.begin(`Copying ${database ?? placeOf(settings.url)}`);
    if (database === undefined) {
      await copyDatabaseRows(settings, { url: `file:${partial}`, encryptionKey: settings.encryptionKey });
    } else await copyFile(database, partial, file, settings.encryptionKey);
    steps.begin('Checking the copy');
    const contents = await examineBackup(partial, settings.encryptionKey);
    steps.begin('Syncing it to the disk');
    await syncToDisk(partial);
    steps.commit('Putting it in place');
    // Another process may have taken the name meanwhile.
    refuseTarget(file, database, options);
    renameSync(partial, file);
    syncFolderOf(file);
    await recordBackup(settings, startedAt);
    const bytes = statSync(file).size;
    const tookMs = Date.now() - startedAt.getTime();
    printResult(
      options,
      { file, bytes, ...contents, startedAt: startedAt.toISOString(), tookMs },
      `The backup is in ${file}: ${readableSize(bytes)}, ${counted(contents.persons, 'person')}, schema ` +
        `${contents.schema}, as of ${startedAt.toISOString()}; it took ${(tookMs / 1000).toFixed(1)} s.`,
    );
  });
}

/** Records the time for the metrics and their alerts. The backup is good without it, also of an older schema. */
async function recordBackup(settings: DatabaseSettings, startedAt: Date): Promise<void> {
  try {
    const db = await openDatabase(settings);
    try {
      await noteCompleted(db, 'backup', startedAt);
    } finally {
      await closeOfCommand(db, settings.url);
    }
  } catch (error) {
    process.stderr.write(`The time of this backup is not recorded for the metrics: ${reasonOf(error)}\n`);
  }
}

/** The file itself, not a link to it: SQLite has its log beside the file. */
function databaseToBackUp(path: string): string {
  requireOwnLog(path);
  if (!existsSync(path)) throw new OperatorError(`There is no database at ${resolve(path)}: nothing to back up.`);
  return realpathSync(path);
}

function refuseTarget(file: string, database: string | undefined, { replace }: BackupOptions): void {
  if (statOrNothing(dirname(file))?.isDirectory() !== true) {
    throw new OperatorError(`There is no folder ${dirname(file)}: make it first.`);
  }
  const found = statOrNothing(file);
  if (database !== undefined && belongsTo(database, file, found)) {
    throw new OperatorError(`${file} belongs to the database itself: name another file.`);
  }
  for (const suffix of companionSuffixes) {
    if (!isTaken(`${file}${suffix}`)) continue;
    throw new OperatorError(
      `${file}${suffix} is there, and would be taken for a part of the backup: move it away, or name another file.`,
    );
  }
  if (!isTaken(file)) return;
  if (!replace) throw new OperatorError(`${file} exists already: name a new file, or say --replace.`);
  if (found?.isFile() !== true) throw new OperatorError(`${file} is not a file: name another one.`);
}

function belongsTo(database: string, file: string, found: Stats | undefined): boolean {
  const name = join(realpathSync(dirname(file)), basename(file));
  const isNamed = ['', ...companionSuffixes].some((suffix) => name === `${database}${suffix}`);
  return isNamed || isSameFile(found, statOrNothing(database));
}

async function copyFile(
  database: string,
  partial: string,
  file: string,
  encryptionKey: string | undefined,
): Promise<void> {
  try {
    await copyDatabase(database, partial, encryptionKey);
  } catch (error) {
    const code = error instanceof DatabaseError ? error.code : undefined;
    if (code === 'SQLITE_FULL') {
      throw new OperatorError(`There is no backup: the disk of ${dirname(file)} is full (SQLITE_FULL).`);
    }
    if (code === 'SQLITE_NOTADB' || code === 'SQLITE_CORRUPT') {
      const remedy = code === 'SQLITE_NOTADB' ? keyRemedy(keyFaultOf(database, encryptionKey)) : '';
      throw new OperatorError(`There is no backup: ${database} is damaged or no database (${code}).${remedy}`);
    }
    if (code === undefined || code === 'SQLITE_BUSY' || error instanceof DatabaseFileError) throw error;
    throw new OperatorError(`There is no backup: ${database} cannot be read or ${file} not be written (${code}).`);
  }
}

async function examineBackup(partial: string, encryptionKey: string | undefined) {
  try {
    return await examineCopy(partial, encryptionKey);
  } catch (error) {
    if (!(error instanceof UnfitError)) throw error;
    throw new OperatorError(`There is no backup: ${reasons[error.kind]}.`);
  }
}

const reasons: Readonly<Record<UnfitError['kind'], string>> = {
  'not a database': 'what was copied is not a database, so check the disk',
  NOT_ENCRYPTED: 'the copy is not encrypted, and DATABASE_ENCRYPTION_KEY is set',
  WRONG_ENCRYPTION_KEY: 'the copy cannot be opened with DATABASE_ENCRYPTION_KEY, so check the disk',
  ENCRYPTION_KEY_NEEDED: 'what was copied is not a database, so check the disk',
  damaged: 'the copy is damaged, so check the database and the disk',
  foreign: 'DATABASE_URL is not a database of this service, or was never migrated',
  newer: 'the database has a newer schema than this build knows, so use the build that runs on it',
};
