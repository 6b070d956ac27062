import { Command } from 'commander';
import * as v from 'valibot';
import type { Config } from '../config/settings';
import type { Database } from '../db/client';
import type { UpsertCounts } from '../db/statements';
import { OperatorError } from '../errors';
import { findFieldErrors } from '../shared/field-errors';
import { withDatabase } from './context';
import { headerOf, openSourceFile, type SourceColumns, type SourceFile } from './import-source';
import { counted, createProgress, printResult } from './output';
import { readSettings } from './settings';

/** What the rows of a file are. */
export interface RowFormat<Schema extends v.GenericSchema> {
  readonly columns: readonly string[];
  /** Columns that a CSV may do without. */
  readonly optionalColumns?: readonly string[];
  readonly row: Schema;
  /** What must not come twice in one file. */
  readonly keyOf: (row: v.InferOutput<Schema>) => string;
  /** Which rows are stored first, and which after them; all of them in the order of the file without it. */
  readonly passes?: readonly ((row: v.InferOutput<Schema>) => boolean)[];
  /** Called for each valid row; `values` are its texts in the file. */
  readonly inspect?: (row: v.InferOutput<Schema>, values: unknown) => void;
  /** Warnings about the inspected rows, which can be stored nevertheless. */
  readonly warnings?: () => readonly ImportWarning[];
  /** What is wrong with each of some rows in the light of what is stored. */
  readonly findFaults?: (rows: readonly v.InferOutput<Schema>[]) => Promise<readonly (readonly string[])[]>;
}

interface ImportWarning {
  readonly code: string;
  readonly message: string;
  readonly counts: Readonly<Record<string, number>>;
}

/** A file of which every row is good. */
interface CheckedFile<Schema extends v.GenericSchema> {
  readonly file: SourceFile;
  readonly format: RowFormat<Schema>;
  readonly rows: number;
}

/** Receives one line for each fault of a row. */
type Report = (fault: string) => void;

/** A libSQL server ends a write transaction after 5 s once another writer waits, so each is kept far below. */
const transactionGoalMs = 100;
const firstBatchRows = 50;
const maxBatchRows = 2000;
const checkedAtOnceRows = 500;
/** Nobody reads more, and a slow terminal would have to be waited for with all of them in memory. */
const maxShownFaults = 1000;

/**
 * Reads the whole file before anything is stored.
 *
 * @throws OperatorError when the file or any row is bad
 */
async function checkFile<Schema extends v.GenericSchema>(
  path: string,
  format: RowFormat<Schema>,
  report: Report,
): Promise<CheckedFile<Schema>> {
  const file = await openSourceFile(path, format);
  const progress = createProgress('checking', file.byteLength);
  const keyHashes: number[] = [];
  let rows = 0;
  let badRows = 0;
  let faults = 0;
  const reportUpToLimit: Report = (fault) => {
    faults += 1;
    if (faults <= maxShownFaults) report(fault);
  };
  let pending: { place: string; parsed: v.SafeParseResult<Schema> }[] = [];
  const check = async () => {
    const good = pending.flatMap(({ parsed }) => (parsed.success ? [parsed.output] : []));
    const found = (await format.findFaults?.(good)) ?? [];
    let goodRows = 0;
    for (const { place, parsed } of pending) {
      if (parsed.success) keyHashes.push(hashOf(format.keyOf(parsed.output)));
      const rowFaults = parsed.success ? (found[goodRows++] ?? []) : fieldFaults(format.row, parsed.issues);
      if (rowFaults.length > 0) badRows += 1;
      for (const fault of rowFaults) reportUpToLimit(`${place}, ${fault}`);
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
        reportUpToLimit(`${placeOf(line, rows)}, ${fault}`);
      }
      if (pending.length >= checkedAtOnceRows) await check();
    }
    await check();
    badRows += await reportRepeated(file, format, findRepeated(keyHashes), reportUpToLimit);
  } finally {
    progress.stop();
  }
  if (faults > maxShownFaults) report(`and ${counted(faults - maxShownFaults, 'more fault')}`);
  if (rows === 0) throw new OperatorError(`${file.path} has no rows.`);
  if (badRows > 0) {
    throw new OperatorError(`${badRows} of ${counted(rows, 'row')} cannot be imported; nothing was stored.`);
  }
  return { file, format, rows };
}

/** Every row of a file that can be read, and nothing about the others. */
export async function* readableRows<Schema extends v.GenericSchema>(
  path: string,
  format: RowFormat<Schema>,
): AsyncGenerator<v.InferOutput<Schema>> {
  const file = await openSourceFile(path, format);
  for await (const { values } of file.rows()) {
    const parsed = v.safeParse(format.row, values);
    if (parsed.success) yield parsed.output;
  }
}

function placeOf(line: number, row: number): string {
  return `line ${line} (row ${row})`;
}

function fieldFaults<Schema extends v.GenericSchema>(schema: Schema, issues: v.InferIssue<Schema>[]): string[] {
  return findFieldErrors(schema, issues, 'column').map(({ pointer, message }) =>
    pointer === '' ? `the row ${message}` : `column ${pointer}: ${message}`,
  );
}

