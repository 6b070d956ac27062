import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Connection from 'libsql';
import * as v from 'valibot';
import shipped from '../../drizzle/meta/_schema.json' with { type: 'json' };
import { packageRoot } from '../shared/build';
import { reasonOf } from './errors';
import { quoted, type SqlClient } from './sql-client';

export const migrationsFolder = fileURLToPath(new URL('drizzle', packageRoot));

/** One migration of this build. */
export interface Migration {
  readonly name: string;
  /** Epoch milliseconds: orders the migrations, and is `created_at` of the row in `__drizzle_migrations`. */
  readonly createdAt: number;
  /** SHA-256 of the file, as Drizzle stores it. */
  readonly hash: string;
  readonly statements: readonly string[];
}

const Journal = v.object({ entries: v.array(v.object({ tag: v.string(), when: v.number() })) });

/** Reads the migrations of a folder that drizzle-kit wrote, oldest first. */
export function readMigrations(folder = migrationsFolder): readonly Migration[] {
  const journal: unknown = JSON.parse(readFileSync(join(folder, 'meta/_journal.json'), 'utf8'));
  return v.parse(Journal, journal).entries.map(({ tag, when }) => {
    const sql = readFileSync(join(folder, `${tag}.sql`), 'utf8');
    return {
      name: tag,
      createdAt: when,
      hash: createHash('sha256').update(sql).digest('hex'),
      statements: sql.split('--> statement-breakpoint'),
    };
  });
}

/**
 * Hashes of earlier versions of migrations, which builds before 2.1.0 applied. The schema comparison finds the objects that
 * they did not create, and `planning migrate --repair` adds them.
 */
const earlierHashes: Readonly<Record<string, readonly string[]>> = {
  '0006_audit': [
    // Without the time of a request, and with triggers that record no section of a new record.
    '52d1cdbe1f958e5ffd4084131f491a734e01a03c2760c1b86ae3963bbe01cfeb',
    // Without the time of a request.
    'db85e3e37558e3953d55a4f717fb21d1f8262779cb004bb8507cc12d5eb9c68e',
  ],
  // Counts in several passes, with the same result.
  '0007_application_counts': ['36fbf6ce95c524d797a73cff82ceae30e103f8049383ca07c66741fbfe106af5'],
  // Does not convert pairs of lists; the service reads both forms.
  '0008_json_checks_and_revision': ['d12b888d84e7c4f6d548a5147fa30a2c4fa13bb0d3ec0b8bf1cf7773288150e9'],
  // Without the audit trigger of the newest answers.
  '0009_newest_answers': ['7ec70f24a841d31e8b118def2bf38a7a70f08f33197ed5644556eed7ea7803eb'],
  // Without the times of the next attempt and of abandonment, and with numbers that are unique.
  '0010_applications': ['c3272e55bfc63c8d1d4f4f9287f1e27a527bfa4d399872f58335558da199f1fd'],
};

/** A difference between the migrations that a database records and those of this build. */
interface HistoryFault {
  readonly detail: string;
  /** The migration to record when the schema is complete; undefined if this build does not know it. */
  readonly migration?: Migration;
}

type AppliedMigration = Pick<Migration, 'createdAt' | 'hash'>;

/** Compares the migrations that a database records with those of this build, both oldest first. */
export function historyFaults(
  applied: readonly AppliedMigration[],
  migrations: readonly Migration[],
): readonly HistoryFault[] {
  const newest = applied.at(-1)?.createdAt ?? -1;
  const newestKnown = migrations.at(-1)?.createdAt ?? -1;
  const differing = migrations
    .filter(({ createdAt }) => createdAt <= newest)
    .flatMap((migration): HistoryFault[] => {
      const { name, createdAt, hash } = migration;
      const found = applied.find((each) => each.createdAt === createdAt)?.hash;
      if (found === hash || (found !== undefined && earlierHashes[name]?.includes(found))) return [];
      const detail =
        found === undefined
          ? `migration ${name} is not recorded, although a later one is`
          : `migration ${name} was applied with hash ${found.slice(0, 12)}, but this build has ${hash.slice(0, 12)}`;
      return [{ detail, migration }];
    });
  const unknown = applied
    .filter(({ createdAt }) => createdAt < newestKnown && !migrations.some((each) => each.createdAt === createdAt))
    .map(({ createdAt }) => ({ detail: `the migration dated ${createdAt} is unknown to this build` }));
  return [...differing, ...unknown];
}

