import { describe, expect, test } from 'bun:test';
import { CallFailure, type ClientSettings, createClient, dataOf } from '../../src/client';
import { problemKinds } from '../../src/shared/problems';
import { applicant, createTestApp } from '../support/app';
import { excludeFromChecks } from '../support/conformance';
import { atEnd } from '../support/resources';

interface Arrived {
  readonly method: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: string;
}

type Reply = Response | 'never' | 'broken';

/** A service with scripted replies: each request gets the next one, and the last one is repeated. */
function scriptedService(...replies: (() => Reply)[]) {
  const arrived: Arrived[] = [];
  const fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const { pathname, search } = new URL(url);
    const request = { method: String(init.method), path: pathname + search, body: String(init.body ?? '') };
    arrived.push({ ...request, headers: new Headers(init.headers) });
    const reply = replies[Math.min(arrived.length, replies.length) - 1]?.() ?? 'broken';
    if (reply === 'never') return new Promise(() => undefined);
    if (reply === 'broken') throw new TypeError('fetch failed');
    return reply;
  };
  const client = (settings: Partial<ClientSettings> = {}) =>
    createClient({ baseUrl: 'http://service.test', token: 'token', fetch, ...settings });
  return { arrived, client };
}

const baseUrlRule = 'baseUrl must be an address, such as https://planning.example';
const user = { user: { id: 'ada' } };
const ok = () => Response.json(user, { headers: { etag: '"1-1"', 'x-request-id': 'given-by-service' } });
const problem =
  (slug: keyof typeof problemKinds | 'newer-kind', headers: Record<string, string> = {}, status?: number) =>
  () => {
    const kind = slug === 'newer-kind' ? { status: 418, code: 999, title: '' } : problemKinds[slug];
    const body = { type: `/problems/${slug}`, title: kind.title, status: kind.status, code: kind.code };
    const more = { detail: 'what happened', instance: '/', http_code: kind.status, requestId: 'an-id' };
    return Response.json(
      { ...body, ...more },
      { status: status ?? kind.status, headers: { 'content-type': 'application/problem+json', ...headers } },
    );
  };
const page =
  (status: number, headers = {}) =>
  () =>
    new Response('<h1>Bad gateway</h1>', { status, headers: { 'content-type': 'text/html', ...headers } });

