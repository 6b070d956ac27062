import { describe, expect, test } from 'bun:test';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import { serveOptions } from '../../src/app';
import { createTokenVerifier } from '../../src/auth/verifier';
import { openServiceDatabase } from '../../src/db/client';
import type { AppDeps } from '../../src/deps';
import { createErrorHandler, createRouteTable, Problem, problemsAnywhere } from '../../src/http/problem-response';
import { createRateLimits } from '../../src/http/rate-limits';
import { createCors, createRequestContext } from '../../src/http/request-context';
import { createLog } from '../../src/log';
import { seedDemo } from '../../src/seed';
import { lazy } from '../../src/shared/async';
import { type ProblemSlug, problemKinds } from '../../src/shared/problems';
import {
  type CallOptions,
  createTestApp,
  listen,
  readResponse,
  startSandbox,
  type TestApp,
  type TestResponse,
  testConfig,
  testToken,
} from '../support/app';
import { type DocumentedOperation, documentOfSources, operationsAt } from '../support/conformance';
import { atEnd, never } from '../support/resources';

const sandbox = await startSandbox();
const known = await documentOfSources();

const open = (overrides: Partial<AppDeps> = {}): (() => Promise<TestApp>) =>
  lazy(() => createTestApp({ carrier: sandbox.carrier({ attempts: 1 }), ...overrides }));

const unreachable = await openServiceDatabase({ url: 'http://127.0.0.1:1', timeoutMs: 300 });
atEnd(() => unreachable.$client.close());
const verifyWithoutKeys = await createTokenVerifier(
  { key: { kind: 'jwks', url: 'http://127.0.0.1:1' }, issuer: undefined, audience: undefined, rolesClaim: 'roles' },
  () => new Date(),
  () => performance.now(),
);

const apps = {
  usual: open(),
  withoutDatabase: open({ db: unreachable, reads: unreachable }),
  withoutKeys: open({ hasTokenKeys: () => false, verifyToken: verifyWithoutKeys }),
  broken: open({ verifyToken: () => Promise.reject(new Error('broken')) }),
  draining: open({ lifecycle: { isDraining: true, hasLostDisk: false, onRequestWhileDraining: () => undefined } }),
  limited: open({ rateLimits: createRateLimits({ perMinute: 1, trustedProxyCount: 0 }, () => 0) }),
  shortTimeouts: open({
    carrier: sandbox.carrier({ attempts: 1, timeoutMs: 300 }),
    config: { ...testConfig, carrier: { applicationsPerDay: 0, attempts: 1, timeoutMs: 50 }, requestTimeoutMs: 20 },
  }),
};
const { call, db, now } = await apps.usual();
await seedDemo(db, now);

const Document = v.object({
  info: v.object({ description: v.string() }),
  paths: v.record(
    v.string(),
    v.record(
      v.string(),
      v.object({
        responses: v.record(
          v.string(),
          v.object({
            description: v.string(),
            content: v.optional(v.record(v.string(), v.looseObject({ examples: v.optional(v.looseObject({})) }))),
          }),
        ),
      }),
    ),
  ),
  components: v.object({ schemas: v.record(v.string(), v.object({ description: v.optional(v.string()) })) }),
});
const { info, paths, components } = v.parse(Document, (await call('GET', '/swagger/json')).body);

/** Each problem of each operation in the OpenAPI document. */
const documented = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).flatMap(([method, { responses }]) =>
    Object.entries(responses).flatMap(([status, { description, content }]) =>
      Object.entries(content?.['application/problem+json']?.examples ?? {}).map(([slug, example]) => ({
        name: `${method.toUpperCase()} ${path} ${slug}`,
        slug,
        status: Number(status),
        description,
        example: v.parse(v.object({ value: Problem }), example).value,
        route: operationsAt(known, path).find((each) => each.method === method.toUpperCase()) ?? never(),
      })),
    ),
  ),
);
type Route = DocumentedOperation;

/** Sends the documented example as an authorized user, with overrides. */
async function send(app: () => Promise<TestApp>, { method, target, body }: Route, overrides: CallOptions = {}) {
  const options = { as: 'demo-manager', roles: ['salesManager'], body: body?.examples[0], ...overrides };
  return (await app()).call(method, target, options);
}

