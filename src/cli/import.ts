import { resolve } from 'node:path';
import { Command } from 'commander';
import * as v from 'valibot';
import type { Config } from '../config/settings';
import type { Database } from '../db/client';
import type { UpsertCounts } from '../db/queries';
import { OperatorError } from '../errors';
import type { Operator } from '../modules/audit/store';
import { findFieldErrors } from '../shared/field-errors';
import { type Context, readSettings } from './context';
import { withDatabase } from './database';
import { headerOf, openSourceFile, type SourceColumns, type SourceFile } from './import-source';
import { counted, createProgress, printResult } from './output';

/** The rules for the rows of a file. */
export interface RowFormat<Schema extends v.GenericSchema> extends SourceColumns {
  readonly row: Schema;
  /** The key that must be unique in a file. */
  readonly keyOf: (row: v.InferOutput<Schema>) => string;
  /** Selects the rows of each pass over the file; default: one pass with all rows. */
  readonly passes?: readonly ((row: v.InferOutput<Schema>) => boolean)[];
  /** Called for each valid row; `values` are its texts in the file. */
  readonly inspect?: (row: v.InferOutput<Schema>, values: unknown) => void;
  /** Warnings about the inspected rows, which do not prevent the import. */
  readonly warnings?: () => readonly ImportWarning[];
  /** Checks rows against the database, and returns the errors of each. */
  readonly findFaults?: (rows: readonly v.InferOutput<Schema>[]) => Promise<readonly (readonly string[])[]>;
}

interface ImportWarning {
  readonly code: string;
  readonly message: string;
  readonly counts: Readonly<Record<string, number>>;
}

/** A file in which every row is valid. */
interface CheckedFile<Schema extends v.GenericSchema> {
  readonly file: SourceFile;
  readonly format: RowFormat<Schema>;
  readonly rows: number;
}

/** A libSQL server ends a write transaction after 5 s once another writer waits. */
const transactionGoalMs = 100;
const firstBatchRows = 50;
const maxBatchRows = 2000;
const checkedAtOnceRows = 500;
/** Bounds the memory that a slow terminal needs. */
const maxShownFaults = 1000;

/** Prints validation errors up to a limit, and counts all of them. */
function createFaultReport({ stderr }: Context) {
  let faults = 0;
  return {
    add(fault: string) {
      faults += 1;
      if (faults <= maxShownFaults) stderr.write(`${fault}\n`);
    },
    finish() {
      if (faults > maxShownFaults) stderr.write(`and ${counted(faults - maxShownFaults, 'more error')}\n`);
    },
  };
}

/**
 * Validates the whole file before anything is stored.
 *
 * @throws OperatorError when the file or any row is invalid
 */
async function checkFile<Schema extends v.GenericSchema>(
  context: Context,
  path: string,
  format: RowFormat<Schema>,
): Promise<CheckedFile<Schema>> {
  const file = await openSourceFile(path, format);
  const progress = createProgress(context, 'checking', file.byteLength);
  const report = createFaultReport(context);
  const keyHashes: number[] = [];
  let rows = 0;
  let badRows = 0;
  let pending: { place: string; parsed: v.SafeParseResult<Schema> }[] = [];
  const check = async () => {
    const good = pending.flatMap(({ parsed }) => (parsed.success ? [parsed.output] : []));
    const found = (await format.findFaults?.(good)) ?? [];
    let goodRows = 0;
    for (const { place, parsed } of pending) {
      if (parsed.success) keyHashes.push(hashOf(format.keyOf(parsed.output)));
      const rowFaults = parsed.success ? (found[goodRows++] ?? []) : fieldFaults(format.row, parsed.issues);
      if (rowFaults.length > 0) badRows += 1;
      for (const fault of rowFaults) report.add(`${place}, ${fault}`);
    }
    progress.countRows(pending.length);
    pending = [];
  };
  try {
    for await (const { line, values, fault } of file.rows(progress.advance)) {
      rows += 1;
      if (fault === undefined) {
        const parsed = v.safeParse(format.row, values, { abortPipeEarly: true });
        if (parsed.success) format.inspect?.(parsed.output, values);
        pending.push({ place: placeOf(line, rows), parsed });
      } else {
        badRows += 1;
        report.add(`${placeOf(line, rows)}, ${fault}`);
      }
      if (pending.length >= checkedAtOnceRows) await check();
    }
    await check();
    badRows += await reportRepeated(file, format, findRepeated(keyHashes), report.add);
  } finally {
    progress.stop();
  }
  report.finish();
  if (rows === 0) throw new OperatorError(`${file.path} has no rows.`);
  if (badRows > 0) {
    throw new OperatorError(`${badRows} of ${counted(rows, 'row')} cannot be imported; nothing was stored.`);
  }
  return { file, format, rows };
}

