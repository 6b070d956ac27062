import type { Config } from '../config';
import {
  absenceOf,
  closeDatabase,
  type Database,
  type DatabaseSettings,
  keptLogWarning,
  openDatabase,
  placeOf,
} from '../db/client';
import { damageMessage, reportSchema } from '../db/migrate';
import { schemaFit, unfitMessage, unfitOf } from '../db/schema-fit';
import { OperatorError } from '../errors';
import { commandName } from '../package-root';

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
  const db = await openOwnDatabase(config.database);
  try {
    const fit = await schemaFit(db.$client);
    if (fit !== 'fit') throw new OperatorError(unfitMessage(fit, placeOf(config.database.url)));
    const { blocking } = await reportSchema(db);
    if (blocking.length > 0) throw new OperatorError(damageMessage(blocking));
    return await work(db);
  } finally {
    await closeOfCommand(db, config.database.url);
  }
}

/**
 * Opens a database of this service, or one without tables.
 *
 * @throws OperatorError for a file of another program, which stays as it is
 */
export function openOwnDatabase(settings: DatabaseSettings): Promise<Database> {
  return openDatabase({ ...settings, isOwn: true }).catch((error: unknown) => {
    throw toOperatorError(error, placeOf(settings.url));
  });
}

/** Names the database and the remedy if the error says that its schema does not fit; any other error stays. */
export function toOperatorError(error: unknown, place: string): unknown {
  const fit = unfitOf(error);
  return fit === undefined ? error : new OperatorError(unfitMessage(fit, place));
}

/** Closes the database, and prints a line where the database file alone does not hold all rows. */
export async function closeOfCommand(db: Database, url: string): Promise<void> {
  const code = await closeDatabase(db);
  if (code !== undefined) process.stderr.write(`${placeOf(url)}: ${keptLogWarning(code)}.\n`);
}
