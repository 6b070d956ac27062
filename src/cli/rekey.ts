import { existsSync, realpathSync, renameSync, statSync } from 'node:fs';
import { Command } from 'commander';
import { ConfigError } from '../config/settings';
import { EncryptionKey } from '../config/validators';
import { type Contents, examineCopy, UnfitError, withSoleUse } from '../db/backup';
import { localPath, placeOf } from '../db/client';
import { requireOwnLog } from '../db/database-file';
import { keyFaultOf, keyRemedy } from '../db/encryption';
import { DatabaseError } from '../db/errors';
import { OperatorError } from '../errors';
import { confirm, readSecret } from './context';
import { keepOwner, syncFolderOf, syncToDisk, withPartial } from './files';
import { counted, printResult, readableSize } from './output';
import { readSettings } from './settings';

interface RekeyOptions {
  readonly newKeyFile?: string;
  readonly decrypt: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

export function rekeyCommand(): Command {
  return new Command('rekey')
    .description('Encrypt the database with another key, with the service stopped')
    .option('--new-key-file <file>', 'a file that holds the new key, or - for standard input')
    .option('--decrypt', 'leave the database without encryption', false)
    .option('--yes', 'do not ask', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The key in use is DATABASE_ENCRYPTION_KEY, which is not set for a database that is not encrypted yet. The new one is
NEW_DATABASE_ENCRYPTION_KEY or the content of --new-key-file, never an argument, which every process could read. A copy is
made with the new key and checked page by page, and then replaces the database in one step: after a crash, too, the
database opens with the old key or with the new one. The disk must have room for both. Start the service with the new key
then. Backups of before keep the key of before, and what was in the old file may stay on the disk until it is written
over.`,
    )
    .action((options: RekeyOptions) => rekey(options));
}

async function rekey(options: RekeyOptions): Promise<void> {
  const { url, encryptionKey: key } = readSettings('rekey').database;
  const database = databaseToRekey(url);
  const newKey = options.decrypt ? withoutKey(options) : readNewKey(options);
  if (newKey === key) {
    throw new OperatorError(
      key === undefined ? 'The database is not encrypted: there is nothing to do.' : 'The new key is the key in use.',
    );
  }
  await useAlone(database, key, () => undefined);
  if (!options.yes) await confirm(`${question(key, newKey)} ${database}?`, 'Nothing was changed');
  await withPartial(database, async (partial, steps) => {
    const contents = await useAlone(database, key, async (copyTo) => {
      steps.begin(`Copying ${database} (${readableSize(statSync(database).size)})`);
      await copyTo(partial, newKey);
      steps.begin('Checking the copy');
      const examined = await examine(partial, newKey);
      steps.begin('Syncing it to the disk');
      keepOwner(partial, database);
      await syncToDisk(partial);
      steps.commit('Putting it in place');
      renameSync(partial, database);
      syncFolderOf(database);
      return examined;
    });
    const isEncrypted = newKey !== undefined;
    printResult(options, { database, isEncrypted, ...contents }, sentence(database, contents, isEncrypted));
  });
}

/** The file itself, not a link to it, beside which SQLite has its log. */
function databaseToRekey(url: string): string {
  const path = localPath(url);
  if (path === undefined) throw new OperatorError(`${placeOf(url)} is a libSQL server, which has its own key.`);
  requireOwnLog(path);
  if (!existsSync(path)) throw new OperatorError(`There is no database at ${placeOf(url)}.`);
  return realpathSync(path);
}

function withoutKey({ newKeyFile }: RekeyOptions): undefined {
  if (newKeyFile !== undefined || process.env.NEW_DATABASE_ENCRYPTION_KEY !== undefined) {
    throw new OperatorError('There is a new key beside --decrypt: give one of the two.');
  }
}

function readNewKey({ newKeyFile }: RekeyOptions): string {
  const key = readSecret('NEW_DATABASE_ENCRYPTION_KEY', '--new-key-file', newKeyFile, EncryptionKey);
  if (key === undefined) {
    throw new OperatorError(
      'There is no new key: set NEW_DATABASE_ENCRYPTION_KEY, or say --new-key-file or --decrypt.',
    );
  }
  refuseUnlessUsable(key);
  return key;
}

/** With a key that the settings refuse, neither the service nor this command would start on the database any more. */
function refuseUnlessUsable(key: string): void {
  try {
    readSettings('rekey', { ...process.env, DATABASE_ENCRYPTION_KEY: key, DATABASE_ENCRYPTION_KEY_FILE: undefined });
  } catch (error) {
    const fault = error instanceof ConfigError ? error.faults[0] : undefined;
    if (fault === undefined) throw error;
    throw new OperatorError(`Nothing was changed: as DATABASE_ENCRYPTION_KEY, the new key ${fault.rule}.`);
  }
}

function question(key: string | undefined, newKey: string | undefined): string {
  if (newKey === undefined) return 'Take the encryption from';
  return key === undefined ? 'Encrypt' : 'Give another key to';
}

async function useAlone<Result>(
  database: string,
  key: string | undefined,
  work: Parameters<typeof withSoleUse<Result>>[2],
): Promise<Result> {
  try {
    return await withSoleUse(database, key, work);
  } catch (error) {
    const code = error instanceof DatabaseError ? error.code : undefined;
    switch (code) {
      case 'SQLITE_BUSY':
        throw new OperatorError(`Nothing was changed: another process has ${database} open. Stop the service first.`);
      case 'SQLITE_NOTADB':
        throw new OperatorError(
          `Nothing was changed: ${database} cannot be read (${code}).${keyRemedy(keyFaultOf(database, key))}`,
        );
      case 'SQLITE_FULL':
        throw new OperatorError('Nothing was changed: the disk has no room for a second copy (SQLITE_FULL).');
      case 'SQLITE_CORRUPT':
        throw new OperatorError(`Nothing was changed: ${database} is damaged (${code}).`);
      default:
        throw error;
    }
  }
}

async function examine(partial: string, newKey: string | undefined): Promise<Contents> {
  try {
    return await examineCopy(partial, newKey);
  } catch (error) {
    if (!(error instanceof UnfitError)) throw error;
    throw new OperatorError(`Nothing was changed: ${reasons[error.kind]}.`);
  }
}

const unreadable = 'the copy cannot be opened with the new key, so check the disk';
const reasons: Readonly<Record<UnfitError['kind'], string>> = {
  'not a database': unreadable,
  NOT_ENCRYPTED: unreadable,
  WRONG_ENCRYPTION_KEY: unreadable,
  ENCRYPTION_KEY_NEEDED: unreadable,
  damaged: 'the copy is damaged, so check the database and the disk',
  foreign: 'DATABASE_URL is not a database of this service, or was never migrated',
  newer: 'the database has a newer schema than this build knows, so use the build that runs on it',
};

function sentence(database: string, { persons, schema }: Contents, isEncrypted: boolean): string {
  const next = isEncrypted
    ? 'is encrypted with the new key. Set DATABASE_ENCRYPTION_KEY to it before the service is started'
    : 'is not encrypted any more. Take DATABASE_ENCRYPTION_KEY away before the service is started';
  return `${database} ${next}.\nIt holds ${counted(persons, 'person')}, schema ${schema}. Make a backup now: those of before keep their key.`;
}
