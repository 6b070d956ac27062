import { expect, test } from 'bun:test';
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from '../support/database';
import { readMarkdown } from '../support/markdown';
import { applyChange, readDiff } from '../support/page-diffs';
import { runProgram } from '../support/run-to-end';

const root = join(import.meta.dirname, '../..');

test('the changes of docs/changes.md compile, and their tests and the documentation tests pass', async () => {
  const copy = temporaryFolder();
  mkdirSync(copy, { recursive: true });
  for (const name of [
    'src',
    'test',
    'docs',
    'drizzle',
    'README.md',
    'package.json',
    'tsconfig.json',
    'bunfig.toml',
    'biome.json',
    '.gitignore',
  ])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));

  const { shown } = readMarkdown(await Bun.file(join(root, 'docs/changes.md')).text());
  const changes = shown.filter(({ kind }) => kind === 'diff').flatMap(({ text }) => readDiff(text));
  for (const change of changes) {
    const file = Bun.file(join(copy, change.path));
    await Bun.write(file, applyChange(change, await file.text()));
  }

  const bun = (words: readonly string[]) => runProgram(copy, [process.execPath, ...words]);
  await bun([join(root, 'node_modules/typescript/bin/tsc')]);
  await bun(['test/support/write-docs.ts']);
  const tests = changes.map(({ path }) => path).filter((path) => path.startsWith('test/'));
  expect(tests.length).toBe(4);
  const others = ['http/docs', 'http/route-table', 'client/client'].map((name) => `test/${name}.test.ts`);
  await bun(['test', ...tests, ...others, '--timeout', '60000']);
}, 300_000);
