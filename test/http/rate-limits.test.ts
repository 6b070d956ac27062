import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { createTokenVerifier } from '../../src/auth/verifier';
import type { AppDeps } from '../../src/deps';
import {
  clientNetwork,
  createRateLimits,
  createRateWindows,
  isForThisMachine,
  networkOf,
} from '../../src/http/rate-limits';
import { applicant, createTestApp, listen, startSandbox, type TestApp, testSecret, testToken } from '../support/app';
import { privateRoutes } from '../support/contract';

const user = '/v2/private/user';
const profile = '/v2/private/user/profile';
const lists = '/v2/private/healthAndCare/';
const unknown = '/v2/private/nowhere';

/** The app with rate limits on the test clock. */
async function limitedApp(perMinute: number, overrides: Partial<AppDeps> = {}, trustedProxyCount = 0) {
  const rateLimits = createRateLimits({ perMinute, trustedProxyCount }, () => testApp.now.getTime());
  const testApp: TestApp = await createTestApp({ rateLimits, ...overrides });
  return testApp;
}

function pass(testApp: TestApp, ms: number): void {
  testApp.now = new Date(testApp.now.getTime() + ms);
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
    pass(testApp, 20_500);
    expect((await request()).headers.get('ratelimit')).toBe('"default";r=0;t=40');
    const refused = await request();
    expect(refused).toMatchObject({ status: 429, body: { type: '/problems/rate-limited', code: 250 } });
    expect(refused.headers.get('ratelimit')).toBe('"default";r=0;t=40');
    const waitMs = Number(refused.headers.get('retry-after')) * 1000;
    pass(testApp, waitMs - 1000);
    expect((await request()).status).toBe(429);
    pass(testApp, 1000);
    expect((await request()).status).toBe(200);
  });

  test('counts requests by subject across tokens, paths and addresses', async () => {
    const routes = privateRoutes.filter(({ path }) => !path.endsWith('/totalCoverage'));
    const testApp = await limitedApp(routes.length - 1, {}, 1);
    const received: number[] = [];
    for (const [index, { method, path }] of routes.entries()) {
      const headers = { 'x-forwarded-for': `10.0.0.${index}` };
      const body = method === 'POST' ? { body: {} } : {};
      const response = await testApp.call(method, path, { as: 'ada', roles: [`role-${index}`], headers, ...body });
      received.push(response.status);
    }
    expect(received.pop()).toBe(429);
    expect(received).not.toContain(429);
    expect((await testApp.call('GET', lists, { as: 'bob' })).status).toBe(200);
  });

  test('counts a request with a body once, also when it is rejected', async () => {
    const { call, db } = await limitedApp(4);
    const save = (body: unknown) => call('POST', profile, { as: 'ada', body });
    const remaining: (string | null)[] = [];
    for (const body of [{}, { nope: 1 }, '{', JSON.stringify('x'.repeat(300_000))])
      remaining.push((await save(body)).headers.get('ratelimit'));
    expect(remaining).toEqual([3, 2, 1, 0].map((left) => `"default";r=${left};t=60`));
    expect((await save({ firstName: 'Ada' })).status).toBe(429);
    const { rows } = await db.$client.execute('SELECT profile FROM users');
    expect(rows.map((row) => row.profile)).toEqual([null]);
  });

  test('has a second, stricter quota for starting applications in the same headers', async () => {
    const sandbox = await startSandbox();
    const { call } = await limitedApp(40, { carrier: sandbox.carrier() });
    const begin = (flow: 'ltc' | 'life', as = 'ada') =>
      call('POST', `/v2/private/${flow}/totalCoverage`, { as, body: applicant });
    const first = await begin('ltc');
    expect(first.status).toBe(200);
    expect(first.headers.get('ratelimit-policy')).toBe('"default";q=40;w=60, "coverage";q=2;w=60');
    expect(first.headers.get('ratelimit')).toBe('"default";r=39;t=60, "coverage";r=1;t=60');
    expect((await begin('life')).status).toBe(200);
    const refused = await begin('ltc');
    expect(refused.status).toBe(429);
    expect(refused.headers.get('ratelimit')).toBe('"default";r=37;t=60, "coverage";r=0;t=60');
    expect((await call('GET', '/v2/private/user/applications', { as: 'ada' })).status).toBe(200);
    expect((await begin('ltc', 'coverage ada')).status).toBe(200);
  });

  test.each([
    [1, 1],
    [20, 1],
    [21, 2],
    [600, 30],
  ])('of %i requests allows %i applications, rounded up', (perMinute, quota) => {
    const set = { headers: {} };
    const limits = createRateLimits({ perMinute, trustedProxyCount: 0 }, () => 0);
    limits?.takeCoverage('ada', { request: new Request('http://localhost/'), server: null, set });
    expect(set.headers).toMatchObject({ 'ratelimit-policy': `"coverage";q=${quota};w=60` });
  });

  test('sends no RateLimit headers when limits are off', async () => {
    const { headers } = await (await limitedApp(0)).call('GET', lists, { as: 'ada' });
    expect([...headers.keys()].filter((name) => name.startsWith('ratelimit'))).toEqual([]);
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
    const { call } = await limitedApp(4, {
      verifyToken: (token, onUnseen) =>
        verify(token, () => {
          onUnseen?.();
          checks.push(token);
        }),
    });
    expect(await statuses(2, () => call('GET', user))).toEqual([401, 401]);
    expect(await statuses(4, () => call('POST', profile, { ...bad, body: {} }))).toEqual([401, 401, 429, 429]);
    expect(checks).toHaveLength(2);
    const refused = await call('GET', user);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('60');
    expect(refused.headers.get('ratelimit')).toBe('"default";r=0;t=60');
  });

  test('does not affect a known user at the same address, also when the token is verified again', async () => {
    const testApp = await limitedApp(3);
    const { call } = testApp;
    const headers = { authorization: `Bearer ${await testToken({ id: 'ada', now: testApp.now })}` };
    const ada = () => call('GET', lists, { headers });
    const newcomer = () => call('GET', lists, { as: 'newcomer' });
    expect((await ada()).status).toBe(200);
    expect(await statuses(5, () => call('GET', user, bad))).toEqual([401, 401, 401, 429, 429]);
    expect((await ada()).status).toBe(200);
    pass(testApp, 61_000);
    expect(await statuses(5, () => call('GET', user, bad))).toEqual([401, 401, 401, 429, 429]);
    expect((await ada()).status).toBe(200);
    expect((await newcomer()).status).toBe(429);
    pass(testApp, 60_000);
    expect((await newcomer()).status).toBe(200);
  });

  test('does not count page views and valid tokens', async () => {
    const { call } = await limitedApp(2);
    expect(await statuses(4, () => call('GET', '/problems/forbidden'))).toEqual([200, 200, 429, 429]);
    for (const as of ['a', 'b', 'c', 'd']) expect((await call('GET', lists, { as })).status).toBe(200);
    expect((await call('GET', user, bad)).status).toBe(401);
  });
});

