import { Command } from 'commander';
import type * as v from 'valibot';
import type { Config } from '../config';
import type { Database } from '../db/client';
import type { UpsertCounts } from '../db/upsert';
import { withDatabase } from './command-database';
import { checkFile, type ImportWarning, type RowFormat, storeFile } from './import-file';
import { counted, printResult } from './print';
import { readSettings } from './settings';
import { headerOf, type SourceColumns } from './source-rows';

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