/** 53 bits of a key: a file of a million keys is looked through for repeated ones in 16 MB instead of 300. */
function hashOf(key: string): number {
  return Number(BigInt.asUintN(53, BigInt(Bun.hash(key))));
}

function findRepeated(hashes: readonly number[]): ReadonlySet<number> {
  const sorted = Float64Array.from(hashes).sort();
  return new Set(sorted.filter((hash, index) => index > 0 && hash === sorted[index - 1]));
}

/** Two keys may have one hash, so what looks repeated is read once more and compared. Gives the number of bad rows. */
async function reportRepeated<Schema extends v.GenericSchema>(
  file: SourceFile,
  { row, keyOf }: RowFormat<Schema>,
  suspects: ReadonlySet<number>,
  report: Report,
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
      report(`${placeOf(line, rows)}, the same record stands at ${earlier} already`);
    }
  }
  return repeated;
}

/**
 * Stores the rows of a checked file in short transactions; an import that was interrupted is finished by running it
 * again.
 *
 * @param store stores some rows, all or none
 */
async function storeFile<Schema extends v.GenericSchema>(
  { file, format, rows }: CheckedFile<Schema>,
  store: (rows: v.InferOutput<Schema>[]) => Promise<UpsertCounts>,
): Promise<UpsertCounts> {
  const progress = createProgress('storing', rows);
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

/** As many rows as the goal allows by the pace of the last transaction, and at most twice as many as before. */
function nextBatchRows(lastRows: number, lastMs: number): number {
  const rows = Math.round(lastRows * Math.min(2, transactionGoalMs / lastMs));
  return Math.min(maxBatchRows, Math.max(1, rows));
}

interface ImportOptions {
  readonly dryRun: boolean;
  /** Who is named as the creator, in an import that has such a thing. */
  readonly as?: string;
}

type ImportConfig = Pick<Config, 'reportTimeZone'>;

/** What an import of rows is made of. */
export interface RowsImport<Schema extends v.GenericSchema> {
  /** What the rows are, in the plural; also the name of the command. */
  readonly name: 'cemeteries' | 'staff' | 'activities';
  readonly columns: SourceColumns;
  /** What an operator should know of the columns. */
  readonly help: string;
  /** The rules of this file's rows over this database. */
  readonly format: (source: { db: Database; config: ImportConfig; path: string }) => Promise<RowFormat<Schema>>;
  /** Returns a function that stores rows in batches, each batch all or none. */
  readonly store: (db: Database, options: ImportOptions) => (rows: v.InferOutput<Schema>[]) => Promise<UpsertCounts>;
  /** Adds options of its own. */
  readonly configure?: (command: Command) => Command;
}

/**
 * Checks a file whole, and then stores its rows unless it is a dry run.
 *
 * @param report receives one line for each fault of a row
 * @throws OperatorError when the file or any row is bad
 */
export async function importRows<Schema extends v.GenericSchema>(
  { format, store }: RowsImport<Schema>,
  source: { db: Database; config: ImportConfig; path: string },
  options: ImportOptions,
  report: (fault: string) => void,
): Promise<{ rows: number; counts: UpsertCounts | undefined; warnings: readonly ImportWarning[] }> {
  const checked = await checkFile(source.path, await format(source), report);
  const counts = options.dryRun ? undefined : await storeFile(checked, store(source.db, options));
  return { rows: checked.rows, counts, warnings: checked.format.warnings?.() ?? [] };
}

/** The command of such an import. */
export function importRowsCommand<Schema extends v.GenericSchema>(rowsImport: RowsImport<Schema>): Command {
  const { name, columns, help, configure = (command: Command) => command } = rowsImport;
  const command = new Command(name)
    .description(`Add and change ${name} from a CSV or JSON file`)
    .argument('<file>', `.csv with the header ${headerOf(columns)}, or .json with an array of such objects`)
    .option('--dry-run', 'check the file and store nothing', false)
    .option('--json', 'print the counts as JSON', false)
    .addHelpText(
      'after',
      `
The file is checked whole first: with one bad row nothing is stored, and every bad row is reported.
Importing a file again changes nothing, and an import that was interrupted is finished by running it again.

${help}`,
    );
  return configure(command).action((path: string, options: ImportOptions & { json: boolean }) => {
    const config = readSettings(`import ${name}`);
    return withDatabase(config, async (db) => {
      const report = (fault: string) => process.stderr.write(`${fault}\n`);
      const { rows, counts, warnings } = await importRows(rowsImport, { db, config, path }, options, report);
      if (counts === undefined) {
        for (const { message } of warnings) report(`warning: ${message}`);
        printResult(options, { rows, warnings }, `${counted(rows, 'good row')}; nothing was stored (dry run).`);
      } else {
        const { added, changed, unchanged } = counts;
        const outcome = `${counted(rows, 'row')}: ${added} new, ${changed} changed, ${unchanged} unchanged.`;
        printResult(options, { rows, ...counts }, outcome);
      }
    });
  });
}
