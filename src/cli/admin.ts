import { Command, InvalidArgumentError, Option } from 'commander';
import { developmentSecret, signToken } from '../auth/signing';
import { magicLastNames } from '../carrier-sandbox/server';
import type { Config } from '../config/settings';
import { backUpBeforeMigration } from '../db/backup';
import { absenceOf, type Database, localPath, placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { migrateDatabase, migrationTimeoutMs, remedyFor, reportSchema, requireMigratable } from '../db/migrate';
import { readMigrations } from '../db/migrations';
import { errorCode, OperatorError } from '../errors';
import { type DemoData, findDemoData, removeDemoData } from '../modules/demo-data/store';
import { findDemoTraces, seedDatabase } from '../seed';
import { commandName } from '../shared/build';
import { parseInstant } from '../shared/calendar';
import { type Context, confirm, durationSeconds, instantArgument, readSettings, subject } from './context';
import { withDatabase, withOpened } from './database';
import { printResult } from './output';

export function carrierCommand(context: Context): Command {
  const names = Object.entries(magicLastNames).map(([name, { does }]) => `  ${name.padEnd(9)} ${does}`);
  return new Command('carrier')
    .description('Run the sandbox carrier alone, until SIGINT or SIGTERM')
    .option('--port <port>', 'port to listen on at 127.0.0.1', port, 3900)
    .addHelpText(
      'after',
      `
It stores its applications in SANDBOX_DATABASE_URL, which is file:data/carrier-sandbox.db in the working directory by
default. If CARRIER_API_KEY is set, every request must carry it. Applicants with these last names fail:
${names.join('\n')}`,
    )
    .action(async (options: { port: number }) => {
      const config = readSettings(context, 'carrier');
      const { apiKey } = config.carrier;
      // Only this command serves HTTP. Without the dynamic import, every other one would take twice as long to start.
      const { listenCarrierSandbox } = await import('../carrier-sandbox/server');
      const listening = { config, clock: () => new Date(), apiKey, port: options.port };
      const sandbox = await listenCarrierSandbox(listening).catch((error: unknown) => {
        if (findDatabaseError(error) !== undefined) throw error;
        throw new OperatorError(`The sandbox carrier cannot listen on port ${options.port}: ${errorCode(error)}`);
      });
      context.stdout.write(`The sandbox carrier listens on ${sandbox.url}\n`);
      context.onSignals(['SIGTERM', 'SIGINT'], async () => {
        await sandbox.stop();
        context.exit(0);
      });
    });
}

function port(text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) throw new InvalidArgumentError('It must be a port.');
  return Number(text);
}

interface TokenOptions {
  readonly sub: string;
  readonly roles: string[];
  readonly ttl: number;
  readonly now?: string;
  readonly json: boolean;
}

export function tokenCommand(context: Context): Command {
  return new Command('token')
    .description('Sign a bearer token with AUTH_SECRET, or in development with the key in data/')
    .requiredOption('--sub <id>', 'the user that the token is for', subject)
    .addOption(new Option('--roles <roles>', 'roles, separated by commas').argParser(commaList).default([], 'none'))
    .addOption(
      new Option('--ttl <duration>', 'how long the token is valid, such as 45s, 30m, 1h or 7d')
        .argParser(durationSeconds)
        .default(3600, '1h'),
    )
    .option('--now <time>', 'the date or date-time of issue, for a service with a stopped clock', instantArgument)
    .option('--json', 'print the token and its expiry as JSON', false)
    .action(async (options: TokenOptions) => {
      const config = readSettings(context, 'token');
      const { key, ...claims } = config.auth;
      if (key.kind === 'public-key' || key.kind === 'jwks') {
        throw new OperatorError('The issuer signs the tokens with its private key. This command needs AUTH_SECRET.');
      }
      const secret = key.kind === 'secret' ? key.secret : developmentSecret();
      const givenMs = options.now === undefined ? undefined : parseInstant(options.now, config.reportTimeZone);
      const now = new Date(givenMs ?? Date.now());
      const { sub: id, roles, ttl: ttlSeconds } = options;
      const token = await signToken({ secret, ...claims, id, roles, ttlSeconds, now });
      const expiresAt = new Date(now.getTime() + ttlSeconds * 1000).toISOString();
      printResult(context, options, { token, expiresAt }, token);
    });
}

