import { describe, expect, test } from 'bun:test';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import { serveOptions } from '../../src/app';
import { createRateLimits } from '../../src/http/rate-limits';
import { createLog } from '../../src/log';
import { createTestApp, listen, readResponse, testConfig, testToken } from '../support/app';
import { privateRoutes } from '../support/contract';
import { atEnd, until } from '../support/resources';

const testApp = await createTestApp();
const address = `http://127.0.0.1:${listen(testApp)}`;
const authorization = `Bearer ${await testToken({ id: 'reader', roles: ['salesManager'], now: testApp.now })}`;

interface Sent {
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

/** Sends over a real socket, so the response includes the headers that the server adds. */
const send = async (method: string, path: string, sent: Sent = {}) =>
  readResponse(await fetch(`${address}${path}`, { method, ...sent }));

function expectHardened(headers: Headers, path = '') {
  expect(headers.get('x-content-type-options')).toBe('nosniff');
  expect(headers.get('referrer-policy')).toBe('no-referrer');
  const policy = headers.get('content-security-policy') ?? '';
  expect(policy).toStartWith("default-src 'none'; ");
  expect(policy).toContain("frame-ancestors 'none'");
  expect(policy.replace(path === '/swagger' ? "style-src 'unsafe-inline'" : '', '')).not.toContain('unsafe');
  expect(headers.get('cross-origin-resource-policy')).toBe(
    path.startsWith('/icons/term') ? 'cross-origin' : 'same-origin',
  );
  expect(headers.get('cache-control')).not.toBeNull();
  const forbidden = [
    'server',
    'x-powered-by',
    'strict-transport-security',
    'access-control-allow-origin',
    'set-cookie',
  ];
  expect(forbidden.filter((name) => headers.has(name))).toEqual([]);
}

test('no header of one response reaches another, in any order', async () => {
  const pages = 'https://page.example';
  const rateLimits = createRateLimits({ perMinute: 1_000, trustedProxyCount: 0 }, () => 0);
  const limited = await createTestApp({ rateLimits, config: { ...testConfig, corsOrigins: [pages] } });
  const profile = '/v2/private/user/profile';
  for (const app of [testApp, limited]) await app.call('POST', profile, { as: 'ada', body: { firstName: 'Ada' } });
  const tag = (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).headers.get('etag') ?? '';
  const headers = { 'if-none-match': tag };
  const get = async ({ call }: typeof testApp, path: string, sent: Record<string, string> = {}) => {
    const response = await call('GET', `/v2/private/${path}`, { as: 'ada', headers: sent });
    const own = Object.fromEntries(response.headers);
    // They differ between any two responses.
    return { ...own, 'x-request-id': '', ratelimit: own.ratelimit?.replace(/r=\d+/, ''), status: response.status };
  };
  const requests = [
    () => get(testApp, 'user'),
    () => get(testApp, 'user', headers),
    () => get(testApp, 'healthAndCare/'),
    () => get(testApp, 'user/applications'),
    () => get(limited, 'user', { origin: pages }),
    () => get(limited, 'healthAndCare/'),
  ];
  const alone: unknown[] = [];
  for (const request of requests) {
    await request();
    alone.push(await request());
  }
  for (const first of requests) {
    for (const [index, second] of requests.entries()) {
      await first();
      expect<unknown>(await second()).toEqual(alone[index]);
    }
  }
  expect(alone).toMatchObject([
    { status: 200, 'content-type': 'application/json;charset=utf-8', etag: tag, 'cache-control': 'private, no-store' },
    { status: 304, etag: tag },
    { status: 200, 'cache-control': 'private, max-age=300' },
    { status: 200 },
    { status: 200, 'access-control-allow-origin': pages, vary: 'Authorization, Origin' },
    { status: 200, 'ratelimit-policy': expect.any(String) },
  ]);
  expect(alone[1]).not.toHaveProperty('content-type');
});

describe('security headers', () => {
  const json = { 'content-type': 'application/json', authorization };
  const profile = '/v2/private/user/profile';

  test.each<[method: string, path: string, status: number, sent?: Sent]>([
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
    ['POST', profile, 400, { body: '{', headers: json }],
    ['POST', profile, 413, { body: 'x'.repeat(300_000), headers: json }],
    ['POST', profile, 415, { body: 'x', headers: { authorization } }],
    ['POST', profile, 422, { body: '{"a":1}', headers: json }],
    ['POST', profile, 200, { body: '{}', headers: json }],
    ['POST', profile, 412, { body: '{}', headers: { ...json, 'if-match': '"x"' } }],
    ['GET', '/v2/private/cemetery/all?page=0', 422, { headers: json }],
  ])('appear on %s %s with status %i', async (method, path, status, sent = {}) => {
    const response = await send(method, path, sent);
    expect(response.status).toBe(status);
    expectHardened(response.headers, path);
  });

  test('appear on a response with status 304', async () => {
    await send('POST', profile, { body: '{}', headers: json });
    const response = await send('GET', '/v2/private/user', { headers: { authorization, 'if-none-match': '*' } });
    expect(response.status).toBe(304);
    expectHardened(response.headers);
  });

  test('appear on the last-resort error response', async () => {
    const newRequestId = () => crypto.randomUUID();
    const serve = serveOptions({ config: testConfig, log: createLog('silent', { write() {} }), newRequestId });
    const app = new Elysia({ serve }).get('/', ({ set }) => {
      set.headers['x-broken'] = 'a\r\nb';
      return 'ok';
    });
    const response = await fetch(`http://127.0.0.1:${listen({ app })}/`);
    expect(response.status).toBe(500);
    expectHardened(response.headers);
  });

  test('include Strict-Transport-Security, also on errors, when PUBLIC_URL is https', async () => {
    const secure = await createTestApp({ config: { ...testConfig, publicUrl: 'https://planning.example' } });
    for (const path of ['/health/live', '/nowhere', '/swagger', '/icons/term-life.svg'])
      expect((await secure.call('GET', path)).headers.get('strict-transport-security')).toBe('max-age=31536000');
  });
});

describe('Cache-Control', () => {
  test.each(privateRoutes)(
    'forbids storage of $name, except private storage of the reference lists, with Vary and the security headers',
    async (route) => {
      const { method, path } = route;
      const { headers, status } = await send(method, path, { headers: { authorization } });
      const success = path.endsWith('/healthAndCare/') ? 'private, max-age=300' : 'private, no-store';
      expect(headers.get('cache-control')).toBe(status < 400 ? success : 'no-store');
      const anonymous = await send(method, path);
      expect(anonymous.headers.get('cache-control')).toBe('no-store');
      for (const each of [headers, anonymous.headers]) {
        expectHardened(each);
        expect(each.get('vary')).toContain('Authorization');
      }
    },
  );

  test.each(['/health/live', '/health/ready', '/nowhere', '/swagger'])('is no-store for %s', async (path) => {
    expect((await send('GET', path)).headers.get('cache-control')).toBe('no-store');
  });

  test.each(['/icons/term-life.svg', '/swagger/scalar.js', '/problems/forbidden'])('is public for %s', async (path) => {
    expect((await send('GET', path)).headers.get('cache-control')).toStartWith('public, ');
  });
});

describe('X-Request-Id', () => {
  test.each(['GET /v2/private/user', 'GET /health/live', 'GET /nowhere', 'DELETE /health/live', 'GET /swagger'])(
    'is returned unchanged, or generated when missing, from %s',
    async (line) => {
      const [method = '', path = ''] = line.split(' ');
      const sent = await testApp.call(method, path, { headers: { 'x-request-id': 'my-Request_id-1' } });
      expect(sent.headers.get('x-request-id')).toBe('my-Request_id-1');
      expect((await testApp.call(method, path)).headers.get('x-request-id')).toMatch(/^[\w-]{8,64}$/);
    },
  );

  test.each(['short', 'a'.repeat(65), 'has space in it', 'ünïcödé-id', '../../etc/passwd', '{"a":1}-----'])(
    'is replaced when invalid: %s',
    async (text) => {
      const id = encodeURI(text);
      const { headers } = await testApp.call('GET', '/health/live', { headers: { 'x-request-id': id } });
      expect(headers.get('x-request-id')).not.toBe(id);
      expect(testApp.logLines.join('')).not.toContain(id);
    },
  );
});

test('a large record of letters of two bytes arrives whole, with its headers, in a few parts', async () => {
  const selections = Array.from({ length: 90 }, (_, id) => ({ id, title: `${id} ${'é'.repeat(180)}` }));
  const { headers } = await testApp.call('POST', '/v2/private/deepDives/lifeInsurance', {
    as: 'large-record',
    body: { selections },
  });
  const parts: Buffer[] = [];
  const socket = await Bun.connect({
    hostname: '127.0.0.1',
    port: Number(new URL(address).port),
    socket: { data: (_, part) => void parts.push(Buffer.from(part)) },
  });
  atEnd(() => void socket.end());
  const token = await testToken({ id: 'large-record', now: testApp.now });
  socket.write(`GET /v2/private/user HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  const end = '\r\n0\r\n\r\n';
  await until(() => Buffer.concat(parts).toString().endsWith(end));
  expect(parts.length).toBeLessThan(6);
  const [head = '', text = ''] = Buffer.concat(parts).toString().slice(0, -end.length).split('\r\n\r\n');
  expect(head.toLowerCase()).toContain(`\r\netag: ${headers.get('etag')}\r\n`);
  const [size = '', json = ''] = text.split('\r\n');
  expect(Number.parseInt(size, 16)).toBe(Buffer.byteLength(json));
  expect(JSON.parse(json).user.lifeInsurance.policySupport.selections).toEqual(selections);
});

describe('request log', () => {
  const Line = v.strictObject({
    level: v.literal('info'),
    time: v.pipe(v.string(), v.isoTimestamp()),
    requestId: v.string(),
    method: v.string(),
    route: v.string(),
    status: v.number(),
    durationMs: v.number(),
    msg: v.literal('request'),
  });

  test('has one line for each request with only the known fields and the final status', async () => {
    const { call, logLines } = await createTestApp();
    const save = { as: 'plain-user', body: { firstName: 'Ada' } };
    await call('POST', '/v2/private/user/profile', save);
    await call('POST', '/v2/private/user/profile/', { ...save, body: { firstName: 5 } });
    await call('POST', '/v2/private/user/profile', { body: {} });
    await call('GET', '/v2/private/cemetery/all?page=2', { as: 'plain-user' });
    await call('GET', '/v2/private/secret-person@example.com');
    const etag = (await call('GET', '/v2/private/user', { as: 'plain-user' })).headers.get('etag') ?? '';
    await call('GET', '/v2/private/user', { as: 'plain-user', headers: { 'if-none-match': etag } });
    const requests = () => logLines.filter((line) => !line.includes('"debug"'));
    await until(() => requests().length === 7);
    const lines = requests().map((line) => v.parse(Line, JSON.parse(line)));
    expect(lines.map(({ method, route, status }) => `${method} ${route} ${status}`)).toEqual([
      'POST /v2/private/user/profile 200',
      'POST /v2/private/user/profile 422',
      'POST /v2/private/user/profile 401',
      'GET /v2/private/cemetery/all 200',
      'GET none 404',
      'GET /v2/private/user 200',
      'GET /v2/private/user 304',
    ]);
  });

  test('does not fail a request when a write fails', async () => {
    const write = () => {
      throw new Error('disk full');
    };
    const { call } = await createTestApp({ log: createLog('debug', { write }) });
    for (const _ of [1, 2]) expect((await call('GET', '/health/live')).status).toBe(200);
  });
});
