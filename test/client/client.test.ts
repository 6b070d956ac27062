import { describe, expect, spyOn, test } from 'bun:test';
import { CallFailure, type ClientSettings, createClient, dataOf } from '../../src/client';
import { type ProblemSlug, problemKinds } from '../../src/shared/problems';
import { applicant } from '../support/app';
import { documentOfSources, excludeFromChecks } from '../support/conformance';
import { atEnd, until } from '../support/resources';

type Arrived = Readonly<{ method: string; url: string; headers: Headers; body: string }>;
type Reply = (request: Arrived) => Response | Promise<Response>;

/** A service with scripted replies: each request gets the next one, and the last one is repeated. */
function scriptedService(...replies: readonly Reply[]) {
  const arrived: Arrived[] = [];
  const fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const { method, headers, body } = init;
    const request = { url, method: String(method), headers: new Headers(headers), body: String(body ?? '') };
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
function page(status: number, text = '<h1>x</h1>', type = 'text/html') {
  return () => new Response(text, { status, headers: { 'content-type': type } });
}
const otherProblem = (type: string) => Response.json({ type, status: 400 }, { status: 400 });
function problem(slug: ProblemSlug | 'newer-kind', headers: Record<string, string> = {}, status?: number) {
  const { title, ...kind } = slug === 'newer-kind' ? { status: 418, code: 999, title: '' } : problemKinds[slug];
  const members = { type: `/problems/${slug}`, title, ...kind, detail: 'x', instance: '/' };
  const init = { status: status ?? kind.status, headers: { 'content-type': 'application/problem+json', ...headers } };
  return () => Response.json(members, init);
}
const retryNow = { 'retry-after': '0' };
const unavailable = problem('database-unavailable', retryNow);

const slugs = Object.keys(problemKinds).filter((slug): slug is ProblemSlug => slug in problemKinds);
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

  test.each([
    ['four attempts', {}, {}, 4],
    ['the attempts of the client', { attempts: 2 }, {}, 2],
    ['the attempts of the call', { attempts: 2 }, { attempts: 1 }, 1],
  ])('stops after %s', async (_, settings, options, count) => {
    const { arrived, client } = scriptedService(unavailable);
    expect((await client(settings).getUser(options)).error?.slug).toBe('database-unavailable');
    expect(arrived.length).toBe(count);
  });

  test('has the same body, request id and Idempotency-Key', async () => {
    const { arrived, client } = scriptedService(broken, unavailable, ok);
    await client().startLifeApplication(applicant);
    const id = expect.stringMatching(/^[\w-]{8,64}$/);
    const names = ['x-request-id', 'idempotency-key'];
    const sent = arrived.map(({ body, headers }) => [body, ...names.map((name) => headers.get(name))]);
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
    const [added, removed] = [spyOn(signal, 'addEventListener'), spyOn(signal, 'removeEventListener')];
    await scriptedService(ok).client().getUser({ signal });
    expect(added).toHaveBeenCalledTimes(1);
    expect(removed.mock.calls).toEqual(added.mock.calls);
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
    expect((await client({ timeoutMs: 1000 }).getUser()).error?.slug).toBe('timed-out');
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
    /** Starts calls and resolves to their errors when each waits for a refresh. */
    const waitingCalls = async (count: number, options: { signal?: AbortSignal } = {}) => {
      const calls = Array.from({ length: count }, async () => (await client.saveProfile({}, options)).error);
      await until(() => service.arrived.length >= count && refreshes.length > 0);
      await Bun.sleep(5);
      return calls;
    };
    return { ...service, token, client, asked, refreshes, waitingCalls };
  }

  test('comes from the token function at each attempt', async () => {
    const token = ({ isRefused }: { isRefused: boolean }) => (isRefused ? 'fresh' : 'stale');
    const { arrived, client } = scriptedService(problem('unauthenticated'), unavailable, ok);
    expect((await client({ token }).saveProfile({})).error).toBeUndefined();
    const sent = arrived.map(({ headers }) => headers.get('authorization'));
    expect(sent).toEqual(['stale', 'fresh', 'stale'].map((each) => `Bearer ${each}`));
  });

  test('is not asked again when it is text', async () => {
    const { arrived, client } = scriptedService(problem('unauthenticated'));
    expect((await client().getUser()).error?.slug).toBe('unauthenticated');
    expect(arrived.length).toBe(1);
  });

  test('has one refresh for parallel calls, which completes when one caller aborts', async () => {
    const { asked, refreshes, arrived, waitingCalls } = session();
    const controller = new AbortController();
    const [first] = await waitingCalls(1, { signal: controller.signal });
    const others = await waitingCalls(4);
    controller.abort();
    expect((await first)?.slug).toBe('aborted');
    refreshes[0]?.resolve('fresh');
    expect(await Promise.all(others)).toEqual(Array(4).fill(undefined));
    expect([asked.filter(Boolean).length, arrived.length]).toEqual([1, 9]);
  });

  test('has no second refresh when another call has replaced it', async () => {
    const held = Promise.withResolvers<void>();
    const { token, asked, refreshes } = session();
    const refused = problem('unauthenticated');
    const { arrived, client } = scriptedService(() => held.promise.then(refused), refused, ok);
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
    expect(await Promise.all(calls)).toEqual(Array(3).fill({ slug: 'token-unavailable', cause }));
    const next = client.saveProfile({});
    await until(() => refreshes.length === 2);
    refreshes[1]?.resolve('fresh');
    expect((await next).error).toBeUndefined();
    expect(asked.filter(Boolean).length).toBe(2);
  });

  test('gets a new refresh when its refresh is older than the time limit of the client', async () => {
    const { client, refreshes } = session({ timeoutMs: 10 });
    const calls = [client.saveProfile({}, { timeoutMs: 60_000 })];
    await until(() => refreshes.length === 1);
    await Bun.sleep(20);
    calls.push(client.saveProfile({}, { timeoutMs: 60_000 }));
    await until(() => refreshes.length === 2);
    for (const { resolve } of refreshes.toReversed()) resolve('fresh');
    for (const { error } of await Promise.all(calls)) expect(error).toBeUndefined();
  });

  test('fails the call without a second refresh when the new token is refused too', async () => {
    const { asked, refreshes, arrived, waitingCalls } = session();
    const calls = await waitingCalls(1);
    refreshes[0]?.resolve('expired');
    expect(await Promise.all(calls)).toMatchObject([{ slug: 'unauthenticated' }]);
    expect([asked.filter(Boolean).length, arrived.length]).toEqual([1, 2]);
  });
});

