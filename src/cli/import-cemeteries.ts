import { Command } from 'commander';
import { readConfig } from '../config';
import type { Database } from '../db/client';
import { CemeteryRecord } from '../modules/cemeteries/model';
import { createCemeteryStore } from '../modules/cemeteries/store';
import { withDatabase } from './command-database';
import { importFile } from './import-file';
import { printResult } from './print';

const columns = ['externalId', 'name', 'street', 'city', 'state', 'zip'];

export function importCemeteriesCommand(): Command {
  return new Command('cemeteries')
    .description('Add and change cemeteries from a CSV or JSON file')
    .argument('<file>', `.csv with the header ${columns.join(',')}, or .json with an array of such objects`)
    .option('--as <id>', 'who is named as the creator of new cemeteries', 'operator')
    .option('--dry-run', 'check the file and store nothing', false)
    .option('--json', 'print the counts as JSON', false)
    .addHelpText(
      'after',
      `
The file is checked whole first: with one bad row nothing is stored, and every bad row is reported.
Cemeteries are known by externalId: importing a file again changes nothing, and an import that was
interrupted is finished by running it again. street and zip may be empty.`,
    )
    .action((path: string, options: { as: string; dryRun: boolean; json: boolean }) =>
      withDatabase(readConfig(process.env), async (db) => {
        const counts = await importCemeteries(db, path, {
          createdBy: options.as,
          isDryRun: options.dryRun,
          report: (fault) => process.stderr.write(`${fault}\n`),
        });
        printResult(
          options,
          counts,
          options.dryRun
            ? `${counts.rows} rows are good; nothing was stored (dry run).`
            : `${counts.rows} rows: ${counts.added} new, ${counts.changed} changed, ${counts.unchanged} unchanged.`,
        );
      }),
    );
}

export function importCemeteries(
  db: Database,
  path: string,
  { createdBy, isDryRun, report }: { createdBy: string; isDryRun: boolean; report: (fault: string) => void },
) {
  const store = createCemeteryStore(db);
  return importFile({
    path,
    columns,
    row: CemeteryRecord,
    keyOf: ({ externalId }) => externalId,
    store: (rows) => store.upsert(rows, { createdBy, now: new Date() }),
    isDryRun,
    report,
  });
}
