import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { temporaryFolder } from './support/resources';

const program = join(import.meta.dirname, 'support/child.ts');

async function modulesOfStart(): Promise<string[]> {
  const child = Bun.spawn([process.execPath, program, 'loaded-modules'], {
    cwd: temporaryFolder(),
    env: { PATH: process.env.PATH, PORT: '0', SEED_DEMO: 'false', CARRIER_URL: 'http://127.0.0.1:1' },
    stdout: 'ignore',
    stderr: 'pipe',
  });
  return v.parse(v.array(v.string()), await new Response(child.stderr).json());
}

const modules = await modulesOfStart();

describe('modules loaded at start', () => {
  test('exclude the documentation, which is loaded lazily', async () => {
    expect(modules.some((path) => path.includes('/node_modules/elysia/'))).toBeTrue();
    const idle = /\/(@elysiajs\/swagger|@scalar|zod|@valibot\/to-json-schema|src\/http\/docs\/(?:page|openapi))\b/;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('exclude the remote database client when the database is a file', async () => {
    expect(modules.some((path) => path.includes('/@libsql/client/lib-esm/sqlite3.js'))).toBeTrue();
    const idle = /\/@libsql\/(client\/lib-esm\/(node|http|ws)\.js|hrana-client\/|isomorphic-ws\/)|\/node_modules\/ws\//;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('exclude metrics and tracing when both are off', async () => {
    const idle = /\/node_modules\/(prom-client|@opentelemetry)\/|\/src\/telemetry\/(metrics|tracing)\b/;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('exclude the demo and the flag parser without flags', async () => {
    const idle = /\/node_modules\/commander\/|\/src\/(demo\/(?!page\.ts|answers\.json)|start\/flags\b)/;
    expect(modules.filter((path) => idle.test(path))).toEqual([]);
  });

  test('exclude the sandbox carrier and the demo data when a carrier is set', () => {
    expect(modules.filter((path) => /\/src\/(carrier-sandbox|modules\/demo-data)\//.test(path))).toEqual([]);
  });

  test('exclude the carrier client before the first application', async () => {
    expect(modules.filter((path) => path.includes('/node_modules/cockatiel/'))).toEqual([]);
  });
});
