import { describe, expect, test } from 'bun:test';
import { CallFailure, type ClientError, type ClientSettings, createClient, dataOf } from '../../src/client';
import { problemKinds } from '../../src/shared/problems';
import { applicant, createTestApp } from '../support/app';
import { excludeFromChecks } from '../support/conformance';
import { atEnd, until } from '../support/resources';

interface Arrived {
  readonly method: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: string;
}
type Reply = (request: Arrived) => Response | Promise<Response>;
type Slug = keyof typeof problemKinds;

/** A service with scripted replies: each request gets the next one, and the last one is repeated. */
function scriptedService(...replies: readonly Reply[]) {
  const arrived: Arrived[] = [];
  const fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const { pathname, search } = new URL(url);
    const request = {
      method: String(init.method),
      path: pathname + search,
      headers: new Headers(init.headers),
      body: String(init.body ?? ''),
    };
    arrived.push(request);
    const reply = replies[Math.min(arrived.length, replies.length) - 1];
    return reply === undefined ? broken() : reply(request);
  };
  const client = (settings: Partial<ClientSettings> = {}) =>
    createClient({ baseUrl: 'http://service.test', token: 'token', fetch, ...settings });
  return { arrived, client };
}

const user = { user: { id: 'ada' } };
const ok = () => Response.json(user, { headers: { etag: '"1-1"', 'x-request-id': 'given-by-service' } });
const silent = () => new Promise<never>(() => undefined);
const broken = () => Promise.reject<Response>(new TypeError('fetch failed'));
const page = (status: number) => () => new Response('<h1>x</h1>', { status, headers: { 'content-type': 'text/html' } });
const problem =
  (slug: Slug | 'newer-kind', headers: Record<string, string> = {}, status?: number) =>
  () => {
    const kind = slug === 'newer-kind' ? { status: 418, code: 999, title: '' } : problemKinds[slug];
    const { code, title } = kind;
    const body = {
      type: `/problems/${slug}`,
      title,
      status: kind.status,
      code,
      detail: 'what happened',
      instance: '/',
    };
    const init = { status: status ?? kind.status, headers: { 'content-type': 'application/problem+json', ...headers } };
    return Response.json(body, init);
  };
const retryNow = { 'retry-after': '0' };
const unavailable = problem('database-unavailable', retryNow);

const slugs = Object.keys(problemKinds).filter((slug): slug is Slug => slug in problemKinds);
const failures: Record<string, Reply> = {
  ...Object.fromEntries(slugs.map((slug) => [slug, problem(slug, retryNow)])),
  ...Object.fromEntries([400, 404, 429, 500, 502, 503, 504].map((status) => [`a page with ${status}`, page(status)])),
  'a broken connection': broken,
};
const temporary = [
  ...slugs.filter((slug) => [408, 409, 429, 502, 503, 504].includes(problemKinds[slug].status)),
  ...[429, 502, 503, 504].map((status) => `a page with ${status}`),
  'a broken connection',
];

/** The names of the failures after which a second request with the same `If-Match` is sent. */
async function retried(ifMatch?: string): Promise<string[]> {
  const attempts = Object.entries(failures).map(async ([name, reply]) => {
    const { arrived, client } = scriptedService(reply, ok);
    const { error } = await client().saveProfile({}, { ifMatch });
    const ifMatches = arrived.map(({ headers }) => headers.get('if-match'));
    expect([name, ifMatches]).toEqual([name, Array(error === undefined ? 2 : 1).fill(ifMatch ?? null)]);
    if (error !== undefined && name in problemKinds) expect<string>(error.slug).toBe(name);
    return error === undefined ? [name] : [];
  });
  return (await Promise.all(attempts)).flat();
}