function commaList(text: string): string[] {
  return text
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');
}

interface RemoveOptions {
  readonly dryRun: boolean;
  readonly yes: boolean;
  readonly json: boolean;
}

export function demoCommand(context: Context): Command {
  return new Command('demo').description('Remove demo data').addCommand(
    new Command('remove')
      .description('Remove the demo cemeteries, staff and activities, and the mark of a development database')
      .option('--dry-run', 'print the rows that would be removed, and remove nothing', false)
      .option('--yes', 'do not ask', false)
      .option('--json', 'print the counts as JSON', false)
      .addHelpText(
        'after',
        `
The command removes only rows that the service itself added. Demo staff stays while a user, another activity or other
staff refers to it: assign those users to another counselor, and run the command again. The audit log records each
removed member of staff. Records of demo-user and demo-manager stay; “planning user erase” erases them.`,
      )
      .action((options: RemoveOptions) => removeDemo(context, options)),
  );
}

async function removeDemo(context: Context, options: RemoveOptions): Promise<void> {
  const config = readSettings(context, 'demo remove');
  const place = placeOf(config.database.url);
  await withDatabase(context, config, async (db) => {
    const found = await findDemoData(db);
    const rows = describeDemoRows(found);
    const isRemoved = (rows !== undefined || found.isMarked) && !options.dryRun;
    if (isRemoved) {
      const question = `Remove ${rows ?? 'the mark of a development database'} from ${place}?`;
      if (!options.yes) await confirm(context, question, 'Nothing was removed');
      await removeDemoData(db, found, context.operator(), new Date());
    }
    const lines = [
      ...(rows === undefined ? [`There is no demo data to remove from ${place}.`] : []),
      ...(rows === undefined ? [] : [isRemoved ? `Removed ${rows} from ${place}.` : `${place} has ${rows}.`]),
      ...(found.isMarked && isRemoved ? ['The database is no longer marked for development.'] : []),
      ...(found.isMarked && !isRemoved ? ['The database is marked for development.'] : []),
      ...(found.referredStaff.length > 0
        ? [`Kept, because other rows refer to them: ${found.referredStaff.join(', ')}.`]
        : []),
      ...(found.users.length > 0 ? [`Kept, as records of users: ${found.users.join(', ')}.`] : []),
      ...(options.dryRun ? ['Nothing was removed (dry run).'] : []),
    ];
    printResult(context, options, { database: place, isRemoved, ...found }, lines.join('\n'));
  });
}

/** Describes the demo rows that can be removed; undefined if there are none. */
export function describeDemoRows({ cemeteries, staff, activities }: DemoData): string | undefined {
  const parts = [
    cemeteries === 0 ? [] : [cemeteries === 1 ? '1 demo cemetery' : `${cemeteries} demo cemeteries`],
    staff.length === 0 ? [] : [`${staff.length} demo staff`],
    activities === 0 ? [] : [activities === 1 ? '1 demo activity' : `${activities} demo activities`],
  ].flat();
  return parts.length === 0 ? undefined : parts.join(', ');
}

const serverTooBusy =
  'The server ended a migration because other writers waited for five seconds. That migration changed nothing. ' +
  'Stop the instances, migrate, and start them again.';

/** The exit code of a dry run that found something to apply or to repair. */
const hasWork = 2;

interface MigrateOptions {
  /** False with `--no-backup`. */
  readonly backup: boolean;
  readonly dryRun: boolean;
  readonly repair: boolean;
  readonly json: boolean;
}