describe('retry', () => {
  const passing = ['application-in-progress', 'database-unavailable', 'carrier-timeout', 'carrier-bad-answer'] as const;

  test.each(passing)('follows %s', async (slug) => {
    const { arrived, client } = scriptedService(problem(slug, { 'retry-after': '0' }), ok);
    expect(await client().saveProfile({})).toMatchObject({ data: user, error: undefined });
    expect(arrived.length).toBe(2);
  });

  test.each([429, 502, 503, 504])('follows a proxy page with status %d', async (status) => {
    const { arrived, client } = scriptedService(page(status), ok);
    expect((await client().getUser()).error).toBeUndefined();
    expect(arrived.length).toBe(2);
  });

  test('follows a broken connection', async () => {
    const { arrived, client } = scriptedService(() => 'broken', ok);
    expect((await client().matchProducts()).error).toBeUndefined();
    expect(arrived.length).toBe(2);
  });

  test('does not follow permanent errors', async () => {
    const passed: readonly string[] = Object.keys(problemKinds).filter((slug) => {
      const { status } = problemKinds[slug as keyof typeof problemKinds];
      return [408, 409, 429, 502, 503, 504].includes(status);
    });
    for (const slug of Object.keys(problemKinds) as (keyof typeof problemKinds)[]) {
      if (passed.includes(slug)) continue;
      const { arrived, client } = scriptedService(problem(slug), ok);
      expect((await client().saveProfile({})).error?.slug).toBe(slug);
      expect(arrived.length).toBe(1);
    }
    const { arrived, client } = scriptedService(page(500), ok);
    expect((await client().getUser()).error).toMatchObject({ slug: 'unexpected-answer', status: 500 });
    expect(arrived.length).toBe(1);
  });

  test('waits for Retry-After in seconds or as a date', async () => {
    const later = () => new Date(Date.now() + 2000).toUTCString();
    const waits = ['1', later()].map(async (header) => {
      const { client } = scriptedService(problem('database-unavailable', { 'retry-after': header }), ok);
      const startedAtMs = performance.now();
      expect((await client().getUser()).error).toBeUndefined();
      return performance.now() - startedAtMs;
    });
    for (const waitMs of await Promise.all(waits)) expect(waitMs).toBeGreaterThan(950);
  });

  test('does not start when Retry-After exceeds the deadline', async () => {
    const { arrived, client } = scriptedService(problem('carrier-timeout', { 'retry-after': '3600' }), ok);
    const { error } = await client().startLtcApplication(applicant);
    expect(error).toMatchObject({ slug: 'carrier-timeout', retryAfterSeconds: 3600 });
    expect(arrived.length).toBe(1);
  });

  test('stops at the configured number of attempts', async () => {
    const always = () => scriptedService(problem('database-unavailable', { 'retry-after': '0' }));
    const [usual, set, once] = [always(), always(), always()];
    expect((await usual.client().getUser()).error?.slug).toBe('database-unavailable');
    await set.client({ attempts: 2 }).getUser();
    await once.client({ attempts: 2 }).getUser({ attempts: 1 });
    expect([usual, set, once].map(({ arrived }) => arrived.length)).toEqual([4, 2, 1]);
  });

  test('has the same body, request id and Idempotency-Key', async () => {
    const { arrived, client } = scriptedService(() => 'broken', problem('carrier-timeout', { 'retry-after': '0' }), ok);
    await client().startLifeApplication(applicant);
    const sent = arrived.map(({ body, headers }) => [
      body,
      headers.get('x-request-id'),
      headers.get('idempotency-key'),
    ]);
    expect(sent.length).toBe(3);
    expect(new Set(sent.map(String)).size).toBe(1);
    expect(sent[0]).toEqual([
      JSON.stringify(applicant),
      expect.stringMatching(/^[\w-]{8,64}$/),
      expect.stringMatching(/^[\w-]{8,64}$/),
    ]);
  });

  test('follows a save with If-Match only when the first attempt cannot have been applied', async () => {
    const refused = [
      ['network-failure', () => 'broken' as const],
      ['database-unavailable', problem('database-unavailable', { 'retry-after': '0' })],
      ['carrier-timeout', problem('carrier-timeout', { 'retry-after': '0' })],
      ['unexpected-answer', page(502)],
    ] as const;
    for (const [slug, reply] of refused) {
      const { arrived, client } = scriptedService(reply, ok);
      expect((await client().saveProfile({}, { ifMatch: '"1-1"' })).error?.slug).toBe(slug);
      expect(arrived.length).toBe(1);
    }
    for (const slug of ['auth-keys-unavailable', 'rate-limited', 'request-timeout'] as const) {
      const { arrived, client } = scriptedService(problem(slug, { 'retry-after': '0' }), ok);
      expect((await client().saveProfile({}, { ifMatch: '"1-1"' })).error).toBeUndefined();
      expect(arrived.map(({ headers }) => headers.get('if-match'))).toEqual(['"1-1"', '"1-1"']);
    }
  });
});

describe('abort', () => {
  test('sends nothing when it precedes the call', async () => {
    const { arrived, client } = scriptedService(ok);
    const { error } = await client().getUser({ signal: AbortSignal.abort('gone') });
    expect(error).toEqual({ slug: 'aborted', cause: 'gone' });
    expect(arrived).toEqual([]);
  });

  test('ends a pending call without a retry, also when fetch ignores the signal', async () => {
    const { arrived, client } = scriptedService(() => 'never');
    const controller = new AbortController();
    const call = client().getUser({ signal: controller.signal });
    await Promise.resolve();
    controller.abort();
    expect((await call).error?.slug).toBe('aborted');
    expect(arrived.length).toBe(1);
  });

  test('ends a retry delay and a pending token', async () => {
    const { arrived, client } = scriptedService(problem('database-unavailable', { 'retry-after': '20' }), ok);
    const controller = new AbortController();
    const waiting = client().getUser({ signal: controller.signal });
    const asking = client({ token: () => new Promise(() => undefined) }).getUser({ signal: controller.signal });
    await Bun.sleep(20);
    controller.abort();
    expect((await waiting).error?.slug).toBe('aborted');
    expect((await asking).error?.slug).toBe('aborted');
    expect(arrived.length).toBe(1);
  });

  test('leaves no listener on the signal after a call', async () => {
    const controller = new AbortController();
    let listeners = 0;
    const { addEventListener, removeEventListener } = controller.signal;
    controller.signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
      listeners += 1;
      addEventListener.apply(controller.signal, args);
    };
    controller.signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
      listeners -= 1;
      removeEventListener.apply(controller.signal, args);
    };
    await scriptedService(ok).client().getUser({ signal: controller.signal });
    expect(listeners).toBe(0);
  });
});