describe('retry', () => {
  test('follows temporary problems, proxy pages and broken connections only', async () => {
    expect(await retried()).toEqual(Object.keys(failures).filter((name) => temporary.includes(name)));
  });

  test('follows a save with If-Match only when the first attempt cannot have been applied', async () => {
    expect((await retried('"1-1"')).toSorted()).toEqual(['auth-keys-unavailable', 'rate-limited', 'request-timeout']);
  });

  test('waits for Retry-After', async () => {
    const { client } = scriptedService(problem('database-unavailable', { 'retry-after': '1' }), ok);
    const startedAtMs = performance.now();
    expect((await client().getUser()).error).toBeUndefined();
    expect(performance.now() - startedAtMs).toBeGreaterThan(950);
  });

  test.each([
    ['in seconds', '3600'],
    ['as a date', new Date(Date.now() + 3_600_000).toUTCString()],
  ])('does not start when Retry-After %s exceeds the deadline', async (_, header) => {
    const { arrived, client } = scriptedService(problem('carrier-timeout', { 'retry-after': header }), ok);
    const { error } = await client().startLtcApplication(applicant);
    expect(error?.slug === 'carrier-timeout' && error.retryAfterSeconds).toBeWithin(3500, 3601);
    expect(arrived.length).toBe(1);
  });

  test('stops at the configured number of attempts', async () => {
    const runs = [
      [{}, {}, 4],
      [{ attempts: 2 }, {}, 2],
      [{ attempts: 2 }, { attempts: 1 }, 1],
    ] as const;
    const counts = runs.map(async ([settings, options]) => {
      const { arrived, client } = scriptedService(unavailable);
      expect((await client(settings).getUser(options)).error?.slug).toBe('database-unavailable');
      return arrived.length;
    });
    expect(await Promise.all(counts)).toEqual(runs.map(([, , count]) => count));
  });

  test('has the same body, request id and Idempotency-Key', async () => {
    const { arrived, client } = scriptedService(broken, unavailable, ok);
    await client().startLifeApplication(applicant);
    const id = expect.stringMatching(/^[\w-]{8,64}$/);
    const sent = arrived.map(({ body, headers }) => [
      body,
      headers.get('x-request-id'),
      headers.get('idempotency-key'),
    ]);
    expect(sent[0]).toEqual([JSON.stringify(applicant), id, id]);
    expect(sent).toEqual(Array(3).fill(sent[0]));
  });
});

describe('abort', () => {
  test('sends nothing when it precedes the call', async () => {
    const { arrived, client } = scriptedService(ok);
    const { error } = await client().getUser({ signal: AbortSignal.abort('gone') });
    expect(error).toEqual({ slug: 'aborted', cause: 'gone' });
    expect(arrived).toEqual([]);
  });

  test.each<[string, Reply, Partial<ClientSettings>, number]>([
    ['a pending request whose fetch ignores the signal', silent, {}, 1],
    ['a retry delay', problem('database-unavailable', { 'retry-after': '20' }), {}, 1],
    ['a pending token', ok, { token: silent }, 0],
  ])('ends %s without a retry', async (_, reply, settings, requests) => {
    const { arrived, client } = scriptedService(reply, ok);
    const controller = new AbortController();
    const call = client(settings).getUser({ signal: controller.signal });
    await Bun.sleep(5);
    controller.abort();
    expect((await call).error?.slug).toBe('aborted');
    expect(arrived.length).toBe(requests);
  });

  test('leaves no listener on the signal after a call', async () => {
    const { signal } = new AbortController();
    const [add, remove] = [signal.addEventListener, signal.removeEventListener];
    let listeners = 0;
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      listeners += 1;
      add.apply(signal, args);
    };
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      listeners -= 1;
      remove.apply(signal, args);
    };
    await scriptedService(ok).client().getUser({ signal });
    expect(listeners).toBe(0);
  });
});

describe('timeout', () => {
  test('ends a pending call with the error timed-out', async () => {
    const client = scriptedService(silent).client({ timeoutMs: 30 });
    expect((await client.getUser()).error).toEqual({ slug: 'timed-out', timeoutMs: 30 });
    expect((await client.saveProfile({}, { timeoutMs: 20 })).error).toEqual({ slug: 'timed-out', timeoutMs: 20 });
  });

  test('has no effect when it is infinite', async () => {
    const token = () => Bun.sleep(30).then(() => 'late');
    const client = scriptedService(ok).client({ token, timeoutMs: Number.POSITIVE_INFINITY });
    expect((await client.getUser()).error).toBeUndefined();
  });

  test('covers all attempts', async () => {
    const { arrived, client } = scriptedService(unavailable, silent);
    expect((await client({ timeoutMs: 400 }).getUser()).error?.slug).toBe('timed-out');
    expect(arrived.length).toBe(2);
  });
});

