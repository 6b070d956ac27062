import { describe, expect, test } from 'bun:test';
import { createRateLimits } from '../../src/http/rate-limits';
import { createTestApp, testConfig } from '../support/app';
import { privateRoutes } from '../support/contract';

const origin = 'https://app.example.com';
const config = { ...testConfig, corsOrigins: [origin, 'http://localhost:5173'] };
const testApp = await createTestApp({ config });
const preflight = {
  origin,
  'access-control-request-method': 'POST',
  'access-control-request-headers': 'authorization,content-type,if-match',
};

describe('CORS for a listed origin', () => {
  test.each([...privateRoutes.map(({ path }) => path), '/nowhere', '/v2/private/nowhere', '/health/live'])(
    'returns 204 for a preflight of %s',
    async (path) => {
      const response = await testApp.call('OPTIONS', path, { headers: preflight });
      expect(response.status).toBe(204);
      expect(response.text).toBe('');
      expect(response.headers.get('access-control-allow-origin')).toBe(origin);
      expect(response.headers.get('access-control-allow-methods')).toBe('GET, HEAD, POST');
      expect(response.headers.get('access-control-allow-headers')).toBe('authorization, content-type, if-match');
      expect(Number(response.headers.get('access-control-max-age'))).toBeGreaterThan(600);
      expect(response.headers.get('vary')).toContain('Origin');
    },
  );

  test('adds CORS headers to every response, also to errors', async () => {
    const limited = await createTestApp({
      config,
      rateLimits: createRateLimits({ perMinute: 3, trustedProxyCount: 0 }, () => performance.now()),
    });
    const read = (as?: string) =>
      limited.call('GET', '/v2/private/user', { headers: { origin }, ...(as === undefined ? {} : { as }) });
    const save = () => limited.call('POST', '/v2/private/user/profile', { as: 'ada', body: {}, headers: { origin } });
    const responses = [await read('ada'), await read(), await read(), await read(), await read()];
    await limited.db.$client.execute(
      "CREATE TRIGGER refused BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    responses.push(await save());
    limited.db.$client.close();
    responses.push(await read('ada'));
    expect(responses.map(({ status }) => status)).toEqual([404, 401, 401, 401, 429, 500, 503]);
    for (const { headers } of responses) {
      expect(headers.get('access-control-allow-origin')).toBe(origin);
      const exposed = headers.get('access-control-expose-headers')?.toLowerCase().split(', ');
      expect(exposed).toEqual(
        expect.arrayContaining(['etag', 'x-request-id', 'retry-after', 'ratelimit', 'ratelimit-policy']),
      );
      expect(headers.get('access-control-allow-credentials')).toBeNull();
    }
  });

  test('returns 204 for a preflight when the address has reached its rate limit', async () => {
    const limited = await createTestApp({
      config,
      rateLimits: createRateLimits({ perMinute: 1, trustedProxyCount: 0 }, () => performance.now()),
    });
    for (let count = 0; count < 3; count += 1) await limited.call('GET', '/nowhere');
    expect((await limited.call('GET', '/nowhere')).status).toBe(429);
    expect((await limited.call('OPTIONS', '/v2/private/user', { headers: preflight })).status).toBe(204);
  });
});

describe('CORS for another origin', () => {
  test.each([
    'https://evil.example',
    'null',
    'http://app.example.com',
    'https://app.example.com:444',
    'https://app.example.com.evil.example',
    'https://sub.app.example.com',
    'HTTPS://APP.EXAMPLE.COM',
    `${origin}/`,
    `${origin}, https://evil.example`,
    '',
  ])('adds no CORS headers: %p', async (other) => {
    for (const method of ['GET', 'OPTIONS']) {
      const response = await testApp.call(method, '/v2/private/healthAndCare/', {
        as: 'ada',
        headers: { ...preflight, origin: other },
      });
      expect(response.status).toBe(method === 'GET' ? 200 : 405);
      expect([...response.headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
    }
  });
});

test('Vary contains Origin on every response when CORS is on', async () => {
  for (const [method, path] of [
    ['GET', '/v2/private/user'],
    ['GET', '/health/live'],
    ['GET', '/nowhere'],
    ['GET', '/icons/term-life.svg'],
    ['OPTIONS', '/x'],
  ])
    expect((await testApp.call(method ?? '', path ?? '')).headers.get('vary')).toContain('Origin');
  const lists = await testApp.call('GET', '/v2/private/healthAndCare/', { as: 'ada' });
  expect(lists.headers.get('vary')).toBe('Authorization, Origin');
});

test('responses have no CORS headers and no Vary: Origin when no origin is configured', async () => {
  const plain = await createTestApp();
  for (const method of ['GET', 'OPTIONS']) {
    const { headers } = await plain.call(method, '/v2/private/user', { headers: preflight });
    expect([...headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
    expect(headers.get('vary') ?? '').not.toContain('Origin');
  }
});
