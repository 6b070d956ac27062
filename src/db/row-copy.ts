import { OperatorError } from '../errors';
import { intactQuery } from './backup';
import type { Row, RowStore, Statement } from './row-store';
import {
  checksumOf,
  createDigest,
  type Digest,
  describeTable,
  firstCell,
  insertsOf,
  keyOf,
  lastKey,
  pageQuery,
  pagesOf,
  type Table,
} from './row-store';
import { unfinishedTables } from './schema-check';
import { quoted } from './sql-client';

const migrationsTable = '__drizzle_migrations';

export interface CopiedTable {
  readonly table: string;
  readonly rows: number;
  /** SHA-256 over all values in the order of the rows. */
  readonly checksum: string;
}

interface SchemaObject {
  readonly type: string;
  readonly name: string;
  readonly table: string;
  readonly sql: string;
}

/** Returns the table that marks a database as unfinished, if it exists. */
const markerIn = (names: readonly string[]) => Object.values(unfinishedTables).find((marker) => names.includes(marker));

interface CopyProgress {
  /** The command that resumes the copy after an interruption. */
  readonly command: keyof typeof unfinishedTables;
  readonly onProgress?: ((rows: number, total: number) => void) | undefined;
}

/**
 * Copies the schema and all rows of a snapshot to another database, and then compares every table. Triggers and the
 * migrations table come last: no trigger fires for a copied row, and the service rejects an unfinished copy.
 *
 * The target must be empty or an unfinished copy of the same source. A resumed copy compares the rows that it finds with
 * the source, and copies a table that differs again. The copy gets a new database id, so that the service rejects a replica
 * of the source for it.
 *
 * @throws OperatorError, DatabaseError
 */
export async function copyRows(
  source: RowStore,
  target: RowStore,
  { command, onProgress }: CopyProgress,
): Promise<CopiedTable[]> {
  const schema = await schemaOf(source);
  const names = schema.map(({ name }) => name);
  if (!names.includes(migrationsTable) || !names.includes('users')) {
    throw new OperatorError('The source is not a database of this service, or was never migrated.');
  }
  if (markerIn(names) !== undefined) throw new OperatorError('The source is itself an unfinished copy.');
  const ofMigrations = schema.filter(({ table }) => table === migrationsTable);
  const others = schema.filter(({ table }) => table !== migrationsTable);
  const tables = others.filter(({ type }) => type === 'table');
  const { marker, isResumed } = await prepareTarget(source, target, tables, command);

  let total = 0;
  for (const { name } of tables) total += Number(await firstCell(source, `SELECT count(*) FROM ${quoted(name)}`));
  let done = 0;
  const onRows = (rows: number) => {
    done += rows;
    onProgress?.(done, total);
  };
  const copied: CopiedTable[] = [];
  for (const { name } of tables) {
    const table = await describeTable(source, name);
    copied.push(await copyTable(source, target, table, { isResumed, onRows }));
  }
  const last = await lastStatements(
    source,
    [...ofMigrations, ...others.filter(({ type }) => type === 'trigger' || type === 'view')],
    marker,
  );
  // A server closes a snapshot that is not read for ten seconds: the source must not be read from here on.
  const present = new Set((await schemaOf(target)).map(({ name }) => name));
  for (const { type, name, sql } of others) {
    if (type === 'index' && !present.has(name)) await target.write([{ sql }]);
  }
  await compareTables(target, copied);
  await target.write(last);
  return copied;
}

async function schemaOf(store: RowStore): Promise<SchemaObject[]> {
  const rows = await store.read(
    `SELECT type, name, tbl_name, sql FROM sqlite_schema
      WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*' AND name NOT GLOB 'libsql_*' ORDER BY rowid`,
  );
  return rows.map(([type, name, table, sql]) => ({
    type: String(type),
    name: String(name),
    table: String(table),
    sql: String(sql),
  }));
}

