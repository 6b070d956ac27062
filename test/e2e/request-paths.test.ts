import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { runProgram, temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const page = await Bun.file(join(root, 'docs/architecture.md')).text();
const count = 100;

/** Runs the workload and returns how often each line of `src` was executed, by file and line. */
async function executions(kind: string, requests: number): Promise<Map<string, number>> {
  const folder = temporaryFolder();
  const reporter = ['--coverage', '--coverage-reporter=lcov', `--coverage-dir=${folder}`];
  const command = [process.execPath, 'test', './test/support/request-workload.ts', '--timeout', '60000', ...reporter];
  await runProgram(root, command, { ...process.env, KIND: kind, COUNT: String(requests) });
  const lines = new Map<string, number>();
  let file: string | undefined;
  for (const line of (await Bun.file(join(folder, 'lcov.info')).text()).split('\n')) {
    if (line.startsWith('SF:')) file = /\bsrc\/.*/.exec(line)?.[0];
    const [, number, hits] = /^DA:(\d+),(\d+)/.exec(line) ?? [];
    if (file !== undefined && hits !== undefined) lines.set(`${file}:${number}`, Number(hits));
  }
  return lines;
}

/** Lists the files with a line that each request executes. Background work runs far less often. */
async function filesOf(kind: 'save' | 'glance'): Promise<string[]> {
  const [idle, busy] = [await executions(kind, 0), await executions(kind, count)];
  const executed = [...busy].filter(([line, hits]) => hits - (idle.get(line) ?? 0) > count * 0.8);
  return [...new Set(executed.map(([line]) => line.replace(/:\d+$/, '')))].toSorted();
}

/** Returns the files of a column of the table, in the order of their numbers. */
function listed(column: 'save' | 'glance'): { path: string; number: number }[] {
  return [...page.matchAll(/^\| `(src\/[^`]+)` \|([ \d]*)\|([ \d]*)\|/gm)]
    .map(([, path = '', save, glance]) => ({ path, number: Number(column === 'save' ? save : glance) }))
    .filter(({ number }) => number > 0)
    .toSorted((a, b) => a.number - b.number);
}

describe('docs/architecture.md', () => {
  test.each(['save', 'glance'] as const)(
    'lists exactly the files that a %s executes, with CORS, limits, metrics and traces on',
    async (kind) => {
      const files = await filesOf(kind);
      const rows = listed(kind);
      expect(rows.map(({ path }) => path).toSorted()).toEqual(files);
      expect(rows.map(({ number }) => number)).toEqual(files.map((_, index) => index + 1));
      expect(page).toMatch(kind === 'save' ? `executes ${files.length} files` : `monthly-glance\` ${files.length},`);
    },
    240_000,
  );
});
