import Connection from 'libsql';
import * as v from 'valibot';
import { reasonOf } from './errors';
import { type AppliedMigration, type Migration, readMigrations } from './migrations';
import type { SqlClient } from './sql-client';

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
  const all = v.parse(
    Rows,
    rows.map(({ type, name, table, sql }) => ({ type, name, table, sql })),
  );
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
  const expected = createdBy(migrations.filter(({ createdAt }) => createdAt <= newest));
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

const created = new Map<string, readonly SchemaObject[]>();

/** The schema that migrations create in an empty database in memory. */
function createdBy(migrations: readonly Migration[]): readonly SchemaObject[] {
  const key = migrations.map(({ hash }) => hash).join();
  const known = created.get(key);
  if (known !== undefined) return known;
  const database = new Connection(':memory:');
  try {
    for (const { statements } of migrations) for (const statement of statements) database.exec(statement);
    const rows: unknown = database.prepare('SELECT type, name, tbl_name AS "table", sql FROM sqlite_schema').all();
    const objects = v.parse(Rows, rows).filter(({ sql, name }) => sql !== '' && !internal.test(name));
    created.set(key, objects);
    return objects;
  } finally {
    database.close();
  }
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
  const isKey = ['check', 'foreign', 'primary', 'unique'].includes(first);
  return isKey
    ? `constraint ${table}.${[first, second, ...rest].join('').replace(/\W+/g, '_')}`
    : `column ${table}.${first}`;
}

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
