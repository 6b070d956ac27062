import { Command } from 'commander';
import { readConfig } from '../config';
import type { Database } from '../db/client';
import { CemeteryRecord } from '../modules/cemeteries/model';
import { createCemeteryStore } from '../modules/cemeteries/store';
import { identifier } from './arguments';
import { withDatabase } from './command-database';
import { type CheckedFile, checkFile, storeFile } from './import-file';
import { counted, printResult } from './print';

const format = {
  columns: ['externalId', 'name', 'street', 'city', 'state', 'zip'],
  row: CemeteryRecord,
  keyOf: ({ externalId }: CemeteryRecord) => externalId,
};

export function importCemeteriesCommand(): Command {
  return new Command('cemeteries')
    .description('Add and change cemeteries from a CSV or JSON file')
    .argument('<file>', `.csv with the header ${format.columns.join(',')}, or .json with an array of such objects`)
    .option('--as <id>', 'who is named as the creator of new cemeteries', identifier, 'operator')
    .option('--dry-run', 'check the file and store nothing', false)
    .option('--json', 'print the counts as JSON', false)
    .addHelpText(
      'after',
      `
The file is checked whole first: with one bad row nothing is stored, and every bad row is reported.
Cemeteries are known by externalId: importing a file again changes nothing, and an import that was
interrupted is finished by running it again. street and zip may be empty; a zip has 5 digits, or 5 and
4 with a hyphen; externalId and city have at most 100 characters, name and street 200.`,
    )
    .action(async (path: string, options: { as: string; dryRun: boolean; json: boolean }) => {
      const checked = await checkCemeteries(path, (fault) => process.stderr.write(`${fault}\n`));
      const { rows } = checked;
      if (options.dryRun) {
        printResult(options, { rows }, `${counted(rows, 'good row')}; nothing was stored (dry run).`);
        return;
      }
      await withDatabase(readConfig(process.env), async (db) => {
        const counts = await storeCemeteries(db, checked, options.as);
        const { added, changed, unchanged } = counts;
        const sentence = `${counted(rows, 'row')}: ${added} new, ${changed} changed, ${unchanged} unchanged.`;
        printResult(options, { rows, ...counts }, sentence);
      });
    });
}

export function checkCemeteries(path: string, report: (fault: string) => void) {
  return checkFile(path, format, report);
}

export function storeCemeteries(db: Database, checked: CheckedFile<typeof CemeteryRecord>, createdBy: string) {
  const store = createCemeteryStore(db);
  return storeFile(checked, (rows) => store.upsert(rows, { createdBy, now: new Date() }));
}
