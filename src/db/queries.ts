import type { InValue, Row as StoredRow } from '@libsql/client';
import {
  and,
  Column,
  eq,
  getTableColumns,
  is,
  like,
  noopDecoder,
  Param,
  Placeholder,
  type SQL,
  sql,
} from 'drizzle-orm';
import type { SelectResultFields } from 'drizzle-orm/query-builders/select.types';
import { type AnySQLiteColumn, SQLiteAsyncDialect, type SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as v from 'valibot';
import { lazy } from '../shared/async';
import { type Database, type Statement, toBoundValue, writeBatch } from './client';
import { completedTasks, rowCounts } from './schema/lists';
import { leases } from './schema/people';
import { kindOf } from './sql-client';

/** Columns of text and numbers, and expressions. Their values are returned as the database stores them. */
type Field = AnySQLiteColumn<{ dataType: 'string' | 'number' }> | SQL<string | number | null>;
type Fields = Readonly<Record<string, Field>>;
/** Values by the names of their placeholders. */
type Values = Readonly<Record<string, InValue | undefined>>;

/**
 * Returns a function that runs a query of Drizzle. The query is built at the first run. A query that Drizzle prepares
 * spends as much time on its parameters and rows in each run as SQLite does on reading a row.
 *
 * @param fields what the query selects or returns, in this order
 * @throws TypeError if a field has a decoder, which would be ignored
 */
export function compileQuery<Selected extends Fields>(
  { $client }: Database,
  fields: Selected,
  build: () => Statement,
): (values: Values) => Promise<SelectResultFields<Selected>[]> {
  const toRow = rowReader(fields);
  const compiled = lazy(() => {
    const { sql: text, params } = build().toSQL();
    return { text, isRead: kindOf(text) === 'read', bindings: params.map(toBinding) };
  });
  return async (values) => {
    const { text, isRead, bindings } = compiled();
    const args = bindings.map((bind) => bind(values));
    if (isRead) return (await $client.read(text, args)).rows.map(toRow);
    const [result] = await $client.write([{ sql: text, args }]);
    return (result?.rows ?? []).map(toRow);
  };
}

/** A placeholder is replaced by its value in each run. */
function toBinding(param: unknown): (values: Values) => InValue {
  if (is(param, Placeholder)) return (values) => toBoundValue(values[param.name]);
  if (is(param, Param) && is(param.value, Placeholder)) {
    const { name } = param.value;
    return (values) => toBoundValue(param.encoder.mapToDriverValue(values[name]));
  }
  const value = toBoundValue(param);
  return () => value;
}

/** Reads rows by position, because an expression has no name. */
function rowReader<Selected extends Fields>(fields: Selected): (stored: StoredRow) => SelectResultFields<Selected> {
  const columns = Object.entries(fields).map(([name, field], index) => ({ name, index, fits: typeCheck(field) }));
  const isRow = (row: Readonly<Record<string, unknown>>): row is SelectResultFields<Selected> =>
    columns.every(({ name, fits }) => fits(row[name]));
  return (stored) => {
    const row: Record<string, unknown> = {};
    for (const { name, index } of columns) row[name] = stored[index];
    if (!isRow(row)) throw new TypeError('A value does not have the type of its column');
    return row;
  };
}

/** An expression has no type at run time. */
function typeCheck(field: Field): (value: unknown) => boolean {
  if (hasDecoder(field)) throw new TypeError('A compiled query has no field with a decoder');
  if (!is(field, Column)) return () => true;
  const { dataType, notNull } = field;
  return (value) => (value === null ? !notNull : typeof value === dataType);
}

function hasDecoder(field: Field): boolean {
  if (is(field, Column)) return field.mapFromDriverValue !== Column.prototype.mapFromDriverValue;
  return 'decoder' in field && field.decoder !== noopDecoder;
}

const dialect = new SQLiteAsyncDialect();
const Stored = v.array(v.object({ version: v.number() }));

export interface UpsertCounts {
  readonly added: number;
  readonly changed: number;
  readonly unchanged: number;
}

interface Upsert {
  /** Must also have the columns `version`, `createdAt` and `updatedAt`. */
  readonly table: SQLiteTable;
  /** The column that identifies a row. */
  readonly key: string;
  /** The content by column; a row with the same content is not changed. */
  readonly content: Readonly<Record<string, SQL>>;
  /** Columns that only an insert sets. */
  readonly origin?: Readonly<Record<string, SQL>>;
  /** One record per row; the expressions read its members with `member`. */
  readonly records: readonly object[];
  /** Does not change existing rows, so that a seed keeps the changes of operators. */
  readonly keepsStored?: boolean;
  /** A join to the records, for expressions that read other tables. */
  readonly joins?: SQL;
  /** Nothing is stored unless this condition holds. */
  readonly onlyIf?: SQL;
  readonly now: Date;
  /** Run afterwards in the same transaction, also if `onlyIf` does not hold. */
  readonly after?: readonly Statement[];
}

/** `onlyIf` does not hold, so nothing was stored. */
export class UnmetConditionError extends Error {
  override readonly name = 'UnmetConditionError';
}

/**
 * Inserts or updates rows in one statement with the records as JSON. An update increments `version`.
 *
 * @throws UnmetConditionError
 */
export async function upsertRows(db: Database, upsert: Upsert): Promise<UpsertCounts> {
  const { table, key, content, origin = {}, records, keepsStored = false, joins = sql``, now, after = [] } = upsert;
  const { onlyIf } = upsert;
  const columns = getTableColumns(table);
  const nameOf = (column: string) => sql.identifier(columns[column]?.name ?? column);
  const instant = sql`${now.getTime()}`;
  const values = { ...origin, ...content, createdAt: instant, updatedAt: instant, version: sql`0` };
  const contentColumns = Object.keys(content).filter((column) => column !== key);
  const list = (parts: SQL[], separator = sql`, `) => sql.join(parts, separator);
  const update = sql`UPDATE SET
    ${list(contentColumns.map((column) => sql`${nameOf(column)} = excluded.${nameOf(column)}`))},
    updated_at = excluded.updated_at, version = ${table}.version + 1
    WHERE ${list(
      contentColumns.map((column) => sql`${table}.${nameOf(column)} IS NOT excluded.${nameOf(column)}`),
      sql` OR `,
    )}`;
  const upserting = sql`
    INSERT INTO ${table} (${list(Object.keys(values).map((column) => sql`${nameOf(column)}`))})
    SELECT ${list(Object.values(values))} FROM json_each(${JSON.stringify(records)}) AS record ${joins} WHERE ${onlyIf ?? sql`true`}
    ON CONFLICT (${nameOf(key)}) DO ${keepsStored ? sql`NOTHING` : update}
    RETURNING version`;
  const condition = onlyIf === undefined ? [] : [toStatement(sql`SELECT ${onlyIf} AS holds`)];
  const [rows, conditions] = await writeBatch(db, [toStatement(upserting), ...condition, ...after]);
  if (onlyIf !== undefined && conditions?.[0]?.holds !== 1) throw new UnmetConditionError('Nothing was stored');
  const stored = v.parse(Stored, rows);
  const added = stored.filter(({ version }) => version === 0).length;
  return { added, changed: stored.length - added, unchanged: records.length - stored.length };
}

function toStatement(query: SQL): Statement {
  return { toSQL: () => dialect.sqlToQuery(query) };
}

/** Returns the expression for a member of the current record. */
export function member(name: string): SQL {
  return sql`record.value ->> ${sql.raw(`'${name}'`)}`;
}

/** Reads the database clock, in epoch milliseconds. */
export async function databaseClock(db: Database): Promise<number> {
  const { now } = await db.get<{ now: number }>(sql`SELECT unixepoch('subsec') * 1000 AS now`);
  return now;
}

type RecurringTask = (typeof completedTasks.$inferSelect)['task'];

/** Reads the row counts of the parts of a table that triggers maintain (`applications:submitted`). */
export async function countParts(db: Database, tableName: string): Promise<Record<string, number>> {
  const prefix = `${tableName}:`;
  const rows = await db
    .select()
    .from(rowCounts)
    .where(like(rowCounts.tableName, `${prefix}%`));
  return Object.fromEntries(rows.map((row) => [row.tableName.slice(prefix.length), row.rowCount]));
}

/** Records the success of a recurring task. */
export async function recordCompletion(db: Database, task: RecurringTask, now: Date): Promise<void> {
  const completedAt = now.getTime();
  await db
    .insert(completedTasks)
    .values({ task, completedAt })
    .onConflictDoUpdate({ target: completedTasks.task, set: { completedAt } });
}

/** Reads when each recurring task last succeeded, in epoch milliseconds. */
export async function listCompletedTasks(db: Database): Promise<Record<string, number>> {
  const rows = await db.select().from(completedTasks);
  return Object.fromEntries(rows.map(({ task, completedAt }) => [task, completedAt]));
}

/**
 * Acquires or renews a lease, and returns whether the holder has it. It expires after `seconds` of the database clock. A
 * lease that expires later than that was taken before the clock was set back, and is ignored.
 */
export async function acquireLease(db: Database, name: string, holder: string, seconds: number): Promise<boolean> {
  const expiresAt = sql`unixepoch() + ${seconds}`;
  const rows = await db
    .insert(leases)
    .values({ name, holder, expiresAt })
    .onConflictDoUpdate({
      target: leases.name,
      set: { holder, expiresAt },
      setWhere: sql`${leases.expiresAt} NOT BETWEEN unixepoch() + 1 AND unixepoch() + ${seconds}
        OR ${leases.holder} = ${holder}`,
    })
    .returning();
  return rows.length > 0;
}

export async function releaseLease(db: Database, name: string, holder: string): Promise<void> {
  await db.delete(leases).where(and(eq(leases.name, name), eq(leases.holder, holder)));
}
