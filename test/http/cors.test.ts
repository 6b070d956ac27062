import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { readConfig } from '../../src/config/settings';
import { createRateLimits } from '../../src/http/rate-limits';
import { createTestApp, type TestApp, type TestResponse, testConfig } from '../support/app';
import { privateRoutes } from '../support/contract';

const origin = 'https://app.example.com';
const config = { ...testConfig, corsOrigins: [origin, 'http://localhost:5173'] };
const listed = await createTestApp({ config });
const limitedTo = (perMinute: number) =>
  createTestApp({ config, rateLimits: createRateLimits({ perMinute, trustedProxyCount: 0 }, () => 0) });
const user = '/v2/private/user';

function preflight({ call }: TestApp, from: string, requested?: string, path = '/v2/private/user/profile') {
  const headers = { origin: from, 'access-control-request-method': 'POST' };
  const more = requested === undefined ? {} : { 'access-control-request-headers': requested };
  return call('OPTIONS', path, { headers: { ...headers, ...more } });
}
const corsHeadersOf = ({ headers }: TestResponse) =>
  [...headers.keys()].filter((name) => name.startsWith('access-control-'));

/** The origin in the log line of the last request, if it was refused. */
async function refusedOrigin({ logLines }: TestApp): Promise<string | undefined> {
  await new Promise((resolve) => setImmediate(resolve));
  const line = logLines.findLast((each) => each.includes('"msg":"request"')) ?? '';
  return v.parse(v.object({ refusedOrigin: v.optional(v.string()) }), JSON.parse(line)).refusedOrigin;
}

describe('preflight request of a listed origin', () => {
  test.each([...privateRoutes.map(({ path }) => path), '/nowhere', '/v2/private/nowhere', '/health/live'])(
    'returns 204 for %s',
    async (path) => {
      const { status, text, headers } = await preflight(listed, origin, 'authorization,content-type,if-match', path);
      expect([status, text]).toEqual([204, '']);
      expect(headers.get('access-control-allow-origin')).toBe(origin);
      expect(headers.get('access-control-allow-methods')).toBe('GET, HEAD, POST');
      expect(headers.get('access-control-allow-headers')).toBe('authorization, content-type, if-match');
      expect(Number(headers.get('access-control-max-age'))).toBeGreaterThan(600);
      expect(headers.get('vary')).toContain('Origin');
    },
  );

  test.each([
    ['authorization,content-type,sentry-trace,baggage', 'authorization, content-type, sentry-trace, baggage'],
    ['x-datadog-origin, x-datadog-parent-id', 'x-datadog-origin, x-datadog-parent-id'],
    ["x-!#$%&'*+.^_`|~", "x-!#$%&'*+.^_`|~"],
    ['authorization,,x y,é,"a",x-ok,(x)', 'authorization, x-ok'],
    [undefined, null],
  ])('allows exactly the requested header names: %s', async (requested, allowed) => {
    const { status, headers } = await preflight(listed, origin, requested);
    expect([status, headers.get('access-control-allow-headers')]).toEqual([204, allowed]);
  });

  test('allows a bounded number of headers', async () => {
    const names = Array.from({ length: 1_000 }, (_, index) => `x-${index}`).join();
    const { headers } = await preflight(listed, origin, names);
    expect(headers.get('access-control-allow-headers')?.split(', ')).toHaveLength(64);
  });

  test('returns 204 when the address has reached its rate limit', async () => {
    const limited = await limitedTo(1);
    await limited.call('GET', '/nowhere');
    expect((await limited.call('GET', '/nowhere')).status).toBe(429);
    expect((await preflight(limited, origin)).status).toBe(204);
  });
});

test('every response to a listed origin has CORS headers, also errors', async () => {
  const { call, db } = await limitedTo(3);
  const read = (as?: string) => call('GET', user, { headers: { origin }, ...(as === undefined ? {} : { as }) });
  const responses = [await read('ada'), await read(), await read(), await read(), await read()];
  await db.$client.execute("CREATE TRIGGER refused BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'refused'); END");
  responses.push(await call('POST', '/v2/private/user/profile', { as: 'ada', body: {}, headers: { origin } }));
  db.$client.close();
  responses.push(await read('ada'));
  expect(responses.map(({ status }) => status)).toEqual([404, 401, 401, 401, 429, 500, 503]);
  for (const { headers } of responses) {
    expect(headers.get('access-control-allow-origin')).toBe(origin);
    const exposed = headers.get('access-control-expose-headers')?.toLowerCase().split(', ');
    const needed = ['etag', 'x-request-id', 'retry-after', 'ratelimit', 'ratelimit-policy'];
    expect(exposed).toEqual(expect.arrayContaining(needed));
    expect(headers.get('access-control-allow-credentials')).toBeNull();
  }
});

