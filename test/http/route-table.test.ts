import { describe, expect, test } from 'bun:test';
import { seedDemo } from '../../src/seed';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp, listen, startSandbox, testToken } from '../support/app';
import { contractRoutes, privateRoutes, walkContract } from '../support/contract';
import { createRawClient } from '../support/http';
import { atEnd } from '../support/resources';

const sandbox = await startSandbox();
const testApp = await createTestApp({ carrier: sandbox.carrier() });
await seedDemo(testApp.db, testApp.now);
const client = createRawClient(listen(testApp));
atEnd(() => client.close());
const token = await testToken({ id: 'caller', roles: ['salesManager'], now: testApp.now });
await testApp.call('POST', '/v2/private/user/profile', { as: 'caller', body: {} });

const hosts = ['service.example', 'api', 'h', '[::1]:3000', '127.0.0.1'];
type Headers = readonly (readonly [string, string])[];

/** Sends a target unchanged, with a valid token. */
async function send(target: string, { method = 'GET', host = 'x', headers = [] as Headers } = {}) {
  const all = [['Host', host], ['Authorization', `Bearer ${token}`], ...headers] as const;
  const body = method === 'POST' ? { body: Buffer.from('{}') } : {};
  return client.send({ method, target, headers: all, ...body });
}
const statusesOf = (target: string) =>
  Promise.all(hosts.map(async (host) => [host, (await send(target, { host }))?.status]));
const each = (status: number) => hosts.map((host) => [host, status]);

describe('route table', () => {
  const byText = (routes: readonly { method: string; path: string }[]) =>
    routes.map(({ method, path }) => `${method} ${path}`).sort();

  test('has the routes of the contract', () => {
    const missing = new Set(byText(contractRoutes)).difference(new Set(byText(testApp.app.routes)));
    expect([...missing]).toEqual([]);
  });

  test('documents every private route', () => {
    const mounted = testApp.app.routes.filter(({ path }) => path.startsWith('/v2/'));
    const documentedPath = (path: string) => path.replaceAll(/:(\w+)/g, '{$1}');
    expect(byText(mounted.map(({ method, path }) => ({ method, path: documentedPath(path) })))).toEqual(
      byText(privateRoutes),
    );
  });

  test('has no private route for which Elysia parses cookies or defines a property in each request', () => {
    const composed = testApp.app.routes.map((route) => ({ path: route.path, text: String(route.compile()) }));
    const costly = composed.filter(({ text }) => /defineProperty|parseCookie/.test(text)).map(({ path }) => path);
    expect(costly.filter((path) => path.startsWith('/v2/'))).toEqual([]);
    // The pages need the property of the server, so the pattern still matches.
    expect(costly).toContain('/swagger');
  });

  test('has a route of Bun for each trailing slash, and for no other path', () => {
    const slashed = testApp.app.routes.map(({ path }) => path).filter((path) => path.endsWith('/'));
    const sent = Object.keys(testApp.app.config.serve?.routes ?? {});
    const bases = sent.filter((path) => /^[^:]*\/\*$/.test(path) && !path.endsWith('//*'));
    expect(bases.sort()).toEqual([...new Set(['/', ...slashed])].map((path) => `${path}*`).sort());
  });

  test('has no duplicate path, which Elysia would accept silently', () => {
    const all = byText(testApp.app.routes);
    expect(all.length).toBe(new Set(all).size);
  });
});

walkContract(testApp.call);