/** Starts an application; the last name selects the behaviour of the carrier sandbox. */
function apply(app: () => Promise<TestApp>, route: Route, lastName: string, overrides: CallOptions = {}) {
  return send(app, route, { body: { ...Object(route.body?.examples[0]), lastName }, ...overrides });
}

async function sendStream({ method, path }: Route, body: ReadableStream): Promise<TestResponse> {
  const { app, now } = await apps.shortTimeouts();
  const token = await testToken({ id: 'sender', now });
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  return readResponse(await app.handle(new Request(`http://localhost${path}`, { method, headers, body })));
}

function sendInvalidQuery(route: Route) {
  const names = route.parameters.filter((each) => each.in === 'query').map(({ name }) => name);
  const query = new URLSearchParams((names.length === 0 ? ['unknown'] : names).map((name) => [name, '?']));
  return send(apps.usual, { ...route, target: `${route.path}?${query}` });
}
const manyParameters = Array.from({ length: 65 }, (_, index) => `p${index}`).join('&');
/** A token whose signature cannot be verified without the keys. */
const unverifiable = `Bearer ${['{"alg":"ES256"}', '{}', 'x'].map((part) => Buffer.from(part).toString('base64url')).join('.')}`;

/** For each problem, a request that makes a route return it. */
const provocations: Partial<Record<ProblemSlug, (route: Route) => Promise<TestResponse | undefined>>> = {
  'malformed-json': (route) => send(apps.usual, route, { body: '{' }),
  'invalid-input': (route) =>
    route.method === 'POST' ? send(apps.usual, route, { body: { unknownField: true } }) : sendInvalidQuery(route),
  'unsupported-media-type': (route) =>
    send(apps.usual, route, { body: 'x', headers: { 'content-type': 'text/plain' } }),
  'payload-too-large': (route) => send(apps.usual, route, { body: 'x'.repeat(testConfig.bodyLimitBytes + 1) }),
  'malformed-request': ({ method, path }) => call(method, `${path}?${manyParameters}`),
  'request-timeout': (route) => sendStream(route, new ReadableStream()),
  unauthenticated: ({ method, path }) => call(method, path),
  'auth-keys-unavailable': (route) => send(apps.withoutKeys, route, { headers: { authorization: unverifiable } }),
  forbidden: (route) => send(apps.usual, route, { roles: [] }),
  'user-not-found': (route) => send(apps.usual, route, { as: 'new-user' }),
  'application-in-progress': async (route) => {
    const both = await Promise.all([1, 2].map(() => apply(apps.shortTimeouts, route, 'Slow', { as: 'twice' })));
    return both.find(({ status }) => status === 409);
  },
  'idempotency-key-reused': async (route) => {
    const headers = { 'idempotency-key': 'one' };
    await apply(apps.usual, route, 'Byron', { headers });
    return apply(apps.usual, route, 'Lovelace', { headers });
  },
  'precondition-failed': async (route) => {
    await call('POST', '/v2/private/user/profile', { as: 'demo-manager', body: {} });
    return send(apps.usual, route, { headers: { 'if-match': '"another"' } });
  },
  'rate-limited': async (route) => {
    await send(apps.limited, route, { as: route.path });
    return send(apps.limited, route, { as: route.path });
  },
  'internal-error': (route) => send(apps.broken, route),
  'database-unavailable': (route) => send(apps.withoutDatabase, route),
  'shutting-down': (route) => send(apps.draining, route),
  'carrier-unavailable': (route) => apply(apps.usual, route, 'Broken'),
  'carrier-timeout': (route) => apply(apps.shortTimeouts, route, 'Slow'),
  'carrier-bad-answer': (route) => apply(apps.usual, route, 'Garbled'),
  'carrier-declined': (route) => apply(apps.usual, route, 'Declined'),
};

const responses = new Map<string, Promise<TestResponse | undefined>>();

