import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, rmSync, utimesSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { Glob } from 'bun';
import { cachedFolder, inputs } from './support/cached-folder';
import { atEnd } from './support/cleanup';

const root = join(import.meta.dirname, '..');

test('what the tests keep is removed when nobody has asked for it in the last hour, however long ago it was made', async () => {
  let count = 0;
  const name = `tested-kept-${process.pid}`;
  /** As another process of the tests would, which has these files as well. */
  const find = (...alsoOf: string[]) => {
    const make = async (folder: string) => {
      mkdirSync(folder);
      count += 1;
    };
    return cachedFolder(name, { make, alsoOf })();
  };
  const isOld = (folder: string) => utimesSync(folder, 0, Date.now() / 1000 - 7200);

  const [used, unused] = [await find(), await find('README.md')];
  atEnd(() => rmSync(dirname(used), { recursive: true }));
  isOld(used);
  isOld(unused);
  expect(await find()).toBe(used);
  await find('biome.json');
  expect([used, unused].map((folder) => existsSync(folder))).toEqual([true, false]);
  expect(count).toBe(3);
});

test('what the tests keep is made anew when that changes by which the client is compiled', async () => {
  const used: string[] = [];
  for (let path: string | undefined = 'src/build/client.tsconfig.json'; path !== undefined; ) {
    used.push(path);
    const { extends: base }: { extends?: string } = await Bun.file(join(root, path)).json();
    path = base === undefined ? undefined : normalize(join(dirname(path), base));
  }
  expect(used).toContain('tsconfig.json');
  expect(used.filter((path) => !inputs.some((pattern) => new Glob(pattern).match(path)))).toEqual([]);
});
