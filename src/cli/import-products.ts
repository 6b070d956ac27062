import { Command } from 'commander';
import { OperatorError } from '../errors';
import { shownErrors } from '../field-errors';
import { parseCatalog } from '../modules/matching/catalog-faults';
import { hashCatalog } from '../modules/matching/seed-catalog';
import { createCatalogStore } from '../modules/matching/store';
import { withDatabase } from './command-database';
import { counted, printResult } from './print';
import { readJsonFile } from './read-json';
import { readSettings } from './settings';

export function importProductsCommand(): Command {
  return new Command('products')
    .description('Make a catalogue of products the one in force')
    .argument('<file>', '.json as `planning catalog schema` describes it')
    .option('--dry-run', 'check the file and store nothing', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The whole file becomes one new version of the catalogue: what it does not hold is no longer offered.
\`planning catalog show --json\` prints the version in force as such a file, to edit and import again.
Running instances notice the new version within five seconds.`,
    )
    .action(async (path: string, options: { dryRun: boolean; json: boolean }) => {
      const { catalog, faults } = parseCatalog(await readJsonFile(path));
      if (catalog === undefined) {
        for (const fault of faults) process.stderr.write(`${fault}\n`);
        const atLeast = faults.length >= shownErrors ? 'at least ' : '';
        throw new OperatorError(`${atLeast}${counted(faults.length, 'fault')} in ${path}; nothing was stored.`);
      }
      const products = catalog.products.length;
      if (options.dryRun) {
        printResult(options, { products }, `${counted(products, 'product')}, all good; nothing was stored (dry run).`);
        return;
      }
      await withDatabase(readSettings('import products'), async (db) => {
        const store = createCatalogStore(db);
        const contentHash = hashCatalog(catalog);
        const latest = await store.findLatestVersion();
        if (latest?.contentHash === contentHash && latest.source === 'imported') {
          printResult(
            options,
            { version: latest.id, products, isNew: false },
            `Version ${latest.id} of the catalogue is the same already.`,
          );
          return;
        }
        const version = await store.add(catalog, { source: 'imported', contentHash, now: new Date() });
        if (version === undefined) throw new Error('An import is always applied');
        printResult(
          options,
          { version, products, isNew: true },
          `Version ${version} of the catalogue is in force, with ${counted(products, 'product')}.`,
        );
      });
    });
}