describe('token', () => {
  /** A session with an expired token; the test settles each refresh. */
  function session(settings: Partial<ClientSettings> = {}) {
    const accepted = ({ headers }: Arrived) => headers.get('authorization') === 'Bearer fresh';
    const service = scriptedService((request) => (accepted(request) ? ok() : problem('unauthenticated')()));
    const asked: boolean[] = [];
    const refreshes: PromiseWithResolvers<string>[] = [];
    let current = 'expired';
    const token = async ({ isRefused }: { isRefused: boolean }) => {
      asked.push(isRefused);
      if (!isRefused) return current;
      const refresh = Promise.withResolvers<string>();
      refreshes.push(refresh);
      current = await refresh.promise;
      return current;
    };
    const client = service.client({ token, ...settings });
    /** Starts calls and resolves when each waits for a refresh. */
    const waitingCalls = async (count: number, options: { signal?: AbortSignal } = {}) => {
      const calls = Array.from({ length: count }, () => client.saveProfile({}, options));
      await until(() => service.arrived.length >= count && refreshes.length > 0);
      await Bun.sleep(5);
      return calls;
    };
    return { ...service, token, client, asked, refreshes, waitingCalls };
  }
  const errorsOf = async (calls: readonly Promise<{ error: ClientError | undefined }>[]) =>
    (await Promise.all(calls)).map(({ error }) => error);

  test('comes from the token function at each attempt', async () => {
    const token = ({ isRefused }: { isRefused: boolean }) => (isRefused ? 'fresh' : 'stale');
    const { arrived, client } = scriptedService(problem('unauthenticated'), unavailable, ok);
    expect((await client({ token }).saveProfile({})).error).toBeUndefined();
    const sent = arrived.map(({ headers }) => headers.get('authorization'));
    expect(sent).toEqual(['Bearer stale', 'Bearer fresh', 'Bearer stale']);
  });

  test('is not asked again when it is text', async () => {
    const { arrived, client } = scriptedService(problem('unauthenticated'));
    expect((await client().getUser()).error?.slug).toBe('unauthenticated');
    expect(arrived.length).toBe(1);
  });

  test('yields token-unavailable when the callback throws', async () => {
    const cause = new Error('signed out');
    const { arrived, client } = scriptedService(ok);
    const token = () => Promise.reject<string>(cause);
    expect((await client({ token }).getUser()).error).toEqual({ slug: 'token-unavailable', cause });
    expect(arrived).toEqual([]);
  });

  test('has one refresh for five parallel calls', async () => {
    const { asked, refreshes, arrived, waitingCalls } = session();
    const calls = await waitingCalls(5);
    refreshes[0]?.resolve('fresh');
    expect(await errorsOf(calls)).toEqual(Array(5).fill(undefined));
    expect([asked.filter(Boolean).length, arrived.length]).toEqual([1, 10]);
  });

  test('has no second refresh when another call has replaced it', async () => {
    const held = Promise.withResolvers<void>();
    const { token, asked, refreshes } = session();
    const { arrived, client } = scriptedService(
      () => held.promise.then(problem('unauthenticated')),
      problem('unauthenticated'),
      ok,
    );
    const sharing = client({ token });
    const late = sharing.saveProfile({});
    await until(() => arrived.length === 1);
    const other = sharing.saveProfile({});
    await until(() => refreshes.length === 1);
    refreshes[0]?.resolve('fresh');
    expect((await other).error).toBeUndefined();
    held.resolve();
    expect((await late).error).toBeUndefined();
    expect(asked).toEqual([false, false, true]);
    expect(arrived.at(-1)?.headers.get('authorization')).toBe('Bearer fresh');
  });

  test('fails all waiting calls when its refresh fails, and the next call retries', async () => {
    const { client, asked, refreshes, waitingCalls } = session();
    const calls = await waitingCalls(3);
    const cause = new Error('signed out');
    refreshes[0]?.reject(cause);
    expect(await errorsOf(calls)).toEqual(Array(3).fill({ slug: 'token-unavailable', cause }));
    const next = client.saveProfile({});
    await until(() => refreshes.length === 2);
    refreshes[1]?.resolve('fresh');
    expect((await next).error).toBeUndefined();
    expect(asked.filter(Boolean).length).toBe(2);
  });

  test('completes its refresh for the other calls when one caller aborts', async () => {
    const { asked, refreshes, waitingCalls } = session();
    const controller = new AbortController();
    const [first] = await waitingCalls(1, { signal: controller.signal });
    const others = await waitingCalls(2);
    controller.abort();
    expect((await first)?.error?.slug).toBe('aborted');
    refreshes[0]?.resolve('fresh');
    expect(await errorsOf(others)).toEqual([undefined, undefined]);
    expect(asked.filter(Boolean).length).toBe(1);
  });

  test('gets a new refresh after the time limit when its refresh never ends', async () => {
    const { client, refreshes } = session({ timeoutMs: 50 });
    expect((await client.saveProfile({})).error?.slug).toBe('timed-out');
    const next = client.saveProfile({}, { timeoutMs: 5000 });
    await until(() => refreshes.length === 2);
    refreshes[1]?.resolve('fresh');
    expect((await next).error).toBeUndefined();
  });

  test('fails the call without a second refresh when the new token is refused too', async () => {
    const { asked, refreshes, arrived, waitingCalls } = session();
    const calls = await waitingCalls(1);
    refreshes[0]?.resolve('expired');
    expect(await errorsOf(calls)).toMatchObject([{ slug: 'unauthenticated' }]);
    expect([asked.filter(Boolean).length, arrived.length]).toEqual([1, 2]);
  });
});