function placeOf(line: number, row: number): string {
  return `line ${line} (row ${row})`;
}

function fieldFaults<Schema extends v.GenericSchema>(schema: Schema, issues: v.InferIssue<Schema>[]): string[] {
  return findFieldErrors(schema, issues, 'column').map(({ pointer, message }) =>
    pointer === '' ? `the row ${message}` : `column ${pointer}: ${message}`,
  );
}

/** 53 bits of a key: a million keys take 16 MB instead of 300. */
function hashOf(key: string): number {
  return Number(BigInt.asUintN(53, BigInt(Bun.hash(key))));
}

function findRepeated(hashes: readonly number[]): ReadonlySet<number> {
  const sorted = Float64Array.from(hashes).sort();
  return new Set(sorted.filter((hash, index) => index > 0 && hash === sorted[index - 1]));
}

/** Reads the file again and compares the keys whose hashes are equal. Returns the number of repeated rows. */
async function reportRepeated<Schema extends v.GenericSchema>(
  file: SourceFile,
  { row, keyOf }: RowFormat<Schema>,
  suspects: ReadonlySet<number>,
  report: (fault: string) => void,
): Promise<number> {
  if (suspects.size === 0) return 0;
  const placeByKey = new Map<string, string>();
  let rows = 0;
  let repeated = 0;
  for await (const { line, values } of file.rows()) {
    rows += 1;
    const parsed = v.safeParse(row, values, { abortPipeEarly: true });
    if (!parsed.success) continue;
    const key = keyOf(parsed.output);
    if (!suspects.has(hashOf(key))) continue;
    const earlier = placeByKey.get(key);
    if (earlier === undefined) placeByKey.set(key, placeOf(line, rows));
    else {
      repeated += 1;
      report(`${placeOf(line, rows)}, the same record is at ${earlier} already`);
    }
  }
  return repeated;
}

/**
 * Stores the rows of a checked file in short transactions. A repeated run finishes an interrupted import.
 *
 * @param store stores a batch of rows in one transaction
 */
async function storeFile<Schema extends v.GenericSchema>(
  context: Context,
  { file, format, rows }: CheckedFile<Schema>,
  store: (rows: v.InferOutput<Schema>[]) => Promise<UpsertCounts>,
): Promise<UpsertCounts> {
  const progress = createProgress(context, 'storing', rows);
  const counts = { added: 0, changed: 0, unchanged: 0 };
  let batchRows = firstBatchRows;
  let pending: v.InferOutput<Schema>[] = [];
  const flush = async () => {
    const startedAtMs = performance.now();
    const stored = await store(pending);
    const tookMs = performance.now() - startedAtMs;
    counts.added += stored.added;
    counts.changed += stored.changed;
    counts.unchanged += stored.unchanged;
    batchRows = nextBatchRows(pending.length, tookMs);
    progress.countRows(pending.length);
    progress.advance(pending.length);
    pending = [];
  };
  try {
    for (const isDue of format.passes ?? [() => true]) {
      for await (const { line, values } of file.rows()) {
        const parsed = v.safeParse(format.row, values);
        if (!parsed.success) throw new OperatorError(`The file changed while it was read: see line ${line}.`);
        if (isDue(parsed.output)) pending.push(parsed.output);
        if (pending.length >= batchRows) await flush();
      }
      if (pending.length > 0) await flush();
    }
  } finally {
    progress.stop();
  }
  return counts;
}

