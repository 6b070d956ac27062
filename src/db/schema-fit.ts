import { fileURLToPath } from 'node:url';
import type { Client } from '@libsql/client';
import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json' with { type: 'json' };
import { packageRoot } from '../package-root';
import { findDatabaseError, reasonOf } from './errors';

export const migrationsFolder = fileURLToPath(new URL('drizzle', packageRoot));

/** The schemas that this build knows, oldest first, each with the `created_at` of its row in `__drizzle_migrations`. */
export const knownSchemas = journal.entries.map(({ tag, when }) => ({ name: tag, createdAt: when }));

/** Epoch milliseconds of the newest migration that this build carries. */
export const neededMigration = Math.max(...knownSchemas.map(({ createdAt }) => createdAt));

/** How the schema of a database stands to this build. */
export type SchemaFit = 'fit' | 'too-old' | 'too-new';

/** What to say of a schema that does not fit. */
export const unfitDetail = {
  'too-old': 'The schema is older than this build needs.',
  'too-new': 'The schema has moved on from what this build can read.',
} as const satisfies Record<Exclude<SchemaFit, 'fit'>, string>;

/** What a gated client says instead of sending anything. */
export const gateCodes = [
  { fit: 'too-old', code: 'SCHEMA_TOO_OLD' },
  { fit: 'too-new', code: 'SCHEMA_TOO_NEW' },
] as const satisfies { fit: SchemaFit; code: string }[];

const Versions = v.object({
  newest: v.nullable(v.pipe(v.union([v.number(), v.string()]), v.transform(Number))),
  minReader: v.nullable(v.number()),
});

/** Which database it is, as its own row says. */
export async function databaseId(client: Pick<Client, 'execute'>): Promise<string> {
  const { rows } = await client.execute('SELECT database_id FROM schema_compatibility');
  return v.parse(v.string(), rows[0]?.database_id);
}

/**
 * Whether this build can serve on the schema that is there, which may be newer as long as it takes nothing away from
 * this build; 'too-old' for a database without tables.
 *
 * @throws DatabaseError
 */
export async function schemaFit(client: Pick<Client, 'execute'>): Promise<SchemaFit> {
  try {
    const { rows } = await client.execute(`SELECT
      (SELECT max(created_at) FROM __drizzle_migrations) AS newest,
      (SELECT max(min_reader) FROM schema_compatibility) AS minReader`);
    const { newest, minReader } = v.parse(Versions, rows[0]);
    if ((newest ?? 0) < neededMigration) return 'too-old';
    return (minReader ?? 0) > neededMigration ? 'too-new' : 'fit';
  } catch (error) {
    const gated = gateCodes.find(({ code }) => code === findDatabaseError(error)?.code);
    if (gated !== undefined) return gated.fit;
    // Before its first migration; a driver and a server name that by different codes.
    if (reasonOf(error).includes('no such table')) return 'too-old';
    throw error;
  }
}
