import { Command } from 'commander';
import { readConfig } from '../config';
import { closeDatabase, openDatabase } from '../db/client';
import { findDatabaseError } from '../db/errors';
import { migrateDatabase, SchemaTooNewError } from '../db/migrate';
import { seedDatabase } from '../seed';
import { withDatabase } from './command-database';
import { OperatorError } from './operator-error';
import { printResult } from './print';

/** Rebuilding a table takes longer than any query of the service. */
const migrationTimeoutMs = 60_000;

const serverTooBusy =
  'The server ended the migration because other writers waited for five seconds. Nothing was changed. ' +
  'Stop the instances, migrate, and start them again.';

export function migrateCommand(): Command {
  return new Command('migrate')
    .description('Bring the schema of DATABASE_URL to the newest version, and seed it')
    .option('--json', 'print the result as JSON', false)
    .action(async (options: { json: boolean }) => {
      const config = readConfig(process.env);
      const db = await openDatabase({ ...config.database, timeoutMs: migrationTimeoutMs });
      try {
        await migrateDatabase(db).catch((error: unknown) => {
          if (error instanceof SchemaTooNewError) throw new OperatorError(`${error.message} Use a newer build.`);
          if (findDatabaseError(error)?.code === 'TRANSACTION_TIMEOUT') throw new OperatorError(serverTooBusy);
          throw error;
        });
        await seedDatabase(db, { withDemo: config.seedDemo, now: new Date() });
      } finally {
        await closeDatabase(db);
      }
      printResult(options, { migrated: true, seeded: true }, 'The database is migrated and seeded.');
    });
}

export function seedCommand(): Command {
  return new Command('seed')
    .description('Store the reference lists, and with SEED_DEMO the demo data; running it again changes nothing')
    .option('--json', 'print the result as JSON', false)
    .action((options: { json: boolean }) => {
      const config = readConfig(process.env);
      return withDatabase(config, async (db) => {
        await seedDatabase(db, { withDemo: config.seedDemo, now: new Date() });
        printResult(options, { seeded: true }, 'The database is seeded.');
      });
    });
}