/** A difference between an object of a database and the same object of the migrations. */
export interface SchemaDifference {
  readonly state: 'missing' | 'changed' | 'extra';
  /** Such as `trigger users_profile_audited` or `column users.profile`. */
  readonly object: string;
  /** The service may lose or corrupt data, or miss an audit event, while the object differs. */
  readonly isBlocking: boolean;
  /** Statements that restore the object; empty if only a backup can. */
  readonly repair: readonly string[];
}

interface SchemaObject {
  readonly type: string;
  readonly name: string;
  readonly table: string;
  readonly sql: string;
}

const Rows = v.array(
  v.object({ type: v.string(), name: v.string(), table: v.string(), sql: v.nullish(v.string(), '') }),
);
/** Internal objects of SQLite, libSQL, the migrator and replication tools. */
const internal = /^(?:sqlite|libsql|_litestream|__drizzle_migrations)/;

/** The applied migrations and the schema objects of a database, from one snapshot. */
export interface SchemaSnapshot {
  /** Oldest first. */
  readonly applied: readonly AppliedMigration[];
  readonly objects: readonly SchemaObject[];
}

/**
 * Reads the applied migrations and the schema of a database.
 *
 * @throws DatabaseError
 */
export async function readSchema(client: Pick<SqlClient, 'read'>): Promise<SchemaSnapshot> {
  const objects = `SELECT type, name, tbl_name AS "table", sql FROM sqlite_schema`;
  const migrations = `SELECT 'migration' AS type, created_at || '' AS name, hash AS "table", '' AS sql FROM __drizzle_migrations`;
  // One statement reads one snapshot; another process may migrate meanwhile.
  const { rows } = await client.read(`${migrations} UNION ALL ${objects}`).catch((error: unknown) => {
    if (reasonOf(error).includes('no such table')) return client.read(objects);
    throw error;
  });
  const all = v.parse(Rows, rows);
  return {
    applied: all
      .filter(({ type }) => type === 'migration')
      .map(({ name, table }) => ({ createdAt: Number(name), hash: table }))
      .toSorted((one, other) => one.createdAt - other.createdAt),
    objects: all.filter(({ type, name, sql }) => type !== 'migration' && sql !== '' && !internal.test(name)),
  };
}

/**
 * Compares the schema of a database with the schema that its applied migrations create in an empty database: audit triggers
 * first, extra objects last. For the schema of a newer build, it lists missing tables and columns only.
 */
export function schemaDifferences(
  { applied, objects }: SchemaSnapshot,
  migrations: readonly Migration[],
): readonly SchemaDifference[] {
  const newest = applied.at(-1)?.createdAt ?? -1;
  const past = migrations.filter(({ createdAt }) => createdAt <= newest);
  // The file saves each start the execution of all migrations.
  const expected = hashesOf(past) === shipped.hashes ? shipped.objects : createSchema(past);
  const isNewer = newest > (migrations.at(-1)?.createdAt ?? -1);
  const [wanted, found] = [byName(expected), byName(objects)];
  const differences = [
    ...expected.flatMap((object) => differencesOf(object, found)),
    ...objects.filter((object) => !wanted.has(keyOf(object))).map((object) => extra(keyOf(object))),
  ].filter(({ state, object }) => !isNewer || (state === 'missing' && /^(?:table|column) /.test(object)));
  return differences.toSorted((one, other) => rankOf(one) - rankOf(other));
}

/** Lists the objects whose state blocks the service, such as `trigger users_profile_audited missing`. */
export async function blockingObjects(client: Pick<SqlClient, 'read'>): Promise<string[]> {
  return schemaDifferences(await readSchema(client), readMigrations())
    .filter(({ isBlocking }) => isBlocking)
    .map(({ object, state }) => `${object} ${state}`);
}

/** The schema that migrations create in an empty database in memory. */
export function createSchema(migrations: readonly Migration[]): readonly SchemaObject[] {
  const database = new Connection(':memory:');
  try {
    for (const { statements } of migrations) for (const statement of statements) database.exec(statement);
    const rows: unknown = database.prepare('SELECT type, name, tbl_name AS "table", sql FROM sqlite_schema').all();
    return v.parse(Rows, rows).filter(({ sql, name }) => sql !== '' && !internal.test(name));
  } finally {
    database.close();
  }
}

export function hashesOf(migrations: readonly Migration[]): string {
  return migrations.map(({ hash }) => hash).join();
}

function keyOf({ type, name }: SchemaObject): string {
  return `${type} ${name}`;
}

function byName(objects: readonly SchemaObject[]): ReadonlyMap<string, SchemaObject> {
  return new Map(objects.map((object) => [keyOf(object), object]));
}

