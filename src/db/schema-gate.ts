import * as v from 'valibot';
import journal from '../../drizzle/meta/_journal.json' with { type: 'json' };
import { commandName } from '../shared/build';
import { beforeDeadline, DatabaseError, findDatabaseError, reasonOf } from './errors';
import { blockingObjects } from './schema-comparison';
import { intercept, type SqlClient } from './sql-client';

/** The schemas that this build knows, oldest first, each with the `created_at` of its row in `__drizzle_migrations`. */
export const knownSchemas = journal.entries.map(({ tag, when }) => ({ name: tag, createdAt: when }));

/** Epoch milliseconds of the newest migration that this build carries. */
export const neededMigration = Math.max(...knownSchemas.map(({ createdAt }) => createdAt));

/** How the schema of a database relates to this build. Only the client of the service reports `damaged`. */
type SchemaFit = 'fit' | 'too-old' | 'too-new' | 'damaged' | Contents;

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
export async function databaseId(client: Pick<SqlClient, 'read'>): Promise<string> {
  const { rows } = await client.read('SELECT database_id FROM schema_compatibility');
  return v.parse(v.string(), rows[0]?.database_id);
}

/**
 * Returns whether this build can serve on the schema of a database. A newer schema fits unless it takes something away
 * from this build.
 *
 * @throws DatabaseError
 */
export async function schemaFit(client: Pick<SqlClient, 'read'>): Promise<SchemaFit> {
  return (await schemaState(client)).fit;
}

/** Returns how the schema fits, and the number that SQLite changes with every change of the schema. */
async function schemaState(
  client: Pick<SqlClient, 'read'>,
): Promise<{ readonly fit: SchemaFit; readonly schemaVersion?: number }> {
  try {
    const { rows } = await client.read(`SELECT
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
    const { rows } = await client.read(contentsQuery);
    return { fit: contentsOf(rows[0]) ?? 'too-old' };
  }
}

/** Whether the tables may be other ones than before; a server that was started on an empty folder knows no stream. */
function isSchemaFault(error: unknown): boolean {
  if (findDatabaseError(error)?.code === 'HTTP_404') return true;
  return /no such (?:table|column)|has no column named/.test(reasonOf(error));
}

interface GateSettings {
  /** The longest that a statement may take, the look at the schema before it included. */
  readonly timeoutMs: number;
  /** The longest time until a change of the schema is noticed, while there are statements. */
  readonly checkedEveryMs?: number;
  /** The primary of which it must be a replica. */
  readonly replicaOf?: Pick<SqlClient, 'read'>;
  /** Called with the code of the error when statements are refused from now on, and without one when they are sent again. */
  readonly onChange?: (code?: string, objects?: string[]) => void;
}

/** How long the look at a replica waits to learn which database its primary has. */
const primaryPatienceMs = 250;

/**
 * Returns a client that sends no statement until the schema is known to fit this build: on one that is too old, too new or
 * damaged, statements could fail in any way, or succeed without the audit trail. The check is repeated every few seconds,
 * beside the statements where there are many, before the first one after a pause, and after a statement that finds no
 * table or column. It compares the whole schema again when SQLite has counted a change.
 *
 * Meanwhile its statements throw DatabaseError `SCHEMA_TOO_OLD`, `SCHEMA_TOO_NEW`, `SCHEMA_DAMAGED` or
 * `REPLICA_OF_ANOTHER`. These are unavailability, which a migration, a repair or another build ends.
 */
export function gateBySchema(client: SqlClient, settings: GateSettings): SqlClient {
  const { timeoutMs, checkedEveryMs = 5_000, replicaOf, onChange } = settings;
  let isFit = false;
  let lastCode: string | undefined;
  let checkedAtMs = 0;
  let checking: Promise<void> | undefined;
  let primaryId: string | undefined;
  let comparedVersion: number | undefined;
  let damage: string[] = [];

  const learnPrimaryId = async (primary: Pick<SqlClient, 'read'>): Promise<string | undefined> => {
    if (primaryId !== undefined) return primaryId;
    const id = await databaseId(primary).catch(() => undefined);
    primaryId ??= id;
    return primaryId;
  };
  // At once, so that no statement waits for it once the primary is away.
  if (replicaOf !== undefined) void learnPrimaryId(replicaOf);

  const findFault = async (): Promise<string | undefined> => {
    const found = await schemaState(client);
    const unfit = gateCodes.find(({ fit }) => fit === found.fit);
    if (unfit !== undefined) return unfit.code;
    if (found.schemaVersion !== comparedVersion) {
      damage = await blockingObjects(client);
      comparedVersion = found.schemaVersion;
    }
    if (damage.length > 0) return 'SCHEMA_DAMAGED';
    if (replicaOf === undefined) return undefined;
    const id = await beforeDeadline(learnPrimaryId(replicaOf), primaryPatienceMs).catch(() => undefined);
    if (id === undefined) return undefined;
    return (await databaseId(client)) === id ? undefined : 'REPLICA_OF_ANOTHER';
  };
  const check = (): Promise<void> => {
    checking ??= findFault()
      .then((code) => {
        if (code !== lastCode) onChange?.(code, code === 'SCHEMA_DAMAGED' ? damage : undefined);
        lastCode = code;
        isFit = code === undefined;
        checkedAtMs = performance.now();
        if (code !== undefined) throw new DatabaseError(code, true);
      })
      .finally(() => {
        checking = undefined;
      });
    return checking;
  };
  /** A statement that finds no table or column has met a schema that changed after the last check. */
  const recheckedOnFault = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      if (!isSchemaFault(error)) throw error;
      comparedVersion = undefined;
      await check();
      throw error;
    }
  };
  const through = <Result>(statement: () => Promise<Result>): Promise<Result> => {
    const work = () => recheckedOnFault(statement);
    const unseenForMs = performance.now() - checkedAtMs;
    if (!isFit || unseenForMs > 2 * checkedEveryMs) return beforeDeadline(check().then(work), timeoutMs);
    // A database that is away says nothing about its schema.
    if (unseenForMs >= checkedEveryMs) check().catch(() => undefined);
    return work();
  };

  return intercept(client, (_, call) => through(call));
}
