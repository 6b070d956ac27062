import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { temporaryFolder } from '../support/database';
import { runProgram } from '../support/run-to-end';

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
async function filesOf(kind: string): Promise<string[]> {
  const [idle, busy] = [await executions(kind, 0), await executions(kind, count)];
  const executed = [...busy].filter(([line, hits]) => hits - (idle.get(line) ?? 0) > count * 0.8);
  return [...new Set(executed.map(([line]) => line.replace(/:\d+$/, '')))].toSorted();
}

function listed(section: string): string[] {
  const text = page.split(/^## /m).find((each) => each.startsWith(`${section}\n`)) ?? '';
  return [...text.matchAll(/^\| \d+ \| `(src\/[^`]+)`/gm)].map(([, path = '']) => path).toSorted();
}

describe('docs/architecture.md', () => {
  test.each([
    ['save', 'A save from socket to disk'],
    ['glance', 'The monthly glance'],
  ])(
    'lists exactly the files that a %s executes, with CORS, limits, metrics and traces on',
    async (kind, section) => {
      const files = await filesOf(kind);
      expect(listed(section)).toEqual(files);
    },
    240_000,
  );
});