/** Adapts the batch size to the duration of the last transaction; at most doubles it. */
function nextBatchRows(lastRows: number, lastMs: number): number {
  const rows = Math.round(lastRows * Math.min(2, transactionGoalMs / lastMs));
  return Math.min(maxBatchRows, Math.max(1, rows));
}

interface ImportOptions {
  readonly dryRun: boolean;
  /** The creator of new rows, for kinds that record one. */
  readonly as?: string;
}

type ImportConfig = Pick<Config, 'reportTimeZone'>;

/** An import of one kind of rows. */
export interface RowsImport<Schema extends v.GenericSchema> {
  /** The plural of the rows, which is also the name of the command. */
  readonly name: 'cemeteries' | 'staff' | 'activities';
  readonly columns: SourceColumns;
  /** The help text about the columns. */
  readonly help: string;
  /** Creates the rules for the rows of this file in this database. */
  readonly format: (source: { db: Database; config: ImportConfig; path: string }) => Promise<RowFormat<Schema>>;
  /** Returns a function that stores a batch of rows in one transaction. */
  readonly store: (
    db: Database,
    origin: { readonly createdBy: string; readonly operator: () => Operator },
  ) => (rows: v.InferOutput<Schema>[]) => Promise<UpsertCounts>;
  /** Adds options to the command. */
  readonly configure?: (command: Command) => Command;
}

/**
 * Validates the whole file, and then stores its rows unless it is a dry run. Prints each validation error to standard error.
 *
 * @throws OperatorError when the file or any row is invalid
 */
export async function importRows<Schema extends v.GenericSchema>(
  context: Context,
  { format, store }: RowsImport<Schema>,
  source: { db: Database; config: ImportConfig; path: string },
  options: ImportOptions,
): Promise<{ rows: number; counts: UpsertCounts | undefined; warnings: readonly ImportWarning[] }> {
  const checked = await checkFile(context, source.path, await format(source));
  const storeRows = store(source.db, { createdBy: options.as ?? 'operator', operator: context.operator });
  const counts = options.dryRun ? undefined : await storeFile(context, checked, storeRows);
  return { rows: checked.rows, counts, warnings: checked.format.warnings?.() ?? [] };
}

export function importRowsCommand<Schema extends v.GenericSchema>(
  context: Context,
  rowsImport: RowsImport<Schema>,
): Command {
  const { name, columns, help, configure = (command: Command) => command } = rowsImport;
  const command = new Command(name)
    .description(`Add and change ${name} from a CSV or JSON file`)
    .argument('<file>', `.csv with the header ${headerOf(columns)}, or .json with an array of such objects`)
    .option('--dry-run', 'check the file and store nothing', false)
    .option('--json', 'print the counts as JSON', false)
    .addHelpText(
      'after',
      `
The command first checks the whole file: one invalid row prevents the import, and every invalid row is reported.
A repeated import of a file changes nothing, and finishes an interrupted import.

${help}`,
    );
  return configure(command).action((file: string, options: ImportOptions & { json: boolean }) => {
    const config = readSettings(context, `import ${name}`);
    return withDatabase(context, config, async (db) => {
      const source = { db, config, path: resolve(context.cwd, file) };
      const { rows, counts, warnings } = await importRows(context, rowsImport, source, options);
      if (counts === undefined) {
        for (const { message } of warnings) context.stderr.write(`warning: ${message}\n`);
        const sentence = `${counted(rows, 'valid row')}; nothing was stored (dry run).`;
        printResult(context, options, { rows, warnings }, sentence);
      } else {
        const { added, changed, unchanged } = counts;
        const sentence = `${counted(rows, 'row')}: ${added} new, ${changed} changed, ${unchanged} unchanged.`;
        printResult(context, options, { rows, ...counts }, sentence);
      }
    });
  });
}