/** Cached, because most problems of an application cannot be provoked twice. */
function provoke(slug: string, route: Route): Promise<TestResponse | undefined> {
  const name = `${slug} ${route.name}`;
  const response = responses.get(name) ?? Promise.resolve(new Map(Object.entries(provocations)).get(slug)?.(route));
  responses.set(name, response);
  return response;
}

function withoutRequestId(body: unknown) {
  const { requestId: _, ...problem } = v.parse(Problem, body);
  return problem;
}

describe('documented problem', () => {
  test.each(documented)('$name equals the response of the service', async (problem) => {
    const response = await provoke(problem.slug, problem.route);
    const { title } = withoutRequestId(response?.body);
    expect(response?.status).toBe(problem.status);
    expect(withoutRequestId(response?.body)).toEqual(withoutRequestId(problem.example));
    expect(problem.example.type).toBe(`/problems/${problem.slug}`);
    expect(problem.description).toContain(`\`${problem.slug}\`: ${title}.`);
  });

  test('has a schema that links to its page', () => {
    const links = Object.values(components.schemas).flatMap(
      ({ description = '' }) => description.match(/\/problems\/[\w-]+/) ?? [],
    );
    expect(links.toSorted()).toEqual([...new Set(documented.map(({ slug }) => `/problems/${slug}`))].toSorted());
  });

  test('has an example with a specific detail when its remedy mentions `detail`', () => {
    const withDetail = Object.entries(problemKinds).filter(([, { remedy }]) => remedy.includes('`detail`'));
    expect(withDetail.length).toBeGreaterThan(1);
    for (const [slug, { meaning }] of withDetail) {
      const details = documented.flatMap((each) => (each.slug === slug ? [each.example.detail] : []));
      expect([slug, details.length > 0, details.includes(meaning)]).toEqual([slug, true, false]);
    }
  });

  test('exists for every kind, at an operation or among the problems of any path', () => {
    const named = new Set([...documented.map(({ slug }) => slug), ...problemsAnywhere]);
    expect(Object.keys(problemKinds).filter((slug) => !named.has(slug))).toEqual([]);
    for (const slug of problemsAnywhere) expect(info.description).toContain(`(/problems/${slug})`);
  });
});

test('every kind of problem has its own code, and Retry-After for 409, 429, 503 and 504', () => {
  const kinds = Object.values(problemKinds);
  expect(new Set(kinds.map(({ code }) => code)).size).toBe(kinds.length);
  for (const kind of kinds.filter(({ status }) => [409, 429, 503, 504].includes(status)))
    expect(kind).toHaveProperty('retryAfterSeconds');
});

describe('page of a problem', () => {
  /** The example response on the page. */
  async function shownOnPage(slug: string) {
    const { text } = await call('GET', `/problems/${slug}`);
    const [head = '', body = ''] = (/<pre>([^<]+)<\/pre>/.exec(text)?.[1] ?? '').replaceAll('&amp;', '&').split('\n\n');
    const [first = '', ...lines] = head.split('\n');
    const headers = lines.map((line) => line.split(': '));
    return { status: Number(first.split(' ')[1]), headers, body: v.parse(Problem, JSON.parse(body)) };
  }

  const firstOfEach = [...Map.groupBy(documented, ({ slug }) => slug).values()].flatMap((group) => group.slice(0, 1));
  test.each([
    ...firstOfEach.map(({ slug, route }) => ({ slug, request: () => provoke(slug, route) })),
    ...['route-not-found', 'method-not-allowed'].map((slug) => ({
      slug,
      request: async () => call('DELETE', (await shownOnPage(slug)).body.instance),
    })),
  ])('shows the response of the service with its headers: $slug', async ({ slug, request }) => {
    const { status, headers, body } = await shownOnPage(slug);
    const response = await request();
    expect(response?.status).toBe(status);
    expect(withoutRequestId(response?.body)).toEqual(withoutRequestId(body));
    expect(headers.map(([name = '']) => [name, response?.headers.get(name) ?? undefined])).toEqual(headers);
    const own = ['allow', 'retry-after', 'www-authenticate'].filter((name) => response?.headers.has(name));
    expect(headers.map(([name = '']) => name)).toEqual(expect.arrayContaining(own));
  });

  test('links to the operations that return it', async () => {
    for (const { slug, route } of documented)
      expect((await call('GET', `/problems/${slug}`)).text).toContain(
        `/${route.method}${route.path}"><code>${route.name}</code></a>`,
      );
  });

  test.each(['/problems', '/problems/'])('is in the list at %s', async (path) => {
    const { headers, text } = await call('GET', path);
    expect(headers.get('content-type')).toStartWith('text/html');
    for (const [slug, { code }] of Object.entries(problemKinds)) {
      expect(text).toContain(`<a href="/problems/${slug}">`);
      expect(text).toContain(`(code ${code})`);
    }
  });
});