describe('result', () => {
  test('has data, ETag and request id on success', async () => {
    const result: unknown = await scriptedService(ok).client().getUser();
    const expected = {
      data: user,
      error: undefined,
      isNotModified: false,
      etag: '"1-1"',
      requestId: 'given-by-service',
    };
    expect(result).toEqual(expected);
  });

  test('has isNotModified for 304 after If-None-Match, and unexpected-answer otherwise', async () => {
    const { arrived, client } = scriptedService(() => new Response(null, { status: 304, headers: { etag: '"1-1"' } }));
    const { data, error, isNotModified, etag } = await client().getUser({ ifNoneMatch: '"1-1"' });
    expect([data, error, isNotModified, etag]).toEqual([undefined, undefined, true, '"1-1"']);
    expect(arrived[0]?.headers.get('if-none-match')).toBe('"1-1"');
    expect((await client().getUser()).error).toMatchObject({ slug: 'unexpected-answer', status: 304 });
  });

  test.each<[string, Reply]>([
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
  ])('has unexpected-answer for %s', async (_, reply) => {
    expect((await scriptedService(reply).client({ attempts: 1 }).getUser()).error?.slug).toBe('unexpected-answer');
  });

  test('has at most 1,000 characters of an unexpected body', async () => {
    const { client } = scriptedService(() => new Response('x'.repeat(1e6), { status: 400 }));
    const { error } = await client().getUser();
    expect(error?.slug === 'unexpected-answer' && error.text.length).toBe(1000);
  });

  test('has the Allow methods of a 405', async () => {
    const reply = problem('method-not-allowed', { allow: 'GET, HEAD' });
    expect((await scriptedService(reply).client().getUser()).error).toMatchObject({ allow: ['GET', 'HEAD'] });
  });

  test('has the ETag of a failure if there is one', async () => {
    const { client } = scriptedService(problem('precondition-failed', { etag: '"2-2"' }), problem('user-not-found'));
    expect((await client().saveProfile({}, { ifMatch: '"1-1"' })).etag).toBe('"2-2"');
    expect((await client().getUser()).etag).toBeUndefined();
  });
});

