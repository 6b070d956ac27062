import type { Client } from '@libsql/client';
import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json' with { type: 'json' };
import { findDatabaseError, reasonOf } from './errors';

/** The schemas that this build knows, oldest first, each with the `created_at` of its row in `__drizzle_migrations`. */
export const knownSchemas = journal.entries.map(({ tag, when }) => ({ name: tag, createdAt: when }));

/** Epoch milliseconds of the newest migration that this build carries. */
export const neededMigration = Math.max(...knownSchemas.map(({ createdAt }) => createdAt));

/** How the schema of a database relates to this build. Only the client of the service reports `damaged`. */
export type SchemaFit = 'fit' | 'too-old' | 'too-new' | 'damaged';

/** The sentence for a schema that does not fit. */
export const unfitDetail = {
  'too-old': 'The schema is older than this build needs.',
  'too-new': 'The schema has moved on from what this build can read.',
  damaged: 'The schema differs from the one that the migrations create.',
} as const satisfies Record<Exclude<SchemaFit, 'fit'>, string>;

/** The codes with which a gated client refuses statements. */
export const gateCodes = [
  { fit: 'too-old', code: 'SCHEMA_TOO_OLD' },
  { fit: 'too-new', code: 'SCHEMA_TOO_NEW' },
  { fit: 'damaged', code: 'SCHEMA_DAMAGED' },
] as const satisfies { fit: SchemaFit; code: string }[];

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
 * from this build. A database without tables is `too-old`.
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
    const gated = gateCodes.find(({ code }) => code === findDatabaseError(error)?.code);
    if (gated !== undefined) return { fit: gated.fit };
    // Before its first migration; a driver and a server name that by different codes.
    if (reasonOf(error).includes('no such table')) return { fit: 'too-old' };
    throw error;
  }
}