const canary = 'canary-4711';
const logLines: string[] = [];
const log = createLog('debug', { write: (line) => logLines.push(line) });
const newRequestId = () => crypto.randomUUID();
const lifecycle = { isDraining: false, hasLostDisk: false, onRequestWhileDraining: () => undefined };
const cors = createCors(testConfig);

/** One route for each way a handler can fail, behind the real error handler. */
const failing = new Elysia({ serve: serveOptions({ config: testConfig, log, newRequestId }) })
  .use(createRequestContext({ log, newRequestId, lifecycle, metrics: undefined, tracing: undefined }, cors))
  .use(createErrorHandler({ log, rateLimits: undefined, server: () => null }, { routeTable: createRouteTable(), cors }))
  .get('/error', () => {
    throw new Error(`secret ${canary}`, { cause: new Error(canary) });
  })
  .get('/code', () => Promise.reject(Object.assign(new Error(canary), { code: 'NOT_FOUND', status: 200 })))
  .get('/null', () => {
    throw null;
  })
  .get('/text', () => {
    throw canary;
  })
  .get('/reject', () => Promise.reject(undefined))
  .get('/status', ({ status }) => Promise.reject(status(409, canary)))
  .get('/response', () => JSON.parse(`{"id":"${canary}"}`), { response: { 200: v.object({ id: v.number() }) } })
  .get('/cyclic', () => {
    const cyclic: Record<string, unknown> = { canary };
    return Object.assign(cyclic, { self: cyclic });
  })
  .get('/header', ({ set }) => {
    set.headers['x-broken'] = `${canary}\r\nx: y`;
    return 'ok';
  });
const failingPort = listen({ app: failing });

describe('internal error', () => {
  test.each(['error', 'code', 'null', 'text', 'reject', 'status', 'response', 'cyclic', 'header'])(
    'returns a 500 problem without internals: %s',
    async (path) => {
      const response = await readResponse(await fetch(`http://127.0.0.1:${failingPort}/${path}`));
      expect(response.status).toBe(500);
      expect(response.headers.get('content-type')).toBe('application/problem+json');
      expect(response.body).toMatchObject({ type: '/problems/internal-error', code: 300, http_code: 500, status: 500 });
      expect(response.text).not.toMatch(/canary|\.ts/);
      expect(response.headers.get('x-request-id')).toMatch(/^[\w-]{8,64}$/);
      expect(logLines.join('\n')).not.toContain(canary);
    },
  );

  test('logs the request id and stack frames', async () => {
    const headers = { 'x-request-id': 'find-me-in-the-log' };
    await fetch(`http://127.0.0.1:${failingPort}/error`, { headers });
    const lines = logLines.filter((line) => line.includes('find-me') && line.includes('request failed'));
    const line = JSON.parse(lines[0] ?? '{}');
    expect(line).toMatchObject({ level: 'error', requestId: 'find-me-in-the-log', problem: 'internal-error' });
    expect(line.frames[0]).toContain('problems.test.ts');
  });

  test('has no SQL and no values when a statement fails for good', async () => {
    const testApp = await createTestApp();
    await testApp.db.$client.execute(
      "CREATE TRIGGER refused BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'refused'); END",
    );
    const body = { firstName: canary };
    const response = await testApp.call('POST', '/v2/private/user/profile', { as: canary, body });
    expect(response.status).toBe(500);
    const written = response.text + testApp.logLines.join('\n');
    expect(written).not.toMatch(/canary|insert|select|json_patch|no such column/i);
    expect(written).toContain('SQLITE_CONSTRAINT');
  });
});
