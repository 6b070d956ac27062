import { describe, expect, test } from 'bun:test';
import { createTokenVerifier } from '../../src/auth/verifier';
import type { AppDeps } from '../../src/deps';
import { createRateLimits } from '../../src/http/rate-limits';
import {
  applicant,
  callerOf,
  createTestApp,
  readResponse,
  startSandbox,
  type TestApp,
  testSecret,
  testToken,
} from '../support/app';
import { privateRoutes } from '../support/contract';
import { startService } from '../support/processes';
import { atEnd } from '../support/resources';

const user = '/v2/private/user';
const lists = '/v2/private/healthAndCare/';

/** The app with rate limits on the test clock. */
async function limitedApp(
  perMinute: number,
  overrides: Partial<AppDeps> = {},
  trustedProxyCount = 0,
): Promise<TestApp> {
  const testApp: TestApp = await createTestApp({
    rateLimits: createRateLimits({ perMinute, trustedProxyCount }, () => testApp.now.getTime()),
    ...overrides,
  });
  return testApp;
}

const statuses = async (count: number, request: () => Promise<{ status: number }>) => {
  const results: number[] = [];
  for (let sent = 0; sent < count; sent += 1) results.push((await request()).status);
  return results;
};

describe('rate limit of an authenticated user', () => {
  test('returns RateLimit headers, 429 past the quota, and 200 after Retry-After', async () => {
    const testApp = await limitedApp(2);
    const request = () => testApp.call('GET', lists, { as: 'ada' });
    const first = await request();
    expect(first.headers.get('ratelimit-policy')).toBe('"default";q=2;w=60');
    expect(first.headers.get('ratelimit')).toBe('"default";r=1;t=60');
    testApp.now = new Date(testApp.now.getTime() + 20_500);
    expect((await request()).headers.get('ratelimit')).toBe('"default";r=0;t=40');
    const refused = await request();
    expect(refused.status).toBe(429);
    expect(refused.headers.get('ratelimit')).toBe('"default";r=0;t=40');
    expect(refused.headers.get('content-type')).toBe('application/problem+json');
    expect(refused.body).toMatchObject({ type: '/problems/rate-limited', code: 250, http_code: 429 });
    const waitMs = Number(refused.headers.get('retry-after')) * 1000;
    testApp.now = new Date(testApp.now.getTime() + waitMs - 1000);
    expect((await request()).status).toBe(429);
    testApp.now = new Date(testApp.now.getTime() + 1000);
    expect((await request()).status).toBe(200);
  });

  test('counts requests by subject across tokens, paths and addresses', async () => {
    const routes = privateRoutes.filter(({ path }) => !path.endsWith('/totalCoverage'));
    const testApp = await limitedApp(routes.length - 1, {}, 1);
    const received: number[] = [];
    for (const [index, { method, path }] of routes.entries()) {
      const body = method === 'POST' ? {} : undefined;
      const headers = { 'x-forwarded-for': `10.0.0.${index}` };
      const options = { as: 'ada', roles: [`role-${index}`], headers, ...(body === undefined ? {} : { body }) };
      received.push((await testApp.call(method, path, options)).status);
    }
    expect(received.pop()).toBe(429);
    expect(received).not.toContain(429);
    expect((await testApp.call('GET', lists, { as: 'bob' })).status).toBe(200);
  });

  test('counts a request with a body once, also when it is rejected', async () => {
    const testApp = await limitedApp(4);
    const save = (body: unknown) => testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body });
    expect((await save({})).headers.get('ratelimit')).toContain('r=3');
    expect((await save({ nope: 1 })).headers.get('ratelimit')).toContain('r=2');
    expect((await save('{')).headers.get('ratelimit')).toContain('r=1');
    expect((await save(JSON.stringify('x'.repeat(300_000)))).headers.get('ratelimit')).toContain('r=0');
    const refused = await save({ firstName: 'Ada' });
    expect(refused.status).toBe(429);
    const fresh = await testApp.call('GET', user, { as: 'bob' });
    expect(fresh.status).toBe(404);
    const { rows } = await testApp.db.$client.execute('SELECT profile FROM users');
    expect(rows.map(({ profile }) => profile)).toEqual([null]);
  });

  test('has a second, stricter quota for starting applications in the same headers', async () => {
    const sandbox = await startSandbox();
    const testApp = await limitedApp(40, { carrier: sandbox.carrier() });
    const start = (flow: 'ltc' | 'life') =>
      testApp.call('POST', `/v2/private/${flow}/totalCoverage`, { as: 'ada', body: applicant });
    const first = await start('ltc');
    expect(first.status).toBe(200);
    expect(first.headers.get('ratelimit-policy')).toBe('"default";q=40;w=60, "coverage";q=2;w=60');
    expect(first.headers.get('ratelimit')).toBe('"default";r=39;t=60, "coverage";r=1;t=60');
    expect((await start('life')).status).toBe(200);
    const refused = await start('ltc');
    expect(refused.status).toBe(429);
    expect(refused.headers.get('ratelimit')).toBe('"default";r=37;t=60, "coverage";r=0;t=60');
    expect((await testApp.call('GET', '/v2/private/user/applications', { as: 'ada' })).status).toBe(200);
    const other = await testApp.call('POST', '/v2/private/ltc/totalCoverage', { as: 'coverage ada', body: applicant });
    expect(other.status).toBe(200);
  });

  test('sends no RateLimit headers when limits are off', async () => {
    const testApp = await createTestApp({
      rateLimits: createRateLimits({ perMinute: 0, trustedProxyCount: 0 }, () => performance.now()),
    });
    const response = await testApp.call('GET', lists, { as: 'ada' });
    expect([...response.headers.keys()].filter((name) => name.startsWith('ratelimit'))).toEqual([]);
  });
});