export function migrateCommand(context: Context): Command {
  return new Command('migrate')
    .description('Migrate the schema of DATABASE_URL to the newest version, and seed it')
    .option('--dry-run', 'list the migrations to apply, and change nothing', false)
    .option('--repair', 'first restore missing triggers, indexes and columns that the migrations create', false)
    .option('--no-backup', 'do not copy a database file before it is migrated')
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Before it migrates a database file, the command writes a checked copy to <path>.before-migration-<time>. It does not copy
a server: run “${commandName} backup” first.
It first compares the whole schema with the migrations, and changes nothing if the two differ. --repair restores objects
that need no data, recomputes the counts that triggers maintain, and records this build's hash of an edited migration.
The audit log has no changes that were made while an audit trigger was missing.

Exit codes: 0 the schema is the newest; 1 it is not, for a reason on standard error; 2 a dry run found something to
apply or to repair.`,
    )
    .action((options: MigrateOptions) => (options.dryRun ? preview(context, options) : migrate(context, options)));
}

async function migrate(context: Context, options: MigrateOptions): Promise<void> {
  const config = readSettings(context, 'migrate');
  const { url, encryptionKey } = config.database;
  const place = placeOf(url);
  await withOpened(context, { ...config.database, timeoutMs: migrationTimeoutMs }, async (db) => {
    const path = localPath(url);
    let backup: string | undefined;
    const beforeChange = async () => {
      if (path !== undefined) backup = await backUpBeforeMigration(path, encryptionKey);
    };
    const { isNew, applied, repaired } = await migrateDatabase(db, undefined, {
      repair: options.repair,
      forDevelopment: config.seedDemo === true,
      beforeChange: options.backup && config.database.isBackedUpBeforeMigration ? beforeChange : undefined,
    }).catch((error: unknown) => {
      if (findDatabaseError(error)?.code === 'TRANSACTION_TIMEOUT') throw new OperatorError(serverTooBusy);
      throw error;
    });
    await seed(db, config);
    const lines = [
      ...(backup === undefined ? [] : [`The backup is in ${backup}.`]),
      ...repaired.map((object) => `Restored ${object}.`),
      ...applied.map(({ name, tookMs }) => `Applied ${name} in ${tookMs} ms.`),
      ...(repaired.length + applied.length > 0 ? [] : [nothingToDo]),
      `The database ${place} is ${isNew ? 'created, ' : ''}migrated and seeded.`,
    ];
    printResult(
      context,
      options,
      { migrated: true, seeded: true, database: place, created: isNew, applied, repaired, backup: backup ?? null },
      lines.join('\n'),
    );
  });
}

const nothingToDo = 'Nothing to do: the schema is the newest.';

async function preview(context: Context, options: MigrateOptions): Promise<void> {
  const { database } = readSettings(context, 'migrate');
  const absence = absenceOf(database.url);
  const { pending, blocking, warnings } =
    absence !== undefined
      ? { pending: readMigrations().map(({ name }) => name), blocking: [], warnings: [] }
      : await withOpened(context, database, async (db) => {
          await requireMigratable(db);
          return reportSchema(db);
        });
  const differences = [...blocking, ...warnings].map(({ detail }) => detail);
  const lines = [
    ...(absence === undefined ? [] : [absence]),
    ...blocking.map((finding) => `${finding.detail}. ${remedyFor([finding])}`),
    ...warnings.map(({ detail }) => `${detail}.`),
    ...pending.map((name) => `Would apply ${name}.`),
    ...(pending.length + blocking.length > 0 ? [] : [nothingToDo]),
  ];
  printResult(context, options, { pending, differences }, lines.join('\n'));
  if (pending.length + blocking.length > 0) context.exitCode = hasWork;
}

export function seedCommand(context: Context): Command {
  return new Command('seed')
    .description('Store the reference lists, and with SEED_DEMO the demo data; a repeated run changes nothing')
    .option('--json', 'print the result as JSON', false)
    .action((options: { json: boolean }) => {
      const config = readSettings(context, 'seed');
      return withDatabase(context, config, async (db) => {
        await seed(db, config);
        printResult(context, options, { seeded: true }, 'The database is seeded.');
      });
    });
}

async function seed(
  db: Database,
  { seedDemo, isProduction }: Pick<Config, 'seedDemo' | 'isProduction'>,
): Promise<void> {
  await seedDatabase(db, { withDemo: seedDemo ?? !isProduction, now: new Date() });
  if (seedDemo !== true || (await findDemoTraces(db)).isMarked) return;
  throw new OperatorError(
    'No demo data was added: SEED_DEMO is true, and this database was not created for development. The rest is done.',
  );
}
