import { Database as Sqlite } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parser as promql } from '@prometheus-io/lezer-promql';
import { type Command, CommanderError } from 'commander';
import { parse } from 'shell-quote';
import packageJson from '../package.json';
import { createProgram } from '../src/cli/main';
import { ConfigError, readConfig, Settings } from '../src/config/settings';
import { createTestApp } from './support/app';
import { copyTemplate } from './support/database';
import {
  applyChange,
  inlineCode,
  pagePaths,
  readDiff,
  readMarkdown,
  type Shown,
  shownOutput,
  withTables,
} from './support/pages';
import { runToEnd, temporaryFolder } from './support/resources';

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
  console: { pages: ['README.md'], test: 'test/e2e/newcomer.test.ts' },
};
/** Options of other programs, of the service and of the benchmark. */
const otherOptions = [
  ...['--db-path', '--demo', '--enable-namespaces', '--help', '--no-install', '--now', '--only'],
  ...['--primary-grpc-url', '--stop-timeout', '--version'],
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

  test.each(pages)('$path has valid blocks, and the response to each request that it runs', async ({ path, shown }) => {
    const own = shown.filter(({ kind }) => !blocksOfOtherTests[kind]?.pages.includes(path));
    const errors = await Promise.all(own.map((block) => blockErrors(block, { shown, hasPath })));
    expect(errors.flat()).toEqual([]);
    const withoutResponse = own
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
    expect(sources.length).toBeGreaterThan(200);
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

test('docs/architecture.md names every folder of the sources', () => {
  const code = pages.find(({ path }) => path === 'docs/architecture.md')?.code ?? [];
  const folders = readdirSync(join(root, 'src'), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  expect(folders.map(({ name }) => `src/${name}/`).filter((folder) => !code.includes(folder))).toEqual([]);
});

test('docs/security.md names an existing test for each threat', async () => {
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
    for (const [, title = ''] of named.matchAll(/“([^”]+)”/g))
      expect([title, texts.some((text) => text.includes(title))]).toEqual([title, true]);
  }
});

describe('blockErrors', () => {
  const check = (kind: string, text: string, note = '') => {
    const block = { kind, text, note, line: 1 };
    return blockErrors(block, { shown: [block], hasPath: (path) => path === '/health/ready' });
  };

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
  ])('reports an error of a block %s: %s', async (kind, text, error) => {
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

/** A page whose blocks are checked. */
interface Page {
  readonly shown: readonly Shown[];
  /** Whether the service has this path. */
  readonly hasPath: (path: string) => boolean;
}

type Check = (block: Shown, page: Page) => readonly string[] | Promise<readonly string[]>;

/** The check of each language; it returns the errors. test/e2e/pages.test.ts runs the blocks `sh run`. */
const blockChecks: Readonly<Record<string, Check>> = {
  sh: shellErrors,
  bash: shellErrors,
  json: ({ text }) => errorsOfThrown(() => JSON.parse(text)),
  text: ({ text }) => (/^\s*(?:[$#] |bun |planning )/m.test(text) ? ['a command belongs in a block `sh`'] : []),
  env: ({ text }) => text.split('\n').flatMap(assignmentErrors),
  yaml: yamlErrors,
  promql: ({ text }) => text.split('\n').filter((line) => line !== '' && !line.startsWith('#') && !isPromql(line)),
  sql: sqlErrors,
  nginx: nginxErrors,
  haproxy: ({ text }) => programErrors(['haproxy', '-c', '-f'], withCertificates(text)),
  caddyfile: ({ text }) => programErrors(['caddy', 'adapt', '--adapter', 'caddyfile', '--config'], text),
  ini: unitErrors,
  diff: diffErrors,
};

/** Returns the errors of a block of a page, each with its line. */
async function blockErrors(block: Shown, page: Page): Promise<string[]> {
  const unchecked = `no test checks a block of the kind “${block.kind}”: add a check to \`blockChecks\` in test/pages.test.ts`;
  const errors = (await blockChecks[block.kind]?.(block, page)) ?? [unchecked];
  return errors.map((error) => `line ${block.line}: ${error}`);
}

/** Returns the errors of a command that a sentence names; it may be the beginning of a command. */
function inlineCommandErrors(code: string, hasPath: Page['hasPath']): string[] {
  if (!/^(?:[A-Z_]+=\S+ )*(?:bun|node|npm|npx|planning|sh) /.test(code)) return [];
  const words = code
    .replaceAll(/[[\]…]/g, '')
    .split(/\s+/)
    .filter(Boolean);
  const choices = words.reduce<string[][]>(
    (all, word) => all.flatMap((before) => word.split('|').map((choice) => [...before, choice])),
    [[]],
  );
  return choices.flatMap((choice) => commandErrors(choice, hasPath, true));
}

/** Returns an error if the text is the name of a setting, such as `DATABASE_URL`, that does not exist. */
function settingErrors(code: string): string[] {
  const families = new Set(Object.keys(Settings.entries).map((key) => key.split('_')[0]));
  const isSetting = /^[A-Z]+(?:_[A-Z]+)+$/.test(code) && families.has(code.split('_')[0]) && !code.startsWith('NODE_');
  return isSetting && !(code in Settings.entries) ? [`there is no setting ${code}`] : [];
}

function isPromql(expression: string): boolean {
  let isRight = true;
  const enter = ({ type }: { readonly type: { readonly isError: boolean } }) => {
    isRight &&= !type.isError;
  };
  promql.parse(expression).iterate({ enter });
  return isRight;
}

/** Other programs. Of their arguments, only addresses of the service are checked. */
const foreignPrograms = new Set(
  (
    '. apt-get awk cat caddy cd chmod chown cmp cp crontab curl cut date df diff docker du echo exit false find git ' +
    'grep groupadd haproxy head id install journalctl jq kill kubectl ln ls mkdir mktemp mount mv nginx openssl printf ' +
    'promtool ps pwd read rm rsync scp sed set sh sha256sum sleep sort sqld sqlite3 ssh stat su systemctl ' +
    'systemd-analyze tail tar tee test touch trap tr true umask unset useradd wait wc xargs [ node npx'
  ).split(' '),
);
const keywords = new Set('! do done elif else exec fi for if in nohup then time until while { }'.split(' '));
const services = /^(?:https?:\/\/(?:127\.0\.0\.1|localhost):300\d|https:\/\/planning\.example(?:\.com)?)(\/[^?#]*)/;

const run = (command: readonly string[], env = process.env) =>
  runToEnd(Bun.spawn([...command], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' }));

async function shellErrors({ text, kind, note }: Shown, { hasPath }: Page): Promise<string[]> {
  const shell = kind === 'bash' ? 'bash' : 'sh';
  const { exitCode, stderr } = await run([shell, '-n', '-c', text]);
  if (exitCode !== 0) return [stderr.trim()];
  // The run of the page checks its commands.
  return note === 'run' ? [] : commandsIn(text).flatMap((words) => commandErrors(words, hasPath));
}

/** Lists the simple commands of a script, without redirections. */
function commandsIn(script: string): string[][] {
  const withoutDocuments = script.replaceAll(/<<-?\s*(['"]?)(\w+)\1(.*)\n(?:.*\n)*?\s*\2$/gm, '$3');
  const commands: string[][] = [[]];
  for (const line of withoutDocuments.replaceAll(/\\\n\s*/g, ' ').split('\n')) {
    commands.push([]);
    let isRedirected = false;
    for (const token of parse(line, (name) => `$${name}`)) {
      if (typeof token !== 'string' && 'comment' in token) break;
      if (typeof token !== 'string' && token.op !== 'glob') {
        isRedirected = /[<>]/.test(token.op) && !token.op.includes('(');
        if (isRedirected && /^\d$/.test(commands.at(-1)?.at(-1) ?? '')) commands.at(-1)?.pop();
        if (!isRedirected) commands.push([]);
      } else if (isRedirected) isRedirected = false;
      else commands.at(-1)?.push(typeof token === 'string' ? token : token.pattern);
    }
  }
  return commands.filter((words) => words.length > 0);
}

function commandErrors(words: readonly string[], hasPath: Page['hasPath'], isExcerpt = false): string[] {
  const [program = '', ...rest] = words;
  if (/^[A-Z_a-z]+=/.test(program))
    return [...settingErrors(program.replace(/=.*/, '')), ...commandErrors(rest, hasPath, isExcerpt)];
  if (program === '' || ['}', 'done', 'fi', 'for'].includes(program)) return [];
  if (keywords.has(program)) return commandErrors(rest, hasPath, isExcerpt);
  if (program === 'sudo' || program === 'env' || program === 'timeout') {
    const start = rest.findIndex(
      (word, index) => !/^-|^[\d.]+[smh]?$/.test(word) && !/^-[ug]$/.test(rest[index - 1] ?? ''),
    );
    return start < 0 ? [] : commandErrors(rest.slice(start), hasPath, isExcerpt);
  }
  const files = words.filter((word) => /^(?:docs|drizzle|test)\/.*\w$/.test(word) && !existsSync(join(root, word)));
  if (files.length > 0) return files.map((file) => `there is no file ${file}`);
  const own = ownCommandErrors(words, isExcerpt);
  if (own !== undefined) return own;
  const paths = words.flatMap((word) => services.exec(word)?.[1] ?? []);
  return [
    ...paths.filter((path) => !hasPath(path)).map((path) => `the service has no path ${path}`),
    ...(foreignPrograms.has(program) || /^(?:\.{0,2}\/|\$)/.test(program)
      ? []
      : [`no test knows the program “${program}”: add it to \`foreignPrograms\` in test/pages.test.ts`]),
  ];
}

/** Returns the errors of a command of this project, or undefined for another program. */
function ownCommandErrors(words: readonly string[], isExcerpt: boolean): string[] | undefined {
  const [program = '', first = '', second = ''] = words;
  const isRunner = ['bun', 'npm', 'planning'].includes(program) || program.endsWith('/planning');
  const entryPoint = ['docker', 'kubectl'].includes(program) || !isRunner ? /^src\/cli\/main\.js$/ : ownEntryPoint;
  const start = words.findIndex((word) => entryPoint.test(word));
  if (start >= 0)
    return planningErrors(
      words.slice(start + 1).filter((word) => word !== '--'),
      isExcerpt,
    );
  if (program !== 'bun' && program !== 'npm') return undefined;
  if (['install', 'test', 'x'].includes(first) || first.startsWith('--version')) return [];
  if (first.startsWith('-') || first.includes('/')) {
    const file = words.find((word) => /\.(?:js|ts)$/.test(word)) ?? '';
    const source = file.replace(/^(?:\.\/)?(?:dist\/)?/, '').replace(/\.js$/, '.ts');
    return existsSync(join(root, source)) ? [] : [`there is no file ${file}`];
  }
  const script = first === 'run' ? second : first;
  return script in packageJson.scripts ? [] : [`package.json has no script “${script}”`];
}

const ownEntryPoint = /(?:^|\/)planning$|src\/cli\/main\.(?:js|ts)$/;

/** Parses a command line of `planning` as the program does, without its action. */
function planningErrors(words: readonly string[], isExcerpt: boolean): string[] {
  let command: Command = createProgram();
  let rest = [...words];
  const name = () => [command.parent?.name(), command.name()].filter((part) => part !== undefined).join(' ');
  for (;;) {
    const next = command.commands.find((each) => each.name() === rest[0]);
    if (next === undefined) break;
    command = next;
    rest = rest.slice(1);
  }
  rest = rest.filter((word) => !['--help', '--version'].includes(word));
  const isGroup = command.commands.length > 0 && command.registeredArguments.length === 0;
  if (isGroup) return rest.length === 0 ? [] : [`“${name()}” has no command “${rest[0]}”`];
  command.exitOverride().configureOutput({ writeErr: () => undefined, writeOut: () => undefined });
  try {
    const { operands, unknown } = command.parseOptions(rest);
    const least = command.registeredArguments.filter(({ required }) => required).length;
    const most = command.registeredArguments.some(({ variadic }) => variadic)
      ? Number.POSITIVE_INFINITY
      : command.registeredArguments.length;
    const missing = command.options.filter(
      (option) => option.mandatory && command.getOptionValue(option.attributeName()) === undefined,
    );
    const isShort = operands.length < least || missing.length > 0;
    return [
      ...unknown.map((option) => `“${name()}” has no option ${option}`),
      ...(operands.length > most ? [`“${name()}” takes no more than ${most} arguments`] : []),
      ...(isShort && !isExcerpt && !words.includes('--help') ? [`“${name()}” needs an argument or option more`] : []),
    ];
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // A placeholder such as DATE stands for a value that the option would take.
    return error.code === 'commander.invalidArgument' && /[A-Z]{2,}|\$/.test(rest.join(' ')) ? [] : [error.message];
  }
}

function assignmentErrors(line: string): string[] {
  if (/^\s*(?:#|$)/.test(line)) return [];
  const key = /^([A-Z_]+)=/.exec(line)?.[1];
  if (key === undefined) return [`“${line}” is no assignment`];
  return key in Settings.entries ? [] : [`there is no setting ${key}`];
}

async function yamlErrors({ text }: Shown): Promise<readonly string[]> {
  const errors = errorsOfThrown(() => Bun.YAML.parse(text));
  if (errors.length > 0 || !/^groups:/m.test(text)) return errors;
  return await programErrors(['promtool', 'check', 'rules'], text);
}

/** Prepares each statement on a migrated database. */
async function sqlErrors({ text }: Shown): Promise<readonly string[]> {
  const path = join(temporaryFolder(), 'page.db');
  await copyTemplate(path);
  const database = new Sqlite(path);
  const statements = text.split(/;\s*$/m).filter((statement) => statement.trim() !== '');
  const errors = statements.flatMap((statement) => errorsOfThrown(() => database.query(`EXPLAIN ${statement}`)));
  database.close();
  return errors;
}

function nginxErrors({ text }: Shown): Promise<readonly string[]> {
  const isWhole = /^\s*events\s*\{/m.test(text);
  const isServer = /^\s*(?:server|upstream|map|limit_\w+zone)\b/m.test(text);
  const http = isServer ? text : `server { listen 127.0.0.1:8099; ${text} }`;
  const whole = isWhole ? text : `events {}\nhttp {\naccess_log off;\n${http}\n}`;
  return programErrors(['nginx', '-t', '-e', 'stderr', '-g', 'pid /dev/null;', '-c'], withCertificates(whole));
}

/** Verifies a unit together with the other units of its page; a note such as `planning.service` names each. */
async function unitErrors({ note, text }: Shown, { shown }: Page): Promise<readonly string[]> {
  if (!/^[\w@-]+\.(?:service|timer|socket)$/.test(note)) return ['the fence must name the unit: ```ini NAME.service'];
  if (Bun.which('systemd-analyze') === null) return /^\[\w+\]$/m.test(text) ? [] : ['it has no section'];
  const folder = temporaryFolder();
  for (const unit of shown.filter(({ kind }) => kind === 'ini'))
    writeFileSync(join(folder, unit.note), `${unit.text}\n`);
  const env = { ...process.env, SYSTEMD_UNIT_PATH: `${folder}:` };
  const command = ['systemd-analyze', 'verify', '--man=no', join(folder, note)];
  const { stderr } = await run(command, env);
  // The programs and users of a unit are not on this machine.
  return stderr
    .split('\n')
    .filter((line) => line.includes(note) && !/is not executable|Failed to prepare filename/.test(line));
}

/** Runs a checker on a file with this text, where the checker is installed. */
async function programErrors(command: readonly string[], text: string): Promise<readonly string[]> {
  if (Bun.which(command[0] ?? '') === null) return text.trim() === '' ? ['it is empty'] : [];
  const file = join(temporaryFolder(), 'block');
  writeFileSync(file, `${text}\n`);
  const { exitCode, stdout, stderr } = await run([...command, file]);
  return exitCode === 0 ? [] : [`${stdout}${stderr}`.replaceAll(file, command[0] ?? '').trim()];
}

/** Replaces the paths of certificates and keys by those of an existing certificate. */
function withCertificates(text: string): string {
  if (!/\bssl_certificate|\bcrt\b/.test(text) || Bun.which('openssl') === null) return text;
  const file = join(temporaryFolder(), 'tls.pem');
  const request = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=x'];
  Bun.spawnSync(['openssl', ...request, '-keyout', file, '-out', `${file}.crt`], {
    stdio: ['ignore', 'ignore', 'ignore'],
  });
  Bun.spawnSync(['sh', '-c', `cat '${file}.crt' >> '${file}'`]);
  return text
    .replaceAll(/(\bssl_certificate(?:_key)?\s+)[^;]+/g, `$1${file}`)
    .replaceAll(/(\bcrt\s+)\S+/g, `$1${file}`);
}

/** Applies a diff to the sources in memory. */
function diffErrors({ text }: Shown): string[] {
  return readDiff(text).flatMap((change) => {
    const file = join(root, change.path);
    if (!existsSync(file)) return [`there is no file ${change.path}`];
    return errorsOfThrown(() => applyChange(change, readFileSync(file, 'utf8')));
  });
}

function errorsOfThrown(work: () => unknown): string[] {
  try {
    work();
    return [];
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)];
  }
}

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