describe('timeout', () => {
  test('ends a pending call with the error timed-out', async () => {
    const silent = scriptedService(() => 'never').client({ timeoutMs: 30 });
    expect((await silent.getUser()).error).toEqual({ slug: 'timed-out', timeoutMs: 30 });
    expect((await silent.saveProfile({}, { timeoutMs: 20 })).error).toEqual({ slug: 'timed-out', timeoutMs: 20 });
  });

  test('has no effect when it is infinite', async () => {
    const token = () => Bun.sleep(30).then(() => 'late');
    const client = scriptedService(ok).client({ token, timeoutMs: Number.POSITIVE_INFINITY });
    expect((await client.getUser()).error).toBeUndefined();
  });

  test('covers all attempts', async () => {
    const { arrived, client } = scriptedService(problem('database-unavailable', { 'retry-after': '0' }), () => 'never');
    const { error } = await client({ timeoutMs: 1000 }).getUser();
    expect(error?.slug).toBe('timed-out');
    expect(arrived.length).toBe(2);
  });
});

describe('token', () => {
  test('refreshes once after a 401', async () => {
    const requested: boolean[] = [];
    const token = async ({ isRefused }: { isRefused: boolean }) => {
      requested.push(isRefused);
      return isRefused ? 'fresh' : 'stale';
    };
    const mended = scriptedService(
      problem('unauthenticated'),
      problem('database-unavailable', { 'retry-after': '0' }),
      ok,
    );
    expect((await mended.client({ token }).saveProfile({}, { ifMatch: undefined })).error).toBeUndefined();
    expect(requested).toEqual([false, true, false]);
    expect(mended.arrived.map(({ headers }) => headers.get('authorization'))).toEqual([
      'Bearer stale',
      'Bearer fresh',
      'Bearer stale',
    ]);
    const refused = scriptedService(problem('unauthenticated'), problem('unauthenticated'), ok);
    expect((await refused.client({ token }).getUser()).error?.slug).toBe('unauthenticated');
    expect(refused.arrived.length).toBe(2);
    const fixed = scriptedService(problem('unauthenticated'));
    expect((await fixed.client().getUser()).error?.slug).toBe('unauthenticated');
    expect(fixed.arrived.length).toBe(1);
  });

  test('yields token-unavailable when the callback throws', async () => {
    const cause = new Error('signed out');
    const token = () => {
      throw cause;
    };
    const { arrived, client } = scriptedService(ok);
    expect((await client({ token }).getUser()).error).toEqual({ slug: 'token-unavailable', cause });
    expect(arrived).toEqual([]);
  });
});

