import { sql } from 'drizzle-orm';
import { OperatorError } from '../errors';
import { jitteredPause } from '../shared/async';
import { commandName } from '../shared/build';
import type { Database } from './client';
import { DatabaseError, findDatabaseError } from './errors';
import {
  historyFaults,
  type Migration,
  migrationsFolder,
  readMigrations,
  readSchema,
  type SchemaDifference,
  type SchemaSnapshot,
  schemaDifferences,
} from './migrations';
import { incompatibilityDetails, schemaCodes, schemaState } from './schema-check';
import type { SqlStatement } from './sql-client';

const lockDeadlineMs = 30_000;

/** The time limit of a statement of a migration: rebuilding a table takes longer than any query of the service. */
export const migrationTimeoutMs = 60_000;

interface MigrationOptions {
  readonly repair?: boolean;
  /** Marks a new database as one for development, in the transaction of the last migration. */
  readonly forDevelopment?: boolean;
  /** Called before the first change to a database that was migrated before; a failure stops the migration. */
  readonly beforeChange?: (() => Promise<void>) | undefined;
}

interface MigrationResult {
  /** The database had no migration before. */
  readonly isNew: boolean;
  readonly applied: readonly { readonly name: string; readonly tookMs: number }[];
  /** The objects and records that a repair has restored. */
  readonly repaired: readonly string[];
}

/**
 * Migrates the schema to the newest version. Several processes may run it at once: each migration is a transaction, and a
 * unique index makes the second process fail, which then continues after the migration that the first one recorded.
 *
 * @param options.repair restores missing objects before the migration
 * @throws DatabaseError with a schema code if the database cannot be migrated
 * @throws OperatorError if the schema differs from the recorded migrations
 */
export async function migrateDatabase(
  db: Database,
  folder = migrationsFolder,
  { repair = false, forDevelopment = false, beforeChange }: MigrationOptions = {},
): Promise<MigrationResult> {
  // The seed that follows a migration must not write to an unknown schema.
  await requireMigratable(db);
  const migrations = readMigrations(folder);
  const deadlineMs = performance.now() + lockDeadlineMs;
  const applied: { name: string; tookMs: number }[] = [];
  let repaired: readonly string[] | undefined;
  let reached = -1;
  let isNew: boolean | undefined;
  let isPrepared = false;
  for (;;) {
    try {
      await db.run(sql`CREATE TABLE IF NOT EXISTS __drizzle_migrations
        (id SERIAL PRIMARY KEY, hash text NOT NULL, created_at numeric)`);
      await db.run(sql`CREATE UNIQUE INDEX IF NOT EXISTS __drizzle_migrations_once
        ON __drizzle_migrations (created_at)`);
      reached = await newestApplied(db);
      isNew ??= reached < 0;
      const pending = migrations.filter(({ createdAt }) => createdAt > reached);
      const isRepairDue = repair && repaired === undefined;
      const hasWork = pending.length > 0 || (isRepairDue && (await isRepairable(db, migrations)));
      if (!isNew && !isPrepared && hasWork) {
        await beforeChange?.();
        isPrepared = true;
      }
      repaired ??= repair ? await repairSchema(db, migrations) : [];
      await requireWholeSchema(db, migrations);
      for (const migration of pending) {
        const startedAtMs = performance.now();
        const mark = isNew && forDevelopment && migration === pending.at(-1) ? [markForDevelopment] : [];
        await db.$client.migrate([...toStatements(migration.statements), recordOf(migration), ...toStatements(mark)]);
        applied.push({ name: migration.name, tookMs: Math.round(performance.now() - startedAtMs) });
        reached = migration.createdAt;
      }
      return { isNew, applied, repaired };
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      const isLocked = findDatabaseError(error)?.code === 'SQLITE_BUSY' && performance.now() < deadlineMs;
      if (!isLocked && (await newestApplied(db)) <= reached) throw error;
      await jitteredPause(50, 200);
    }
  }
}

/** @throws DatabaseError for a newer schema, an unfinished copy, a database of another program or without a record */
export async function requireMigratable({ $client }: Database): Promise<void> {
  const state = await schemaState($client);
  const code = schemaCodes.find((each) => each.state === state)?.code;
  if (code === undefined || state === 'too-old' || state === 'empty' || state === 'damaged') return;
  throw new DatabaseError(code, false);
}

/** The pending migrations of a database, and its differences from the applied migrations. */
interface SchemaReport {
  readonly pending: readonly string[];
  /** Differences that prevent a migration and a start, audit triggers first. */
  readonly blocking: readonly SchemaFinding[];
  /** Extra objects, and indexes without which statements are slow. */
  readonly warnings: readonly SchemaFinding[];
  readonly objects: number;
}

export interface SchemaFinding {
  /** Such as `trigger users_profile_audited is missing`. */
  readonly detail: string;
  /** Whether `planning migrate --repair` restores it. */
  readonly isRepairable: boolean;
}

/**
 * Compares a database with the migrations of this build.
 *
 * @throws DatabaseError
 */
