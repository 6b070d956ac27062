import { existsSync } from 'node:fs';
import type { Config } from '../config';
import { closeDatabase, type Database, localPath, openDatabase, placeOf } from '../db/client';
import { damageMessage, reportSchema } from '../db/migrate';
import { schemaFit, unfitDetail } from '../db/schema-fit';
import { OperatorError } from './operator-error';

const migrateFirst = ' Run `bun planning migrate` first.';

/**
 * Opens the configured database for one command and closes it after. It must be there and migrated: a mistyped path
 * would otherwise be a new and empty database, and a dry run would change the one of a running service.
 */
export async function withDatabase<Result>(config: Config, work: (db: Database) => Promise<Result>): Promise<Result> {
  const path = localPath(config.database.url);
  if (path !== undefined && !existsSync(path)) {
    throw new OperatorError(`There is no database at ${placeOf(config.database.url)}.${migrateFirst}`);
  }
  const db = await openDatabase(config.database);
  try {
    const fit = await schemaFit(db.$client);
    if (fit !== 'fit') throw new OperatorError(`${unfitDetail[fit]}${fit === 'too-old' ? migrateFirst : ''}`);
    const { blocking } = await reportSchema(db);
    if (blocking.length > 0) throw new OperatorError(damageMessage(blocking));
    return await work(db);
  } finally {
    await closeDatabase(db);
  }
}