/** Spellings that a gateway or a router could resolve to a route. */
const otherSpellings = [
  ...String.raw`
    //v2/private/user /v2//private/user /v2/private/user// /v2/private/%75ser /v2%2fprivate%2fuser /v2/private/user%2f
    /v2/private/user%00 /v2/private/user%20 /v2/private/user;a=b /v2/private/user#fragment /V2/private/user
    /v2/private/user/demo-user /v2/private /v1/private/user /private/user /a/v2/private/user/ /aaaa/v2/private/user
    /aaaaaaaaaaaa/v2/private/user /v2/./private/user /v2/private/x/../user /x/../v2/private/user/ /v2/private/%2e/user
    /swagger/../v2/private/user /swagger/%2e%2e/v2/private/user http://x/icons/%2e%2e/v2/private/user
    /swagger/%2e%2e/%2e%2e/package.json /icons/..%2f..%2fpackage.json /icons/%2e%2e%2fmain.ts /icons/%c0%ae%c0%ae
    /icons/% /icons/.. /icons/a\b /icons/a%5cb /icons/%2e%2e/swagger/json /icons/%2e%2e/metrics
    /problems/..%2f..%2fetc%2fpasswd /problems/%2e%2e /problems/..%2fforbidden /problems/forbidden\
    /.env /data/demo-tokens.json /data/demo-3000-tokens.json
    /icons/%2e%2e/health/live /icons/../health/live /icons/%2E%2E/health/live /icons/.%2e/health/live
    /icons/%2e./health/live /./health/live /%2e/health/live /health/./live /health/live/. /health/live/%2e
    /health/live/x/.. /health/live/x/%2e%2e/ /health/live//.. /health/live//%2e%2e /icons//../../health/live
    /../health/live http://x/icons/../health/live /icons\..\health\live /icons/..\health/live /health\live
    /health/live\ /health%5clive /health/live%5c /icons/..%5chealth/live /icons/..;/health/live
    /icons/..;a=b/health/live /health/live/..; /icons/%2e%2e%2fhealth%2flive /health%2flive //health/live
    /health//live /health/live// /v2/private/healthAndCare// /v2/private/healthAndCare//.. /v2/private/healthAndCare/.
    /v2/private/healthAndCare/%2e /v2/private/healthAndCare/x/.. /v2/private/healthAndCare/x/%2e%2e/
    /v2/private/healthAndCare/x/../ /v2/private/healthAndCare/\ /v2/private/healthAndCare/.\ /v2/private/healthAndCare/x
    /v2/private/healthAndCare/x//.. /v2/private/healthAndCare//x/../.. /v2/private/healthAndCare/..;/healthAndCare/
    /v2/private/x/../healthAndCare/ /v2/private/%68ealthAndCare/ /x/../v2/private/healthAndCare/
  `
    .trim()
    .split(/\s+/),
  '/v2/private/user\xc2\xa0',
  `${'/..'.repeat(40)}/health/live`,
  `${'/a'.repeat(20)}${'/..'.repeat(20)}/health/live`,
];

describe('request path', () => {
  test.each(otherSpellings)('returns 404 under every host and with every method: %s', async (target) => {
    expect(await statusesOf(target)).toEqual(each(404));
    for (const method of ['HEAD', 'POST', 'OPTIONS', 'DELETE'])
      expect([method, (await send(target, { method }))?.status]).toEqual([method, 404]);
  });

  test.each(['/icons/hybrid.svg%00', '/icons/...', '/problems/__proto__', '/problems/constructor'])(
    'returns 404 for an unknown name under every host: %s',
    async (target) => expect(await statusesOf(target)).toEqual(each(404)),
  );

  test.each([
    ...['/v2/private/user?', '/v2/private/user/?', 'http://x/health/live', '/health/live?a=/../b', '/health/live?a=\\'],
    ...['/icons/hybrid.svg/', '/problems/', '/problems/forbidden/', '/swagger/json/'],
  ])('ends before the query and may have a trailing slash, under every host: %s', async (target) => {
    expect(await statusesOf(target)).toEqual(each(200));
    expect((await send('/v2/private/user?a=/../b\\c'))?.status).toBe(422);
  });

  test.each(privateRoutes)('needs a token in every spelling and under every host: $name', async ({ method, path }) => {
    for (const host of hosts) {
      for (const target of [path, `${path.replace(/\/$/, '')}/`, `http://evil.example${path}`]) {
        const anonymous = await client.send({ method, target, headers: [['Host', host]] });
        expect([host, target, anonymous?.status]).toEqual([host, target, 401]);
        expect([200, 403, 415, 422]).toContain((await send(target, { method, host }))?.status ?? 0);
      }
    }
  });

  test.each(['/swagger', '/swagger/', '/swagger/json', '/problems/forbidden', '/icons/hybrid.svg', '/health/live/'])(
    'returns the same page under every host: %s',
    async (target) => {
      const withoutNonce = (text = '') => text.replaceAll(/nonce="[^"]+"|"csp-nonce" content="[^"]+"/g, '');
      const pages = await Promise.all(hosts.map(async (host) => withoutNonce((await send(target, { host }))?.text)));
      expect(new Set(pages).size).toBe(1);
    },
  );

  test.each([
    ...['*', 'x:80', 'v2/private/user', '\\v2\\private\\user', '\\health\\live'],
    ...['ftp://x/v2/private/user', 'http:/v2/private/user'],
  ])('returns 400 for a target without a path: %s', async (target) => expect((await send(target))?.status).toBe(400));

  test.each([
    ...['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override'],
    ...['X-Original-URL', 'X-Rewrite-URL', 'X-Forwarded-Prefix'],
  ])('does not change with the header %s, nor does the method', async (name) => {
    for (const value of ['POST', 'DELETE', '/health/live', '/v2/private/healthAndCare/']) {
      const headers = [[name, value]] as const;
      expect((await send('/v2/private/user', { headers }))?.text).toStartWith('{"user":{"id":"caller"');
      expect((await send('/v2/private/user/profile', { headers }))?.status).toBe(405);
      expect((await send(`/v2/private/user?_method=POST&_url=${value}`))?.status).toBe(422);
    }
  });

  test.each(['TRACE', 'CONNECT', 'PROPFIND', 'PURGE', 'QUERY'])('returns 405 for %s', async (method) => {
    for (const { path } of privateRoutes) {
      const response = await send(path, { method });
      expect(response?.status).toBe(405);
      expect(response?.text).not.toContain(token);
    }
  });
});

