import { Command, InvalidArgumentError } from 'commander';
import * as v from 'valibot';
import type { Database } from '../db/client';
import { OperatorError } from '../errors';
import { catalogJsonSchema, diffCatalogs, parseCatalog } from '../modules/matching/catalog-check';
import { createCatalogStore } from '../modules/matching/catalog-store';
import { deriveFacts } from '../modules/matching/facts';
import { compileCatalog, match, type StoredCatalog, toCatalog } from '../modules/matching/match';
import type { Match, RemainingMatch } from '../modules/matching/model';
import { User } from '../modules/users/model';
import { hashCatalog } from '../seed';
import { commandName } from '../shared/build';
import { calendarDateAt, parseCalendarDate } from '../shared/calendar';
import { findFieldErrors, shownErrors } from '../shared/field-errors';
import { type Context, positiveInteger, readJsonFile, readSettings } from './context';
import { withDatabase } from './database';
import { counted, printResult, toTable } from './output';

export function catalogCommand(context: Context): Command {
  return new Command('catalog')
    .description('Show, compare and try versions of the product catalogue')
    .addCommand(showCommand(context))
    .addCommand(diffCommand(context))
    .addCommand(tryCommand(context))
    .addCommand(
      new Command('schema')
        .description('Print the JSON Schema of a catalogue file, for editors')
        .action(() => printResult(context, { json: true }, catalogJsonSchema(), '')),
    );
}

function showCommand(context: Context): Command {
  return new Command('show')
    .description('Print a version of the catalogue; default: the current one')
    .argument('[version]', 'number of the version', positiveInteger)
    .option('--json', 'print it as a file for `import products`', false)
    .action((version: number | undefined, options: { json: boolean }) =>
      withDatabase(context, readSettings(context, 'catalog show'), async (db) => {
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
        printResult(context, options, catalog, `Version ${stored.version}\n\n${table}`);
      }),
    );
}

function diffCommand(context: Context): Command {
  return new Command('diff')
    .description('Print the differences between two versions')
    .argument('<a>', 'number of the earlier version', positiveInteger)
    .argument('<b>', 'number of the later version', positiveInteger)
    .option('--json', 'print the lines as JSON', false)
    .action((a: number, b: number, options: { json: boolean }) =>
      withDatabase(context, readSettings(context, 'catalog diff'), async (db) => {
        const before = toCatalog(await findCatalog(db, a));
        const after = toCatalog(await findCatalog(db, b));
        const differences = diffCatalogs(before, after);
        printResult(context, options, { differences }, differences.join('\n') || 'The versions are the same.');
      }),
    );
}

/** The sections of a user object. It is strict, because a misspelled name would look like a missing answer. */
const Person = v.strictObject({
  ...v.partial(User).entries,
  profile: v.optional(v.strictObject(User.entries.profile.entries)),
  ltc: v.optional(
    v.strictObject({ lifetimeCare: v.optional(v.strictObject(User.entries.ltc.entries.lifetimeCare.wrapped.entries)) }),
  ),
  lifeInsurance: v.optional(v.strictObject(User.entries.lifeInsurance.entries)),
  lifetimeCare: v.optional(v.strictObject(User.entries.lifetimeCare.entries)),
});

function tryCommand(context: Context): Command {
  return new Command('try')
    .description('Match a user object from a file, and explain every point')
    .requiredOption('--user <file>', 'JSON of a user object, as GET /v2/private/user returns it, or of some sections')
    .option('--catalog <version>', 'number of the catalogue version; default: the current one', positiveInteger)
    .option('--on <date>', 'day of the match, YYYY-MM-DD; default: today', calendarDate)
    .option('--json', 'print the matches as JSON', false)
    .action(async (options: { user: string; catalog?: number; on?: string; json: boolean }) => {
      const config = readSettings(context, 'catalog try');
      const person = await readPerson(context, options.user);
      await withDatabase(context, config, async (db) => {
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
        printResult(context, options, matches, sentence);
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

async function readPerson(context: Context, path: string): Promise<v.InferOutput<typeof Person>> {
  const value = await readJsonFile(context, path);
  const isWrapped = typeof value === 'object' && value !== null && 'user' in value;
  const parsed = v.safeParse(Person, isWrapped ? value.user : value);
  if (parsed.success) return parsed.output;
  for (const { pointer, message } of findFieldErrors(Person, parsed.issues, 'column')) {
    context.stderr.write(`${pointer === '' ? 'the file' : pointer} ${message}\n`);
  }
  throw new OperatorError(`${path} does not contain a user object.`);
}

async function findCatalog(db: Database, version: number | undefined): Promise<StoredCatalog> {
  const store = createCatalogStore(db);
  const wanted = version ?? (await store.findLatestVersion())?.id;
  if (wanted === undefined) throw new OperatorError(`There is no catalogue yet: run \`${commandName} seed\` first.`);
  const stored = await store.find(wanted);
  if (stored !== undefined) return stored;
  const known = (await store.listVersions()).map(({ id }) => id).join(', ');
  throw new OperatorError(`There is no version ${wanted} of the catalogue. Existing versions: ${known || 'none'}.`);
}

function calendarDate(text: string): string {
  const date = parseCalendarDate(text);
  if (date === undefined || date !== text) throw new InvalidArgumentError('It must be a date as YYYY-MM-DD.');
  return date;
}

interface ImportOptions {
  readonly dryRun: boolean;
  readonly json: boolean;
}

export function importProductsCommand(context: Context): Command {
  return new Command('products')
    .description('Store a product catalogue and make it current')
    .argument('<file>', '.json as `planning catalog schema` describes it')
    .option('--dry-run', 'check the file and store nothing', false)
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
The whole file becomes one new version of the catalogue: a product that it does not contain is no longer offered.
\`planning catalog show --json\` prints the current version as such a file, to edit and import again.
Running instances use the new version within five seconds.`,
    )
    .action((path: string, options: ImportOptions) => importProducts(context, path, options));
}

async function importProducts(context: Context, path: string, options: ImportOptions): Promise<void> {
  const { catalog, errors } = parseCatalog(await readJsonFile(context, path));
  if (catalog === undefined) {
    for (const error of errors) context.stderr.write(`${error}\n`);
    const atLeast = errors.length >= shownErrors ? 'at least ' : '';
    throw new OperatorError(`${atLeast}${counted(errors.length, 'error')} in ${path}; nothing was stored.`);
  }
  const products = catalog.products.length;
  if (options.dryRun) {
    const sentence = `${counted(products, 'product')}, all valid; nothing was stored (dry run).`;
    printResult(context, options, { products }, sentence);
    return;
  }
  await withDatabase(context, readSettings(context, 'import products'), async (db) => {
    const store = createCatalogStore(db);
    const contentHash = hashCatalog(catalog);
    const latest = await store.findLatestVersion();
    if (latest?.contentHash === contentHash && latest.source === 'imported') {
      const sentence = `Version ${latest.id} of the catalogue is the same already.`;
      printResult(context, options, { version: latest.id, products, isNew: false }, sentence);
      return;
    }
    const version = await store.add(catalog, { source: 'imported', contentHash, now: new Date() });
    if (version === undefined) throw new Error('The catalogue store ignored an import');
    const sentence = `Version ${version} of the catalogue is current, with ${counted(products, 'product')}.`;
    printResult(context, options, { version, products, isNew: true }, sentence);
  });
}