describe('rate limit of unauthenticated requests', () => {
  const bad = { headers: { authorization: 'Bearer x.y.z' } };

  test('returns 429 by address before a signature is verified', async () => {
    const checks: string[] = [];
    const verify = await createTokenVerifier(
      { key: { kind: 'secret', secret: testSecret }, issuer: undefined, audience: undefined, rolesClaim: 'roles' },
      () => new Date('2026-03-10T12:00:00.000Z'),
      () => 0,
    );
    const testApp = await limitedApp(4, {
      verifyToken: (token, onUnseen) =>
        verify(token, () => {
          onUnseen?.();
          checks.push(token);
        }),
    });
    expect(await statuses(2, () => testApp.call('GET', user))).toEqual([401, 401]);
    expect(await statuses(4, () => testApp.call('POST', '/v2/private/user/profile', { ...bad, body: {} }))).toEqual([
      401, 401, 429, 429,
    ]);
    expect(checks).toHaveLength(2);
    const refused = await testApp.call('GET', user);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('60');
    expect(refused.headers.get('ratelimit')).toBe('"default";r=0;t=60');
  });

  test('does not affect a known user at the same address, also when the token is verified again', async () => {
    const testApp = await limitedApp(3);
    const request = (as: string) => testApp.call('GET', lists, { as });
    const token = await testToken({ id: 'ada', now: testApp.now });
    const asAda = () => testApp.call('GET', lists, { headers: { authorization: `Bearer ${token}` } });
    expect((await asAda()).status).toBe(200);
    expect(await statuses(5, () => testApp.call('GET', user, bad))).toEqual([401, 401, 401, 429, 429]);
    expect((await asAda()).status).toBe(200);
    testApp.now = new Date(testApp.now.getTime() + 61_000);
    expect(await statuses(5, () => testApp.call('GET', user, bad))).toEqual([401, 401, 401, 429, 429]);
    expect((await asAda()).status).toBe(200);
    expect((await request('newcomer')).status).toBe(429);
    testApp.now = new Date(testApp.now.getTime() + 60_000);
    expect((await request('newcomer')).status).toBe(200);
  });

  test('does not count page views and valid tokens', async () => {
    const testApp = await limitedApp(2);
    expect(await statuses(4, () => testApp.call('GET', '/problems/forbidden'))).toEqual([200, 200, 429, 429]);
    for (const as of ['a', 'b', 'c', 'd']) expect((await testApp.call('GET', lists, { as })).status).toBe(200);
    expect((await testApp.call('GET', user, bad)).status).toBe(401);
  });
});

describe('rate limit of anonymous requests', () => {
  test.each([
    '/swagger',
    '/swagger/json',
    '/swagger/scalar.js',
    '/problems/forbidden',
    '/nowhere',
    '/v2/private/nowhere',
  ])('returns 429 by address at %s', async (path) => {
    const testApp = await limitedApp(1);
    expect((await testApp.call('GET', path)).status).not.toBe(429);
    const refused = await testApp.call('GET', path);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('60');
  });

  test.each(['/health/live', '/health/ready', '/icons/term-life.svg'])('does not apply to %s', async (path) => {
    const testApp = await limitedApp(1);
    expect(await statuses(5, () => testApp.call('GET', path))).toEqual([200, 200, 200, 200, 200]);
  });
});

describe('client address of the rate limit', () => {
  /** Listens on a real socket with the given number of trusted proxies. */
  async function listening(trustedProxyCount: number) {
    const { app } = await limitedApp(2, {}, trustedProxyCount);
    app.listen({ port: 0, hostname: '127.0.0.1' });
    atEnd(() => app.stop(true));
    return async (forwarded: string) =>
      (await fetch(`http://127.0.0.1:${app.server?.port}${user}`, { headers: { 'x-forwarded-for': forwarded } }))
        .status;
  }

  test('ignores X-Forwarded-For without a trusted proxy', async () => {
    const request = await listening(0);
    expect([await request('1.1.1.1'), await request('2.2.2.2'), await request('3.3.3.3')]).toEqual([401, 401, 429]);
  });

  test('uses the entry of the trusted proxy, not an entry before it', async () => {
    const request = await listening(1);
    expect([
      await request('1.1.1.1, 9.9.9.9'),
      await request('2.2.2.2, 9.9.9.9'),
      await request('3.3.3.3, 9.9.9.9'),
    ]).toEqual([401, 401, 429]);
    expect(await request('9.9.9.9, 8.8.8.8')).toBe(401);
  });

  test('uses the /64 network for IPv6', async () => {
    const request = await listening(1);
    expect([
      await request('2001:db8::1'),
      await request('2001:db8::ffff:2'),
      await request('2001:db8:0:0:9::3'),
    ]).toEqual([401, 401, 429]);
    expect(await request('2001:db8:0:1::1')).toBe(401);
  });
});

test('RATE_LIMIT_PER_MINUTE sets the limit of the service', async () => {
  const service = await startService({ environment: { RATE_LIMIT_PER_MINUTE: '2', AUTH_SECRET: testSecret } });
  const call = callerOf(service.address);
  expect(await statuses(3, () => call('GET', lists, { as: 'ada' }))).toEqual([200, 200, 429]);
  expect((await readResponse(await fetch(`${service.address}/health/ready`))).status).toBe(200);
});