describe('rate limit of anonymous requests', () => {
  test('returns 429 by address at pages and unknown paths', async () => {
    const testApp = await limitedApp(1);
    for (const path of [
      '/swagger',
      '/swagger/json',
      '/swagger/scalar.js',
      '/problems/forbidden',
      '/nowhere',
      unknown,
    ]) {
      expect((await testApp.call('GET', path)).status).not.toBe(429);
      const refused = await testApp.call('GET', path);
      expect([path, refused.status, refused.headers.get('retry-after')]).toEqual([path, 429, '60']);
      pass(testApp, 60_000);
    }
  });

  test('does not apply to health checks and icons', async () => {
    const { call } = await limitedApp(1);
    for (const path of ['/health/live', '/health/ready', '/icons/term-life.svg'])
      expect([path, ...(await statuses(3, () => call('GET', path)))]).toEqual([path, 200, 200, 200]);
  });
});

test('the rate limit counts the client behind the trusted proxies of a connection', async () => {
  for (const [proxies, forwarded, expected] of [
    [0, ['1.1.1.1', '2.2.2.2', '3.3.3.3'], [401, 401, 429]],
    [1, ['1.1.1.1, 9.9.9.9', '2.2.2.2, 9.9.9.9', '3.3.3.3, 9.9.9.9', '9.9.9.9, 8.8.8.8'], [401, 401, 429, 401]],
    [1, ['2001:db8::1', '2001:db8::ffff:2', '2001:db8:0:0:9::3', '2001:db8:0:1::1'], [401, 401, 429, 401]],
  ] as const) {
    const address = `http://127.0.0.1:${listen(await limitedApp(2, {}, proxies))}${user}`;
    const received: number[] = [];
    for (const text of forwarded)
      received.push((await fetch(address, { headers: { 'x-forwarded-for': text } })).status);
    expect([forwarded, received]).toEqual([forwarded, [...expected]]);
  }
});

