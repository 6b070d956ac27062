import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { temporaryFolder } from './support/database';

const program = join(import.meta.dirname, 'support/start-and-list.ts');

async function modulesOfStart(): Promise<string[]> {
  const child = Bun.spawn([process.execPath, program], {
    cwd: temporaryFolder(),
    env: { PATH: process.env.PATH, PORT: '0', SEED_DEMO: 'false' },
    stdout: 'ignore',
    stderr: 'pipe',
  });
  return v.parse(v.array(v.string()), await new Response(child.stderr).json());
}

const modules = await modulesOfStart();

describe('a start', () => {
  test('loads nothing that makes the documentation: that waits for its first reader', async () => {
    expect(modules.some((path) => path.includes('/node_modules/elysia/'))).toBeTrue();
    const idle = /\/(@elysiajs\/swagger|@scalar|zod|@valibot\/to-json-schema|src\/http\/docs\/(?:page|openapi))\b/;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('on a file loads nothing that speaks to a libSQL server', async () => {
    expect(modules.some((path) => path.includes('/@libsql/client/lib-esm/sqlite3.js'))).toBeTrue();
    const idle = /\/@libsql\/(client\/lib-esm\/(node|http|ws)\.js|hrana-client\/|isomorphic-ws\/)|\/node_modules\/ws\//;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('loads nothing that counts or traces where nobody has asked for it', async () => {
    const idle = /\/node_modules\/(prom-client|@opentelemetry)\/|\/src\/telemetry\/(metrics|tracing)\b/;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('loads nothing of a demo, and reads no flags, where there are none', async () => {
    const idle = /\/node_modules\/commander\/|\/src\/(demo\/(?!page\.ts)|start\/flags\b)/;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('loads no client of a carrier before an application is sent', async () => {
    expect(modules.filter((path) => path.includes('/node_modules/cockatiel/'))).toEqual([]);
  });
});
