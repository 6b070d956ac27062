import { chmodSync, linkSync, mkdirSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { Argument, Command } from 'commander';
import { type Contents, examineCopy, UnfitError, withSoleUse } from '../db/backup';
import { type DatabaseSettings, localPath, placeOf } from '../db/client';
import { keyFaultOf, keyRemedy } from '../db/encryption';
import { DatabaseError } from '../db/errors';
import { OperatorError } from '../errors';
import { commandName } from '../shared/build';
import { confirm } from './context';
import { copyWithProgress } from './copy';
import {
  companionSuffixes,
  isSameFile,
  isTaken,
  keepOwner,
  statOrNothing,
  syncFolderOf,
  syncToDisk,
  withPartial,
} from './files';
import { counted, printResult, readableSize } from './output';
import { readSettings } from './settings';

interface RestoreOptions {
  readonly yes: boolean;
  readonly json: boolean;
}

export function restoreCommand(): Command {
  return new Command('restore')
    .description('Replace the database by a backup, with the service stopped, or copy it into an empty libSQL server')
    .addArgument(new Argument('<file>', `what \`${commandName} backup\` wrote`))
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Stop the service first: a database that another process has open is refused. The backup is copied and checked page by page
before anything is replaced, and then replaces the database in one step: after a crash there is either the old database or
the new one. The old one is kept beside it as <path>.before-restore-<time>. A libSQL server must have no tables; a run that was
interrupted is continued by the same command. A backup of an older schema is brought up to date by “${commandName} migrate”,
or by the start of the service.`,
    )
    .action((file: string, options: RestoreOptions) => restore(resolve(file), options));
}

async function restore(file: string, options: RestoreOptions): Promise<void> {
  const settings = readSettings('restore').database;
  const { encryptionKey: key } = settings;
  const path = localPath(settings.url);
  if (path === undefined) return restoreServer(file, settings, options);
  const database = isTaken(path) ? realpathSync(path) : resolve(path);
  const backup = refuseSource(file, database);
  await refuseWhileUsed(database, key);
  if (isTaken(database) && !options.yes) {
    const from = `${file} (${readableSize(backup.size)}, written ${backup.mtime.toISOString()})`;
    await confirm(`Replace the database ${database} by ${from}?`, 'Nothing was restored');
  }
  mkdirSync(dirname(database), { recursive: true, mode: 0o700 });
  await withPartial(database, async (partial, steps) => {
    steps.begin(`Copying ${file}`);
    await copyFile(file, partial);
    chmodSync(partial, 0o600);
    steps.begin('Checking the copy');
    const contents = await examine(partial, file, key);
    steps.begin('Syncing it to the disk');
    keepOwner(partial, database);
    await syncToDisk(partial);
    steps.commit('Putting it in place');
    const kept = await putInPlace(partial, database, key);
    printResult(options, { database, ...contents, kept: kept ?? null }, sentence(database, contents, kept));
  });
}

async function restoreServer(file: string, settings: DatabaseSettings, options: RestoreOptions): Promise<void> {
  const place = placeOf(settings.url);
  const backup = refuseSource(file);
  if (!options.yes) {
    const from = `${file} (${readableSize(backup.size)}, written ${backup.mtime.toISOString()})`;
    await confirm(`Copy ${from} into ${place}?`, 'Nothing was restored');
  }
  const tables = await copyWithProgress(
    { url: `file:${file}`, encryptionKey: settings.encryptionKey },
    settings,
    'restore',
  );
  const persons = tables.find(({ table }) => table === 'users')?.rows ?? 0;
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  printResult(
    options,
    { database: place, persons, rows, tables },
    `${place} is restored: ${counted(persons, 'person')}, ${counted(rows, 'row')}; every table was compared with the backup.`,
  );
}

function refuseSource(file: string, database?: string) {
  const found = statOrNothing(file);
  if (found === undefined) throw new OperatorError(`There is no file ${file}.`);
  if (!found.isFile()) throw new OperatorError(`${file} is not a file.`);
  if (database !== undefined && isSameFile(found, statOrNothing(database)))
    throw new OperatorError(`${file} is the database itself.`);
  for (const suffix of ['-wal', '-journal']) {
    if (!isTaken(`${file}${suffix}`)) continue;
    throw new OperatorError(
      `${file}${suffix} is there, so ${file} alone is not whole: make a backup of it first, ` +
        'with DATABASE_URL=file:… of it.',
    );
  }
  return found;
}

/** Also empties the log of a service that was killed. */
async function refuseWhileUsed(database: string, key: string | undefined): Promise<void> {
  if (isTaken(database)) {
    await useAlone(database, key, () => undefined);
    return;
  }
  const left = companionSuffixes.map((suffix) => `${database}${suffix}`).filter(isTaken);
  if (left.length > 0) {
    throw new OperatorError(
      `The log ${left[0]} belongs to a database file that is missing: put the file back beside its log, or move the log ` +
        'away to restore without the saves that only the log holds.',
    );
  }
}

async function useAlone<Result>(database: string, key: string | undefined, work: () => Result): Promise<Result> {
  try {
    return await withSoleUse(database, key, work);
  } catch (error) {
    const code = error instanceof DatabaseError ? error.code : undefined;
    if (code === 'SQLITE_BUSY') {
      throw new OperatorError(`Nothing was restored: another process has ${database} open. Stop the service first.`);
    }
    if (code === 'SQLITE_NOTADB' || code === 'SQLITE_CORRUPT') {
      throw new OperatorError(
        `Nothing was restored: ${database} cannot be read (${code}), so it is unknown whether it is in use. Stop ` +
          `the service, move the file away together with its -wal and -shm, and run this command again.` +
          (code === 'SQLITE_NOTADB' ? keyRemedy(keyFaultOf(database, key)) : ''),
      );
    }
    throw error;
  }
}

/**
 * After each single step the name of the database leads to a whole one, the old or the new.
 *
 * @returns where the old database is kept, if there was one
 */
async function putInPlace(partial: string, database: string, key: string | undefined): Promise<string | undefined> {
  if (!isTaken(database)) {
    await refuseWhileUsed(database, key);
    // A rename would replace what a service has made in this moment.
    linkSync(partial, database);
    rmSync(partial);
    syncFolderOf(database);
    return undefined;
  }
  const kept = `${database}.before-restore-${new Date().toISOString().replaceAll(/[:.]/g, '-')}`;
  await useAlone(database, key, () => {
    linkSync(database, kept);
    try {
      syncFolderOf(database);
      renameSync(partial, database);
    } catch (error) {
      rmSync(kept, { force: true });
      throw error;
    }
    syncFolderOf(database);
  });
  return kept;
}

async function examine(partial: string, file: string, key: string | undefined): Promise<Contents> {
  try {
    return await examineCopy(partial, key);
  } catch (error) {
    if (!(error instanceof UnfitError)) throw error;
    throw new OperatorError(`Nothing was restored: ${file} ${reasons[error.kind]}.`);
  }
}

const reasons: Readonly<Record<UnfitError['kind'], string>> = {
  'not a database': 'is not a database',
  NOT_ENCRYPTED: `is not encrypted, and DATABASE_ENCRYPTION_KEY is set: restore it without the key, then \`${commandName} rekey\``,
  WRONG_ENCRYPTION_KEY: `is not a database that DATABASE_ENCRYPTION_KEY opens: restore it with the key of its time, then \`${commandName} rekey\``,
  ENCRYPTION_KEY_NEEDED: 'is not a database, or one that is encrypted while DATABASE_ENCRYPTION_KEY is not set',
  damaged: 'is damaged or not whole',
  foreign: 'is not a database of this service',
  newer: 'has a newer schema than this build knows, so use the build that made it',
};

function sentence(database: string, { persons, schema }: Contents, kept: string | undefined): string {
  const before = kept === undefined ? '' : `\nWhat was there before is kept in ${kept}.`;
  return `${database} is restored: ${counted(persons, 'person')}, schema ${schema}.${before}`;
}
