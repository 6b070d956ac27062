import { afterAll, describe, expect, test } from 'bun:test';
import { Elysia } from 'elysia';
import { serveOptions } from '../../src/app';
import { createLog } from '../../src/log';
import { type CallOptions, createTestApp, readResponse, testConfig, testToken } from '../support/app';
import { privateRoutes } from '../support/contract';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
afterAll(() => testApp.app.stop(true));
const address = `http://127.0.0.1:${testApp.app.server?.port}`;
const token = await testToken({ id: 'reader', roles: ['salesManager'], now: testApp.now });

/** Sends over a real socket, so the response includes the headers that the server adds. */
async function send(method: string, path: string, { body, headers }: CallOptions = {}) {
  const sent = typeof body === 'string' ? { body } : {};
  return readResponse(await fetch(`${address}${path}`, { method, headers: { ...headers }, ...sent }));
}

function expectHardened(headers: Headers, path = '') {
  expect(headers.get('x-content-type-options')).toBe('nosniff');
  expect(headers.get('referrer-policy')).toBe('no-referrer');
  expect(headers.get('content-security-policy')).toStartWith("default-src 'none'; ");
  expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
  const inlineStyles = path === '/swagger' ? "style-src 'unsafe-inline'" : '';
  expect(headers.get('content-security-policy')?.replace(inlineStyles, '')).not.toContain('unsafe');
  expect(headers.get('cross-origin-resource-policy')).toMatch(/^(same|cross)-origin$/);
  expect(headers.get('cache-control')).not.toBeNull();
  for (const name of [
    'server',
    'x-powered-by',
    'strict-transport-security',
    'access-control-allow-origin',
    'set-cookie',
  ])
    expect(headers.has(name)).toBeFalse();
}

describe('security headers', () => {
  const json = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
  const cases: [method: string, path: string, status: number, options?: CallOptions][] = [
    ['GET', '/health/live', 200],
    ['HEAD', '/health/live', 200],
    ['GET', '/health/ready', 200],
    ['GET', '/nowhere', 404],
    ['OPTIONS', '/v2/private/user', 405],
    ['DELETE', '/v2/private/user', 405],
    ['GET', '/swagger', 200],
    ['GET', '/swagger/json', 200],
    ['GET', '/swagger/scalar.js', 200],
    ['GET', '/favicon.ico', 204],
    ['GET', '/problems/forbidden', 200],
    ['GET', '/problems/none', 404],
    ['GET', '/icons/term-life.svg', 200],
    ['GET', '/icons/none.svg', 404],
    ['POST', '/v2/private/user/profile', 400, { body: '{', headers: json }],
    ['POST', '/v2/private/user/profile', 413, { body: 'x'.repeat(300_000), headers: json }],
    ['POST', '/v2/private/user/profile', 415, { body: 'x', headers: { authorization: `Bearer ${token}` } }],
    ['POST', '/v2/private/user/profile', 422, { body: '{"a":1}', headers: json }],
    ['POST', '/v2/private/user/profile', 200, { body: '{}', headers: json }],
    ['GET', '/v2/private/user', 304, { headers: { ...json, 'if-none-match': '*' } }],
    ['POST', '/v2/private/user/profile', 412, { body: '{}', headers: { ...json, 'if-match': '"x"' } }],
    ['GET', '/v2/private/cemetery/all?page=0', 422, { headers: json }],
  ];
  test.each(cases.map(([method, path, status, options = {}]) => ({ method, path, status, options })))(
    'appear on $method $path with status $status',
    async ({ method, path, status, options }) => {
      const response = await send(method, path, options);
      expect(response.status).toBe(status);
      expectHardened(response.headers, path);
    },
  );

  test.each(privateRoutes)('appear on $method $path with and without a token', async ({ method, path }) => {
    for (const headers of [{}, { authorization: `Bearer ${token}` }])
      expectHardened((await send(method, path, { headers })).headers);
  });
});

describe('Cache-Control', () => {
  test.each(privateRoutes)(
    'forbids storage of $method $path, except private storage of the reference lists',
    async ({ method, path }) => {
      const { headers } = await send(method, path, { headers: { authorization: `Bearer ${token}` } });
      const expected = path.endsWith('/healthAndCare/') ? 'private, max-age=300' : /no-store/;
      expect(headers.get('cache-control')).toMatch(expected);
      expect((await send(method, path)).headers.get('cache-control')).toBe('no-store');
    },
  );

  test('has no-store for health, errors and pages with a nonce, and public for static files', async () => {
    for (const path of ['/health/live', '/health/ready', '/nowhere', '/swagger'])
      expect((await send('GET', path)).headers.get('cache-control')).toBe('no-store');
    for (const path of ['/icons/term-life.svg', '/swagger/scalar.js', '/problems/forbidden'])
      expect((await send('GET', path)).headers.get('cache-control')).toStartWith('public, ');
  });
});

test('Cross-Origin-Resource-Policy is cross-origin for icons only', async () => {
  const policyOf = async (path: string) => (await send('GET', path)).headers.get('cross-origin-resource-policy');
  expect(await policyOf('/icons/term-life.svg')).toBe('cross-origin');
  for (const path of ['/v2/private/user', '/swagger/scalar.js', '/health/live'])
    expect(await policyOf(path)).toBe('same-origin');
});

describe('Strict-Transport-Security', () => {
  test('appears on every response, also on errors, when PUBLIC_URL is https', async () => {
    const config = { ...testConfig, publicUrl: 'https://planning.example' };
    const secure = await createTestApp({ config });
    for (const path of ['/health/live', '/nowhere', '/swagger', '/icons/term-life.svg'])
      expect((await secure.call('GET', path)).headers.get('strict-transport-security')).toBe('max-age=31536000');
  });
});

test('last-resort error response has the security headers', async () => {
  const log = createLog('silent', { write() {} });
  const broken = new Elysia({
    serve: serveOptions({ config: testConfig, log, newRequestId: () => crypto.randomUUID() }),
  })
    .get('/', ({ set }) => {
      set.headers['x-broken'] = 'a\r\nb';
      return 'ok';
    })
    .listen({ port: 0, hostname: '127.0.0.1' });
  const response = await fetch(`http://127.0.0.1:${broken.server?.port}/`);
  expect(response.status).toBe(500);
  expectHardened(response.headers);
  await broken.stop(true);
});
