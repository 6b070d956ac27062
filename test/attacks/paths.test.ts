import { describe, expect, test } from 'bun:test';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp, testToken } from '../support/app';
import { privateRoutes } from '../support/contract';
import { createRawClient } from '../support/http';
import { atEnd } from '../support/resources';

const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
const client = createRawClient(testApp.app.server?.port ?? 0);
atEnd(async () => {
  client.close();
  await testApp.app.stop(true);
});
const token = await testToken({ id: 'caller', roles: ['salesManager'], now: testApp.now });
await testApp.call('POST', '/v2/private/user/profile', { as: 'caller', body: {} });

const hosts = ['service.example', 'api', 'h', '[::1]:3000', '127.0.0.1'];
type Headers = readonly (readonly [string, string])[];

async function send(target: string, { method = 'GET', host = 'service.example', headers = [] as Headers } = {}) {
  const all = [['Host', host], ['Authorization', `Bearer ${token}`], ...headers] as const;
  return client.send({ method, target, headers: all });
}

const elsewhere = [
  '//v2/private/user',
  '/v2//private/user',
  '/v2/private/user//',
  '/v2/private/%75ser',
  '/v2%2fprivate%2fuser',
  '/v2/private/user%2f',
  '/v2/private/user%00',
  '/v2/private/user%20',
  '/v2/private/user;a=b',
  '/v2/private/user#fragment',
  '/v2/private/USER',
  '/V2/private/user',
  '/v2/private/user\xc2\xa0',
  '/v2/private/user/demo-user',
  '/v2/private',
  '/v1/private/user',
  '/private/user',
  '/zz/v2/private/user',
  '/aaaa/v2/private/user',
  '/aaaaaaaaaaaa/v2/private/user',
  '/icons/..%2f..%2fpackage.json',
  '/icons/%2e%2e%2fmain.ts',
  '/icons/hybrid.svg%00',
  '/icons/%c0%ae%c0%ae',
  '/icons/%',
  '/problems/__proto__',
  '/problems/constructor',
  '/problems/..%2f..%2fetc%2fpasswd',
  '/swagger/%2e%2e/%2e%2e/package.json',
  '/v2/./private/user',
  '/v2/private/x/../user',
  '/x/../v2/private/user/',
  '/v2/private/%2e/user',
  '/.env',
  '/data/demo-tokens.json',
  '/data/demo-3000-tokens.json',
];
const same = ['/v2/private/user?', '/v2/private/user/', '/v2/private/user/?'];
/** A query is not part of the path: it is refused as a parameter. */
const queries = ['/v2/private/user?a=/../b\\c'];

