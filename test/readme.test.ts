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
});
