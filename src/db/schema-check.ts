import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json' with { type: 'json' };
import { withTimeout } from '../shared/async';
import { commandName } from '../shared/build';
import { beforeDeadline, DatabaseError, findDatabaseError, reasonOf } from './errors';
import { blockingObjects } from './migrations';
import { intercept, type SqlClient } from './sql-client';

/** The schemas that this build knows, oldest first, each with the `created_at` of its row in `__drizzle_migrations`. */
export const knownSchemas = journal.entries.map(({ tag, when }) => ({ name: tag, createdAt: when }));

/** Epoch milliseconds of the newest migration of this build. */
export const neededMigration = Math.max(...knownSchemas.map(({ createdAt }) => createdAt));

/** Why this build cannot use a database. Only the client of the service reports `damaged`. */
type Incompatibility = 'too-old' | 'too-new' | 'damaged' | Contents;

type SchemaState = 'compatible' | Incompatibility;

/** Why a database does not have the schema of this service. */
type Contents = 'empty' | 'unfinished-copy' | 'unfinished-restore' | 'unrecorded' | 'foreign';

/** A database has one of these tables until its copy is complete; the row is the id of the source. */
export const unfinishedTables = { copy: '__unfinished_copy', restore: '__unfinished_restore' } as const;

export const incompatibilityDetails = {
  'too-old': 'The schema is older than this build needs.',
  'too-new': 'The schema is newer than this build can read.',
  damaged: 'The schema differs from the one that the migrations create.',
  empty: 'The database has no tables.',
  'unfinished-copy': 'The database is an unfinished copy.',
  'unfinished-restore': 'The database is an unfinished restore.',
  unrecorded: 'The database has tables of this service, but no record of its migrations.',
  foreign: 'The database belongs to another program.',
} as const satisfies Record<Incompatibility, string>;

/** The codes of the DatabaseErrors for an incompatible schema. */
export const schemaCodes = [
  { state: 'too-old', code: 'SCHEMA_TOO_OLD' },
  { state: 'too-new', code: 'SCHEMA_TOO_NEW' },
  { state: 'damaged', code: 'SCHEMA_DAMAGED' },
  { state: 'empty', code: 'SCHEMA_EMPTY' },
  { state: 'unfinished-copy', code: 'SCHEMA_UNFINISHED_COPY' },
  { state: 'unfinished-restore', code: 'SCHEMA_UNFINISHED_RESTORE' },
  { state: 'unrecorded', code: 'SCHEMA_UNRECORDED' },
  { state: 'foreign', code: 'SCHEMA_FOREIGN' },
] as const satisfies { state: Incompatibility; code: string }[];

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
} as const satisfies Record<Incompatibility, string>;

/** Names the database, the incompatibility and the remedy. */
export function incompatibilityMessage(state: Incompatibility, place: string): string {
  return `${incompatibilityDetails[state].replace(/^The database/, `$& ${place}`)} ${remedies[state]}`;
}

/** Returns the incompatibility behind a failed statement or a failed open. */
export function incompatibilityOf(error: unknown): Incompatibility | undefined {
  const code = findDatabaseError(error)?.code;
  return schemaCodes.find((each) => each.code === code)?.state;
}

/** Reads the tables of a database for `contentsOf`. */
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

/** Explains the row of `contentsQuery`; undefined if the database has the schema of this service. */
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

/** Reads the id of a database. */
export async function databaseId(client: Pick<SqlClient, 'read'>): Promise<string> {
  const { rows } = await client.read('SELECT database_id FROM schema_compatibility');
  return v.parse(v.string(), rows[0]?.database_id);
}

/**
 * Returns whether this build can use the schema of a database. It can use a newer schema unless a migration of it excludes
 * this build.
 *
 * @throws DatabaseError
 */
export async function schemaState(client: Pick<SqlClient, 'read'>): Promise<SchemaState> {
  return (await readSchemaState(client)).state;
}

/** `schemaVersion` is the number that SQLite changes with every change of the schema. */
async function readSchemaState(
  client: Pick<SqlClient, 'read'>,
): Promise<{ readonly state: SchemaState; readonly schemaVersion?: number }> {
  try {
    const { rows } = await client.read(`SELECT
      (SELECT max(created_at) FROM __drizzle_migrations) AS newest,
      (SELECT max(min_reader) FROM schema_compatibility) AS minReader,
      (SELECT schema_version FROM pragma_schema_version) AS schemaVersion`);
    const { newest, minReader, schemaVersion } = v.parse(Versions, rows[0]);
    if ((newest ?? 0) < neededMigration) return { state: 'too-old' };
    return { state: (minReader ?? 0) > neededMigration ? 'too-new' : 'compatible', schemaVersion };
  } catch (error) {
    const state = incompatibilityOf(error);
    if (state !== undefined) return { state };
    // The tables do not exist before the first migration. A driver and a server have different codes for that.
    if (!reasonOf(error).includes('no such table')) throw error;
    const { rows } = await client.read(contentsQuery);
    return { state: contentsOf(rows[0]) ?? 'too-old' };
  }
}

