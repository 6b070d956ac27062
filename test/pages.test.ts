import { describe, expect, test } from 'bun:test';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Command } from 'commander';
import { createProgram } from '../src/cli/main';
import { ConfigError, readConfig } from '../src/config/settings';
import { createTestApp } from './support/app';
import { blockErrors, inlineCommandErrors, settingErrors } from './support/page-blocks';
import { inlineCode, pagePaths, readMarkdown, shownOutput, withTables } from './support/pages';

const root = join(import.meta.dirname, '..');
const read = (path: string) => Bun.file(join(root, path)).text();
const pages = await Promise.all(
  pagePaths.map(async (path) => {
    const text = await read(path);
    const { shown, prose } = readMarkdown(text);
    return { path, text, shown, prose, code: inlineCode(prose) };
  }),
);

/** Blocks that another test takes out of these pages, by their language. */
const blocksOfOtherTests: Readonly<Record<string, { readonly pages: readonly string[]; readonly test: string }>> = {
  ts: { pages: ['README.md', 'docs/frontend.md'], test: 'test/e2e/client.test.ts' },
  console: { pages: ['README.md'], test: 'test/newcomer.test.ts' },
};
/** Options of other programs, of the service and of the benchmark. */
const otherOptions = [
  '--db-path',
  '--demo',
  '--enable-namespaces',
  '--help',
  '--no-install',
  '--now',
  '--only',
  '--primary-grpc-url',
  '--stop-timeout',
  '--version',
];

const { app } = await createTestApp();
const routes = [...app.routes.map(({ method, path }) => ({ method, path })), { method: 'GET', path: '/metrics' }].map(
  ({ method, path }) => ({ method, pattern: new RegExp(`^${path.replaceAll(/:[^/]+/g, '[^/]+')}/?$`) }),
);
const hasPath = (path: string) => routes.some(({ pattern }) => pattern.test(path));