/** Creates the tables, or finds those of an interrupted copy. */
async function prepareTarget(
  source: RowStore,
  target: RowStore,
  tables: readonly SchemaObject[],
  command: CopyProgress['command'],
): Promise<{ readonly marker: string; readonly isResumed: boolean }> {
  const hasId = tables.some(({ name }) => name === 'schema_compatibility');
  const sourceId = hasId ? await firstCell(source, 'SELECT database_id FROM schema_compatibility') : '';
  const present = await schemaOf(target);
  if (present.length === 0) {
    await target.write([
      { sql: `CREATE TABLE ${unfinishedTables[command]} (source_id text NOT NULL)` },
      { sql: `INSERT INTO ${unfinishedTables[command]} VALUES (?)`, args: [String(sourceId)] },
      ...tables.map(({ sql }) => ({ sql })),
    ]);
    return { marker: unfinishedTables[command], isResumed: false };
  }
  const marker = markerIn(present.map(({ name }) => name));
  if (marker === undefined) {
    throw new OperatorError('The target has tables already: name an empty database.');
  }
  if ((await firstCell(target, `SELECT source_id FROM ${marker}`)) !== String(sourceId)) {
    throw new OperatorError('The target is an unfinished copy of another database: name an empty one.');
  }
  return { marker, isResumed: true };
}

interface TableCopy {
  readonly isResumed: boolean;
  readonly onRows: (rows: number) => void;
}

async function copyTable(
  source: RowStore,
  target: RowStore,
  table: Table,
  { isResumed, onRows }: TableCopy,
): Promise<CopiedTable> {
  let digest = createDigest();
  let last = isResumed ? await lastKey(target, table) : undefined;
  if (last !== undefined) {
    if (await isSameUpTo(last, source, target, table, digest)) onRows(digest.rows());
    else {
      await target.write([{ sql: `DELETE FROM ${quoted(table.name)}` }]);
      digest = createDigest();
      last = undefined;
    }
  }
  for await (const page of pagesOf(source, table, last)) {
    await target.write(insertsOf(table, page));
    digest.add(page);
    onRows(page.length);
  }
  return { table: table.name, rows: digest.rows(), checksum: digest.checksum() };
}

/** Reads pages of both in turn, so that neither snapshot times out. */
async function isSameUpTo(last: Row, source: RowStore, target: RowStore, table: Table, digest: Digest) {
  let end: Row | undefined;
  for await (const page of pagesOf(source, table, undefined, last)) {
    const pageEnd = keyOf(table, page.at(-1));
    const stored = await target.read(...pageQuery(table, end, pageEnd));
    if (checksumOf(stored) !== checksumOf(page)) return false;
    digest.add(page);
    end = pageEnd;
  }
  return end !== undefined && checksumOf([end]) === checksumOf([last]);
}

async function compareTables(target: RowStore, copied: readonly CopiedTable[]): Promise<void> {
  for (const { table, rows, checksum } of copied) {
    const digest = createDigest();
    for await (const page of pagesOf(target, await describeTable(target, table))) digest.add(page);
    if (digest.checksum() === checksum) continue;
    throw new OperatorError(
      `The copy differs from the source in the table ${table}: ${digest.rows()} rows in it, ${rows} in the source.`,
    );
  }
}

/** Returns the statements that finish the copy in one transaction. */
async function lastStatements(source: RowStore, schema: readonly SchemaObject[], marker: string): Promise<Statement[]> {
  const migrations = await describeTable(source, migrationsTable);
  const inserts: Statement[] = [];
  for await (const page of pagesOf(source, migrations)) inserts.push(...insertsOf(migrations, page));
  const known = await source.read(
    "SELECT name FROM sqlite_schema WHERE name IN ('sqlite_sequence', 'schema_compatibility')",
  );
  const has = (table: string) => known.some(([name]) => name === table);
  const sequences = has('sqlite_sequence') ? await source.read('SELECT name, seq FROM sqlite_sequence') : [];
  return [
    ...schema.filter(({ type }) => type === 'table').map(({ sql }) => ({ sql })),
    ...inserts,
    ...schema.filter(({ type }) => type !== 'table').map(({ sql }) => ({ sql })),
    ...sequences.flatMap(([name = null, seq = null]) => [
      { sql: 'DELETE FROM sqlite_sequence WHERE name = ?', args: [name] },
      { sql: 'INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)', args: [name, seq] },
    ]),
    ...(has('schema_compatibility')
      ? [{ sql: 'UPDATE schema_compatibility SET database_id = lower(hex(randomblob(16)))' }]
      : []),
    { sql: `DROP TABLE ${marker}` },
  ];
}

/** Whether SQLite finds no fault in any page. */
export async function isIntact(store: RowStore): Promise<boolean> {
  return (await firstCell(store, intactQuery)) === 1n;
}
