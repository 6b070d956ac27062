import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { differences, isLike, pagePaths, readMarkdown, type Shown, shownOutput } from '../support/pages';
import { runAsReader } from '../support/reader-session';

const root = join(import.meta.dirname, '../..');
const pages = await Promise.all(
  pagePaths.map(async (path) => {
    const { shown } = readMarkdown(await Bun.file(join(root, path)).text());
    const steps = shown.filter(({ kind, note }) => kind === 'sh' && note === 'run');
    return { path, shown, steps };
  }),
);

describe('commands marked `run`', () => {
  test
    .skipIf(Bun.which('curl') === null || Bun.which('openssl') === null)
    .each(pages.filter(({ steps }) => steps.length > 0))(
    'succeed and print the output that $path shows',
    async ({ shown, steps }) => {
      const session = await runAsReader(steps);
      const wrong = session.steps.flatMap((step) => {
        const { line, stdout, statuses } = step;
        const { differs, status } = compare(stdout, shownOutput(shown, step));
        const hasStatus = statuses.every((each) => each === status);
        return [...differs, ...(hasStatus ? [] : [`curl got ${statuses}`])].map((error) => `line ${line}: ${error}`);
      });
      const failure = session.exitCode === 0 ? [] : [session.stderr.replaceAll(/^curl: status \d+\n/gm, '')];
      expect([...wrong, ...failure]).toEqual([]);
    },
    120_000,
  );

  test('make the requests of the journey and more', () => {
    const requests = pages.flatMap(({ steps }) => steps.flatMap(({ text }) => text.match(/^curl /gm) ?? []));
    expect(requests.length).toBeGreaterThan(12);
  });
});

describe('differences', () => {
  test.each([
    [{ a: 1 }, { a: 2 }],
    [{ a: 1, b: 2 }, { a: 1 }],
    [{ a: 1 }, { a: 1, b: 2 }],
    [{ a: 1 }, { a: 1, '…': '…' }],
    [{ a: { b: 1 } }, { a: '…' }],
    [{ a: null }, { a: '…' }],
    [
      [1, 2],
      [2, '…'],
    ],
    [[1], [1, '…']],
    [[1, 2], [1]],
    ['one two', 'one … three'],
  ])('finds that %j is not %j', (answer, other) => {
    expect(differences(answer, other)).not.toEqual([]);
    expect(differences(answer, answer)).toEqual([]);
  });

  test.each([
    [
      { a: 1, b: 2 },
      { '…': '…', a: 1 },
    ],
    [{ a: 'x' }, { a: '…' }],
    [
      [{ a: 1 }, 2, 3],
      [{ a: '…' }, '…'],
    ],
    ['one two three', 'one … three'],
    ['one\ntwo\nthree', 'one\n…\nthree'],
    ['one\nthree', 'one\n…\nthree'],
  ])('finds none between %j and the excerpt %j', (answer, like) => {
    expect(differences(answer, like)).toEqual([]);
  });
});

/** Compares the output of a command with the shown one, if there is one, and reads the shown status. */
function compare(stdout: string, output: Shown | undefined) {
  if (output === undefined) return { differs: [], status: 200 };
  const printed = stdout.trim().replaceAll(/ +$/gm, '');
  if (output.kind === 'text') return { differs: isLike(printed, output.text) ? [] : [printed], status: 200 };
  const expected: unknown = JSON.parse(output.text);
  const status = typeof expected === 'object' && expected !== null && 'status' in expected ? expected.status : 200;
  return { differs: differences(parsed(stdout), expected), status: typeof status === 'number' ? status : 200 };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