describe('Host header', () => {
  const targets = ['/v2/private/user', '/aaaaaaaaaa/health/live', '/aaaaaa/v2/private/user', '/', '/icons/hybrid.svg'];

  test.each(['@', 'x/health/live?', 'x?', 'x#', 'user@x', 'x\\y', '\x80', 'a b', '', 'a/b', 'é', 'x, y'])(
    'returns 400 when invalid: %p',
    async (host) => {
      for (const target of targets) {
        const response = await send(target, { host });
        expect(response?.status).toBe(400);
        expect(response?.text).toContain('"/problems/malformed-request"');
        expect(response?.headers.get('x-request-id')).toMatch(/^[\w-]{8,64}$/);
      }
    },
  );

  test.each(['[', 'x:99999'])('has no effect although it names no address: %p', async (host) => {
    expect((await send('/v2/private/user', { host }))?.status).toBe(200);
    expect((await client.send({ method: 'GET', target: '/v2/private/user', headers: [['Host', host]] }))?.status).toBe(
      401,
    );
  });

  test.each(['x', 'evil.example', ''])('returns 400 when sent twice: x and %p', async (second) => {
    for (const target of targets) expect((await send(target, { headers: [['Host', second]] }))?.status).toBe(400);
    expect((await send('/swagger', { host: second, headers: [['Host', 'x']] }))?.status).toBe(400);
  });

  test('is in no response, nor is another header that names a host', async () => {
    const names = ['X-Forwarded-Host', 'X-Host', 'X-Original-Host'].map((name) => [name, 'evil.example'] as const);
    const forwarded = ['Forwarded', 'host=evil.example;proto=gopher'] as const;
    const headers: Headers = [...names, forwarded, ['X-Forwarded-Proto', 'gopher']];
    const pages = ['/swagger', '/swagger/json', '/problems/forbidden', '/nowhere', '/health/live'];
    for (const target of [...pages, ...privateRoutes.map(({ path }) => path)]) {
      const response = await send(target, { host: 'evil.example', headers });
      const shown = JSON.stringify([response?.text, [...(response?.headers ?? [])]]);
      expect(shown).not.toMatch(/evil\.example|gopher/);
    }
  });
});

test.each([
  ...['//evil.example', '/\\evil.example', '/%2f%2fevil.example', '/', '/swagger', '/swagger/'],
  ...['/swagger?url=//evil.example', '/v2/private/user?next=//evil.example'],
  ...Object.keys(problemKinds).map((slug) => `/problems/${slug}`),
])('no response redirects: %s', async (target) => {
  const response = await send(target, { headers: [['Referer', 'https://evil.example']] });
  expect([200, 404, 422]).toContain(response?.status ?? 0);
  expect(['location', 'refresh'].filter((name) => response?.headers.has(name))).toEqual([]);
});
