import { describe, expect, test } from 'bun:test';
import { createTestApp, testConfig, testToken } from '../support/app';
import { createRawClient } from '../support/http';
import { atEnd } from '../support/resources';

const metricsToken = 'a token that only scrapers know, 32+';
const testApp = await createTestApp({ config: { ...testConfig, metricsToken } });
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const client = createRawClient(testApp.app.server?.port ?? 0);
atEnd(async () => {
  client.close();
  await testApp.app.stop(true);
});
const token = await testToken({ id: 'ada', now: testApp.now });
await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: {} });

const ask = (method: string, target: string, hosts: readonly string[] = ['x']) =>
  client.send({
    method,
    target,
    headers: [...hosts.map((host) => ['Host', host] as const), ['Authorization', `Bearer ${token}`]],
    ...(method === 'POST' ? { body: Buffer.from('{}') } : {}),
  });

describe('a target', () => {
  test.each([
    '/icons/%2e%2e/health/live',
    '/icons/../health/live',
    '/icons/%2E%2E/health/live',
    '/icons/.%2e/health/live',
    '/icons/%2e./health/live',
    '/./health/live',
    '/%2e/health/live',
    '/health/./live',
    '/health/live/.',
    '/health/live/%2e',
    '/health/live/x/..',
    '/health/live/x/%2e%2e/',
    '/health/live//..',
    '/health/live//%2e%2e',
    '/icons//../../health/live',
    '/../health/live',
    `${'/..'.repeat(40)}/health/live`,
    `${'/a'.repeat(20)}${'/..'.repeat(20)}/health/live`,
    '/icons\\..\\health\\live',
    '/icons/..\\health/live',
    '\\health\\live',
    '/health\\live',
    '/health/live\\',
    '/health%5clive',
    '/health/live%5c',
    '/icons/..%5chealth/live',
    '/icons/..;/health/live',
    '/icons/..;a=b/health/live',
    '/health/live/..;',
    '/icons/%2e%2e%2fhealth%2flive',
    '/health%2flive',
    '//health/live',
    '/health//live',
    '/health/live//',
    'http://x/icons/../health/live',
    'http://x/icons/%2e%2e/v2/private/user',
    '/swagger/../v2/private/user',
    '/swagger/%2e%2e/v2/private/user',
    '/icons/%2e%2e/swagger/json',
    '/icons/%2e%2e/metrics',
    '/icons/a\\b',
    '/icons/a%5cb',
    '/icons/..',
    '/problems/%2e%2e',
    '/problems/..%2fforbidden',
    '/problems/forbidden\\',
  ])('G9 returns 404 with every method when spelled differently: %s', async (target) => {
    for (const method of ['GET', 'HEAD', 'POST', 'OPTIONS', 'DELETE']) {
      const response = await ask(method, target);
      expect([method, response?.status]).toEqual([method, target.startsWith('\\') ? 400 : 404]);
    }
  });

  test.each([
    ['GET', '/health/live', 200],
    ['GET', '/health/live/', 200],
    ['GET', '/health/live?a=/../b', 200],
    ['GET', '/health/live?a=\\', 200],
    ['HEAD', '/health/live', 200],
    ['HEAD', '/health/live/', 200],
    ['GET', 'http://x/health/live', 200],
    ['GET', '/v2/private/user/', 200],
    ['HEAD', '/v2/private/user', 200],
    ['DELETE', '/v2/private/user', 405],
    ['PUT', '/v2/private/user/', 405],
    ['PROPFIND', '/v2/private/user', 405],
    ['GET', '/icons/hybrid.svg', 200],
    ['GET', '/icons/hybrid.svg/', 200],
    ['GET', '/icons/...', 404],
    ['GET', '/problems/forbidden', 200],
    ['GET', '/problems/', 200],
    ['GET', '/swagger/json/', 200],
  ])('G9 reaches its route in its one spelling: %s %s', async (method, target, status) => {
    expect((await ask(method, target))?.status).toBe(status);
  });
});

describe('two Host headers', () => {
  test.each([
    { hosts: ['x', 'x'] },
    { hosts: ['x', 'evil.example'] },
    { hosts: ['x', ''] },
    { hosts: ['', 'x'] },
    { hosts: ['x, y'] },
  ])('G9 return 400: $hosts', async ({ hosts }) => {
    for (const target of ['/v2/private/user', '/swagger', '/nowhere', '/icons/hybrid.svg']) {
      expect((await ask('GET', target, hosts))?.status).toBe(400);
    }
  });
});