export async function reportSchema({ $client }: Database, migrations = readMigrations()): Promise<SchemaReport> {
  const snapshot = await readSchema($client);
  const newest = snapshot.applied.at(-1)?.createdAt ?? -1;
  const differences = schemaDifferences(snapshot, migrations);
  const history = historyFaults(snapshot.applied, migrations);
  return {
    pending: migrations.filter(({ createdAt }) => createdAt > newest).map(({ name }) => name),
    blocking: [
      ...differences.filter(({ isBlocking }) => isBlocking).map(toFinding),
      ...history.map(({ detail, migration }) => ({ detail, isRepairable: migration !== undefined })),
    ],
    warnings: differences.filter(({ isBlocking }) => !isBlocking).map(toFinding),
    objects: snapshot.objects.length,
  };
}

/** Names each difference, and then the remedy. */
export function damageMessage(blocking: readonly SchemaFinding[]): string {
  const details = blocking.map(({ detail }) => detail).join('; ');
  return `${incompatibilityDetails.damaged.slice(0, -1)}: ${details}. ${remedyFor(blocking)}`;
}

export function remedyFor(findings: readonly SchemaFinding[]): string {
  return findings.every(({ isRepairable }) => isRepairable)
    ? `Make a backup, then run \`${commandName} migrate --repair\`.`
    : 'Restore a backup.';
}

/** Marks a database for demo data. */
export const markForDevelopment = 'UPDATE schema_compatibility SET for_development = 1';

async function isRepairable(db: Database, migrations: readonly Migration[]): Promise<boolean> {
  const { blocking, warnings } = await reportSchema(db, migrations);
  return [...blocking, ...warnings].some((finding) => finding.isRepairable);
}

async function requireWholeSchema(db: Database, migrations: readonly Migration[]): Promise<void> {
  const { blocking } = await reportSchema(db, migrations);
  if (blocking.length > 0) throw new OperatorError(damageMessage(blocking));
}

function toFinding({ object, state, repair }: SchemaDifference): SchemaFinding {
  return { detail: `${object} is ${state}`, isRepairable: repair.length > 0 };
}

async function repairSchema(db: Database, migrations: readonly Migration[]): Promise<readonly string[]> {
  const before = await readSchema(db.$client);
  const repairable = schemaDifferences(before, migrations).filter(({ repair }) => repair.length > 0);
  const [columns, others] = [true, false].map((isColumn) =>
    repairable.filter(({ object }) => object.startsWith('column ') === isColumn),
  );
  const restored = [...(columns ?? []), ...(others ?? [])];
  if (restored.length > 0) {
    await db.$client.write(toStatements([...restored.flatMap(({ repair }) => repair), ...resetSums(restored)]));
  }
  const after = await readSchema(db.$client);
  await db.$client.write(toStatements(recount(after)));
  const isWhole = schemaDifferences(after, migrations).every(({ isBlocking }) => !isBlocking);
  const unrecorded = isWhole
    ? historyFaults(after.applied, migrations).flatMap(({ migration }) => migration ?? [])
    : [];
  if (unrecorded.length > 0) {
    const records = unrecorded.flatMap((migration) => [removalOf(migration), recordOf(migration)]);
    await db.$client.write(records);
  }
  return [...restored.map(({ object }) => object), ...unrecorded.map(({ name }) => `record of migration ${name}`)];
}

/** Resets the sums of activities if a trigger that maintains them was restored; the service then sums up again. */
function resetSums(restored: readonly SchemaDifference[]): readonly string[] {
  return restored.some(({ object }) => object.startsWith('trigger activities_sums_'))
    ? ['DELETE FROM activity_sums', "UPDATE activity_sums_progress SET summed_up_to = ''"]
    : [];
}

/** Counts the rows again that triggers count. */
function recount({ objects }: SchemaSnapshot): readonly string[] {
  const trigger = (name: string) => objects.find((object) => object.name === name)?.sql;
  // Only the trigger defines the name under which an application is counted.
  const name = /`table_name` = (.+); END$/.exec(trigger('applications_count_added') ?? '')?.[1];
  return [
    ...(trigger('cemeteries_count_added') === undefined
      ? []
      : ["UPDATE row_counts SET row_count = (SELECT count(*) FROM cemeteries) WHERE table_name = 'cemeteries'"]),
    ...(name === undefined
      ? []
      : [
          `UPDATE row_counts SET row_count = (SELECT count(*) FROM applications
            WHERE row_counts.table_name = ${name.replaceAll('NEW.', 'applications.')})
            WHERE table_name LIKE 'applications:%'`,
        ]),
  ];
}

function toStatements(texts: readonly string[]): SqlStatement[] {
  return texts.map((sql) => ({ sql }));
}

function recordOf({ hash, createdAt }: Migration): SqlStatement {
  return { sql: 'INSERT INTO __drizzle_migrations (hash, created_at) VALUES (?, ?)', args: [hash, createdAt] };
}

function removalOf({ createdAt }: Migration): SqlStatement {
  return { sql: 'DELETE FROM __drizzle_migrations WHERE created_at = ?', args: [createdAt] };
}

async function newestApplied(db: Database): Promise<number> {
  const [row] = await db.values<[number | null]>(sql`SELECT max(created_at) FROM __drizzle_migrations`);
  return row?.[0] ?? -1;
}
