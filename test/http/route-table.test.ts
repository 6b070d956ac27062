import { describe, expect, test } from 'bun:test';
import { seedDemo } from '../../src/seed';
import { createTestApp, startSandbox } from '../support/app';
import { contractRoutes, privateRoutes, walkContract } from '../support/contract';

const sandbox = await startSandbox();
const testApp = await createTestApp({ carrier: sandbox.carrier() });
await seedDemo(testApp.db, testApp.now);

const byText = (routes: readonly { method: string; path: string }[]) =>
  routes.map(({ method, path }) => `${method} ${path}`).sort();

describe('route table', () => {
  test('has the routes of the contract', () => {
    const missing = new Set(byText(contractRoutes)).difference(new Set(byText(testApp.app.routes)));
    expect([...missing]).toEqual([]);
  });

  test('documents every private route', () => {
    const mounted = testApp.app.routes.filter(({ path }) => path.startsWith('/v2/'));
    const documentedPath = (path: string) => path.replaceAll(/:(\w+)/g, '{$1}');
    expect(byText(mounted.map(({ method, path }) => ({ method, path: documentedPath(path) })))).toEqual(
      byText(privateRoutes),
    );
  });

  test('has no duplicate path, which Elysia would accept silently', () => {
    const all = testApp.app.routes.map(({ method, path }) => `${method} ${path}`);
    expect(all.length).toBe(new Set(all).size);
  });
});

walkContract(testApp.call);
