import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, rmSync, utimesSync } from 'node:fs';
import { dirname } from 'node:path';
import { Glob } from 'bun';
import { cachedFolder, inputs } from './support/artifacts';
import { atEnd } from './support/resources';

test('cachedFolder removes folders that were unused for an hour and keeps used ones', async () => {
  let count = 0;
  const name = `tested-cache-${process.pid}`;
  /** Acts like another test process with these additional inputs. */
  const find = (...alsoOf: string[]) => {
    const make = async (folder: string) => {
      mkdirSync(folder);
      count += 1;
    };
    return cachedFolder(name, { make, alsoOf })();
  };
  const makeOld = (folder: string) => utimesSync(folder, 0, Date.now() / 1000 - 7200);

  const [used, unused] = [await find(), await find('README.md')];
  atEnd(() => rmSync(dirname(used), { recursive: true }));
  makeOld(used);
  makeOld(unused);
  expect(await find()).toBe(used);
  await find('biome.json');
  expect([used, unused].map((folder) => existsSync(folder))).toEqual([true, false]);
  expect(count).toBe(3);
});

test('inputs of cachedFolder include tsconfig.json, which the client build extends', () => {
  expect(inputs.some((pattern) => new Glob(pattern).match('tsconfig.json'))).toBe(true);
});
