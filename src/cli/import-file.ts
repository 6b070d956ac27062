import * as v from 'valibot';
import { findFieldErrors } from '../http/field-errors';
import { OperatorError } from './operator-error';
import { createProgress } from './progress';
import { openSourceFile, type SourceFile, type SourceRow } from './source-rows';

export interface ImportCounts {
  readonly added: number;
  readonly changed: number;
  readonly unchanged: number;
}

export interface ImportJob<Schema extends v.GenericSchema> {
  readonly path: string;
  readonly columns: readonly string[];
  readonly row: Schema;
  /** What must not come twice in one file. */
  readonly keyOf: (row: v.InferOutput<Schema>) => string;
  /** Stores the rows in one transaction. */
  readonly store: (rows: v.InferOutput<Schema>[]) => Promise<ImportCounts>;
  readonly isDryRun: boolean;
  /** Receives one line for each fault of a row. */
  readonly report: (fault: string) => void;
}

/** A libSQL server ends a write transaction after 5 s once another writer waits, so each is kept far below. */
const transactionGoalMs = 100;
const firstBatchRows = 50;
const maxBatchRows = 2000;

/**
 * Checks the whole file, and only if every row is good stores them, in short transactions: an import that was
 * interrupted is finished by running it again.
 *
 * @throws OperatorError when the file or any row is bad; nothing is stored then
 */
export async function importFile<Schema extends v.GenericSchema>(
  job: ImportJob<Schema>,
): Promise<ImportCounts & { rows: number }> {
  const file = await openSourceFile(job.path, job.columns);
  const rows = await checkRows(file, job);
  const counts = job.isDryRun ? { added: 0, changed: 0, unchanged: 0 } : await storeRows(file, rows, job);
  return { rows, ...counts };
}

async function checkRows<Schema extends v.GenericSchema>(file: SourceFile, job: ImportJob<Schema>): Promise<number> {
  const progress = createProgress('checking', file.byteLength);
  const lineByKey = new Map<string, number>();
  let rowCount = 0;
  let badRows = 0;
  try {
    for await (const source of file.rows(progress.advance)) {
      rowCount += 1;
      progress.countRows(1);
      const faults = findRowFaults(source, job, lineByKey);
      if (faults.length > 0) badRows += 1;
      for (const fault of faults) job.report(`line ${source.line}, ${fault}`);
    }
  } finally {
    progress.stop();
  }
  if (rowCount === 0) throw new OperatorError(`${file.path} has no rows.`);
  if (badRows > 0) throw new OperatorError(`${badRows} of ${rowCount} rows cannot be imported; nothing was stored.`);
  return rowCount;
}

function findRowFaults<Schema extends v.GenericSchema>(
  { line, values }: SourceRow,
  { row, keyOf }: ImportJob<Schema>,
  lineByKey: Map<string, number>,
): string[] {
  const parsed = v.safeParse(row, values);
  if (!parsed.success) {
    return findFieldErrors(row, parsed.issues, 'dotted').map(({ pointer, message }) =>
      pointer === '' ? `the row ${message}` : `column ${pointer}: ${message}`,
    );
  }
  const key = keyOf(parsed.output);
  const earlier = lineByKey.get(key);
  if (earlier !== undefined) return [`the same record stands at line ${earlier} already`];
  lineByKey.set(key, line);
  return [];
}

async function storeRows<Schema extends v.GenericSchema>(
  file: SourceFile,
  rowCount: number,
  job: ImportJob<Schema>,
): Promise<ImportCounts> {
  const progress = createProgress('storing', rowCount);
  let counts = { added: 0, changed: 0, unchanged: 0 };
  let batchRows = firstBatchRows;
  let pending: v.InferOutput<Schema>[] = [];
  const flush = async () => {
    const startedAtMs = performance.now();
    counts = sum(counts, await job.store(pending));
    const tookMs = performance.now() - startedAtMs;
    batchRows = Math.min(
      maxBatchRows,
      Math.max(1, Math.round(pending.length * Math.min(2, transactionGoalMs / tookMs))),
    );
    progress.countRows(pending.length);
    progress.advance(pending.length);
    pending = [];
  };
  try {
    for await (const { line, values } of file.rows()) {
      const parsed = v.safeParse(job.row, values);
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

function sum(left: ImportCounts, right: ImportCounts): ImportCounts {
  return {
    added: left.added + right.added,
    changed: left.changed + right.changed,
    unchanged: left.unchanged + right.unchanged,
  };
}
