import { afterAll, describe, expect, test } from 'bun:test';
import { Elysia } from 'elysia';
import { serveOptions } from '../../src/app';
import { createLog } from '../../src/log';
import { type CallOptions, createTestApp, readAnswer, testConfig, testToken } from '../support/app';
import { privateRoutes } from '../support/contract';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
afterAll(() => testApp.app.stop(true));
const address = `http://127.0.0.1:${testApp.app.server?.port}`;
const token = await testToken({ id: 'reader', roles: ['salesManager'], now: testApp.now });

/** Over a real socket: what the server itself adds is part of the answer. */
async function ask(method: string, path: string, { body, headers }: CallOptions = {}) {
  const sent = typeof body === 'string' ? { body } : {};
  return readAnswer(await fetch(`${address}${path}`, { method, headers: { ...headers }, ...sent }));
}

function expectHardened(headers: Headers) {
  expect(headers.get('x-content-type-options')).toBe('nosniff');
  expect(headers.get('referrer-policy')).toBe('no-referrer');
  expect(headers.get('content-security-policy')).toStartWith("default-src 'none'; ");
  expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
  expect(headers.get('content-security-policy')).not.toContain('unsafe');
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

describe('every answer says what browsers and caches must not do with it', () => {
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
    '$method $path, $status',
    async ({ method, path, status, options }) => {
      const answer = await ask(method, path, options);
      expect(answer.status).toBe(status);
      expectHardened(answer.headers);
    },
  );

  test.each(privateRoutes)('$method $path, with and without a token', async ({ method, path }) => {
    for (const headers of [{}, { authorization: `Bearer ${token}` }])
      expectHardened((await ask(method, path, { headers })).headers);
  });
});

describe('a cache', () => {
  test.each(privateRoutes)(
    'keeps nothing of $method $path but the lists, and those for their reader alone',
    async ({ method, path }) => {
      const { headers } = await ask(method, path, { headers: { authorization: `Bearer ${token}` } });
      const expected = path.endsWith('/healthAndCare/') ? 'private, max-age=300' : /no-store/;
      expect(headers.get('cache-control')).toMatch(expected);
      expect((await ask(method, path)).headers.get('cache-control')).toBe('no-store');
    },
  );

  test('keeps no health, no failure, and no page with a nonce', async () => {
    for (const path of ['/health/live', '/health/ready', '/nowhere', '/swagger'])
      expect((await ask('GET', path)).headers.get('cache-control')).toBe('no-store');
    for (const path of ['/icons/term-life.svg', '/swagger/scalar.js', '/problems/forbidden'])
      expect((await ask('GET', path)).headers.get('cache-control')).toStartWith('public, ');
  });
});

test('icons may be shown by pages of other hosts, and nothing else', async () => {
  const policyOf = async (path: string) => (await ask('GET', path)).headers.get('cross-origin-resource-policy');
  expect(await policyOf('/icons/term-life.svg')).toBe('cross-origin');
  for (const path of ['/v2/private/user', '/swagger/scalar.js', '/health/live'])
    expect(await policyOf(path)).toBe('same-origin');
});

describe('a service behind https', () => {
  test('tells browsers to stay there, on failures as well', async () => {
    const config = { ...testConfig, publicUrl: 'https://planning.example' };
    const secure = await createTestApp({ config });
    for (const path of ['/health/live', '/nowhere', '/swagger', '/icons/term-life.svg'])
      expect((await secure.call('GET', path)).headers.get('strict-transport-security')).toBe('max-age=31536000');
  });
});

test('the answer to what escapes the error handler has the same headers', async () => {
  const log = createLog('silent', { write() {} });
  const broken = new Elysia({
    serve: serveOptions({ config: testConfig, log, newRequestId: () => crypto.randomUUID() }),
  })
    .get('/', ({ set }) => {
      set.headers['x-broken'] = 'a\r\nb';
      return 'ok';
    })
    .listen({ port: 0, hostname: '127.0.0.1' });
  const answer = await fetch(`http://127.0.0.1:${broken.server?.port}/`);
  expect(answer.status).toBe(500);
  expectHardened(answer.headers);
  await broken.stop(true);
});
