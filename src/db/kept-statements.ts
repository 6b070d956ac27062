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
  readonly toRow: (values: readonly Value[]) => Row;
}

type Value = null | string | number | bigint | ArrayBuffer;
const Rows = v.array(v.custom<readonly Value[]>(Array.isArray));

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
    return { statement, columns, parameterCount: countParameters(sql), toRow: createRowMaker(columns) };
  };

  return {
    /** @param isKept false for a statement that is run once, or that may change the schema */
    run(statement: InStatement, isKept: boolean): ResultSet {
      const { sql, args } = typeof statement === 'string' ? { sql: statement, args: [] } : statement;
      if (args !== undefined && !Array.isArray(args)) throw new TypeError('Arguments must be a list');
      const values = (args ?? []).map(toBound);
      let prepared = isKept ? kept.get(sql) : undefined;
      if (prepared === undefined) {
        prepared = prepare(sql);
        if (isKept) kept.set(sql, prepared);
      }
      const { parameterCount } = prepared;
      if (values.length !== parameterCount) {
        throw new TypeError(`The statement has ${parameterCount} parameters, and got ${values.length} values`);
      }
      const rows = v.parse(Rows, prepared.statement.all(values));
      if (!isKept && !prepared.statement.reader) kept.clear();
      return toResultSet(prepared, rows);
    },

    /** Runs statements that may change the schema: the driver names the columns of a kept one only when it is prepared. */
    exec(sql: string): void {
      kept.clear();
      connection.exec(sql);
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

function toResultSet({ columns, toRow }: KeptStatement, values: v.InferOutput<typeof Rows>): ResultSet {
  return {
    columns: [...columns],
    columnTypes: columns.map(() => ''),
    rows: values.map(toRow),
    rowsAffected: 0,
    lastInsertRowid: undefined,
    toJSON: () => ({ columns, rows: values }),
  };
}

/**
 * Makes rows as the libSQL client gives them: a value by its place and, enumerable, by the name of its column. The places
 * are properties of a prototype, since to define them on each row takes longer than to read it.
 */
function createRowMaker(columns: readonly string[]): (values: readonly Value[]) => Row {
  class KeptRow implements Row {
    [column: string]: Value;
    [place: number]: Value;
    readonly #values: readonly Value[];

    constructor(values: readonly Value[]) {
      this.#values = values;
      for (const [place, name] of named) this[name] = values[place] ?? null;
    }

    get length(): number {
      return this.#values.length;
    }

    static {
      for (const place of columns.keys()) {
        Object.defineProperty(KeptRow.prototype, place, {
          get(this: KeptRow) {
            return this.#values[place];
          },
        });
      }
    }
  }
  // Of two columns with one name the first has it, and a place comes before a name that looks like one.
  const named = [...columns.entries()].filter(
    ([place, name]) => columns.indexOf(name) === place && !Object.hasOwn(KeptRow.prototype, name),
  );
  return (values) => new KeptRow(values);
}
