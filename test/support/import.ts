import { join } from 'node:path';
import type * as v from 'valibot';
import { importRows, type RowsImport } from '../../src/cli/import';
import type { Database } from '../../src/db/client';
import { OperatorError } from '../../src/errors';
import { createTestContext } from './command';
import { temporaryFolder } from './database';

/** Runs an import in this process, because a process for each case is slow. */
export async function importContent<Schema extends v.GenericSchema>(
  rowsImport: RowsImport<Schema>,
  db: Database,
  {
    name = 'list.csv',
    content,
    timeZone = 'UTC',
    dryRun = false,
  }: { name?: string; content: string | Uint8Array; timeZone?: string; dryRun?: boolean },
) {
  const path = join(temporaryFolder(), name);
  await Bun.write(path, content);
  const { context, stderr } = createTestContext();
  const source = { db, path, config: { reportTimeZone: timeZone } };
  const faults = () => stderr().split('\n').slice(0, -1);
  try {
    const { counts, warnings } = await importRows(context, rowsImport, source, { dryRun, as: 'tester' });
    return { counts, warnings, refusal: '', faults: faults() };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { counts: undefined, warnings: [], refusal: error.message, faults: faults() };
  }
}