describe('rate windows', () => {
  function windowsAt(nowMs: number, maxKeys = 1000) {
    const time = { nowMs };
    return { time, windows: createRateWindows({ windowMs: 60_000, maxKeys, nowMs: () => time.nowMs }) };
  }

  test('grant their quota to each key, report the reset time and reset exactly then', () => {
    const { time, windows } = windowsAt(1000);
    expect(windows.take('ada', 2)).toEqual({ isOver: false, remaining: 1, resetsInSeconds: 60 });
    time.nowMs += 17_001;
    expect(windows.take('ada', 2)).toEqual({ isOver: false, remaining: 0, resetsInSeconds: 43 });
    expect(windows.take('ada', 2)).toEqual({ isOver: true, remaining: 0, resetsInSeconds: 43 });
    expect(windows.take('bob', 2)).toEqual({ isOver: false, remaining: 1, resetsInSeconds: 60 });
    time.nowMs += 42_998;
    expect(windows.take('ada', 2).isOver).toBeTrue();
    time.nowMs += 1;
    expect(windows.take('ada', 2)).toEqual({ isOver: false, remaining: 1, resetsInSeconds: 60 });
  });

  test('are not consumed by a peek', () => {
    const { windows } = windowsAt(0);
    for (let count = 0; count < 3; count += 1) expect(windows.peek('ada', 1).isOver).toBeFalse();
    windows.take('ada', 1);
    expect(windows.peek('ada', 1)).toEqual({ isOver: true, remaining: 0, resetsInSeconds: 60 });
  });

  test('use bounded memory: many keys replace only those that send no more requests', () => {
    const { windows } = windowsAt(0);
    for (const key of ['silent', 'flooder']) windows.take(key, 1);
    for (let index = 0; index < 10_000; index += 1) {
      windows.take(`other ${index}`, 1);
      if (index % 999 === 0) expect(windows.take('flooder', 1).isOver).toBeTrue();
    }
    expect(windows.take('silent', 1).isOver).toBeFalse();
  });
});

test('the rate limit of an authenticated user remembers the 100,000 latest users', () => {
  const limits = createRateLimits({ perMinute: 1, trustedProxyCount: 0 }, () => 0);
  const take = (id: string) =>
    limits?.takeAuthenticated(id, { request: new Request('http://localhost/'), server: null, set: { headers: {} } });
  for (const id of ['first', 'second']) take(id);
  for (let index = 1; index < 100_000; index += 1) take(`later-${index}`);
  expect(() => take('second')).toThrow('used up');
  expect(() => take('first')).not.toThrow();
});

describe('clientNetwork', () => {
  const proxy = { requestIP: () => ({ address: '10.0.0.9' }) };
  const requestWith = (forwarded?: string) =>
    new Request('http://localhost/', forwarded === undefined ? {} : { headers: { 'x-forwarded-for': forwarded } });

  test.each<[name: string, forwarded: string | undefined, proxies: number, network: string]>([
    ['the peer address without a proxy', undefined, 0, '10.0.0.9'],
    ['the peer address when X-Forwarded-For is sent without a proxy', '1.1.1.1', 0, '10.0.0.9'],
    ['the address that one proxy appended', '6.6.6.6, 1.1.1.1', 1, '1.1.1.1'],
    ['the address that the first of two proxies appended', '6.6.6.6, 1.1.1.1, 2.2.2.2', 2, '1.1.1.1'],
    ['the peer address when the list is shorter than the number of proxies', '6.6.6.6', 2, '10.0.0.9'],
    ['the peer address when the header is missing', undefined, 1, '10.0.0.9'],
    ['the peer address when the list is empty', '', 1, '10.0.0.9'],
    ['the peer address when the entry is not an address', '1.1.1.1, unknown', 1, '10.0.0.9'],
    ['the peer address when the entry is empty', '1.1.1.1,', 1, '10.0.0.9'],
    ['the address without its port', '1.1.1.1:5555', 1, '1.1.1.1'],
    ['the network of an IPv6 address with a port', '[2001:db8:1:2:3::4]:5555', 1, '2001:db8:1:2::/64'],
  ])('returns %s', (_, forwarded, proxies, network) => {
    expect(clientNetwork(requestWith(forwarded), proxy, proxies)).toBe(network);
  });

  test('returns "unknown" when the connection has no address', () => {
    expect(clientNetwork(requestWith(), null, 0)).toBe('unknown');
    expect(clientNetwork(requestWith('x'), { requestIP: () => null }, 1)).toBe('unknown');
  });

  test('ignores entries that the client sends before those of the proxies', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'0123456789abcdef.:,[] ') }), (sent) => {
        const header = `${sent}, 1.1.1.1`.replace(/^[ ,]+/, '');
        expect(clientNetwork(requestWith(header), proxy, 1)).toBe('1.1.1.1');
      }),
    );
  });
});

