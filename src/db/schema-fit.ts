import type { Client } from '@libsql/client';
import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json' with { type: 'json' };
import { commandName } from '../package-root';
import { findDatabaseError, reasonOf } from './errors';

/** The schemas that this build knows, oldest first, each with the `created_at` of its row in `__drizzle_migrations`. */
export const knownSchemas = journal.entries.map(({ tag, when }) => ({ name: tag, createdAt: when }));

/** Epoch milliseconds of the newest migration that this build carries. */
export const neededMigration = Math.max(...knownSchemas.map(({ createdAt }) => createdAt));

/** How the schema of a database relates to this build. Only the client of the service reports `damaged`. */
export type SchemaFit = 'fit' | 'too-old' | 'too-new' | 'damaged' | Contents;

/** Why a database has no schema of this service. */
type Contents = 'empty' | 'unfinished-copy' | 'unfinished-restore' | 'unrecorded' | 'foreign';

/** A table in a database until it is a whole copy; it holds the id of the source. */
export const unfinishedTables = { copy: '__unfinished_copy', restore: '__unfinished_restore' } as const;

/** The sentence for a schema that does not fit. */
export const unfitDetail = {
  'too-old': 'The schema is older than this build needs.',
  'too-new': 'The schema has moved on from what this build can read.',
  damaged: 'The schema differs from the one that the migrations create.',
  empty: 'The database has no tables.',
  'unfinished-copy': 'The database is an unfinished copy.',
  'unfinished-restore': 'The database is an unfinished restore.',
  unrecorded: 'The database has tables of this service, but no record of its migrations.',
  foreign: 'The database belongs to another program.',
} as const satisfies Record<Exclude<SchemaFit, 'fit'>, string>;

/** The codes with which a gated client refuses statements. */
export const gateCodes = [
  { fit: 'too-old', code: 'SCHEMA_TOO_OLD' },
  { fit: 'too-new', code: 'SCHEMA_TOO_NEW' },
  { fit: 'damaged', code: 'SCHEMA_DAMAGED' },
  { fit: 'empty', code: 'SCHEMA_EMPTY' },
  { fit: 'unfinished-copy', code: 'SCHEMA_UNFINISHED_COPY' },
  { fit: 'unfinished-restore', code: 'SCHEMA_UNFINISHED_RESTORE' },
  { fit: 'unrecorded', code: 'SCHEMA_UNRECORDED' },
  { fit: 'foreign', code: 'SCHEMA_FOREIGN' },
] as const satisfies { fit: SchemaFit; code: string }[];

const beginAgain = 'or remove the database and begin with an empty one.';

const remedies = {
  'too-old': `Run \`${commandName} migrate\` first.`,
  'too-new': 'Use a newer build.',
  damaged: `Run \`${commandName} doctor\`.`,
  empty: `Run \`${commandName} migrate\` to create it, or correct DATABASE_URL.`,
  'unfinished-copy': `Run \`${commandName} copy\` again, ${beginAgain}`,
  'unfinished-restore': `Run \`${commandName} restore\` again, ${beginAgain}`,
  unrecorded: 'Restore a backup.',
  foreign: 'Nothing was changed. Correct DATABASE_URL.',
} as const satisfies Record<Exclude<SchemaFit, 'fit'>, string>;

/** Names the database and what does not fit, and then the remedy. */
export function unfitMessage(fit: Exclude<SchemaFit, 'fit'>, place: string): string {
  return `${unfitDetail[fit].replace(/^The database/, `$& ${place}`)} ${remedies[fit]}`;
}

/** The fit that the code of a refused statement or a refused open stands for. */
export function unfitOf(error: unknown): Exclude<SchemaFit, 'fit'> | undefined {
  const code = findDatabaseError(error)?.code;
  return gateCodes.find((each) => each.code === code)?.fit;
}

/** Reads which of its tables a database has; for `contentsOf`. */
export const contentsQuery = `SELECT
  coalesce(max(name = '${unfinishedTables.copy}'), 0) AS copying,
  coalesce(max(name = '${unfinishedTables.restore}'), 0) AS restoring,
  coalesce(max(name = '__drizzle_migrations'), 0) AS recorded,
  coalesce(max(name IN ('reference_lists', 'reference_options', 'schema_compatibility')), 0) AS known,
  coalesce(max(name NOT GLOB 'libsql_*' AND name NOT GLOB '_litestream_*' AND name <> '__drizzle_migrations'), 0) AS others
  FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*'`;

const Flag = v.pipe(
  v.union([v.number(), v.bigint()]),
  v.transform((value) => Number(value) === 1),
);
const Flags = v.object({ copying: Flag, restoring: Flag, recorded: Flag, known: Flag, others: Flag });

/** Tells from the row of `contentsQuery` why a database has no schema of this service; undefined if it has one. */
export function contentsOf(row: unknown): Contents | undefined {
  const { copying, restoring, recorded, known, others } = v.parse(Flags, row);
  if (copying) return 'unfinished-copy';
  if (restoring) return 'unfinished-restore';
  if (!others) return 'empty';
  if (!known) return 'foreign';
  return recorded ? undefined : 'unrecorded';
}

const Versions = v.object({
  newest: v.nullable(v.pipe(v.union([v.number(), v.string()]), v.transform(Number))),
  minReader: v.nullable(v.number()),
  schemaVersion: v.number(),
});

/** Which database it is, as its own row says. */
export async function databaseId(client: Pick<Client, 'execute'>): Promise<string> {
  const { rows } = await client.execute('SELECT database_id FROM schema_compatibility');
  return v.parse(v.string(), rows[0]?.database_id);
}

/**
 * Returns whether this build can serve on the schema of a database. A newer schema fits unless it takes something away
 * from this build.
 *
 * @throws DatabaseError
 */
export async function schemaFit(client: Pick<Client, 'execute'>): Promise<SchemaFit> {
  return (await schemaState(client)).fit;
}

/** Returns how the schema fits, and the number that SQLite changes with every change of the schema. */
export async function schemaState(
  client: Pick<Client, 'execute'>,
): Promise<{ readonly fit: SchemaFit; readonly schemaVersion?: number }> {
  try {
    const { rows } = await client.execute(`SELECT
      (SELECT max(created_at) FROM __drizzle_migrations) AS newest,
      (SELECT max(min_reader) FROM schema_compatibility) AS minReader,
      (SELECT schema_version FROM pragma_schema_version) AS schemaVersion`);
    const { newest, minReader, schemaVersion } = v.parse(Versions, rows[0]);
    if ((newest ?? 0) < neededMigration) return { fit: 'too-old' };
    return { fit: (minReader ?? 0) > neededMigration ? 'too-new' : 'fit', schemaVersion };
  } catch (error) {
    const refused = unfitOf(error);
    if (refused !== undefined) return { fit: refused };
    // Before its first migration; a driver and a server name that by different codes.
    if (!reasonOf(error).includes('no such table')) throw error;
    const { rows } = await client.execute(contentsQuery);
    return { fit: contentsOf(rows[0]) ?? 'too-old' };
  }
}