describe('each page', () => {
  test.each(pages)('$path has at most 250 lines', ({ text }) => {
    expect(text.split('\n').length - 1).toBeLessThanOrEqual(250);
  });

  test.each(pages)('$path has valid blocks', async ({ path, shown }) => {
    const own = shown.filter(({ kind }) => !blocksOfOtherTests[kind]?.pages.includes(path));
    const errors = await Promise.all(own.map((block) => blockErrors(block, { shown, hasPath })));
    expect(errors.flat()).toEqual([]);
  });

  test.each(pages)('$path shows the response to each request that it runs', ({ shown }) => {
    const withoutResponse = shown
      .filter(({ kind, note, text }) => kind === 'sh' && note === 'run' && /^curl (?!-o )/m.test(text))
      .filter((block) => shownOutput(shown, block) === undefined);
    expect(withoutResponse.map(({ line }) => line)).toEqual([]);
  });

  test.each(pages)('$path names commands, options, settings, endpoints and files that exist', ({ code }) => {
    expect(code.flatMap((piece) => inlineCommandErrors(piece, hasPath))).toEqual([]);
    expect(code.flatMap(settingErrors)).toEqual([]);
    const options = code.flatMap((piece) => /^--[a-z][a-z-]+/.exec(piece)?.[0] ?? []);
    const known = new Set([...otherOptions, ...optionsOf(createProgram())]);
    expect(options.filter((option) => !known.has(option))).toEqual([]);
    const endpoints = code.flatMap((piece) => {
      const [, method, path = ''] = /^(GET|POST|PUT|DELETE|PATCH|OPTIONS) (\/[^ ?#]*)/.exec(piece) ?? [];
      return method === undefined ? [] : [{ method, path }];
    });
    const missing = endpoints.filter(
      ({ method, path }) => !routes.some((route) => route.method === method && route.pattern.test(path)),
    );
    expect(missing).toEqual([]);
    const paths = code.filter((piece) => /^(?:src|test|drizzle|docs)\/[\w./@-]+$/.test(piece));
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });

  test.each(pages)('$path has the tables of its sources; `bun run docs:write` writes them', async ({ text }) => {
    expect(text).toBe(await withTables(text));
  });
});

describe('terms outside of the style guide', () => {
  const foreignTerms = new RegExp(
    [
      /\b(?:whoever|whatever|nobody|somebody|anybody|everybody|anew|by chance|besides|strangers?|visitors?|hears?)\b/,
      /\b(?:(?:is|are) told|stands? still|left alone|holds? nothing of|what is [^.?!\n]{0,60} is)\b/,
      /\b(?:kept[- ]statements?|log sync|machineClock|once[- ]loaded|setting forms|written[- ]versions)\b/,
      /(?:\/\*\*|^\s*\*|\/\/) (?:what|who|whose)\b/,
    ]
      .map(({ source }) => source)
      .join('|'),
    'gim',
  );
  /** Files that need such terms, each with the reason. */
  const exceptions = new Map([
    ['src/http/docs/examples.json', 'has the texts of the shipped catalogue'],
    ['src/modules/matching/shipped-catalog.json', 'has product texts, and each change makes a new catalogue version'],
    ['test/pages.test.ts', 'has the pattern'],
  ]);
  const otherFiles = ['CHANGELOG.md', 'Dockerfile', 'compose.yaml', 'package.json'];
  const sources = [...new Bun.Glob('{src,test}/**/*.{css,html,js,json,mjs,sh,sql,ts,yaml}').scanSync(root)];
  const termsIn = (text: string) => text.match(foreignTerms) ?? [];

  test('are not in README.md and docs', () => {
    const found = pages.flatMap(({ path, prose }) =>
      termsIn(prose.split('## Style guide\n')[0] ?? '').map((term) => `${path}: ${term}`),
    );
    expect(found).toEqual([]);
  });

  test('are in no other file without an exception', async () => {
    expect(sources.length).toBeGreaterThan(300);
    const found = await Promise.all(
      [...sources, ...otherFiles].map(async (path) => ({ path, terms: termsIn(await read(path)) })),
    );
    const unexpected = found.filter(({ path, terms }) => terms.length > 0 && !exceptions.has(path));
    expect(unexpected).toEqual([]);
    const needed = found.filter(({ path, terms }) => terms.length > 0 && exceptions.has(path));
    expect(needed.map(({ path }) => path).toSorted()).toEqual([...exceptions.keys()]);
  });
});

describe('README.md and docs', () => {
  test('have the generated tables', () => {
    const named = pages.flatMap(({ text }) => [...text.matchAll(/<!-- table: (\w+) -->/g)].map(([, name]) => name));
    expect(named.toSorted()).toEqual(['commands', 'endpoints', 'problems', 'settings']);
  });

  test('have blocks for other tests only where these tests read them', async () => {
    for (const [kind, { pages: paths, test: path }] of Object.entries(blocksOfOtherTests)) {
      for (const page of paths) {
        const hasBlock = pages.find((each) => each.path === page)?.shown.some((block) => block.kind === kind);
        expect([kind, page, hasBlock]).toEqual([kind, page, true]);
        expect([path, (await read(path)).includes(page)]).toEqual([path, true]);
      }
    }
  });

  test('link to pages, files and headings that exist, and every page is linked', () => {
    const anchors = new Map(pages.map(({ path, prose }) => [path, anchorsOf(prose)]));
    const links = pages.flatMap(({ path, prose }) =>
      linksIn(prose)
        .filter((link) => !/^(?:https?|mailto):/.test(link))
        .map((link) => {
          const [file = '', anchor] = link.split('#');
          return { from: path, link, target: file === '' ? path : join(dirname(path), file), anchor };
        }),
    );
    const broken = links.filter(
      ({ target, anchor }) =>
        !existsSync(join(root, target)) || (anchor !== undefined && !anchors.get(target)?.includes(anchor)),
    );
    expect(broken.map(({ from, link }) => `${from}: ${link}`)).toEqual([]);
    const linked = new Set(links.filter(({ from, target }) => from !== target).map(({ target }) => target));
    expect(pagePaths.filter((path) => path !== 'README.md' && !linked.has(path))).toEqual([]);
  });

  test('name each setting that production requires, in the README', () => {
    const required = requiredInProduction();
    expect(required.length).toBeGreaterThan(5);
    const section = pages.find(({ path }) => path === 'README.md')?.prose.split(/^## /m);
    const production = inlineCode(section?.find((each) => each.startsWith('Production\n')) ?? '');
    expect(required.filter((key) => !production.includes(key))).toEqual([]);
  });
});

describe('docs/architecture.md', () => {
  test('names every folder of the sources', () => {
    const code = pages.find(({ path }) => path === 'docs/architecture.md')?.code ?? [];
    const folders = readdirSync(join(root, 'src'), { withFileTypes: true }).filter((entry) => entry.isDirectory());
    expect(folders.map(({ name }) => `src/${name}/`).filter((folder) => !code.includes(folder))).toEqual([]);
  });
});

describe('docs/security.md', () => {
  test('names an existing test for each threat', async () => {
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

describe('blockErrors', () => {
  const check = (kind: string, text: string, note = '') => {
    const block = { kind, text, note, line: 1 };
    return blockErrors(block, { shown: [block], hasPath: (path) => path === '/health/ready' });
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
  ])('reports a error of a block %s: %s', async (kind, text, error) => {
    expect((await check(kind, text)).join()).toContain(error);
  });

  test.each([
    ['nginx', 'upstraem planning {}', 'unknown directive'],
    ['haproxy', 'defaults\n  mdoe http', 'unknown keyword'],
    ['caddyfile', ':8080 {\n  reverse_porxy a\n}', 'unrecognized directive'],
    ['promtool', 'groups:\n  - name: a\n    rules:\n      - alert: B\n        expr: up ==', 'could not parse'],
    ['systemd-analyze', '[Service]\nExecStart=/bin/true\nRestrat=always', 'Restrat'],
  ])('reports what %s reports', async (program, text, error) => {
    const kind = { promtool: 'yaml', 'systemd-analyze': 'ini' }[program] ?? program;
    const expected = Bun.which(program) === null ? '' : error;
    expect((await check(kind, text, 'planning.service')).join()).toContain(expected);
  });
});

function linksIn(prose: string): string[] {
  const withoutCode = prose.replaceAll(/`[^`]*`/g, '');
  return [...withoutCode.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
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

function optionsOf(command: Command): string[] {
  return [...command.options.flatMap(({ long }) => long ?? []), ...command.commands.flatMap((each) => optionsOf(each))];
}

/** Returns the settings that an empty start in production names as missing. */
function requiredInProduction(): string[] {
  try {
    readConfig({ NODE_ENV: 'production' });
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.faults.flatMap(({ key }) => key.split(' or '));
  }
}
