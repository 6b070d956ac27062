import { beforeAll, describe, expect, test } from 'bun:test';
import { cpSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { applyChange, readDiff, readMarkdown } from '../support/pages';
import { runProgram, temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const project = temporaryFolder();
const inputs = ['src', 'test', 'docs', 'drizzle', 'README.md', 'package.json', 'tsconfig.json', 'bunfig.toml'];

/** The most files that each change may touch, its tests included and written files excluded. */
const limits: Readonly<Record<string, number>> = {
  'A field in a flow': 2,
  'A rule in the shipped catalogue': 3,
  'A reference list': 2,
  'An endpoint': 4,
};

const sections = (await Bun.file(join(root, 'docs/changes.md')).text()).split(/^## /m).slice(1);
const walks = sections.map((section) => ({
  title: section.replace(/\n[\s\S]*/, ''),
  changes: readMarkdown(section)
    .shown.filter(({ kind }) => kind === 'diff')
    .flatMap(({ text }) => readDiff(text)),
}));
const testsOf = ({ changes }: (typeof walks)[number]) =>
  changes.map(({ path }) => path).filter((path) => path.startsWith('test/'));

const bun = (...words: string[]) => runProgram(project, [process.execPath, ...words]);
async function edit(path: string, change: (text: string) => string): Promise<string> {
  const file = join(project, path);
  const before = await Bun.file(file).text();
  await Bun.write(file, change(before));
  return before;
}

describe('changes of docs/changes.md, applied to a copy of the project', () => {
  let written: string[] = [];

  beforeAll(async () => {
    for (const name of [...inputs, 'biome.json', '.gitignore'])
      cpSync(join(root, name), join(project, name), { recursive: true });
    symlinkSync(join(root, 'node_modules'), join(project, 'node_modules'));
    const changes = walks.flatMap((walk) => walk.changes);
    for (const change of changes) await edit(change.path, (text) => applyChange(change, text));
    await bun('x', 'biome', 'check', '--write', ...new Set(changes.map(({ path }) => path)));
    const output = await bun('run', 'docs:write');
    written = [...output.matchAll(/^wrote (.+)$/gm)].map(([, path = '']) => path);
  }, 300_000);

  test('touch few files, one of them a test', () => {
    expect(walks.filter(({ title, changes }) => changes.length > (limits[title] ?? 0))).toEqual([]);
    expect(walks.map(({ title }) => title)).toEqual(Object.keys(limits));
    expect(walks.map((walk) => testsOf(walk).length)).toEqual(walks.map(() => 1));
    expect(written).toEqual(['src/http/docs/examples.json', 'README.md']);
  });

  test('compile', async () => {
    const include = ['src', 'test/client/types.test-d.ts', ...walks.flatMap(testsOf)];
    await Bun.write(join(project, 'changed.json'), JSON.stringify({ extends: './tsconfig.json', include }));
    // Each thread of the compiler would check the same declarations again, and other tests run beside this one.
    await bun('x', 'tsc', '-p', 'changed.json', '--singleThreaded');
  }, 300_000);

  test('pass their own tests and those of the routes', async () => {
    const files = [...walks.flatMap(testsOf), 'test/http/route-table.test.ts'];
    // Hundreds of generated cases, which no change on the page concerns.
    const others = '^(?!a series of random saves|the order of cemeteries)';
    await bun('test', '--no-isolate', '--timeout', '60000', ...files, '-t', others);
    await bun('test', 'test/client/client.test.ts', '-t', 'one of the OpenAPI document');
  }, 300_000);

  test('fail by the name of a field that the stored section leaves out', async () => {
    const model = 'src/modules/answers/model.ts';
    const complete = await edit(model, (text) => text.replace(/^ {2}careStart: v\.optional.*\n/m, ''));
    const output = await bun('test', ...walks.slice(0, 1).flatMap(testsOf), '-t', 'stores careStart').catch(String);
    await edit(model, () => complete);
    expect(output).toMatch(/POST \/v2\/private\/ltc\/lifetimeCare: .*careStart/);
  }, 300_000);
});
