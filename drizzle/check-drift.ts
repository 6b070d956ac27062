import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import * as v from 'valibot';

/**
 * Fails when the schema has moved on without a migration, or a migration is dated before an earlier one (Drizzle
 * would skip it). drizzle-kit exits with 0 even when it cannot ask its questions, so its files are what counts.
 */
const Journal = v.object({ entries: v.array(v.object({ when: v.number(), tag: v.string() })) });
const folder = mkdtempSync(join(tmpdir(), 'planning-drift-'));
try {
  cpSync('drizzle', folder, { recursive: true });
  const before = readdirSync(folder).sort();
  const generate = Bun.spawnSync(
    [
      'bun',
      'x',
      'drizzle-kit',
      'generate',
      '--dialect=sqlite',
      '--schema=src/db/schema/*.ts',
      `--out=${relative('.', folder)}`,
    ],
    { stdin: 'ignore' },
  );
  const output = `${generate.stdout}${generate.stderr}`;
  const added = readdirSync(folder).filter((name) => !before.includes(name));
  const { entries } = v.parse(Journal, JSON.parse(readFileSync('drizzle/meta/_journal.json', 'utf8')));
  const faults = [
    added.length > 0 && 'The schema has changes without a migration: run `bun run db:generate`.',
    !/No schema changes/.test(output) && added.length === 0 && `drizzle-kit could not compare the schema:\n${output}`,
    entries.some(({ when }, index) => when <= (entries[index - 1]?.when ?? 0)) &&
      'The migrations in drizzle/meta/_journal.json are not in ascending order of `when`.',
  ].filter((fault) => fault !== false);
  for (const fault of faults) process.stderr.write(`${fault}\n`);
  process.exitCode = faults.length > 0 ? 1 : 0;
} finally {
  rmSync(folder, { recursive: true });
}