describe('result', () => {
  test('has isNotModified for 304 after If-None-Match, and unexpected-answer otherwise', async () => {
    const { arrived, client } = scriptedService(() => new Response(null, { status: 304, headers: { etag: '"1-1"' } }));
    const result = await client().getUser({ ifNoneMatch: '"1-1"' });
    expect(result).toMatchObject({ data: undefined, error: undefined, isNotModified: true, etag: '"1-1"' });
    expect(arrived[0]?.headers.get('if-none-match')).toBe('"1-1"');
    expect((await client().getUser()).error).toMatchObject({ slug: 'unexpected-answer', status: 304 });
  });

  const success = { error: undefined, isNotModified: false, etag: '"1-1"', requestId: 'given-by-service' };
  const unexpected = { error: { slug: 'unexpected-answer' }, etag: undefined };
  test.each<[what: string, of: string, reply: Reply, expected: object]>([
    ['data, ETag and request id', 'a success', ok, { data: user, ...success }],
    ['allow', 'a 405', problem('method-not-allowed', { allow: 'GET, POST' }), { error: { allow: ['GET', 'POST'] } }],
    ['an ETag', 'a failure with one', problem('precondition-failed', { etag: '"2-2"' }), { etag: '"2-2"' }],
    ['an error', 'a page with 200', page(200), unexpected],
    ['an error', 'broken JSON', page(200, '{', 'application/json'), unexpected],
    ['an error', 'null as a problem', () => Response.json(null, { status: 400 }), unexpected],
    ['an error', 'a list as a problem', () => Response.json([], { status: 422 }), unexpected],
    ['an error', 'a problem of another service', () => otherProblem('about:blank'), unexpected],
    ['an error', 'a problem named like an inherited member', () => otherProblem('/problems/constructor'), unexpected],
    ['an error', 'a problem with another status', problem('forbidden', {}, 404), unexpected],
    ['an error', 'a problem newer than the client', problem('newer-kind'), unexpected],
    ['1,000 characters', 'a long page', page(400, 'x'.repeat(1e6)), { error: { text: 'x'.repeat(1000) } }],
  ])('has %s for %s', async (_, __, reply, expected) => {
    expect(await scriptedService(reply).client({ attempts: 1 }).getUser()).toMatchObject(expected);
  });
});