describe('a request path', () => {
  test.each(elsewhere)('returns 404 for %p under every host', async (target) => {
    for (const host of hosts) expect((await send(target, { host }))?.status).toBe(404);
  });

  test.each(same)('reaches its route under every host: %p', async (target) => {
    for (const host of hosts) expect((await send(target, { host }))?.status).toBe(200);
  });

  test.each(queries)('ends before the query: %p', async (target) => {
    for (const host of hosts) expect((await send(target, { host }))?.status).toBe(422);
  });

  test.each(privateRoutes)(
    'requires a token under every host and in every spelling: $method $path',
    async ({ method, path }) => {
      for (const host of hosts) {
        for (const target of [path, `${path.replace(/\/$/, '')}/`, `http://evil.example${path}`]) {
          const anonymous = await client.send({ method, target, headers: [['Host', host]] });
          expect([host, target, anonymous?.status]).toEqual([host, target, 401]);
          const known = await send(target, { method, host });
          expect([200, 403, 415, 422]).toContain(known?.status ?? 0);
        }
      }
    },
  );

  test.each(['/swagger', '/swagger/', '/swagger/json', '/problems/forbidden/', '/icons/hybrid.svg/', '/health/live/'])(
    'returns the same page under every host: %s',
    async (target) => {
      const [first, ...others] = await Promise.all(hosts.map((host) => send(target, { host })));
      expect(first?.status).toBe(200);
      const withoutNonce = (text = '') => text.replaceAll(/nonce="[^"]+"|"csp-nonce" content="[^"]+"/g, '');
      for (const other of others) expect(withoutNonce(other?.text)).toBe(withoutNonce(first?.text));
    },
  );

  test.each(['@', 'x/health/live?', 'x?', 'x#', 'user@x', 'x\\y', '\x80', 'a b', ''])(
    'does not include the host %p, which returns 400',
    async (host) => {
      for (const target of ['/v2/private/user', '/aaaaaaaaaa/health/live', '/aaaaaa/v2/private/user', '/']) {
        const response = await send(target, { host });
        expect(response?.status).toBe(400);
        expect(response?.text).toContain('"/problems/malformed-request"');
      }
    },
  );

  test.each([
    '*',
    'x:80',
    'v2/private/user',
    '\\v2\\private\\user',
    'ftp://x/v2/private/user',
    'http:/v2/private/user',
  ])('cannot be the target %p', async (target) => expect((await send(target))?.status).toBe(400));

  test.each([
    'X-HTTP-Method-Override',
    'X-HTTP-Method',
    'X-Method-Override',
    'X-Original-URL',
    'X-Rewrite-URL',
    'X-Forwarded-Prefix',
  ])('does not change with the header %s, nor does the method', async (name) => {
    for (const value of ['POST', 'DELETE', '/health/live', '/v2/private/healthAndCare/']) {
      const response = await send('/v2/private/user', { headers: [[name, value]] });
      expect(response?.text).toStartWith('{"user":{"id":"caller"');
      expect((await send('/v2/private/user/profile', { headers: [[name, value]] }))?.status).toBe(405);
      expect((await send(`/v2/private/user?_method=POST&_url=${value}`))?.status).toBe(422);
    }
  });

  test.each(['TRACE', 'CONNECT', 'PUT', 'PATCH', 'DELETE', 'PROPFIND', 'PURGE', 'QUERY'])(
    'returns 405 for %s everywhere',
    async (method) => {
      for (const { path } of privateRoutes) {
        const response = await send(path, { method });
        expect(response?.status).toBe(405);
        expect(response?.text).not.toContain(token);
      }
    },
  );
});

describe('a cached response', () => {
  const poison: Headers = [
    ['X-Forwarded-Host', 'evil.example'],
    ['X-Forwarded-Proto', 'gopher'],
    ['X-Host', 'evil.example'],
    ['Forwarded', 'host=evil.example;proto=gopher'],
    ['X-Original-Host', 'evil.example'],
  ];

  test('contains no host from a request header', async () => {
    await testApp.call('POST', '/v2/private/engine/matches', { as: 'caller' });
    const pages = ['/swagger', '/swagger/json', '/problems/forbidden', '/nowhere', '/v2/private/user', '/health/live'];
    for (const target of [...pages, ...privateRoutes.map(({ path }) => path)]) {
      const response = await send(target, { host: 'evil.example', headers: poison });
      const shown = JSON.stringify([response?.text, [...(response?.headers ?? [])]]);
      expect(shown).not.toContain('evil.example');
      expect(shown).not.toContain('gopher');
    }
  });

  test('has private or no-store for private data, and no-store for a refusal', async () => {
    for (const { method, path } of privateRoutes) {
      for (const response of [
        await send(path, { method }),
        await client.send({ method, target: path, headers: [['Host', 'x']] }),
      ]) {
        const control = response?.headers.get('cache-control') ?? '';
        if ((response?.status ?? 0) >= 400) expect(control).toBe('no-store');
        else if (control !== 'private, no-store') {
          expect(control).toBe('private, max-age=300');
          expect(response?.headers.get('vary')).toContain('Authorization');
        }
      }
    }
  });

  test('contains no redirect', async () => {
    const places = [
      '//evil.example',
      '/\\evil.example',
      '/%2f%2fevil.example',
      '/swagger?url=//evil.example',
      '/v2/private/user?next=//evil.example',
    ];
    const problems = Object.keys(problemKinds).map((slug) => `/problems/${slug}`);
    for (const target of [...places, ...problems, '/', '/swagger', '/swagger/']) {
      const response = await send(target, { headers: [['Referer', 'https://evil.example']] });
      expect(response?.status === 304 || (response?.status ?? 300) < 300 || (response?.status ?? 0) >= 400).toBeTrue();
      expect(response?.headers.has('location')).toBeFalse();
      expect(response?.headers.has('refresh')).toBeFalse();
    }
  });
});
