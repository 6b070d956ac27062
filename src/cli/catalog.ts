import { Command, InvalidArgumentError } from 'commander';
import * as v from 'valibot';
import type { Database } from '../db/client';
import { OperatorError } from '../errors';
import { catalogJsonSchema, diffCatalogs, parseCatalog } from '../modules/matching/catalog-check';
import { deriveFacts } from '../modules/matching/facts';
import { compileCatalog, match, type StoredCatalog, toCatalog } from '../modules/matching/match';
import type { Match, RemainingMatch } from '../modules/matching/model';
import { createCatalogStore } from '../modules/matching/store';
import { User } from '../modules/users/model';
import { hashCatalog } from '../seed';
import { commandName } from '../shared/build';
import { calendarDateAt, parseCalendarDate } from '../shared/calendar';
import { findFieldErrors, shownErrors } from '../shared/field-errors';
import { withDatabase } from './context';
import { readJsonFile } from './files';
import { counted, printResult, toTable } from './output';
import { readSettings } from './settings';

export function catalogCommand(): Command {
  return new Command('catalog')
    .description('Look at the catalogue of products')
    .addCommand(showCommand())
    .addCommand(diffCommand())
    .addCommand(tryCommand())
    .addCommand(
      new Command('schema')
        .description('Print the JSON Schema of a catalogue’s file, for editors')
        .action(() => printResult({ json: true }, catalogJsonSchema(), '')),
    );
}

function showCommand(): Command {
  return new Command('show')
    .description('Print a version of the catalogue, the one in force if none is named')
    .argument('[version]', 'number of the version', versionNumber)
    .option('--json', 'print it as the file that `import products` takes', false)
    .action((version: number | undefined, options: { json: boolean }) =>
      withDatabase(readSettings('catalog show'), async (db) => {
        const stored = await findCatalog(db, version);
        const catalog = toCatalog(stored);
        const rows = catalog.products.map(({ id, productName, active, disqualifiers, rules }) => [
          String(id),
          productName,
          active ? 'yes' : 'no',
          String(rules.length),
          disqualifiers.join(', '),
        ]);
        const table = toTable(['id', 'product', 'active', 'rules', 'disqualifiers'], rows);
        printResult(options, catalog, `Version ${stored.version}\n\n${table}`);
      }),
    );
}

function diffCommand(): Command {
  return new Command('diff')
    .description('Print what differs between two versions')
    .argument('<a>', 'number of the earlier version', versionNumber)
    .argument('<b>', 'number of the later version', versionNumber)
    .option('--json', 'print the lines as JSON', false)
    .action((a: number, b: number, options: { json: boolean }) =>
      withDatabase(readSettings('catalog diff'), async (db) => {
        const before = toCatalog(await findCatalog(db, a));
        const after = toCatalog(await findCatalog(db, b));
        const differences = diffCatalogs(before, after);
        printResult(options, { differences }, differences.join('\n') || 'The versions are the same.');
      }),
    );
}

/** The sections of a user object; a name that is not there would look like an answer that was not given. */
const Person = v.strictObject({
  ...v.partial(User).entries,
  profile: v.optional(v.strictObject(User.entries.profile.entries)),
  ltc: v.optional(
    v.strictObject({ lifetimeCare: v.optional(v.strictObject(User.entries.ltc.entries.lifetimeCare.wrapped.entries)) }),
  ),
  lifeInsurance: v.optional(v.strictObject(User.entries.lifeInsurance.entries)),
  lifetimeCare: v.optional(v.strictObject(User.entries.lifetimeCare.entries)),
});

function tryCommand(): Command {
  return new Command('try')
    .description('Match a person in a file, and explain every point')
    .requiredOption('--user <file>', 'JSON of a user object, as GET /v2/private/user answers it, or of some sections')
    .option(
      '--catalog <version>',
      'number of the catalogue’s version; the one in force if none is named',
      versionNumber,
    )
    .option('--on <date>', 'day of the match, YYYY-MM-DD; today if none is named', calendarDate)
    .option('--json', 'print the matches as JSON', false)
    .action(async (options: { user: string; catalog?: number; on?: string; json: boolean }) => {
      const config = readSettings('catalog try');
      const person = await readPerson(options.user);
      await withDatabase(config, async (db) => {
        const catalog = compileCatalog(await findCatalog(db, options.catalog));
        const answers = {
          profile: person.profile ?? null,
          ltcLifetimeCare: person.ltc?.lifetimeCare ?? null,
          lifeInsurance: person.lifeInsurance ?? null,
          lifetimeCare: person.lifetimeCare ?? null,
        };
        const today = options.on ?? calendarDateAt(new Date(), config.reportTimeZone);
        const matches = match(deriveFacts(answers, today), catalog, true);
        const ranked = [...(matches.bestMatch === null ? [] : [matches.bestMatch]), ...matches.remainingMatches];
        const best =
          matches.bestMatch === null
            ? 'none: the catalogue has no product'
            : `${matches.bestMatch.productName}${matches.bestMatch.isEligible ? '' : ', although it is disqualified'}`;
        const sentence = `Version ${catalog.version}, on ${today}. Best match: ${best}\n\n${explainedTable(ranked)}`;
        printResult(options, matches, sentence);
      });
    });
}

function explainedTable(ranked: readonly (Match | RemainingMatch)[]): string {
  const rows = ranked.flatMap(({ id, productName, score, explanation }) => [
    [String(id), productName, score.toFixed(2), ''],
    ...(explanation?.rules ?? [])
      .filter(({ outcome }) => outcome === 'met')
      .map((rule) => ['', `  ${rule.text}`, rule.points.toFixed(2), rule.id]),
    ...(explanation?.disqualifiersHeld.length
      ? [['', '  disqualified', explanation.penalty.toFixed(2), explanation.disqualifiersHeld.join(', ')]]
      : []),
    ...(explanation?.unanswered.length ? [['', '  unanswered', '', explanation.unanswered.join(', ')]] : []),
  ]);
  return toTable(['id', 'product', 'points', 'why'], rows);
}

async function readPerson(path: string): Promise<v.InferOutput<typeof Person>> {
  const value = await readJsonFile(path);
  const isWrapped = typeof value === 'object' && value !== null && 'user' in value;
  const parsed = v.safeParse(Person, isWrapped ? value.user : value);
  if (parsed.success) return parsed.output;
  for (const { pointer, message } of findFieldErrors(Person, parsed.issues, 'column')) {
    process.stderr.write(`${pointer === '' ? 'the file' : pointer} ${message}\n`);
  }
  throw new OperatorError(`${path} does not hold a user object.`);
}

async function findCatalog(db: Database, version: number | undefined): Promise<StoredCatalog> {
  const store = createCatalogStore(db);
  const wanted = version ?? (await store.findLatestVersion())?.id;
  if (wanted === undefined) throw new OperatorError(`There is no catalogue yet: run \`${commandName} seed\` first.`);
  const stored = await store.find(wanted);
  if (stored !== undefined) return stored;
  const known = (await store.listVersions()).map(({ id }) => id).join(', ');
  throw new OperatorError(`There is no version ${wanted} of the catalogue; there are: ${known || 'none'}.`);
}

function versionNumber(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It must be the number of a version.');
  return Number(text);
}

function calendarDate(text: string): string {
  const date = parseCalendarDate(text);
  if (date === undefined || date !== text) throw new InvalidArgumentError('It must be a date as YYYY-MM-DD.');
  return date;
}

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
