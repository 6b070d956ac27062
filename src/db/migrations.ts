import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import { packageRoot } from '../shared/build';

export const migrationsFolder = fileURLToPath(new URL('drizzle', packageRoot));

/** One migration of this build. */
export interface Migration {
  readonly name: string;
  /** Epoch milliseconds: orders the migrations, and is `created_at` of the row in `__drizzle_migrations`. */
  readonly createdAt: number;
  /** SHA-256 of the file, as Drizzle stores it. */
  readonly hash: string;
  readonly statements: readonly string[];
}

const Journal = v.object({ entries: v.array(v.object({ tag: v.string(), when: v.number() })) });

/** Reads the migrations of a folder that drizzle-kit wrote, oldest first. */
export function readMigrations(folder = migrationsFolder): readonly Migration[] {
  const journal: unknown = JSON.parse(readFileSync(join(folder, 'meta/_journal.json'), 'utf8'));
  return v.parse(Journal, journal).entries.map(({ tag, when }) => {
    const sql = readFileSync(join(folder, `${tag}.sql`), 'utf8');
    return {
      name: tag,
      createdAt: when,
      hash: createHash('sha256').update(sql).digest('hex'),
      statements: sql.split('--> statement-breakpoint'),
    };
  });
}

/**
 * Hashes of earlier versions of migrations, which builds before 2.1.0 applied. The schema comparison finds the objects that
 * they did not create, and `planning migrate --repair` adds them.
 */
const earlierHashes: Readonly<Record<string, readonly string[]>> = {
  '0006_audit': [
    // Without the time of a request, and with triggers that record no section of a new record.
    '52d1cdbe1f958e5ffd4084131f491a734e01a03c2760c1b86ae3963bbe01cfeb',
    // Without the time of a request.
    'db85e3e37558e3953d55a4f717fb21d1f8262779cb004bb8507cc12d5eb9c68e',
  ],
  // Counts in several passes, with the same result.
  '0007_application_counts': ['36fbf6ce95c524d797a73cff82ceae30e103f8049383ca07c66741fbfe106af5'],
  // Does not convert pairs of lists; the service reads both forms.
  '0008_json_checks_and_revision': ['d12b888d84e7c4f6d548a5147fa30a2c4fa13bb0d3ec0b8bf1cf7773288150e9'],
  // Without the audit trigger of the newest answers.
  '0009_newest_answers': ['7ec70f24a841d31e8b118def2bf38a7a70f08f33197ed5644556eed7ea7803eb'],
  // Without the times of the next attempt and of abandonment, and with numbers that are unique.
  '0010_applications': ['c3272e55bfc63c8d1d4f4f9287f1e27a527bfa4d399872f58335558da199f1fd'],
};

/** A difference between the migrations that a database records and those of this build. */
interface HistoryFault {
  readonly detail: string;
  /** The migration to record when the schema is complete; undefined if this build does not know it. */
  readonly migration?: Migration;
}

export interface AppliedMigration {
  readonly createdAt: number;
  readonly hash: string;
}

/** Compares the migrations that a database records with those of this build, both oldest first. */
export function historyFaults(
  applied: readonly AppliedMigration[],
  migrations: readonly Migration[],
): readonly HistoryFault[] {
  const newest = applied.at(-1)?.createdAt ?? -1;
  const newestKnown = migrations.at(-1)?.createdAt ?? -1;
  const differing = migrations
    .filter(({ createdAt }) => createdAt <= newest)
    .flatMap((migration): HistoryFault[] => {
      const { name, createdAt, hash } = migration;
      const found = applied.find((each) => each.createdAt === createdAt)?.hash;
      if (found === hash || (found !== undefined && earlierHashes[name]?.includes(found))) return [];
      const detail =
        found === undefined
          ? `migration ${name} is not recorded, although a later one is`
          : `migration ${name} was applied with hash ${found.slice(0, 12)}, but this build has ${hash.slice(0, 12)}`;
      return [{ detail, migration }];
    });
  const unknown = applied
    .filter(({ createdAt }) => createdAt < newestKnown && !migrations.some((each) => each.createdAt === createdAt))
    .map(({ createdAt }) => ({ detail: `the migration dated ${createdAt} is unknown to this build` }));
  return [...differing, ...unknown];
}