describe('networkOf', () => {
  test.each([
    ['2001:db8:1:2::/64', ['2001:db8:1:2:3:4:5:6', '2001:0DB8:0001:0002::1', '2001:db8:1:2::c000:201']],
    ['2001:db8::/64', ['2001:db8::1']],
    ['::/64', ['::1', '::']],
    ['1::/64', ['1::']],
    ['1:2:3:4::/64', ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:192.0.2.1']],
    ['0:2:3:4::/64', ['::2:3:4:5:6:7:8']],
    ['fe80::/64', ['fe80::1%eth0']],
    ['127.0.0.1', ['::ffff:7f00:1']],
    ['192.0.2.1', ['192.0.2.1', '::ffff:192.0.2.1', '::FFFF:C000:201', '0:0:0:0:0:ffff:c000:201']],
    ['192.0.2.1', ['0000:0000:0000:0000:0000:ffff:192.0.2.1', '[::ffff:c000:201]:443', '64:ff9b::192.0.2.1']],
    ['192.0.2.2', ['::ffff:c000:202', '64:ff9b::c000:202']],
  ])('returns the /64 prefix of IPv6 and the whole address of IPv4 in every form: %s', (network, addresses) => {
    expect(addresses.map(networkOf)).toEqual(addresses.map(() => network));
  });

  test.each([
    ...['', 'x', '1.2.3', '1.2.3.256', '01.2.3.4', ':::', '1.2.3.4:x', '[1.2.3.4', '::1]', 'a'.repeat(10_000)],
    ...['127.1', '0x7f.0.0.1', '017700000001', '2130706433', '::ffff:192.0.2', '::ffff:0x7f.0.0.1'],
  ])('returns undefined for an invalid address or a short form: %p', (text) => {
    expect(networkOf(text)).toBeUndefined();
  });
});

describe('isForThisMachine', () => {
  const names = ['127.0.0.1:3000', 'localhost', '[::1]:3000', 'planning.example'];

  function isFor(address: string | undefined, headers: Record<string, string>): boolean {
    const source = { requestIP: () => (address === undefined ? null : { address }) };
    return isForThisMachine(new Request('http://localhost/', { headers }), source, 'https://planning.example');
  }

  test.each(names)('returns true under %s only for loopback connections', (host) => {
    const loopback = ['127.0.0.1', '127.8.9.10', '::1', '0:0:0:0:0:0:0:1', '::ffff:127.0.0.2', '::ffff:7f00:1'];
    const others = ['192.0.2.7', '10.127.0.1', '::ffff:192.0.2.7', '::', 'fe80::1', '2001:db8::1', undefined];
    const accepted = [...loopback, ...others].filter((address) => isFor(address, { host }));
    expect(accepted).toEqual(loopback);
  });

  test.each([
    ['Forwarded', 'for=192.0.2.7'],
    ['Via', '1.1 tunnel'],
    ['X-Forwarded-For', '127.0.0.1'],
    ['X-Forwarded-Host', 'localhost'],
    ['X-Forwarded-Proto', 'http'],
    ['X-Forwarded-Ssl', ''],
    ['X-Real-IP', '127.0.0.1'],
  ])('returns false for a request with the header of a forwarder: %s', (name, value) => {
    for (const host of names) expect([host, isFor('127.0.0.1', { host, [name]: value })]).toEqual([host, false]);
  });
});
