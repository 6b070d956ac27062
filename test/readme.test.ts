import { describe, expect, test } from 'bun:test';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Command } from 'commander';
import packageJson from '../package.json';
import { createProgram } from '../src/cli/main';
import { Settings } from '../src/config/settings';
import { problemKinds } from '../src/shared/problems';
import { createTestApp } from './support/app';
import { inlineCode, readMarkdown, type Shown } from './support/markdown';
import { blockFaults, inlineCommandFaults, settingFaults } from './support/page-blocks';
import { runAsReader } from './support/reader-session';
import { differences, isLike } from './support/shown-answer';

const root = join(import.meta.dirname, '..');
const read = (path: string) => Bun.file(join(root, path)).text();
const readme = await read('README.md');
const { shown, prose } = readMarkdown(readme);
const code = inlineCode(prose);

/** Blocks that another test takes out of the README, by their language, and what it looks for. */
const takenBy: Readonly<Record<string, { readonly test: string; readonly by: string }>> = {
  ts: { test: 'test/client/package.test.ts', by: '```ts' },
  console: { test: 'test/newcomer.test.ts', by: 'console' },
};
const answers = ['json', 'text'];

/**
 * Commands that are not run here: they need what a test does not have, take minutes, write to the sources, or are run by
 * another test. Each is named with a file, and with what of it must be there for the command to be right.
 */
const notRun: readonly (readonly [command: string, path: string, part: string])[] = [
  ['bun planning --help', 'package.json', '"planning": "bun src/cli/main.ts"'],
  ['npm run -s planning -- --help', 'package.json', '"planning": '],
  ['bun planning doctor --token-file FILE', 'src/cli/doctor.ts', '--token-file <path>'],
  ['npm start', 'package.json', '"start": '],
  ['npm test', 'package.json', '"test": '],
  ['bun run test', 'package.json', '"test": '],
  ['bun run test:long', 'package.json', '"test:long": '],
  ['bun run test:scale', 'package.json', '"test:scale": '],
  ['bun run bench --only cost', 'test/bench/main.ts', 'cost'],
  ['bun run bench --only encryption', 'test/bench/main.ts', 'encryption'],
  ['bun run soak', 'package.json', '"soak": '],
  ['bun run check', 'package.json', '"check": '],
  ['bun run verify', 'package.json', '"verify": '],
  ['bun run dev', 'package.json', '"dev": '],
  ['bun run db:generate', 'package.json', '"db:generate": '],
  ['bun run build:client', 'package.json', '"build:client": '],
  ['bun run build', 'test/bundle.test.ts', 'Bundle'],
  ['npm run build:client', 'test/newcomer.test.ts', "blocks('console')"],
  ['npx openapi-typescript http://127.0.0.1:3000/swagger/json -o api.d.ts', 'package.json', '"openapi-typescript": '],
  ['sh test/examples/journey.sh', 'test/examples/examples.test.ts', 'journey.sh'],
  ['node test/examples/journey.mjs', 'test/examples/examples.test.ts', 'journey.mjs'],
  ['bun test/examples/serve-page.ts', 'test/examples/examples.test.ts', 'serve-page.ts'],
  ['CORS_ORIGINS=http://127.0.0.1:5173 npm start', 'test/examples/serve-page.ts', '5173'],
  ['RECORD_ANSWERS=1 bun test test/http/docs.test.ts', 'test/http/docs.test.ts', 'RECORD_ANSWERS'],
  ['bun start --help', 'test/demo/demo.test.ts', '--help'],
  ['npm start -- --demo --now 2026-01-15', 'test/demo/demo.test.ts', 'npm start -- --'],
  ['bun dev --demo', 'package.json', '"dev": '],
  ['FUZZ_SEED=… bun test test/fuzz', 'test/fuzz/fuzz.test.ts', 'FUZZ_SEED'],
  ['docker compose up', 'compose.yaml', 'services:'],
];
const program = /^(?:[A-Z_]+=\S+ )?(?:bun|bunx|npm|npx|node|docker|curl|sqld|openssl|sh)(?: |$)/;
/** Options of programs that are not ours. */
const foreignOptions = [
  '--db-path',
  '--demo',
  '--enable-namespaces',
  '--env-file',
  '--no-install',
  '--only',
  '--primary-grpc-url',
  '--stop-timeout',
];

