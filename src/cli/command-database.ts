import type { Config } from '../config';
import { type Database, localPath, openDatabase } from '../db/client';
import { isMigrated, migrateDatabase } from '../db/migrate';
import { OperatorError } from './operator-error';

/**
 * Opens the configured database for one command and closes it after. A local file is brought up to date, as the
 * service's start does; a remote one must be.
 */
export async function withDatabase<Result>(config: Config, work: (db: Database) => Promise<Result>): Promise<Result> {
  const db = await openDatabase(config.database);
  try {
    if (localPath(config.database.url) !== undefined) await migrateDatabase(db);
    else if (!(await isMigrated(db))) {
      throw new OperatorError('The database is older than this build needs: run `bun planning migrate` first.');
    }
    return await work(db);
  } finally {
    db.$client.close();
  }
}