function differencesOf(object: SchemaObject, found: ReadonlyMap<string, SchemaObject>): SchemaDifference[] {
  const { type, table, sql } = object;
  const present = found.get(keyOf(object));
  if (present?.sql === sql && present.table === table) return [];
  if (type === 'table') return present === undefined ? [missing(keyOf(object), [])] : tableDifferences(object, present);
  // The missing table is in the list already.
  if (type !== 'view' && !found.has(`table ${table}`)) return [];
  if (present !== undefined && normalized(present.sql) === normalized(sql) && present.table === table) return [];
  const repair = [`DROP ${type.toUpperCase()} IF EXISTS ${quoted(object.name)}`, sql];
  const isBlocking = type !== 'index' || /^create unique /i.test(sql);
  return [{ state: present === undefined ? 'missing' : 'changed', object: keyOf(object), isBlocking, repair }];
}

/** Compares columns, keys and checks one by one, so that the result names each. */
function tableDifferences({ name, sql }: SchemaObject, present: SchemaObject): SchemaDifference[] {
  const [wanted, found] = [partsOf(name, sql), partsOf(name, present.sql)];
  return [
    ...[...wanted].flatMap(([object, { text, original }]): SchemaDifference[] => {
      const other = found.get(object)?.text;
      if (other === text) return [];
      if (other !== undefined) return [{ state: 'changed', object, isBlocking: true, repair: [] }];
      // SQLite can add a column with a constant default, or one that may be NULL.
      const isAddable =
        object.startsWith('column ') &&
        !/\b(?:primary|unique|references|check|generated)\b|default \(/.test(text) &&
        (!text.includes('not null') || text.includes('default '));
      const repair = isAddable ? [`ALTER TABLE ${quoted(name)} ADD COLUMN ${original}`] : [];
      return [missing(object, repair)];
    }),
    ...[...found.keys()].filter((object) => !wanted.has(object)).map(extra),
  ];
}

function missing(object: string, repair: readonly string[]): SchemaDifference {
  return { state: 'missing', object, isBlocking: true, repair };
}

function extra(object: string): SchemaDifference {
  return { state: 'extra', object, isBlocking: false, repair: [] };
}

const kinds = ['table ', 'column ', 'constraint ', 'trigger ', 'index ', 'view '];

function rankOf({ object, state, isBlocking }: SchemaDifference): number {
  if (/^trigger .*audit/.test(object) && isBlocking) return -1;
  return kinds.findIndex((kind) => object.startsWith(kind)) + (isBlocking ? 0 : 10) + (state === 'extra' ? 10 : 0);
}

const tokens =
  /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|[A-Za-z_]\w*|\d[\w.]*|<>|<=|>=|!=|==|\|\||\S/g;

/** Returns the tokens of a statement without comments, with unquoted lower-case names and keywords. */
function tokensOf(sql: string): string[] {
  return (sql.match(tokens) ?? [])
    .filter((token) => !token.startsWith('--') && !token.startsWith('/*'))
    .map((token) => (token.startsWith("'") ? token : token.replace(/^(["`[])(.*)["`\]]$/, '$2').toLowerCase()));
}

function normalized(sql: string): string {
  return tokensOf(sql).join(' ');
}

/** Parses the columns and constraints of a CREATE TABLE statement, by name. */
function partsOf(
  table: string,
  sql: string,
): ReadonlyMap<string, { readonly text: string; readonly original: string }> {
  const all = (sql.match(tokens) ?? []).filter((token) => !token.startsWith('--') && !token.startsWith('/*'));
  const parts: string[][] = [[]];
  let depth = 0;
  let end = all.length;
  for (const [index, token] of all.slice(all.indexOf('(')).entries()) {
    if (token === '(') depth += 1;
    if (token === ')') depth -= 1;
    if (depth === 0) {
      end = all.indexOf('(') + index + 1;
      break;
    }
    if (depth === 1 && token === ',') parts.push([]);
    else if (index > 0) parts.at(-1)?.push(token);
  }
  const options = normalized(all.slice(end).join(' '));
  return new Map([
    ...parts.map((part): [string, { text: string; original: string }] => {
      const words = part.flatMap(tokensOf);
      return [partName(table, words), { text: words.join(' '), original: part.join(' ') }];
    }),
    ...(options === '' ? [] : [[`constraint ${table} ${options}`, { text: options, original: options }] as const]),
  ]);
}

function partName(table: string, [first = '', second = '', ...rest]: readonly string[]): string {
  if (first === 'constraint') return `constraint ${table}.${second}`;
  if (!['check', 'foreign', 'primary', 'unique'].includes(first)) return `column ${table}.${first}`;
  return `constraint ${table}.${[first, second, ...rest].join('').replace(/\W+/g, '_')}`;
}
