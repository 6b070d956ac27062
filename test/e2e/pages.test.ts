import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { programOf } from '../support/artifacts';
import { differences, isLike, pagePaths, readMarkdown, type Shown, shownOutput } from '../support/pages';
import { atEnd, freePort, runToEnd, temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const pages = await Promise.all(
  pagePaths.map(async (path) => {
    const { shown } = readMarkdown(await Bun.file(join(root, path)).text());
    const steps = shown.filter(({ kind, note }) => kind === 'sh' && note === 'run');
    return { path, shown, steps };
  }),
);

/** Functions of the shell that run the programs of the bundle in place of `bun`, with the service on a fixed day. */
const prelude = `
service= carrier=
trap 'kill $service $carrier 2> /dev/null || true' EXIT
trap 'exit 1' TERM
listening() {
  tries=0
  until grep -q http:// "$1"; do
    tries=$((tries + 1))
    if test $tries -gt 1000; then echo "It does not listen: $(cat "$1")" >&2; exit 1; fi
    sleep 0.02
  done
  # Lines of the log may follow the announcement.
  sed '/^  curl /q' "$1"
}
bun() {
  case "$*" in
    start*)
      shift
      if test -n "$service"; then kill $service; wait $service; fi
      : > "$OUTPUTS/service"
      "$BUN" --preload "$FIXED_DAY" "$SERVICE" "$@" >> "$OUTPUTS/service" 2>&1 &
      service=$!
      listening "$OUTPUTS/service"
      ;;
    'planning carrier'*)
      shift
      : > "$OUTPUTS/carrier"
      "$BUN" "$COMMAND_LINE" "$@" >> "$OUTPUTS/carrier" &
      carrier=$!
      listening "$OUTPUTS/carrier"
      ;;
    planning*)
      shift
      "$BUN" "$COMMAND_LINE" "$@"
      ;;
    *) echo "Nothing runs: bun $*" >&2; return 1 ;;
  esac
}
npm() { echo "Nothing runs: npm $*" >&2; return 1; }
curl() { command curl -sS -w '%{stderr}curl: status %{http_code}\\n' "$@"; }
`;

/**
 * Runs the commands of a page in one shell and one empty folder. Variables and a started service last until the end.
 * `statuses` are those of the responses that `curl` received.
 */
async function runAsReader(steps: readonly Shown[]) {
  const outputs = temporaryFolder();
  const ports = [
    ['3000', await freePort()],
    ['3900', await freePort()],
  ] as const;
  const script = steps.map(({ text }, index) => {
    const local = ports.reduce(
      (all, [shown, port]) => all.replaceAll(new RegExp(`\\b${shown}\\b`, 'g'), `${port}`),
      text,
    );
    return `{\n${local}\n} > '${outputs}/${index}.stdout' 2> '${outputs}/${index}.stderr'`;
  });
  const shell = Bun.spawn(['sh', '-eu', '-c', [prelude, ...script].join('\n')], {
    cwd: temporaryFolder(),
    env: {
      PATH: process.env.PATH,
      // The bundle stands in for the sources.
      NODE_ENV: 'development',
      PORT: String(ports[0][1]),
      BUN: process.execPath,
      SERVICE: await programOf('src/main'),
      COMMAND_LINE: await programOf('src/cli/main'),
      FIXED_DAY: join(import.meta.dirname, 'fixed-day.ts'),
      OUTPUTS: outputs,
    },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  atEnd(() => shell.kill());
  const { exitCode, stderr } = await runToEnd(shell);
  const read = async (name: string) => {
    const file = Bun.file(join(outputs, name));
    const text = (await file.exists()) ? await file.text() : '';
    return ports.reduce((all, [shown, port]) => all.replaceAll(`:${port}`, `:${shown}`), text);
  };
  const errors = await Promise.all(steps.map((_, index) => read(`${index}.stderr`)));
  const ran = steps.map(async (step, index) => {
    const statuses = [...(errors[index] ?? '').matchAll(/^curl: status (\d+)$/gm)].map(([, status]) => Number(status));
    return { step, stdout: await read(`${index}.stdout`), statuses };
  });
  return { exitCode, stderr: `${errors.join('')}${stderr}`, ran: await Promise.all(ran) };
}

/** Compares the output of a command with the shown one, if there is one, and reads the shown status. */
function compare(stdout: string, output: Shown | undefined): { differs: string[]; status: number } {
  if (output === undefined) return { differs: [], status: 200 };
  const printed = stdout.trim().replaceAll(/ +$/gm, '');
  if (output.kind === 'text') return { differs: isLike(printed, output.text) ? [] : [printed], status: 200 };
  const expected = JSON.parse(output.text);
  const { status } = Object(expected);
  return { differs: differences(parsed(stdout), expected), status: typeof status === 'number' ? status : 200 };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

describe('commands marked `run`', () => {
  test
    .skipIf(Bun.which('curl') === null || Bun.which('openssl') === null)
    .each(pages.filter(({ steps }) => steps.length > 0))(
    'succeed and print the output that $path shows',
    async ({ shown, steps }) => {
      const { exitCode, stderr, ran } = await runAsReader(steps);
      const wrong = ran.flatMap(({ step, stdout, statuses }) => {
        const { differs, status } = compare(stdout, shownOutput(shown, step));
        const hasStatus = statuses.every((each) => each === status);
        return [...differs, ...(hasStatus ? [] : [`curl got ${statuses}`])].map(
          (error) => `line ${step.line}: ${error}`,
        );
      });
      const failure = exitCode === 0 ? [] : [stderr.replaceAll(/^curl: status \d+\n/gm, '')];
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
    ['{"a":1}', '{"a":2}'],
    ['{"a":1,"b":2}', '{"a":1}'],
    ['{"a":1}', '{"a":1,"b":2}'],
    ['{"a":1}', '{"a":1,"…":"…"}'],
    ['{"a":{"b":1}}', '{"a":"…"}'],
    ['{"a":null}', '{"a":"…"}'],
    ['[1,2]', '[2,"…"]'],
    ['[1]', '[1,"…"]'],
    ['[1,2]', '[1]'],
    ['"one two"', '"one … three"'],
  ])('finds that %s is not %s', (response, other) => {
    expect(differences(JSON.parse(response), JSON.parse(other))).not.toEqual([]);
  });

  test.each([
    ['{"a":1,"b":2}', '{"a":1,"b":2}'],
    ['{"a":1,"b":2}', '{"…":"…","a":1}'],
    ['{"a":"x"}', '{"a":"…"}'],
    ['[{"a":1},2,3]', '[{"a":"…"},"…"]'],
    ['"one two three"', '"one … three"'],
    ['"one\\ntwo\\nthree"', '"one\\n…\\nthree"'],
    ['"one\\nthree"', '"one\\n…\\nthree"'],
  ])('finds none between %s and the excerpt %s', (response, excerpt) => {
    expect(differences(JSON.parse(response), JSON.parse(excerpt))).toEqual([]);
  });
});
