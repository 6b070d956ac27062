import { Command } from 'commander';
import type { Config } from '../config/settings';
import { backUpBeforeMigration, MigrationBackupError } from '../db/backup';
import { absenceOf, type Database, type DatabaseSettings, localPath, placeOf } from '../db/client';
import { findDatabaseError } from '../db/errors';
import {
  migrateDatabase,
  migrationTimeoutMs,
  remedyFor,
  reportSchema,
  requireMigratable,
  SchemaDamageError,
} from '../db/migrate';
import { readMigrations } from '../db/migrations';
import { OperatorError } from '../errors';
import { findDemoTraces, seedDatabase } from '../seed';
import { commandName } from '../shared/build';
import { closeOfCommand, openOwnDatabase, toOperatorError, withDatabase } from './context';
import { printResult } from './output';
import { readSettings } from './settings';

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

export function migrateCommand(): Command {
  return new Command('migrate')
    .description('Bring the schema of DATABASE_URL to the newest version, and seed it')
    .option('--dry-run', 'list what it would apply, and change nothing', false)
    .option(
      '--repair',
      'first restore triggers, indexes and columns that the migrations create and that are missing',
      false,
    )
    .option('--no-backup', 'do not copy a database file before it is migrated')
    .option('--json', 'print the result as JSON', false)
    .addHelpText(
      'after',
      `
Before a database file is migrated, a checked copy of it is written to <path>.before-migration-<time>; a server is not
copied: run “${commandName} backup” first.
It compares the whole schema with the migrations first, and changes nothing if the two differ. --repair restores what
can be restored without data, counts again what triggers count, and records this build's hash of an edited migration.
Changes that were made while an audit trigger was missing are not in the audit trail.

Exit codes: 0 the schema is the newest; 1 it is not, for a reason that standard error gives; 2 a dry run found
something to apply or to repair.`,
    )
    .action((options: MigrateOptions) => (options.dryRun ? preview(options) : migrate(options)));
}

async function migrate(options: MigrateOptions): Promise<void> {
  const config = readSettings('migrate');
  const place = placeOf(config.database.url);
  const db = await openOwnDatabase({ ...config.database, timeoutMs: migrationTimeoutMs });
  try {
    const path = localPath(config.database.url);
    let backup: string | undefined;
    const beforeChange = async () => {
      if (path !== undefined) backup = await backUpBeforeMigration(path, config.database.encryptionKey);
    };
    const { isNew, applied, repaired } = await migrateDatabase(db, undefined, {
      repair: options.repair,
      forDevelopment: config.seedDemo === true,
      beforeChange: options.backup && config.database.isBackedUpBeforeMigration ? beforeChange : undefined,
    }).catch((error: unknown) => {
      if (error instanceof MigrationBackupError) throw new OperatorError(error.message);
      if (error instanceof SchemaDamageError) throw new OperatorError(error.message);
      if (findDatabaseError(error)?.code === 'TRANSACTION_TIMEOUT') throw new OperatorError(serverTooBusy);
      throw toOperatorError(error, place);
    });
    await seed(db, config);
    const lines = [
      ...(backup === undefined ? [] : [`The backup is in ${backup}.`]),
      ...repaired.map((object) => `Restored ${object}.`),
      ...applied.map(({ name, tookMs }) => `Applied ${name} in ${tookMs} ms.`),
      ...(repaired.length + applied.length > 0 ? [] : ['Nothing to do: the schema is the newest.']),
      `The database ${place} is ${isNew ? 'created, ' : ''}migrated and seeded.`,
    ];
    printResult(
      options,
      { migrated: true, seeded: true, database: place, created: isNew, applied, repaired, backup: backup ?? null },
      lines.join('\n'),
    );
  } finally {
    await closeOfCommand(db, config.database.url);
  }
}

async function preview(options: MigrateOptions): Promise<void> {
  const { database } = readSettings('migrate');
  const absence = absenceOf(database.url);
  const { pending, blocking, warnings } =
    absence !== undefined
      ? { pending: readMigrations().map(({ name }) => name), blocking: [], warnings: [] }
      : await withOpened(database, async (db) => {
          await requireMigratable(db);
          return reportSchema(db);
        });
  const differences = [...blocking, ...warnings].map(({ detail }) => detail);
  const lines = [
    ...(absence === undefined ? [] : [absence]),
    ...blocking.map((finding) => `${finding.detail}. ${remedyFor([finding])}`),
    ...warnings.map(({ detail }) => `${detail}.`),
    ...pending.map((name) => `Would apply ${name}.`),
    ...(pending.length + blocking.length > 0 ? [] : ['Nothing to do: the schema is the newest.']),
  ];
  printResult(options, { pending, differences }, lines.join('\n'));
  if (pending.length + blocking.length > 0) process.exitCode = hasWork;
}

async function withOpened<Result>(
  settings: DatabaseSettings,
  work: (db: Database) => Promise<Result>,
): Promise<Result> {
  const db = await openOwnDatabase(settings);
  try {
    return await work(db);
  } catch (error) {
    throw toOperatorError(error, placeOf(settings.url));
  } finally {
    await closeOfCommand(db, settings.url);
  }
}

export function seedCommand(): Command {
  return new Command('seed')
    .description('Store the reference lists, and with SEED_DEMO the demo data; running it again changes nothing')
    .option('--json', 'print the result as JSON', false)
    .action((options: { json: boolean }) => {
      const config = readSettings('seed');
      return withDatabase(config, async (db) => {
        await seed(db, config);
        printResult(options, { seeded: true }, 'The database is seeded.');
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
