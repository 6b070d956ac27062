import { describe, expect, test } from 'bun:test';
import { problemKinds } from '../src/errors';
import { temporaryFolder } from './support/database';
import { startService } from './support/service';

const readme = await Bun.file(new URL('../README.md', import.meta.url)).text();
const shellBlocks = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block = '']) => block);

describe('the README', () => {
  test.skipIf(Bun.which('curl') === null)('has commands that answer 200, each of them', async () => {
    const cwd = temporaryFolder();
    const service = await startService({ cwd });
    const script = shellBlocks
      .join('\n')
      .replace('http://127.0.0.1:3000', service.address)
      .replaceAll(/^curl /gm, "curl -s -o /dev/null -w '%{http_code} ' ");
    const commands = script.match(/^curl /gm)?.length ?? 0;
    const shell = Bun.spawnSync(['sh', '-eu', '-c', script], { cwd });
    expect(commands).toBe(12);
    expect(shell.stdout.toString().trim().split(' ')).toEqual(Array(commands).fill('200'));
  });

  test('lists every problem with its number and status', () => {
    const rows = [...readme.matchAll(/\| (\d{3}) \| (\d{3}) \| `([a-z-]+)` /g)].map(
      ([, code, status, slug]) => `${code} ${status} ${slug}`,
    );
    const kinds = Object.entries(problemKinds).map(([slug, { code, status }]) => `${code} ${status} ${slug}`);
    expect(rows.sort()).toEqual(kinds.sort());
  });

  test('names no file that is not there', async () => {
    const paths = [...readme.matchAll(/`((?:src|test|drizzle)\/[\w./-]+)`/g)].map(([, path = '']) => path);
    expect(paths.length).toBeGreaterThan(10);
    for (const path of paths) {
      expect(
        await Bun.file(new URL(`../${path}`, import.meta.url))
          .stat()
          .then(
            () => path,
            () => `${path} is missing`,
          ),
      ).toBe(path);
    }
  });

  test('names for each threat a test that there is', async () => {
    const section = readme.slice(readme.indexOf('\n## Security'), readme.indexOf('\n## Deploy'));
    const rows = section.split('\n').filter((line) => /^\| (?!who|---)/.test(line));
    expect(rows.length).toBeGreaterThan(20);
    for (const row of rows) {
      const named = row.split('|').at(-2) ?? '';
      const files = [...named.matchAll(/`(test\/[\w/.-]+)`/g)].map(([, path = '']) => path);
      const texts = await Promise.all(files.map((path) => Bun.file(new URL(`../${path}`, import.meta.url)).text()));
      expect([row, files.length > 0]).toEqual([row, true]);
      for (const [, title = ''] of named.matchAll(/“([^”]+)”/g)) {
        expect([title, texts.some((text) => text.includes(title))]).toEqual([title, true]);
      }
    }
  });
});