describe('the README', () => {
  test.skipIf(Bun.which('curl') === null || Bun.which('openssl') === null)(
    'has commands that go well, in the order in which they are read, and answer what it shows',
    async () => {
      const steps = shown.filter(({ kind }) => kind === 'sh' || kind === 'command');
      const session = await expectToRun(shown, steps);
      expect(session.steps.flatMap(({ statuses }) => statuses).length).toBeGreaterThan(12);
    },
    // It starts some thirty processes, on a machine that may be busy with other tests.
    120_000,
  );

  test('has no block that no check accepts, and no answer without the command before it', async () => {
    const strange = shown.filter(
      ({ kind, note }, index) =>
        !(kind === 'sh' && ['', 'stopped'].includes(note)) &&
        !(answers.includes(kind) && note === '' && shown[index - 1]?.kind === 'sh') &&
        kind !== 'command' &&
        !(kind in takenBy),
    );
    const faults = await Promise.all(strange.map((block) => blockFaults(block, { shown, hasPath: () => true })));
    expect(faults.flat()).toEqual([]);
    expect(strange.filter(({ kind }) => kind === 'sh' || answers.includes(kind))).toEqual([]);
    const unanswered = shown.filter(
      ({ text }, index) => /^curl /m.test(text) && !answers.includes(shown[index + 1]?.kind ?? ''),
    );
    expect(unanswered.map(({ line }) => line)).toEqual([]);
  });

  test('has blocks of another kind only where a test takes them', async () => {
    for (const kind of new Set(shown.map(({ kind }) => kind).filter((kind) => kind in takenBy))) {
      const { test = '', by = '' } = takenBy[kind] ?? {};
      expect([kind, (await read(test)).includes(by)]).toEqual([kind, true]);
    }
  });

  test('names no command that is not run, but those that are known not to be', async () => {
    const run = shown
      .filter(({ kind }) => ['sh', 'command', 'console'].includes(kind))
      .flatMap(({ text }) => text.split(/\n|&&/).map((line) => line.replace(/#.*/, '').trim()));
    const commands = code.filter((piece) => program.test(piece)).flatMap((piece) => piece.split(' && '));
    const known = [...run, ...notRun.map(([command]) => command)];
    expect(commands.length).toBeGreaterThan(20);
    expect(commands.filter((piece) => !known.some((each) => isStartOf(piece, each)))).toEqual([]);
    for (const [command, path, part] of notRun) {
      expect([command, commands.some((piece) => isStartOf(piece, command) || isStartOf(command, piece))]).toEqual([
        command,
        true,
      ]);
      expect([command, (await read(path)).includes(part)]).toEqual([command, true]);
    }
  });

  test('names no option, setting, endpoint or script that there is not', async () => {
    const options = new Set([...foreignOptions, '--help', ...optionsOf(createProgram())]);
    const named = code.flatMap((piece) => piece.match(/(?<=^| )--[a-z-]+/g) ?? []);
    expect(named.filter((option) => !options.has(option))).toEqual([]);

    const { app } = await createTestApp();
    const routes = new Set([...app.routes.map(({ method, path }) => `${method} ${path}`), 'GET /metrics', 'GET /dump']);
    const endpoints = code.filter((piece) => /^(?:GET|POST|PUT|DELETE|PATCH) \//.test(piece));
    expect(endpoints.filter((piece) => !routes.has(piece) && !routes.has(piece.replace(/\/$/, '')))).toEqual([]);

    const settings = code.filter((piece) =>
      /^(?:DATABASE|AUTH|CARRIER|CHAT|OTEL|SANDBOX|REPORT)_[A-Z_]+[A-Z]$/.test(piece),
    );
    expect(settings.filter((key) => !(key in Settings.entries))).toEqual([]);

    const scripts = readme.match(/(?<=\b(?:bun|npm) run )(?!-)[a-z:]+/g) ?? [];
    expect(scripts.filter((script) => !(script in packageJson.scripts))).toEqual([]);
  });

  test('lists every problem with its number and status', () => {
    const rows = [...readme.matchAll(/\| (\d{3}) \| (\d{3}) \| `([a-z-]+)` /g)].map(
      ([, number, status, slug]) => `${number} ${status} ${slug}`,
    );
    const kinds = Object.entries(problemKinds).map(([slug, { code, status }]) => `${code} ${status} ${slug}`);
    expect(rows.sort()).toEqual(kinds.sort());
  });

  test('names no file that is not there, and every folder of the sources', () => {
    const paths = code.filter((piece) => /^(?:src|test|drizzle)\/[\w./-]+$/.test(piece));
    expect(paths.length).toBeGreaterThan(10);
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
    const tour = inlineCode(section('Code tour'));
    const folders = ['src', 'src/modules'].flatMap((parent) =>
      readdirSync(join(root, parent), { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map(({ name }) => `${parent}/${name}/`),
    );
    expect(folders.filter((folder) => !tour.some((path) => path.startsWith(folder)))).toEqual([]);
  });

  test('names for each threat a test that there is', async () => {
    const security = (await read('docs/security.md')).split(/^## /m);
    const rows = (security.find((each) => each.startsWith('Threats\n')) ?? '')
      .split('\n')
      .filter((line) => /^\| (?!attacker|---)/.test(line));
    expect(rows.length).toBeGreaterThan(20);
    for (const row of rows) {
      const named = row.split('|').at(-2) ?? '';
      const files = [...named.matchAll(/`(test\/[\w/.-]+)`/g)].map(([, path = '']) => path);
      const texts = await Promise.all(files.map(read));
      expect([row, files.length > 0]).toEqual([row, true]);
      for (const [, title = ''] of named.matchAll(/“([^”]+)”/g)) {
        expect([title, texts.some((text) => text.includes(title))]).toEqual([title, true]);
      }
    }
  });
});

const pages = await Promise.all(
  ['README.md', ...new Bun.Glob('docs/**/*.md').scanSync(root)].sort().map(async (path) => ({
    path,
    ...readMarkdown(await read(path)),
  })),
);
const inDocs = pages.filter(({ path }) => path !== 'README.md');

describe('the pages in docs', () => {
  test.each(inDocs)('$path shows only what a check accepts', async ({ shown }) => {
    const { app } = await createTestApp();
    const patterns = [...app.routes.map(({ path }) => path), '/metrics'].map(
      (path) => new RegExp(`^${path.replaceAll(/:[^/]+/g, '[^/]+')}/?$`),
    );
    const hasPath = (path: string) => patterns.some((pattern) => pattern.test(path));
    const faults = await Promise.all(shown.map((block) => blockFaults(block, { shown, hasPath })));
    expect(faults.flat()).toEqual([]);
  });

  test.each(inDocs)(
    '$path has commands marked `run` that succeed, and print what it shows',
    async ({ shown }) => {
      const steps = shown.filter(({ kind, note }) => kind === 'sh' && ['run', 'stopped'].includes(note));
      if (steps.length > 0) await expectToRun(shown, steps);
    },
    120_000,
  );

  test.each(inDocs)('$path names commands, options and settings that exist', ({ prose }) => {
    const named = inlineCode(prose);
    expect(named.flatMap(inlineCommandFaults)).toEqual([]);
    expect(named.flatMap(settingFaults)).toEqual([]);
    const options = named.flatMap((piece) => /^--[a-z][a-z-]+/.exec(piece)?.[0] ?? []);
    const known = new Set([...foreignOptions, '--help', '--version', ...optionsOf(createProgram())]);
    expect(options.filter((option) => !known.has(option))).toEqual([]);
    const paths = named.filter((piece) => /^(?:src|test|drizzle|docs)\/[\w./-]+$/.test(piece));
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });

  test('link to pages, files and headings that exist, and so does the README', () => {
    const anchors = new Map(pages.map(({ path, prose }) => [path, anchorsOf(prose)]));
    const broken = pages.flatMap(({ path, prose }) =>
      linksIn(prose)
        .filter((link) => !/^(?:https?|mailto):/.test(link))
        .filter((link) => {
          const [file = '', anchor] = link.split('#');
          const target = file === '' ? path : join(dirname(path), file);
          if (!existsSync(join(root, target))) return true;
          return anchor !== undefined && !anchors.get(target)?.includes(anchor);
        })
        .map((link) => `${path}: ${link}`),
    );
    expect(broken).toEqual([]);
    const unlinked = inDocs.filter(
      ({ path }) =>
        !pages.some(
          (page) => page.path !== path && linksIn(page.prose).some((link) => isLinkTo(page.path, link, path)),
        ),
    );
    expect(unlinked.map(({ path }) => path)).toEqual([]);
  });
});

describe('the check of a block', () => {
  const check = (kind: string, text: string, note = '') => {
    const block = { kind, text, note, line: 1 };
    return blockFaults(block, { shown: [block], hasPath: (path) => path === '/health/ready' });
  };

  test.each([
    ['sh', 'DATABASE_URL=file:a.db bun planning doctor --json > found.json 2>&1', ''],
    [
      'sh',
      'curl -sf http://127.0.0.1:3000/health/ready |\n  jq .status && sudo -u planning planning backup "$file"',
      '',
    ],
    ['sh', 'for each in a b; do\n  systemctl restart planning@$each # waits\ndone', ''],
    ['sh', "cat > a.json <<'END'\nnot a command\nEND\nbun run check", ''],
    ['sh', 'docker compose exec planning-1 bun --no-install src/cli/main.js doctor', ''],
    ['json', '{ "a": 1 }', ''],
    ['env', '# the port\nPORT=3000', ''],
    ['yaml', 'groups:\n  - name: a\n    rules:\n      - alert: B\n        expr: up == 0', ''],
    ['promql', 'up == 0', ''],
    ['sql', 'SELECT count(*) FROM users;', ''],
    ['nginx', 'upstream planning { server 127.0.0.1:3000; }', ''],
    [
      'haproxy',
      'defaults\n  mode http\n  timeout connect 1s\n  timeout client 1s\n  timeout server 1s\nlisten a\n  bind 127.0.0.1:8099',
      '',
    ],
    ['caddyfile', ':8080 {\n  reverse_proxy 127.0.0.1:3000\n}', ''],
    ['ini', '[Service]\nExecStart=/usr/local/bin/bun', 'planning.service'],
  ])('accepts a block %s: %s', async (kind, text, note) => {
    expect(await check(kind, text, note)).toEqual([]);
  });

  test.each([
    ['mermaid', 'graph', 'add a check to `blockChecks`'],
    ['sh', 'if true; then', 'end of file'],
    ['sh', 'bun planning retsore a.db', 'has no command “retsore”'],
    ['sh', 'bun planning doctor --jsno', 'has no option --jsno'],
    ['sh', 'planning backup', 'needs an argument or option more'],
    ['sh', 'curl http://127.0.0.1:3000/ready', 'no path /ready'],
    ['sh', 'bun run lint', 'no script “lint”'],
    ['sh', 'bun --no-install src/mian.js', 'no file src/mian.js'],
    ['sh', 'DATABASE_ADDRESS=a planning doctor', 'no setting DATABASE_ADDRESS'],
    ['sh', 'frobnicate --all', 'add it to `foreignPrograms`'],
    ['text', '$ planning doctor', 'belongs in a block `sh`'],
    ['env', 'PROT=3000', 'no setting PROT'],
    ['promql', 'rate(a[5m] > 1', 'rate'],
    ['sql', 'SELECT a FROM persons;', 'no such table'],
  ])('reports a fault of a block %s: %s', async (kind, text, fault) => {
    expect((await check(kind, text)).join()).toContain(fault);
  });

  test.each([
    ['nginx', 'upstraem planning {}', 'unknown directive'],
    ['haproxy', 'defaults\n  mdoe http', 'unknown keyword'],
    ['caddyfile', ':8080 {\n  reverse_porxy a\n}', 'unrecognized directive'],
    ['promtool', 'groups:\n  - name: a\n    rules:\n      - alert: B\n        expr: up ==', 'could not parse'],
    ['systemd-analyze', '[Service]\nExecStart=/bin/true\nRestrat=always', 'Restrat'],
  ])('reports what %s reports', async (program, text, fault) => {
    const kind = { promtool: 'yaml', 'systemd-analyze': 'ini' }[program] ?? program;
    const expected = Bun.which(program) === null ? '' : fault;
    expect((await check(kind, text, 'planning.service')).join()).toContain(expected);
  });
});

describe('an answer that is shown', () => {
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
  ])('is told from another: %j is not %j', (answer, other) => {
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
  ])('stands for what it leaves out: %j is like %j', (answer, like) => {
    expect(differences(answer, like)).toEqual([]);
  });
});

function section(name: string): string {
  return prose.split(/^## /m).find((each) => each.startsWith(`${name}\n`)) ?? '';
}

/** Runs commands of a page, and expects that they succeed and print what the page shows after them. */
async function expectToRun(shown: readonly Shown[], steps: readonly Shown[]) {
  const session = await runAsReader(steps);
  const wrong = session.steps.flatMap(({ line, stdout, statuses }) => {
    const answer = shown[shown.findIndex((each) => each.line === line) + 1];
    const { differs, status } = compare(stdout, answer);
    const isAnswered = statuses.every((each) => each === status);
    return [...differs, ...(isAnswered ? [] : [`curl got ${statuses}`])].map((what) => `line ${line}: ${what}`);
  });
  const failure = session.exitCode === 0 ? [] : [session.stderr.replaceAll(/^curl: status \d+\n/gm, '')];
  expect([...wrong, ...failure]).toEqual([]);
  return session;
}

function linksIn(prose: string): string[] {
  const withoutCode = prose.replaceAll(/`[^`]*`/g, '');
  return [...withoutCode.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
}

function isLinkTo(from: string, link: string, path: string): boolean {
  return !link.includes(':') && join(dirname(from), link.replace(/#.*/, '')) === path;
}

/** The anchors that GitHub gives the headings of a page. */
function anchorsOf(prose: string): string[] {
  return [...prose.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w -]/g, '')
      .replaceAll(' ', '-'),
  );
}

/** What differs between what a command printed and the answer that is shown after it, if one is; and its status. */
function compare(stdout: string, answer: (typeof shown)[number] | undefined) {
  if (answer?.kind === 'text') return { differs: linesUnlike(stdout.trim(), answer.text), status: 200 };
  if (answer?.kind !== 'json') return { differs: [], status: 200 };
  const expected: unknown = JSON.parse(answer.text);
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

function linesUnlike(printed: string, text: string): string[] {
  const [lines, expected] = [printed.split('\n'), text.split('\n')];
  const unlike = lines.filter((line, index) => !isLike(line.trimEnd(), expected[index] ?? ''));
  return lines.length === expected.length ? unlike : [`${lines.length} lines were printed: ${printed}`];
}

/** Whether a command, perhaps one that ends in “…”, is how another begins, by whole words. */
function isStartOf(start: string, command: string): boolean {
  return `${command} `.startsWith(`${start.replace(/ ?…$/, '')} `);
}

function optionsOf(command: Command): string[] {
  return [...command.options.flatMap(({ long }) => long ?? []), ...command.commands.flatMap((each) => optionsOf(each))];
}