describe('request', () => {
  test.each([
    ['http://service.test', 'http://service.test'],
    ['http://service.test/api', 'http://service.test/api'],
    ['http://service.test/api/', 'http://service.test/api'],
    ['http://service.test/api//?a#b', 'http://service.test/api'],
    ['http://service.test/api/v2/private', 'http://service.test/api'],
    ['http://service.test/api/v2/private/', 'http://service.test/api'],
    ['http://[::1]:3000/', 'http://[::1]:3000'],
    [' HTTPS://Service.test ', 'HTTPS://Service.test'],
    ['https://bücher.example/a/b?c', 'https://bücher.example/a/b'],
    ['http://127.0.0.1:1#a', 'http://127.0.0.1:1'],
  ])('has its path below the baseUrl %s and a query without undefined values', async (baseUrl, expected) => {
    const { arrived, client } = scriptedService(ok);
    await client({ baseUrl }).listCemeteries({ page: 2, limit: undefined, sort: 'asc' });
    expect(arrived[0]?.url).toBe(`${expected}/v2/private/cemetery/all?page=2&sort=asc`);
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

  test('is not sent, and yields token-unavailable with its cause, when the token function fails', async () => {
    const cause = new Error('signed out');
    const { error } = await client({ token: () => Promise.reject<string>(cause) }).getUser();
    expect(error).toEqual({ slug: 'token-unavailable', cause });
    expect(arrived).toEqual([]);
  });

  test('follows no redirect with status 301, 302, 307 or 308', async () => {
    const paths: string[] = [];
    const server = Bun.serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch({ url }) {
        const { pathname } = new URL(url);
        paths.push(pathname);
        return new Response(null, { status: Number(pathname.slice(1, 4)), headers: { location: '/elsewhere' } });
      },
    });
    atEnd(() => server.stop(true));
    excludeFromChecks(server.url);
    for (const status of [301, 302, 307, 308]) {
      const client = createClient({ baseUrl: `${server.url}${status}`, token: 'token', attempts: 1 });
      expect((await client.saveProfile({ firstName: 'Ada' })).error?.slug).toBe('network-failure');
      expect((await client.getUser()).error?.slug).toBe('network-failure');
      expect(paths.splice(0)).toEqual([`/${status}/v2/private/user/profile`, `/${status}/v2/private/user`]);
    }
  });

  const wrong = ['nowhere', '', '/api', '//a', 'localhost:3000', 'ftp://a', 'http://', 'http:\\\\a', 'http://a b'];
  const wrongHosts = ['http://a:port', 'http://a:', 'http://[a', 'https://me:secret@a'];
  test.each([...wrong, ...wrongHosts])('cannot be made when the baseUrl is “%s”', (baseUrl) => {
    const rule = new TypeError('baseUrl must be an address, such as https://planning.example');
    expect(() => createClient({ baseUrl, token: '' })).toThrow(rule);
  });
});

describe('operation of the client', () => {
  test('equals one of the OpenAPI document by name, method, path and Idempotency-Key', async () => {
    const { arrived, client } = scriptedService(ok);
    // Simulates calls from JavaScript without types.
    const untyped: Record<string, (input: unknown) => Promise<unknown>> = client() as never;
    for (const call of Object.values(untyped)) await call({});
    const made = Object.keys(untyped).map((operationId, index) => {
      const { method = '', url = '', headers } = arrived[index] ?? {};
      const path = url.replace('http://service.test', '');
      return { operationId, name: `${method} ${path}`, hasKey: headers?.has('idempotency-key') };
    });
    const documented = (await documentOfSources()).operations
      .filter(({ isPrivate }) => isPrivate)
      .map(({ operationId, name, parameters }) => {
        return { operationId, name, hasKey: parameters.some((each) => each.name === 'Idempotency-Key') };
      });
    expect(new Set(made)).toEqual(new Set(documented));
    expect(made.length).toBe(documented.length);
  });

  test('has the given Idempotency-Key, or a random one for undefined', async () => {
    const { arrived, client } = scriptedService(ok);
    for (const idempotencyKey of [undefined, 'mine']) await client().startLtcApplication(applicant, { idempotencyKey });
    const keys = arrived.map(({ headers }) => headers.get('idempotency-key'));
    expect(keys).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), 'mine']);
  });
});

describe('dataOf', () => {
  test('returns the data or throws the error of the call', async () => {
    const client = scriptedService(ok, problem('user-not-found', { etag: '"2-2"' })).client();
    const data: unknown = await dataOf(client.getUser());
    expect(data).toEqual(user);
    const failure = await dataOf(client.getUser()).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(CallFailure);
    const name = 'CallFailure';
    const message = 'User not found (user-not-found)';
    expect(failure).toMatchObject({ name, message, etag: '"2-2"', error: { slug: 'user-not-found', status: 404 } });
  });
});