/** Whether the schema may have changed. A server that was restarted with an empty folder responds with 404. */
function isSchemaFault(error: unknown): boolean {
  if (findDatabaseError(error)?.code === 'HTTP_404') return true;
  return /no such (?:table|column)|has no column named/.test(reasonOf(error));
}

interface CheckSettings {
  /** The longest time for a statement, the schema check before it included. */
  readonly timeoutMs: number;
  /** The longest time until a change of the schema is noticed, while there are statements. */
  readonly checkIntervalMs?: number;
  /** The primary that the database must be a replica of. */
  readonly replicaOf?: Pick<SqlClient, 'read'>;
  /** Called with the code of the error when statements begin to be rejected, and without one when they are sent again. */
  readonly onChange?: (code?: string, objects?: string[]) => void;
}

/** How long the check of a replica waits for the id of the primary. */
const primaryPatienceMs = 250;

/**
 * The schema compatibility check: returns a client that sends no statement until the schema is known to be compatible. With
 * a schema that is too old, too new or damaged, statements could fail in any way, or succeed without an audit event. The check
 * is repeated every few seconds, concurrently with the statements under load, before the first statement after a pause, and
 * after a statement that finds no table or column. It compares the whole schema again when SQLite has counted a change.
 *
 * Meanwhile statements throw DatabaseError `SCHEMA_TOO_OLD`, `SCHEMA_TOO_NEW`, `SCHEMA_DAMAGED` or `REPLICA_OF_ANOTHER`.
 * They count as unavailability, which ends with a migration, a repair or another build.
 */
export function requireCompatibleSchema(client: SqlClient, settings: CheckSettings): SqlClient {
  const { timeoutMs, checkIntervalMs = 5_000, replicaOf, onChange } = settings;
  let isCompatible = false;
  let lastCode: string | undefined;
  let checkedAtMs = 0;
  let checking: Promise<void> | undefined;
  let primaryId: string | undefined;
  let comparedVersion: number | undefined;
  let damage: string[] = [];

  const readPrimaryId = async (primary: Pick<SqlClient, 'read'>): Promise<string | undefined> => {
    if (primaryId !== undefined) return primaryId;
    const id = await databaseId(primary).catch(() => undefined);
    primaryId ??= id;
    return primaryId;
  };
  // Now, so that no statement waits for it when the primary is unreachable.
  if (replicaOf !== undefined) void readPrimaryId(replicaOf);

  const findFault = async (): Promise<string | undefined> => {
    const found = await readSchemaState(client);
    const fault = schemaCodes.find(({ state }) => state === found.state);
    if (fault !== undefined) return fault.code;
    if (found.schemaVersion !== comparedVersion) {
      damage = await blockingObjects(client);
      comparedVersion = found.schemaVersion;
    }
    if (damage.length > 0) return 'SCHEMA_DAMAGED';
    if (replicaOf === undefined) return undefined;
    const id = await withTimeout(readPrimaryId(replicaOf), primaryPatienceMs, () => undefined);
    if (id === undefined) return undefined;
    return (await databaseId(client)) === id ? undefined : 'REPLICA_OF_ANOTHER';
  };
  const check = (): Promise<void> => {
    checking ??= findFault()
      .then((code) => {
        if (code !== lastCode) onChange?.(code, code === 'SCHEMA_DAMAGED' ? damage : undefined);
        lastCode = code;
        isCompatible = code === undefined;
        checkedAtMs = performance.now();
        if (code !== undefined) throw new DatabaseError(code, true);
      })
      .finally(() => {
        checking = undefined;
      });
    return checking;
  };
  const checkAfterFault = async <Result>(call: () => Promise<Result>): Promise<Result> => {
    try {
      return await call();
    } catch (error) {
      if (!isSchemaFault(error)) throw error;
      comparedVersion = undefined;
      await check();
      throw error;
    }
  };
  return intercept(client, (_, call) => {
    const ageMs = performance.now() - checkedAtMs;
    if (!isCompatible || ageMs > 2 * checkIntervalMs) {
      return beforeDeadline(
        check().then(() => checkAfterFault(call)),
        timeoutMs,
      );
    }
    // An unreachable database does not change the result.
    if (ageMs >= checkIntervalMs) check().catch(() => undefined);
    return checkAfterFault(call);
  });
}
