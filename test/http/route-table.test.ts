import { describe, expect, test } from 'bun:test';
import { createTestApp } from '../support/app';
import { privateRoutes } from '../support/contract';

const testApp = await createTestApp();
const mounted = testApp.app.routes
  .filter(({ path }) => path.startsWith('/v2/'))
  .map(({ method, path }) => ({ method, path }));

describe('the table of routes', () => {
  test('is the contract’s list and nothing else', () => {
    const byText = (routes: readonly { method: string; path: string }[]) =>
      routes.map(({ method, path }) => `${method} ${path}`).sort();
    expect(byText(mounted)).toEqual(byText(privateRoutes));
  });

  test('has no path twice, which Elysia would accept silently', () => {
    const all = testApp.app.routes.map(({ method, path }) => `${method} ${path}`);
    expect(all.length).toBe(new Set(all).size);
  });

  test.each(mounted)('refuses a stranger at $method $path before it looks at the body', async ({ method, path }) => {
    const bodies = method === 'POST' ? [undefined, '{}', '{', '[]', '{"unknown":1}', '\u0000'] : [undefined];
    for (const body of bodies) {
      const answer = await testApp.call(method, path, { body });
      expect(answer.status).toBe(401);
      expect(answer.body).toMatchObject({ type: '/problems/unauthenticated', code: 210, http_code: 401 });
      expect(answer.headers.get('www-authenticate')).toStartWith('Bearer');
    }
  });

  test.each(mounted)('answers 405 with Allow to other methods at $path', async ({ method, path }) => {
    for (const wrong of ['PUT', 'PATCH', 'DELETE', method === 'GET' ? 'POST' : 'GET']) {
      const answer = await testApp.call(wrong, path, { as: 'walker' });
      expect(answer.status).toBe(405);
      expect(answer.body).toMatchObject({ type: '/problems/method-not-allowed' });
      expect(answer.headers.get('allow')).toBe(method === 'GET' ? 'GET, HEAD' : 'POST');
    }
  });

  test.each(mounted)('takes $path with and without its last slash', async ({ method, path }) => {
    const bare = path.replace(/\/$/, '');
    const options = { as: 'slashes', ...(method === 'POST' ? { body: {} } : {}) };
    if (method === 'GET') await testApp.call('POST', '/v2/private/user/profile', { as: 'slashes', body: {} });
    const [first, second] = [
      await testApp.call(method, bare, options),
      await testApp.call(method, `${bare}/`, options),
    ];
    expect([200, 403, 422]).toContain(first.status);
    expect(second.status).toBe(first.status);
    expect((await testApp.call(method, bare.toUpperCase(), options)).status).toBe(404);
  });
});
