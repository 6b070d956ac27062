import { Command } from 'commander';
import type { Config } from '../config/settings';
import { backUpBeforeMigration } from '../db/backup';
import { absenceOf, type Database, localPath, placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { migrateDatabase, migrationTimeoutMs, remedyFor, reportSchema, requireMigratable } from '../db/migrate';
import { readMigrations } from '../db/migrations';
import { OperatorError } from '../errors';
import { findDemoTraces, seedDatabase } from '../seed';
import { commandName } from '../shared/build';
import { type Context, readSettings } from './context';
import { withDatabase, withOpened } from './database';
import { printResult } from './output';

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
