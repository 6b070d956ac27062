import * as v from 'valibot';
import { findFieldErrors } from '../field-errors';
import { OperatorError } from './operator-error';
import { counted } from './print';
import { createProgress } from './progress';
import { openSourceFile, type SourceFile } from './source-rows';

/** What the rows of a file are. */
export interface RowFormat<Schema extends v.GenericSchema> {
  readonly columns: readonly string[];
  readonly row: Schema;
  /** What must not come twice in one file. */
  readonly keyOf: (row: v.InferOutput<Schema>) => string;
}

/** A file of which every row is good. */
export interface CheckedFile<Schema extends v.GenericSchema> {
  readonly file: SourceFile;
  readonly format: RowFormat<Schema>;
  readonly rows: number;
}

export interface ImportCounts {
  readonly added: number;
  readonly changed: number;
  readonly unchanged: number;
}

/** A libSQL server ends a write transaction after 5 s once another writer waits, so each is kept far below. */
const transactionGoalMs = 100;
const firstBatchRows = 50;
const maxBatchRows = 2000;

/**
 * Reads the whole file before anything is stored.
 *
 * @param report receives one line for each fault of a row
 * @throws OperatorError when the file or any row is bad
 */
export async function checkFile<Schema extends v.GenericSchema>(
  path: string,
  format: RowFormat<Schema>,
  report: (fault: string) => void,
): Promise<CheckedFile<Schema>> {
  const file = await openSourceFile(path, format.columns);
  const progress = createProgress('checking', file.byteLength);
  const placeByKey = new Map<string, string>();
  let rows = 0;
  let badRows = 0;
  try {
    for await (const { line, values } of file.rows(progress.advance)) {
      rows += 1;
      progress.countRows(1);
      const place = `line ${line} (row ${rows})`;
      const faults = findRowFaults(values, place, format, placeByKey);
      if (faults.length > 0) badRows += 1;
      for (const fault of faults) report(`${place}, ${fault}`);
    }
  } finally {
    progress.stop();
  }
  if (rows === 0) throw new OperatorError(`${file.path} has no rows.`);
  if (badRows > 0) {
    throw new OperatorError(`${badRows} of ${counted(rows, 'row')} cannot be imported; nothing was stored.`);
  }
  return { file, format, rows };
}

function findRowFaults<Schema extends v.GenericSchema>(
  values: unknown,
  place: string,
  { row, keyOf }: RowFormat<Schema>,
  placeByKey: Map<string, string>,
): string[] {
  const parsed = v.safeParse(row, values, { abortPipeEarly: true });
  if (!parsed.success) {
    return findFieldErrors(row, parsed.issues, 'column').map(({ pointer, message }) =>
      pointer === '' ? `the row ${message}` : `column ${pointer}: ${message}`,
    );
  }
  const key = keyOf(parsed.output);
  const earlier = placeByKey.get(key);
  if (earlier !== undefined) return [`the same record stands at ${earlier} already`];
  placeByKey.set(key, place);
  return [];
}

/**
 * Stores the rows of a checked file in short transactions; an import that was interrupted is finished by running it
 * again.
 *
 * @param store stores some rows, all or none
 */
export async function storeFile<Schema extends v.GenericSchema>(
  { file, format, rows }: CheckedFile<Schema>,
  store: (rows: v.InferOutput<Schema>[]) => Promise<ImportCounts>,
): Promise<ImportCounts> {
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
    for await (const { line, values } of file.rows()) {
      const parsed = v.safeParse(format.row, values);
      if (!parsed.success) throw new OperatorError(`The file changed while it was read: see line ${line}.`);
      pending.push(parsed.output);
      if (pending.length >= batchRows) await flush();
    }
    if (pending.length > 0) await flush();
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