describe('request of an origin that is not listed', () => {
  /** The origin in the log line of a request whose response has no CORS headers. */
  async function refusedWith(other: string) {
    const response = await listed.call('GET', '/v2/private/healthAndCare/', { as: 'ada', headers: { origin: other } });
    expect([response.status, corsHeadersOf(response)]).toEqual([200, []]);
    return refusedOrigin(listed);
  }
  const long = `https://${'a'.repeat(200)}.example`;
  test.each([
    ...['https://evil.example', 'https://other.example:8443', 'http://app.example.com', 'https://app.example.com:444'],
    ...['https://app.example.com.evil.example', 'https://sub.app.example.com', 'capacitor://localhost', 'null'],
  ])('gets no CORS headers and has the origin in its log line: %s', async (other) => {
    expect(await refusedWith(other)).toBe(other);
  });

  test.each([
    ...['HTTPS://APP.EXAMPLE.COM', `${origin}/`, `${origin}, https://evil.example`, long, 'Ada Byron', ''],
    'https://a.example","forged":"1',
  ])('has no text in its log line that is not an origin: %j', async (other) => {
    expect(await refusedWith(other)).toBe('unlisted');
  });

  test.each(['/v2/private/user/profile', '/nowhere', '/health/ready'])(
    'gets a preflight response that names CORS_ORIGINS: %s',
    async (path) => {
      const response = await preflight(listed, 'https://other.example:8443', 'authorization', path);
      expect([404, 405]).toContain(response.status);
      expect(response.body).toMatchObject({ detail: expect.stringContaining('CORS_ORIGINS') });
      expect(corsHeadersOf(response)).toEqual([]);
      expect(response.text).not.toContain('other.example');
      expect(await refusedOrigin(listed)).toBe('https://other.example:8443');
    },
  );
});

test.each([{}, { origin }, { origin: 'https://localhost', host: 'localhost' }])(
  'a request has no refused origin in its log line with the headers %j',
  async (headers) => {
    await listed.call('GET', user, { as: 'ada', headers });
    expect(await refusedOrigin(listed)).toBeUndefined();
  },
);

describe('CORS in development without CORS_ORIGINS', async () => {
  const development = await createTestApp({ config: { ...testConfig, corsOrigins: readConfig({}).corsOrigins } });
  const allowedOrigin = async (from: string) =>
    (await development.call('GET', user, { as: 'ada', headers: { origin: from } })).headers.get(
      'access-control-allow-origin',
    );

  test.each([
    ...['http://localhost', 'http://localhost:5173', 'https://localhost:5173'],
    ...['http://127.0.0.1:3001', 'http://[::1]:65535'],
  ])('allows the page of %s', async (from) => {
    expect((await preflight(development, from, 'authorization')).status).toBe(204);
    expect(await allowedOrigin(from)).toBe(from);
    expect(await refusedOrigin(development)).toBeUndefined();
  });

  test.each([
    ...['http://localhost.example:5173', 'http://localhost:5173.example', 'http://127.0.0.1.example'],
    ...['http://evil.example:*', 'http://localhost:*', 'ws://localhost:5173', 'null'],
  ])('refuses the page of %s', async (from) => {
    expect((await preflight(development, from)).status).toBe(405);
    expect(await allowedOrigin(from)).toBeNull();
  });
});

describe('Vary', () => {
  test.each([
    ['GET', user, 'Authorization, Origin'],
    ['GET', '/health/live', 'Origin'],
    ['GET', '/nowhere', 'Origin'],
    ['GET', '/icons/term-life.svg', 'Origin'],
    ['OPTIONS', '/x', 'Origin'],
  ])('contains Origin when CORS is on: %s %s', async (method, path, vary) => {
    expect((await listed.call(method, path)).headers.get('vary')).toBe(vary);
  });

  test('does not contain Origin, and no response has CORS headers, when no origin is configured', async () => {
    const plain = await createTestApp();
    const read = () => plain.call('GET', user, { headers: { origin } });
    for (const response of [await preflight(plain, origin, undefined, user), await read()]) {
      expect(corsHeadersOf(response)).toEqual([]);
      expect(response.headers.get('vary') ?? '').not.toContain('Origin');
    }
  });
});
