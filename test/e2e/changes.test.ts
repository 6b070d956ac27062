import { beforeAll, describe, expect, test } from 'bun:test';
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { applyChange, readDiff, readMarkdown } from '../support/pages';
import { runProgram, temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const inputs = ['src', 'test', 'docs', 'drizzle', 'README.md', 'package.json', 'tsconfig.json', 'bunfig.toml'];

/** The most files that each change may touch, tests and generated files included. */
const limits: Readonly<Record<string, number>> = {
  'A field in a flow': 6,
  'A rule in the shipped catalogue': 3,
  'A reference list': 4,
  'An endpoint': 6,
};

const sections = (await Bun.file(join(root, 'docs/changes.md')).text()).split(/^## /m).slice(1);
const walks = sections.map((section) => ({
  title: section.replace(/\n[\s\S]*/, ''),
  changes: readMarkdown(section)
    .shown.filter(({ kind }) => kind === 'diff')
    .flatMap(({ text }) => readDiff(text)),
}));
type Walk = (typeof walks)[number];

function copyProject() {
  const folder = temporaryFolder();
  mkdirSync(folder, { recursive: true });
  for (const name of [...inputs, 'biome.json', '.gitignore'])
    cpSync(join(root, name), join(folder, name), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  const edit = async (path: string, change: (text: string) => string) => {
    const file = Bun.file(join(folder, path));
    await Bun.write(file, change(await file.text()));
  };
  return {
    edit,
    bun: (...words: string[]) => runProgram(folder, [process.execPath, ...words]),
    async apply({ changes }: Walk): Promise<void> {
      for (const change of changes) await edit(change.path, (text) => applyChange(change, text));
    },
  };
}

const testsOf = ({ changes }: Walk) => changes.map(({ path }) => path).filter((path) => path.startsWith('test/'));

describe('the changes of docs/changes.md', () => {
  const project = copyProject();
  const touched = new Map<string, Set<string>>();

  beforeAll(async () => {
    for (const walk of walks) {
      await project.apply(walk);
      const paths = walk.changes.map(({ path }) => path);
      await project.bun('x', 'biome', 'check', '--write', ...paths);
      const written = [...(await project.bun('run', 'docs:write')).matchAll(/^wrote (.+)$/gm)];
      touched.set(walk.title, new Set([...paths, ...written.map(([, path = '']) => path)]));
    }
  }, 300_000);

  test('touch few files', () => {
    expect([...touched.keys()]).toEqual(Object.keys(limits));
    for (const [title, paths] of touched) {
      const isFew = paths.size <= (limits[title] ?? 0);
      expect({ title, paths: [...paths], isFew }).toMatchObject({ isFew: true });
    }
  });

  test('compile', async () => {
    await project.bun('x', 'tsc');
  }, 300_000);

  test('pass their own tests and those of the routes, the documentation and the client', async () => {
    expect(walks.map((walk) => testsOf(walk).length)).toEqual(walks.map(() => 1));
    const others = ['http/route-table', 'http/docs', 'client/client'].map((name) => `test/${name}.test.ts`);
    await project.bun('test', '--timeout', '60000', ...walks.flatMap(testsOf), ...others);
  }, 300_000);
});

test('a field that the stored section leaves out fails by its name', async () => {
  const [walk] = walks;
  if (walk === undefined) throw new Error('docs/changes.md has no change');
  const { apply, bun, edit } = copyProject();
  await apply(walk);
  await edit('src/modules/answers/model.ts', (text) => text.replace(/^ {2}careStart: v\.optional.*\n/m, ''));
  const output = await bun('test', ...testsOf(walk), '-t', 'accepts the documented example').catch(String);
  expect(output).toMatch(/POST \/v2\/private\/ltc\/lifetimeCare: .*careStart/);
}, 300_000);