describe('result', () => {
  test('has data, ETag and request id on success', async () => {
    expect(await scriptedService(ok).client().getUser()).toEqual({
      data: { user: { id: 'ada' } } as never,
      error: undefined,
      isNotModified: false,
      etag: '"1-1"',
      requestId: 'given-by-service',
    });
  });

  test('has isNotModified for 304 after If-None-Match, and unexpected-answer otherwise', async () => {
    const { arrived, client } = scriptedService(() => new Response(null, { status: 304, headers: { etag: '"1-1"' } }));
    const { data, error, isNotModified, etag } = await client().getUser({ ifNoneMatch: '"1-1"' });
    expect([data, error, isNotModified, etag]).toEqual([undefined, undefined, true, '"1-1"']);
    expect(arrived[0]?.headers.get('if-none-match')).toBe('"1-1"');
    expect((await client().getUser()).error).toMatchObject({ slug: 'unexpected-answer', status: 304 });
  });

  const unexpected: [string, () => Reply][] = [
    ['a page with 200', page(200)],
    ['broken JSON', () => new Response('{', { headers: { 'content-type': 'application/json' } })],
    ['null as a problem', () => Response.json(null, { status: 400 })],
    ['a list as a problem', () => Response.json([], { status: 422 })],
    ['a problem of another service', () => Response.json({ type: 'about:blank', status: 400 }, { status: 400 })],
    ['a problem with another status than the response', problem('forbidden', {}, 404)],
    ['a problem type newer than the client', problem('newer-kind')],
    [
      'a problem type with the name of an Object.prototype member',
      () => Response.json({ type: '/problems/constructor', status: 400 }, { status: 400 }),
    ],
  ];
  test.each(unexpected)('has unexpected-answer for %s', async (_, reply) => {
    expect((await scriptedService(reply).client({ attempts: 1 }).getUser()).error?.slug).toBe('unexpected-answer');
  });

  test('has at most 1,000 characters of an unexpected body', async () => {
    const { error } = await scriptedService(() => new Response('x'.repeat(1e6), { status: 400 }))
      .client()
      .getUser();
    expect(error?.slug === 'unexpected-answer' && error.text.length).toBe(1000);
  });

  test('has the Allow methods of a 405', async () => {
    const reply = problem('method-not-allowed', { allow: 'GET, HEAD' });
    expect((await scriptedService(reply).client().getUser()).error).toMatchObject({ allow: ['GET', 'HEAD'] });
  });
});

describe('request', () => {
  test('has its path below any baseUrl and a query without undefined values', async () => {
    const ends = ['', '/', '//?a#b', '/v2/private', '/v2/private/'];
    for (const baseUrl of ends.map((end) => `http://service.test/api${end}`)) {
      const { arrived, client } = scriptedService(ok);
      await client({ baseUrl }).listCemeteries({ page: 2, limit: undefined, sort: 'asc' });
      expect(arrived[0]?.path).toBe('/api/v2/private/cemetery/all?page=2&sort=asc');
    }
  });

  test('has the headers of the client and of the call, and a given request id', async () => {
    const { arrived, client } = scriptedService(ok);
    const headers = { 'X-Request-Id': 'mine-12345', 'x-app': 'web' };
    await client({ headers }).getUser({ headers: { 'x-app': 'other', authorization: 'Bearer other' } });
    const [sent] = arrived;
    const names = ['x-request-id', 'x-app', 'authorization', 'content-type'];
    expect(names.map((name) => sent?.headers.get(name))).toEqual(['mine-12345', 'other', 'Bearer token', null]);
  });

  test('yields invalid-call or token-unavailable instead of a throw when it is invalid', async () => {
    const { arrived, client } = scriptedService(ok);
    const cyclic: { self?: unknown } = {};
    cyclic.self = cyclic;
    const wrong = [
      client({ headers: { 'bad header': 'x' } }).getUser(),
      client().getUser({ headers: { 'x-app': 'a\nb' } }),
      client().saveProfile({}, { ifMatch: '"é€"' }),
      client().saveProfile(Object.assign({ firstName: 'Ada' }, cyclic)),
    ];
    for (const result of await Promise.all(wrong)) expect(result.error?.slug).toBe('invalid-call');
    for (const token of ['a\nb', async () => 'töken€']) {
      expect((await client({ token }).getUser()).error?.slug).toBe('token-unavailable');
    }
    for (const given of ['null', '""', '1', '{}']) {
      const token = () => JSON.parse(given);
      expect([given, (await client({ token }).getUser()).error?.slug]).toEqual([given, 'token-unavailable']);
    }
    expect(arrived).toEqual([]);
  });

  test.each([301, 302, 307, 308])('follows no redirect with status %d', async (status) => {
    const paths: string[] = [];
    const server = Bun.serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch({ url }) {
        paths.push(new URL(url).pathname);
        return new Response(null, { status, headers: { location: '/elsewhere' } });
      },
    });
    atEnd(() => server.stop(true));
    excludeFromChecks(server.url);
    const client = createClient({ baseUrl: server.url.origin, token: 'token', attempts: 1 });
    expect((await client.saveProfile({ firstName: 'Ada' })).error?.slug).toBe('network-failure');
    expect((await client.getUser()).error?.slug).toBe('network-failure');
    expect(paths).toEqual(['/v2/private/user/profile', '/v2/private/user']);
  });

  test('accepts any http or https URL as baseUrl', async () => {
    for (const [baseUrl, url] of [
      ['http://[::1]:3000/', 'http://[::1]:3000/v2/private/user'],
      [' HTTPS://Service.test ', 'HTTPS://Service.test/v2/private/user'],
      ['https://bücher.example/a/b?c', 'https://bücher.example/a/b/v2/private/user'],
      ['http://127.0.0.1:1#a', 'http://127.0.0.1:1/v2/private/user'],
    ] as const) {
      const urls: string[] = [];
      const fetch = async (url: string) => {
        urls.push(url);
        return ok();
      };
      await createClient({ baseUrl, token: 'token', fetch }).getUser();
      expect(urls).toEqual([url]);
    }
  });

  test('requires a valid baseUrl, otherwise createClient throws', () => {
    const wrong = ['nowhere', '', '/api', '//a', 'localhost:3000', 'ftp://a', 'http://', 'http:\\\\a', 'http://a b'];
    for (const baseUrl of [...wrong, 'http://a:port', 'http://a:', 'http://[a', 'https://me:secret@a']) {
      expect(() => createClient({ baseUrl, token: '' })).toThrow(new TypeError(baseUrlRule));
    }
  });
});

