import type { InStatement, InValue, ResultSet, Row } from '@libsql/client';
import type Connection from 'libsql';
import { LRUCache } from 'lru-cache';
import * as v from 'valibot';

/** Far more than this service has; SQL texts are constant. */
const maxKept = 500;

interface KeptStatement {
  readonly statement: ReturnType<Connection.Database['prepare']>;
  readonly columns: readonly string[];
  readonly parameterCount: number;
}

const Rows = v.array(v.custom<readonly (null | string | number | bigint | ArrayBuffer)[]>(Array.isArray));

/**
 * Runs statements on one connection, each prepared once.
 *
 * A kept statement of this driver gives another caller's rows or values if it is run by `get` or `run`, is not read to
 * its end, or gets fewer arguments than it has parameters; so it is only ever run by `all`, with as many as it has.
 */
export function createStatementCache(connection: Connection.Database) {
  const kept = new LRUCache<string, KeptStatement>({ max: maxKept });

  const prepare = (sql: string): KeptStatement => {
    const statement = connection.prepare(sql);
    const columns = statement.reader
      ? statement
          .raw(true)
          .columns()
          .map(({ name }) => name)
      : [];
    return { statement, columns, parameterCount: countParameters(sql) };
  };

  return {
    /** @param isKept false for what is run once, or whose columns may change */
    run(statement: InStatement, isKept: boolean): ResultSet {
      const { sql, args } = typeof statement === 'string' ? { sql: statement, args: [] } : statement;
      if (args !== undefined && !Array.isArray(args)) throw new TypeError('Arguments must be a list');
      const values = (args ?? []).map(toBound);
      let prepared = isKept ? kept.get(sql) : undefined;
      if (prepared === undefined) {
        prepared = prepare(sql);
        if (isKept) kept.set(sql, prepared);
      }
      const { columns, parameterCount } = prepared;
      if (values.length !== parameterCount) {
        throw new TypeError(`The statement has ${parameterCount} parameters, and got ${values.length} values`);
      }
      const rows = v.parse(Rows, prepared.statement.all(values));
      return toResultSet(columns, rows);
    },
  };
}

/** Placeholders outside of quotes and comments. */
export function countParameters(sql: string): number {
  const bare = sql.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|\/\*[\s\S]*?\*\//g, '');
  if (/[:@$]\w|\?\d/.test(bare)) throw new TypeError('Parameters must be written as ?');
  return bare.split('?').length - 1;
}

/** The driver ends the whole process when it is given a value of a kind that it does not know. */
function toBound(value: InValue | undefined): null | string | number | bigint | Buffer {
  switch (typeof value) {
    case 'string':
    case 'bigint':
      return value;
    case 'boolean':
      return value ? 1 : 0;
    case 'number':
      if (Number.isFinite(value)) return value;
      throw new RangeError('Only finite numbers can be bound');
    default:
      if (value === null) return null;
      if (value instanceof Uint8Array) return Buffer.from(value);
      throw new TypeError('Only text, numbers, booleans, bytes and null can be bound');
  }
}

/** Rows as the libSQL client gives them: a value by its place and, enumerable, by the name of its column. */
function toResultSet(columns: readonly string[], values: v.InferOutput<typeof Rows>): ResultSet {
  const rows = values.map((row) => toRow(columns, row));
  return {
    columns: [...columns],
    columnTypes: columns.map(() => ''),
    rows,
    rowsAffected: 0,
    lastInsertRowid: undefined,
    toJSON: () => ({ columns, rows: values }),
  };
}

function toRow(columns: readonly string[], values: readonly (null | string | number | bigint | ArrayBuffer)[]): Row {
  const row: Row = Object.defineProperty({ length: 0 }, 'length', { value: values.length, enumerable: false });
  for (const [index, value] of values.entries()) {
    Object.defineProperty(row, index, { value });
    const name = columns[index];
    if (name !== undefined && !Object.hasOwn(row, name)) row[name] = value;
  }
  return row;
}
