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

describe('a page of a listed origin', () => {
  test.each([...privateRoutes.map(({ path }) => path), '/nowhere', '/v2/private/nowhere', '/health/live'])(
    'may ask whether it may call %s',
    async (path) => {
      const answer = await testApp.call('OPTIONS', path, { headers: preflight });
      expect(answer.status).toBe(204);
      expect(answer.text).toBe('');
      expect(answer.headers.get('access-control-allow-origin')).toBe(origin);
      expect(answer.headers.get('access-control-allow-methods')).toBe('GET, HEAD, POST');
      expect(answer.headers.get('access-control-allow-headers')).toBe('authorization, content-type, if-match');
      expect(Number(answer.headers.get('access-control-max-age'))).toBeGreaterThan(600);
      expect(answer.headers.get('vary')).toContain('Origin');
    },
  );

  test('can read every answer, a failure as well', async () => {
    const limited = await createTestApp({
      config,
      rateLimits: createRateLimits({ perMinute: 3, trustedProxyCount: 0 }, () => new Date()),
    });
    const ask = (as?: string) =>
      limited.call('GET', '/v2/private/user', { headers: { origin }, ...(as === undefined ? {} : { as }) });
    const save = () => limited.call('POST', '/v2/private/user/profile', { as: 'ada', body: {}, headers: { origin } });
    const answers = [await ask('ada'), await ask(), await ask(), await ask(), await ask()];
    await limited.db.$client.execute(
      "CREATE TRIGGER refused BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    answers.push(await save());
    limited.db.$client.close();
    answers.push(await ask('ada'));
    expect(answers.map(({ status }) => status)).toEqual([404, 401, 401, 401, 429, 500, 503]);
    for (const { headers } of answers) {
      expect(headers.get('access-control-allow-origin')).toBe(origin);
      const exposed = headers.get('access-control-expose-headers')?.toLowerCase().split(', ');
      expect(exposed).toEqual(
        expect.arrayContaining(['etag', 'x-request-id', 'retry-after', 'ratelimit', 'ratelimit-policy']),
      );
      expect(headers.get('access-control-allow-credentials')).toBeNull();
    }
  });

  test('is not held up by an address that has used up its requests', async () => {
    const limited = await createTestApp({
      config,
      rateLimits: createRateLimits({ perMinute: 1, trustedProxyCount: 0 }, () => new Date()),
    });
    for (let turn = 0; turn < 3; turn += 1) await limited.call('GET', '/nowhere');
    expect((await limited.call('GET', '/nowhere')).status).toBe(429);
    expect((await limited.call('OPTIONS', '/v2/private/user', { headers: preflight })).status).toBe(204);
  });
});

describe('a page of another origin', () => {
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
  ])('is told nothing: %p', async (other) => {
    for (const method of ['GET', 'OPTIONS']) {
      const answer = await testApp.call(method, '/v2/private/healthAndCare/', {
        as: 'ada',
        headers: { ...preflight, origin: other },
      });
      expect(answer.status).toBe(method === 'GET' ? 200 : 405);
      expect([...answer.headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
    }
  });
});

test('every answer says that it depends on the origin, so that no cache gives one page the answer of another', async () => {
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

test('without a list no answer has a word of it', async () => {
  const plain = await createTestApp();
  for (const method of ['GET', 'OPTIONS']) {
    const { headers } = await plain.call(method, '/v2/private/user', { headers: preflight });
    expect([...headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
    expect(headers.get('vary') ?? '').not.toContain('Origin');
  }
});