describe('request', () => {
  test('has its path below any baseUrl and a query without undefined values', async () => {
    for (const end of ['', '/', '//?a#b', '/v2/private', '/v2/private/']) {
      const { arrived, client } = scriptedService(ok);
      await client({ baseUrl: `http://service.test/api${end}` }).listCemeteries({
        page: 2,
        limit: undefined,
        sort: 'asc',
      });
      expect(arrived[0]?.path).toBe('/api/v2/private/cemetery/all?page=2&sort=asc');
    }
  });

  test('has the headers of the client and of the call, and a given request id', async () => {
    const { arrived, client } = scriptedService(ok);
    const headers = { 'X-Request-Id': 'mine-12345', 'x-app': 'web' };
    await client({ headers }).getUser({ headers: { 'x-app': 'other', authorization: 'Bearer other' } });
    const names = ['x-request-id', 'x-app', 'authorization', 'content-type'];
    const sent = names.map((name) => arrived[0]?.headers.get(name));
    expect(sent).toEqual(['mine-12345', 'other', 'Bearer token', null]);
  });

  const { arrived, client } = scriptedService(ok);
  test.each([
    ['a header name', () => client({ headers: { 'bad header': 'x' } }).getUser()],
    ['a header value', () => client().getUser({ headers: { 'x-app': 'a\nb' } })],
    ['an ETag', () => client().saveProfile({}, { ifMatch: '"é€"' })],
    ['attempts', () => client().getUser({ attempts: Number.NaN })],
    ['attempts of the client', () => client({ attempts: Number.NaN }).getUser()],
    ['timeoutMs', () => client().getUser({ timeoutMs: Number.NaN })],
    ['timeoutMs of the client', () => client({ timeoutMs: Number('30s') }).getUser()],
  ])('is not sent, and yields invalid-call, when it has an invalid value of %s', async (_, call) => {
    expect((await call()).error?.slug).toBe('invalid-call');
    expect(arrived).toEqual([]);
  });

  test.each(['"a\\nb"', '"töken€"', 'null', '""', '1', '{}'])(
    'is not sent, and yields token-unavailable, when the token is %s',
    async (json) => {
      const token = JSON.parse(json);
      expect((await client({ token: () => token }).getUser()).error?.slug).toBe('token-unavailable');
      expect(arrived).toEqual([]);
    },
  );

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

  test.each([
    ['http://[::1]:3000/', 'http://[::1]:3000/v2/private/user'],
    [' HTTPS://Service.test ', 'HTTPS://Service.test/v2/private/user'],
    ['https://bücher.example/a/b?c', 'https://bücher.example/a/b/v2/private/user'],
    ['http://127.0.0.1:1#a', 'http://127.0.0.1:1/v2/private/user'],
  ])('accepts the baseUrl %s', async (baseUrl, expected) => {
    const urls: string[] = [];
    const fetch = async (url: string) => {
      urls.push(url);
      return ok();
    };
    await createClient({ baseUrl, token: 'token', fetch }).getUser();
    expect(urls).toEqual([expected]);
  });

  const wrong = ['nowhere', '', '/api', '//a', 'localhost:3000', 'ftp://a', 'http://', 'http:\\\\a', 'http://a b'];
  test.each([...wrong, 'http://a:port', 'http://a:', 'http://[a', 'https://me:secret@a'])(
    'cannot be made when the baseUrl is “%s”',
    (baseUrl) => {
      const rule = new TypeError('baseUrl must be an address, such as https://planning.example');
      expect(() => createClient({ baseUrl, token: '' })).toThrow(rule);
    },
  );
});

describe('operations of the client', () => {
  /** Calls each operation once and returns the requests by operation. */
  async function callAll() {
    const { arrived, client } = scriptedService(ok);
    // Simulates calls from JavaScript without types.
    const untyped: Record<string, (input: unknown) => Promise<unknown>> = client() as never;
    for (const call of Object.values(untyped)) await call({});
    return Object.keys(untyped).map((name, index) => ({ name, ...arrived[index] }));
  }

  test('equal those of the OpenAPI document by name', async () => {
    const { call } = await createTestApp();
    const { paths } = Object((await call('GET', '/swagger/json')).body);
    const documented = Object.entries<Record<string, { operationId: string }>>(paths)
      .filter(([path]) => path.startsWith('/v2/private'))
      .flatMap(([path, methods]) =>
        Object.entries(methods).map(([method, { operationId }]) => `${operationId} ${method.toUpperCase()} ${path}`),
      );
    const made = (await callAll()).map(({ name, method, path }) => `${name} ${method} ${path}`);
    expect(made.sort()).toEqual(documented.sort());
  });

  test('send an Idempotency-Key only for applications', async () => {
    const keyed = (await callAll()).filter(({ headers }) => headers?.has('idempotency-key'));
    expect(keyed.map(({ name }) => name)).toEqual(['startLtcApplication', 'startLifeApplication']);
    const { arrived, client } = scriptedService(ok);
    await client().startLtcApplication(applicant, { idempotencyKey: undefined });
    await client().startLtcApplication(applicant, { idempotencyKey: 'mine' });
    const keys = arrived.map(({ headers }) => headers.get('idempotency-key'));
    expect(keys).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), 'mine']);
  });
});

describe('dataOf', () => {
  test('returns the data or throws the error of the call', async () => {
    const data: unknown = await dataOf(scriptedService(ok).client().getUser());
    expect(data).toEqual(user);
    const call = scriptedService(problem('user-not-found', { etag: '"2-2"' }))
      .client()
      .getUser();
    const failure = await dataOf(call).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(CallFailure);
    expect(failure).toMatchObject({
      name: 'CallFailure',
      message: 'User not found (user-not-found)',
      etag: '"2-2"',
      error: { slug: 'user-not-found', status: 404 },
    });
  });
});
