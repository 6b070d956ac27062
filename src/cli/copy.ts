import { closeSync, existsSync, linkSync, openSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { Command } from 'commander';
import * as v from 'valibot';
import { DatabaseUrl, EncryptionKey, NonEmpty } from '../config/validators';
import { examineCopy, UnfitError } from '../db/backup';
import { localPath, placeOf } from '../db/client';
import { requireOwnLog } from '../db/database-file';
import { keyRemedy } from '../db/encryption';
import { DatabaseError } from '../db/errors';
import type { CopiedTable } from '../db/row-copy';
import type { DatabasePlace } from '../db/row-store';
import { OperatorError } from '../errors';
import { readSecret } from './context';
import { companionSuffixes, isTaken, syncFolderOf, syncToDisk } from './files';
import { counted, createProgress, printResult } from './output';
import { readSettings } from './settings';

interface CopyOptions {
  readonly from?: string;
  readonly to: string;
  readonly toKeyFile?: string;
  readonly toTokenFile?: string;
  readonly json: boolean;
}

export function copyCommand(): Command {
  return new Command('copy')
    .description('Copy the database to an empty one of any kind: a file, an encrypted file or a libSQL server')
    .requiredOption('--to <url>', 'file:PATH of a new file, or a libSQL server without tables')
    .option('--from <url>', 'the database to copy; else DATABASE_URL')
    .option('--to-key-file <file>', 'a file with the key that encrypts the new file')
    .option('--to-token-file <file>', 'a file with the token for the new server')
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The source is opened with DATABASE_ENCRYPTION_KEY and DATABASE_AUTH_TOKEN. The target has settings of its own:
TARGET_DATABASE_ENCRYPTION_KEY or --to-key-file, and TARGET_DATABASE_AUTH_TOKEN or --to-token-file.

The copy is the state of the source when the command began; the service may go on saving. To move a database, stop the
service first. At the end the row count and a SHA-256 checksum of every table are compared. A run that was interrupted is
continued by the same command; until it is complete, the service refuses the target. The copy gets a database id of its own.`,
    )
    .action((options: CopyOptions) => copy(options));
}

async function copy(options: CopyOptions): Promise<void> {
  const startedAtMs = performance.now();
  const source = readSettings('copy', {
    ...process.env,
    ...(options.from !== undefined && { DATABASE_URL: options.from }),
  });
  const target = targetOf(options);
  const sourcePath = localPath(source.database.url);
  if (sourcePath !== undefined) requireOwnLog(sourcePath);
  if (sourcePath !== undefined && !existsSync(sourcePath)) {
    throw new OperatorError(`There is no database at ${resolve(sourcePath)}.`);
  }
  const path = localPath(target.url);
  const tables = await (path === undefined
    ? copyWithProgress(source.database, target)
    : copyToFile(source.database, target, resolve(path)));
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  const tookMs = Math.round(performance.now() - startedAtMs);
  const [from, to] = [placeOf(source.database.url), placeOf(target.url)];
  printResult(
    options,
    { from, to, rows, tables, tookMs },
    `${counted(rows, 'row')} of ${counted(tables.length, 'table')} were copied from ${from} to ${to} and compared; ` +
      `it took ${(tookMs / 1000).toFixed(1)} s.`,
  );
}

function targetOf({ to, toKeyFile, toTokenFile }: CopyOptions): DatabasePlace {
  const url = v.safeParse(DatabaseUrl, to);
  if (!url.success) throw new OperatorError(`--to ${url.issues[0].message}.`);
  const encryptionKey = readSecret('TARGET_DATABASE_ENCRYPTION_KEY', '--to-key-file', toKeyFile, EncryptionKey);
  const authToken = readSecret('TARGET_DATABASE_AUTH_TOKEN', '--to-token-file', toTokenFile, NonEmpty);
  if (localPath(to) === undefined && encryptionKey !== undefined) {
    throw new OperatorError('A libSQL server encrypts its own files: give no key for it.');
  }
  return { url: to, encryptionKey, authToken };
}

/** Under another name until it is whole. */
async function copyToFile(source: DatabasePlace, target: DatabasePlace, path: string): Promise<CopiedTable[]> {
  for (const name of ['', ...companionSuffixes].map((suffix) => `${path}${suffix}`)) {
    if (isTaken(name)) throw new OperatorError(`${name} exists already: name a new file.`);
  }
  const unfinished = `${path}.unfinished-copy`;
  closeSync(openSync(unfinished, 'a', 0o600));
  const tables = await copyWithProgress(source, { ...target, url: `file:${unfinished}` });
  await examineCopy(unfinished, target.encryptionKey).catch((error: unknown) => {
    throw error instanceof UnfitError ? new OperatorError(`The copy in ${unfinished} is ${error.kind}.`) : error;
  });
  await syncToDisk(unfinished);
  linkSync(unfinished, path);
  rmSync(unfinished);
  syncFolderOf(path);
  return tables;
}

/** Shows on a terminal how far the copy is. */
export function copyWithProgress(
  source: DatabasePlace,
  target: DatabasePlace,
  command: 'copy' | 'restore' = 'copy',
): Promise<CopiedTable[]> {
  let progress: ReturnType<typeof createProgress> | undefined;
  let shown = 0;
  const onProgress = (rows: number, total: number) => {
    progress ??= createProgress('Copying', total);
    progress.countRows(rows - shown);
    progress.advance(rows - shown);
    shown = rows;
  };
  return copyDatabaseRows(source, target, { command, onProgress }).finally(() => progress?.stop());
}

interface RowsCopy {
  /** A restore checks every page of the source first. */
  readonly command?: 'copy' | 'restore';
  readonly onProgress?: (rows: number, total: number) => void;
}

/**
 * Copies all rows of one database to another, which must be empty or hold an unfinished copy.
 *
 * @throws OperatorError
 */
export async function copyDatabaseRows(
  from: DatabasePlace,
  to: DatabasePlace,
  { command = 'copy', onProgress }: RowsCopy = {},
): Promise<CopiedTable[]> {
  const [{ copyRows, CopyError, isIntact }, { openSnapshot, openTarget }] = await Promise.all([
    import('../db/row-copy'),
    import('../db/row-store'),
  ]);
  const failed =
    (verb: string, { url }: DatabasePlace) =>
    (error: unknown) => {
      if (!(error instanceof DatabaseError) || error.code === 'SQLITE_BUSY') throw error;
      throw new OperatorError(`${placeOf(url)} cannot be ${verb} (${error.code}).${keyRemedy(error.code)}`);
    };
  const source = await openSnapshot(from).catch(failed('read', from));
  try {
    if (command === 'restore' && !(await isIntact(source))) throw new OperatorError(`${placeOf(from.url)} is damaged.`);
    const target = await openTarget(to).catch(failed('written', to));
    try {
      return await copyRows(source, target, { command, onProgress });
    } finally {
      await target.close();
    }
  } catch (error) {
    if (error instanceof CopyError) throw new OperatorError(error.message);
    throw error;
  } finally {
    await source.close();
  }
}