describe('operations of the client', () => {
  test('equal those of the OpenAPI document by name', async () => {
    const { call } = await createTestApp();
    const { paths } = (await call('GET', '/swagger/json')).body as { paths: Record<string, Record<string, never>> };
    const documented = Object.entries(paths)
      .filter(([path]) => path.startsWith('/v2/private'))
      .flatMap(([path, methods]) =>
        Object.entries(methods).map(([method, { operationId }]) => `${operationId} ${method.toUpperCase()} ${path}`),
      );
    const { arrived, client } = scriptedService(ok);
    const operations = Object.entries(client()) as [string, (input?: unknown) => Promise<unknown>][];
    const made: string[] = [];
    for (const [name, operation] of operations) {
      await operation({});
      made.push(`${name} ${arrived.at(-1)?.method} ${arrived.at(-1)?.path}`);
    }
    expect(made.sort()).toEqual(documented.sort());
  });

  test('send an Idempotency-Key only for applications', async () => {
    const { arrived, client } = scriptedService(ok);
    const operations = Object.entries(client()) as [string, (input?: unknown) => Promise<unknown>][];
    for (const [, operation] of operations) await operation({});
    const keyed = operations.filter((_, index) => arrived[index]?.headers.has('idempotency-key'));
    expect(keyed.map(([name]) => name)).toEqual(['startLtcApplication', 'startLifeApplication']);
    await client().startLtcApplication(applicant, { idempotencyKey: undefined });
    await client().startLtcApplication(applicant, { idempotencyKey: 'mine' });
    expect(arrived.at(-2)?.headers.get('idempotency-key')).toMatch(/^[0-9a-f]{32}$/);
    expect(arrived.at(-1)?.headers.get('idempotency-key')).toBe('mine');
  });
});

describe('dataOf', () => {
  test('returns the data or throws the error of the call', async () => {
    expect(await dataOf(scriptedService(ok).client().getUser())).toEqual(user as never);
    const failing = dataOf(scriptedService(problem('user-not-found')).client().getUser());
    const failure = await failing.catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(CallFailure);
    expect(failure).toMatchObject({
      name: 'CallFailure',
      message: 'User not found (user-not-found)',
      error: { slug: 'user-not-found', status: 404 },
    });
  });
});
