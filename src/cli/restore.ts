import { chmodSync, linkSync, mkdirSync, realpathSync, renameSync, rmSync, type Stats, statSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { Argument, Command } from 'commander';
import { ConfigError } from '../config/settings';
import { EncryptionKey } from '../config/validators';
import { type DatabaseSettings, localPath, placeOf } from '../db/client';
import { OperatorError } from '../errors';
import { commandName } from '../shared/build';
import { copyDatabaseRows } from './backup';
import { type Context, confirm, readSecret, readSettings } from './context';
import {
  companionSuffixes,
  examine,
  existingFile,
  isSameFile,
  isTaken,
  keepOwner,
  renameDurably,
  statOrNothing,
  syncFolderOf,
  syncToDisk,
  useAlone,
  withPartial,
} from './database';
import { counted, printResult, readableSize } from './output';

interface RestoreOptions {
  readonly yes: boolean;
  readonly json: boolean;
}

export function restoreCommand(context: Context): Command {
  return new Command('restore')
    .description('Replace the database with a backup, with the service stopped, or copy it into an empty libSQL server')
    .addArgument(new Argument('<file>', `a file that \`${commandName} backup\` wrote`))
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Stop the service first: the command fails while another process has the database open. It copies the backup, checks every
page of the copy, and then replaces the database in one step: after a crash there is either the old database or the new
one. The old one is kept beside it as <path>.before-restore-<time>. A libSQL server must have no tables; to continue an
interrupted run, run the same command again. “${commandName} migrate”, or the start of the service, upgrades a backup of
an older schema.`,
    )
    .action((file: string, options: RestoreOptions) => restore(context, resolve(context.cwd, file), options));
}

const notRestored = 'Nothing was restored';

const keyRemedies = {
  NOT_ENCRYPTED: `. Restore it without the key, then run \`${commandName} rekey\``,
  WRONG_ENCRYPTION_KEY: `. Restore it with the key of its time, then run \`${commandName} rekey\``,
};

async function restore(context: Context, file: string, options: RestoreOptions): Promise<void> {
  const settings = readSettings(context, 'restore').database;
  const { encryptionKey: key } = settings;
  const path = localPath(settings.url);
  if (path === undefined) return restoreServer(context, file, settings, options);
  const database = isTaken(path) ? realpathSync(path) : resolve(path);
  const backup = requireSource(file, database);
  await requireUnused(database, key);
  if (isTaken(database) && !options.yes) {
    await confirm(context, `Replace the database ${database} with ${describe(file, backup)}?`, notRestored);
  }
  mkdirSync(dirname(database), { recursive: true, mode: 0o700 });
  await withPartial(context, database, async (partial, steps) => {
    steps.begin(`Copying ${file}`);
    await copyFile(file, partial);
    chmodSync(partial, 0o600);
    steps.begin('Checking the copy');
    const contents = await examine(partial, key, notRestored, file, keyRemedies);
    steps.begin('Syncing the copy to disk');
    keepOwner(partial, database);
    await syncToDisk(partial);
    steps.commit('Replacing the database');
    const kept = await putInPlace(partial, database, key);
    printResult(
      context,
      options,
      { database, ...contents, kept: kept ?? null },
      `${database} is restored: ${counted(contents.persons, 'person')}, schema ${contents.schema}.` +
        (kept === undefined ? '' : `\nThe previous database is kept in ${kept}.`),
    );
  });
}

async function restoreServer(
  context: Context,
  file: string,
  settings: DatabaseSettings,
  options: RestoreOptions,
): Promise<void> {
  const place = placeOf(settings.url);
  const backup = requireSource(file);
  if (!options.yes) await confirm(context, `Copy ${describe(file, backup)} into ${place}?`, notRestored);
  const source = { url: `file:${file}`, encryptionKey: settings.encryptionKey };
  const tables = await copyDatabaseRows(source, settings, { command: 'restore', context });
  const persons = tables.find(({ table }) => table === 'users')?.rows ?? 0;
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  printResult(
    context,
    options,
    { database: place, persons, rows, tables },
    `${place} is restored: ${counted(persons, 'person')}, ${counted(rows, 'row')}; every table was compared with the backup.`,
  );
}

function describe(file: string, { size, mtime }: Stats): string {
  return `${file} (${readableSize(size)}, written ${mtime.toISOString()})`;
}

/** @throws OperatorError when the file cannot be a backup */
function requireSource(file: string, database?: string): Stats {
  const found = statOrNothing(file);
  if (found === undefined) throw new OperatorError(`There is no file ${file}.`);
  if (!found.isFile()) throw new OperatorError(`${file} is not a file.`);
  if (database !== undefined && isSameFile(found, statOrNothing(database))) {
    throw new OperatorError(`${file} is the database itself.`);
  }
  for (const suffix of ['-wal', '-journal']) {
    if (!isTaken(`${file}${suffix}`)) continue;
    throw new OperatorError(
      `${file}${suffix} exists, so ${file} alone is incomplete: make a backup of it first, ` +
        'with DATABASE_URL=file:… of it.',
    );
  }
  return found;
}

/** @throws OperatorError while another process uses the database, or when a log has lost its database */
async function requireUnused(database: string, key: string | undefined): Promise<void> {
  if (isTaken(database)) {
    await useToReplace(database, key, () => undefined);
    return;
  }
  const left = companionSuffixes.map((suffix) => `${database}${suffix}`).filter(isTaken);
  if (left.length > 0) {
    throw new OperatorError(
      `The WAL ${left[0]} belongs to a database file that is missing: put the file back beside its WAL, or move the WAL ` +
        'away to restore without the saves that only the WAL contains.',
    );
  }
}

function useToReplace<Result>(database: string, key: string | undefined, work: () => Result): Promise<Result> {
  const advice =
    ' The command cannot tell whether a process uses it. Stop the service, move the file away together with its -wal ' +
    'and -shm, and run this command again.';
  return useAlone(database, key, notRestored, work, advice);
}

/**
 * Replaces the database. At every moment its name leads to a complete database, the old one or the new one.
 *
 * @returns the path of the old database, if there was one
 */
async function putInPlace(partial: string, database: string, key: string | undefined): Promise<string | undefined> {
  if (!isTaken(database)) {
    await requireUnused(database, key);
    // Unlike a rename, a link does not replace a database that a service has just created.
    linkSync(partial, database);
    rmSync(partial);
    syncFolderOf(database);
    return undefined;
  }
  const kept = `${database}.before-restore-${new Date().toISOString().replaceAll(/[:.]/g, '-')}`;
  await useToReplace(database, key, () => {
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

interface RekeyOptions {
  readonly newKeyFile?: string;
  readonly decrypt: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

export function rekeyCommand(context: Context): Command {
  return new Command('rekey')
    .description('Encrypt the database with another key, with the service stopped')
    .option('--new-key-file <file>', 'a file with the new key, or - for standard input')
    .option('--decrypt', 'remove the encryption', false)
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The current key is DATABASE_ENCRYPTION_KEY; do not set it for a database that is not encrypted yet. The new key is
NEW_DATABASE_ENCRYPTION_KEY or the content of --new-key-file, never an argument, which every process could read. The
command writes a copy with the new key, checks every page of it, and then replaces the database in one step: after a
crash, too, the database opens with the old key or with the new one. The disk must have room for both. Then start the
service with the new key. Earlier backups keep their key, and the content of the old file may stay on the disk until it
is overwritten.`,
    )
    .action((options: RekeyOptions) => rekey(context, options));
}

const notChanged = 'Nothing was changed';

async function rekey(context: Context, options: RekeyOptions): Promise<void> {
  const { url, encryptionKey: key } = readSettings(context, 'rekey').database;
  const path = localPath(url);
  if (path === undefined) throw new OperatorError(`${placeOf(url)} is a libSQL server, which has its own key.`);
  const database = existingFile(path);
  const newKey = await readNewKey(context, options);
  if (newKey === key) {
    throw new OperatorError(
      key === undefined ? 'The database is not encrypted: there is nothing to do.' : 'The new key is the current key.',
    );
  }
  await useAlone(database, key, notChanged, () => undefined);
  if (!options.yes) await confirm(context, `${question(key, newKey)} ${database}?`, notChanged);
  await withPartial(context, database, async (partial, steps) => {
    const contents = await useAlone(database, key, notChanged, async (copyTo) => {
      steps.begin(`Copying ${database} (${readableSize(statSync(database).size)})`);
      await copyTo(partial, newKey);
      steps.begin('Checking the copy');
      const examined = await examine(partial, newKey, notChanged, `the copy of ${database}`);
      steps.begin('Syncing the copy to disk');
      keepOwner(partial, database);
      await syncToDisk(partial);
      steps.commit('Replacing the database');
      renameDurably(partial, database);
      return examined;
    });
    const isEncrypted = newKey !== undefined;
    const change = isEncrypted
      ? 'is encrypted with the new key. Set DATABASE_ENCRYPTION_KEY to it before you start the service'
      : 'is no longer encrypted. Unset DATABASE_ENCRYPTION_KEY before you start the service';
    printResult(
      context,
      options,
      { database, isEncrypted, ...contents },
      `${database} ${change}.\nIt has ${counted(contents.persons, 'person')}, schema ${contents.schema}. ` +
        'Make a backup now: earlier backups keep their key.',
    );
  });
}

/** The new key; undefined for `--decrypt`. */
async function readNewKey(context: Context, { newKeyFile, decrypt }: RekeyOptions): Promise<string | undefined> {
  const variable = 'NEW_DATABASE_ENCRYPTION_KEY';
  if (decrypt) {
    if (newKeyFile === undefined && context.env[variable] === undefined) return undefined;
    throw new OperatorError('A new key and --decrypt are both set: give one of the two.');
  }
  const key = await readSecret(context, variable, '--new-key-file', newKeyFile, EncryptionKey);
  if (key === undefined) {
    throw new OperatorError(`There is no new key: set ${variable}, or use --new-key-file or --decrypt.`);
  }
  requireUsable(context, key);
  return key;
}

/** With a key that the settings reject, neither the service nor this command could open the database again. */
function requireUsable({ env }: Context, key: string): void {
  try {
    readSettings({ env: { ...env, DATABASE_ENCRYPTION_KEY: key, DATABASE_ENCRYPTION_KEY_FILE: undefined } }, 'rekey');
  } catch (error) {
    const fault = error instanceof ConfigError ? error.faults[0] : undefined;
    if (fault === undefined) throw error;
    throw new OperatorError(`${notChanged}: as DATABASE_ENCRYPTION_KEY, the new key ${fault.rule}.`);
  }
}

function question(key: string | undefined, newKey: string | undefined): string {
  if (newKey === undefined) return 'Remove the encryption of';
  return key === undefined ? 'Encrypt' : 'Change the key of';
}
