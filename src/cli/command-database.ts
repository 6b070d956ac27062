import type { Config } from '../config';
import { absenceOf, closeDatabase, type Database, openDatabase } from '../db/client';
import { damageMessage, reportSchema } from '../db/migrate';
import { schemaFit, unfitDetail } from '../db/schema-fit';
import { commandName } from '../package-root';
import { OperatorError } from './operator-error';

const migrateFirst = ` Run \`${commandName} migrate\` first.`;

/**
 * Opens the configured database for one command and closes it afterwards. The database must exist and be migrated: with a
 * mistyped path, the command would create an empty one, and a dry run would migrate that of a running service.
 */
export async function withDatabase<Result>(
  config: Pick<Config, 'database'>,
  work: (db: Database) => Promise<Result>,
): Promise<Result> {
  const absence = absenceOf(config.database.url);
  if (absence !== undefined) throw new OperatorError(`${absence}${migrateFirst}`);
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
