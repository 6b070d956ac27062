import { join } from 'node:path';
import type { Command } from 'commander';
import * as v from 'valibot';
import { partsOf, settingsFor } from '../../src/cli/context';
import { createProgram } from '../../src/cli/main';
import { Settings } from '../../src/config/settings';
import { tags } from '../../src/http/docs/routes';
import { seedDemo } from '../../src/seed';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp, startSandbox, type TestApp, testConfig } from './app';
import { exampleTarget } from './conformance';
import { cleanUp } from './resources';

/** A fenced block of a page. */
export interface Shown {
  /** The language of a fenced block. */
  readonly kind: string;
  /** The words after the language. */
  readonly note: string;
  readonly text: string;
  readonly line: number;
}

/** Splits a page into its fenced blocks and its prose. */
export function readMarkdown(page: string): { shown: Shown[]; prose: string } {
  const shown: Shown[] = [];
  const prose: string[] = [];
  let open: (Shown & { readonly lines: string[] }) | undefined;
  for (const [index, line] of page.split('\n').entries()) {
    const fence = /^\s*(?:```|~~~)(\S*) ?(.*)$/.exec(line);
    if (open !== undefined) {
      if (fence === null) open.lines.push(line);
      else {
        shown.push({ ...open, text: open.lines.join('\n') });
        open = undefined;
      }
      continue;
    }
    if (fence !== null) {
      open = { kind: fence[1] ?? '', note: fence[2] ?? '', text: '', line: index + 1, lines: [] };
      continue;
    }
    prose.push(line);
  }
  if (open !== undefined) shown.push({ ...open, kind: 'a fence that is not closed' });
  return { shown, prose: prose.join('\n') };
}

/** Returns the block that follows a block of commands directly and shows their output, if there is one. */
export function shownOutput(shown: readonly Shown[], { line, text }: Shown): Shown | undefined {
  const next = line + text.split('\n').length + 2;
  return shown.find((block) => block.line === next && ['json', 'text'].includes(block.kind));
}

/** Returns the inline code of the prose, each piece on one line. */
export function inlineCode(prose: string): string[] {
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code.replaceAll(/\s+/g, ' '));
}

/** Stands for text that differs each time or is left out. */
const ellipsis = '…';

/**
 * Lists the differences between a value and an excerpt of it. In the excerpt, `"…"` stands for any text or number, a part of
 * a text, further items at the end of a list, or further members.
 */
export function differences(response: unknown, shown: unknown, place = ''): string[] {
  const unlike = [`${place || 'it'} is ${JSON.stringify(response)}, not ${JSON.stringify(shown)}`];
  if (typeof shown === 'string' && shown.includes(ellipsis)) {
    return ['string', 'number'].includes(typeof response) && isLike(String(response), shown) ? [] : unlike;
  }
  if (Array.isArray(shown)) {
    if (!Array.isArray(response)) return unlike;
    const hasMore = shown.at(-1) === ellipsis;
    const items = hasMore ? shown.slice(0, -1) : shown;
    const isWhole = hasMore ? response.length > items.length : response.length === items.length;
    const length = isWhole ? [] : [`${place} has ${response.length} items`];
    return [...length, ...items.flatMap((item, index) => differences(response[index], item, `${place}/${index}`))];
  }
  if (!isObject(shown)) return response === shown ? [] : unlike;
  if (!isObject(response)) return unlike;
  const { [ellipsis]: more, ...members } = shown;
  const others = Object.keys(response).filter((name) => !(name in members));
  const notShown = others.map((name) => `${place}/${name} is not shown`);
  const notMore = others.length > 0 ? [] : [`${place} has no other members`];
  return [
    ...(more === undefined ? notShown : notMore),
    ...Object.entries(members).flatMap(([name, value]) => differences(response[name], value, `${place}/${name}`)),
  ];
}

/** Whether a text matches an excerpt, in which each “…” stands for a part of a line, and a line “…” for any lines. */
export function isLike(text: string, shown: string): boolean {
  const pattern = shown.split(`\n${ellipsis}\n`).map((lines) => lines.split(ellipsis).map(RegExp.escape).join('.*'));
  return new RegExp(`^${pattern.join('\\n(?:.*\\n)*')}$`).test(text);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The change of one file in a `diff` block: pairs of the lines before and after. */
interface FileChange {
  readonly path: string;
  readonly hunks: readonly { readonly before: string; readonly after: string }[];
}

/** Reads a unified diff whose hunks begin with `@@` and have no line numbers, so that it stays valid when lines move. */
export function readDiff(diff: string): FileChange[] {
  return diff.split(/^(?=--- )/m).map((change) => {
    const [head = '', ...hunks] = change.split(/^@@.*\n/m);
    const path = /^\+\+\+ b\/(.+)$/m.exec(head)?.[1] ?? '';
    return {
      path,
      hunks: hunks.map((hunk) => {
        const lines = hunk.replace(/\n$/, '').split('\n');
        const without = (mark: string) =>
          lines.filter((line) => !line.startsWith(mark)).map((line) => `${line.slice(1)}\n`);
        return { before: without('+').join(''), after: without('-').join('') };
      }),
    };
  });
}

/**
 * Applies the hunks of one file to its text.
 *
 * @throws Error if the lines before a change are not exactly once in the text
 */
export function applyChange({ path, hunks }: FileChange, text: string): string {
  return hunks.reduce((changed, { before, after }) => {
    const places = changed.split(before).length - 1;
    if (before === '' || places !== 1) throw new Error(`${path} has these lines ${places} times:\n${before}`);
    return changed.replace(before, () => after);
  }, text);
}

const root = join(import.meta.dirname, '../..');
export const pagePaths = ['README.md', ...new Bun.Glob('docs/**/*.md').scanSync(root)].sort();

/** The tables of the pages that are generated, each by the name in its comment: `<!-- table: settings -->`. */
const tables: Readonly<Record<string, () => string[] | Promise<string[]>>> = {
  endpoints: endpointTable,
  problems: problemTable,
  settings: settingTable,
  commands: commandTable,
};

/** Returns the page with each generated table as its source defines it now. */
export async function withTables(page: string): Promise<string> {
  let written = page;
  for (const [name, rows] of Object.entries(tables)) {
    const [start, end] = [`<!-- table: ${name} -->\n`, '<!-- end -->'];
    const begin = written.indexOf(start);
    if (begin < 0) continue;
    const content = `\n${(await rows()).join('\n')}\n\n`;
    written = written.slice(0, begin + start.length) + content + written.slice(written.indexOf(end, begin));
  }
  return written;
}

const Operation = v.object({
  operationId: v.string(),
  summary: v.string(),
  tags: v.tuple([v.string()]),
  parameters: v.array(
    v.object({ name: v.string(), in: v.picklist(['query', 'path', 'header']), example: v.optional(v.string()) }),
  ),
  requestBody: v.optional(
    v.object({
      content: v.object({
        'application/json': v.object({ examples: v.record(v.string(), v.object({ value: v.unknown() })) }),
      }),
    }),
  ),
});
const OpenApi = v.object({ paths: v.record(v.string(), v.record(v.string(), Operation)) });

/** The operations of the OpenAPI document. */
async function operationsOf({ call }: Pick<TestApp, 'call'>) {
  const { paths } = v.parse(OpenApi, (await call('GET', '/swagger/json')).body);
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })),
  );
}

async function endpointTable(): Promise<string[]> {
  const rows = (await operationsOf(await createTestApp()))
    .filter(({ path }) => path.startsWith('/v2/'))
    .map(({ path, method, operationId, summary }) => `| \`${method} ${path}\` | ${summary} | \`${operationId}\` |`);
  return ['| endpoint | does | method of the client |', '| --- | --- | --- |', ...rows];
}

function problemTable(): string[] {
  const rows = Object.entries(problemKinds)
    .map(([slug, { code, status, title }]) => ({ code, text: `| ${code} | ${status} | \`${slug}\` | ${title} |` }))
    .toSorted((one, other) => one.code - other.code);
  return ['| code | status | type | title |', '| --- | --- | --- | --- |', ...rows.map(({ text }) => text)];
}

function settingTable(): string[] {
  const rows = Object.entries(Settings.entries)
    .filter(([key]) => !key.endsWith('_FILE'))
    .map(([key, schema]) => {
      const fallback = schema.default === undefined ? '–' : `\`${schema.default}\``;
      return `| \`${key}\` | ${fallback} | ${v.getDescription(schema.wrapped)} |`;
    });
  return ['| setting | default | meaning |', '| --- | --- | --- |', ...rows];
}

const isCommandWithSettings = (name: string): name is keyof typeof partsOf => name in partsOf;
const databaseSettings = settingsFor('backup');

function commandTable(): string[] {
  const rows = commandsOf(createProgram()).map(({ command, name }) => {
    const used = isCommandWithSettings(name) ? settingsFor(name) : undefined;
    const others = used?.filter((key) => !databaseSettings.includes(key)).map((key) => `\`${key}\``) ?? [];
    const database = used !== undefined && others.length < used.length ? ['database'] : [];
    const settings = used === undefined ? (name === 'doctor' ? 'all' : 'none') : [...database, ...others].join(', ');
    return `| \`planning ${name}\` | ${command.description()} | ${settings} |`;
  });
  return ['| command | does | settings |', '| --- | --- | --- |', ...rows];
}

/** Lists the commands that do something themselves; `audit` does and has a subcommand. */
function commandsOf(parent: Command, path: readonly string[] = []): { command: Command; name: string }[] {
  return parent.commands.flatMap((command) => {
    const name = [...path, command.name()];
    const isGroup = command.commands.length > 0 && command.registeredArguments.length === 0;
    return [...(isGroup ? [] : [{ command, name: name.join(' ') }]), ...commandsOf(command, name)];
  });
}

/**
 * The responses to the first example of each operation, in the order of the tags, on the demo data with a fixed clock
 * and fixed ids. Long lists are cut to their first items.
 */
export async function recordResponses(): Promise<Record<string, unknown>> {
  const sandbox = await startSandbox();
  const ids: number[] = [];
  const testApp = await createTestApp({
    carrier: sandbox.carrier(),
    config: { ...testConfig, chat: { id: 'demo-chat', token: 'demo-chat-token' } },
    newId: () => `0198c2f4-6b1e-7d3a-9c54-${String(ids.push(0)).padStart(12, '0')}`,
    publicUrl: () => 'http://127.0.0.1:3000',
  });
  await seedDemo(testApp.db, testApp.now);

  const operations = await operationsOf(testApp);
  const stepOf = ({ tags: [name] }: (typeof operations)[number]) => tags.findIndex((tag) => tag.name === name);
  const responses: Record<string, unknown> = {};
  for (const operation of operations.toSorted((a, b) => stepOf(a) - stepOf(b))) {
    const { operationId, path, method, parameters, requestBody } = operation;
    const [first] = Object.values(requestBody?.content['application/json'].examples ?? {});
    const caller =
      operationId === 'getMonthlyGlance' ? { as: 'demo-manager', roles: ['salesManager'] } : { as: 'demo-user' };
    const response = await testApp.call(method, exampleTarget(path, parameters), {
      ...caller,
      body: first?.value,
    });
    if (response.status !== 200) throw new Error(`${operationId} returned ${response.status}: ${response.text}`);
    responses[operationId] = shortened(response.body);
  }
  return responses;
}

const longestList = 4;

function shortened(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, value.length > longestList ? 1 : undefined).map(shortened);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shortened(member)]));
}

/** Writes the parts of the documentation that are derived from the sources: response examples and tables of the pages. */
async function writeDocs(): Promise<void> {
  const examples = 'src/http/docs/examples.json';
  await writeIfChanged(examples, await formatted(examples, JSON.stringify(await recordResponses())));
  for (const path of pagePaths) await writeIfChanged(path, await withTables(await Bun.file(join(root, path)).text()));
}

async function writeIfChanged(path: string, text: string): Promise<void> {
  const file = join(root, path);
  if ((await Bun.file(file).text()) === text) return;
  await Bun.write(file, text);
  process.stdout.write(`wrote ${path}\n`);
}

/** Formats a file as `bun run check` requires it. */
async function formatted(path: string, text: string): Promise<string> {
  const biome = [process.execPath, 'x', 'biome', 'format', `--stdin-file-path=${path}`];
  const child = Bun.spawn(biome, { cwd: root, stdin: new Blob([text]), stderr: 'inherit' });
  const output = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`Biome cannot format ${path}`);
  return output;
}

if (import.meta.main) {
  await writeDocs();
  await cleanUp();
  process.exit();
}
