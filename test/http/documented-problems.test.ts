import { expect, test } from 'bun:test';
import * as v from 'valibot';
import { createTokenVerifier } from '../../src/auth/verifier';
import { openServiceDatabase } from '../../src/db/client';
import type { AppDeps } from '../../src/deps';
import { Problem, problemsAnywhere } from '../../src/http/problem-response';
import { createRateLimits } from '../../src/http/rate-limits';
import { seedDemo } from '../../src/seed';
import { type ProblemSlug, problemKinds } from '../../src/shared/problems';
import {
  type CallOptions,
  createTestApp,
  readResponse,
  startSandbox,
  type TestApp,
  type TestResponse,
  testConfig,
  testToken,
} from '../support/app';
import { atEnd } from '../support/resources';

const Examples = v.record(v.string(), v.object({ value: v.unknown() }));
const Operation = v.object({
  parameters: v.array(v.object({ name: v.string(), in: v.string(), example: v.optional(v.string()) })),
  requestBody: v.optional(v.object({ content: v.object({ 'application/json': v.object({ examples: Examples }) }) })),
  responses: v.record(
    v.string(),
    v.object({
      description: v.string(),
      content: v.optional(
        v.object({
          'application/problem+json': v.optional(
            v.object({ examples: v.record(v.string(), v.object({ value: Problem })) }),
          ),
        }),
      ),
    }),
  ),
});
const Document = v.object({
  info: v.object({ description: v.string() }),
  paths: v.record(v.string(), v.record(v.string(), Operation)),
  components: v.object({ schemas: v.record(v.string(), v.object({ description: v.optional(v.string()) })) }),
});

const sandbox = await startSandbox();
const { info, paths, components } = v.parse(
  Document,
  (await (await createTestApp()).call('GET', '/swagger/json')).body,
);

/** Each problem of each operation in the OpenAPI document. */
const documented = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).flatMap(([method, operation]) =>
    Object.entries(operation.responses).flatMap(([status, { description, content }]) =>
      Object.entries(content?.['application/problem+json']?.examples ?? {}).map(([slug, { value: example }]) => ({
        name: `${method.toUpperCase()} ${path} ${slug}`,
        slug,
        status: Number(status),
        description,
        example,
        route: { method: method.toUpperCase(), path, operation },
      })),
    ),
  ),
);
type Route = (typeof documented)[number]['route'];

function open(overrides: Partial<AppDeps> = {}): () => Promise<TestApp> {
  let opening: Promise<TestApp> | undefined;
  return () => {
    opening ??= createTestApp({ carrier: sandbox.carrier({ attempts: 1 }), ...overrides }).then(async (testApp) => {
      if (overrides.db === undefined) await seedDemo(testApp.db, testApp.now);
      return testApp;
    });
    return opening;
  };
}

const unreachable = await openServiceDatabase({ url: 'http://127.0.0.1:1', timeoutMs: 300 });
atEnd(() => unreachable.$client.close());
const keys = { kind: 'jwks', url: 'http://127.0.0.1:1' } as const;
const claims = { issuer: undefined, audience: undefined, rolesClaim: 'roles' };

const apps = {
  usual: open(),
  withoutDatabase: open({ db: unreachable, reads: unreachable }),
  withoutKeys: open({
    hasTokenKeys: () => false,
    verifyToken: await createTokenVerifier(
      { key: keys, ...claims },
      () => new Date(),
      () => performance.now(),
    ),
  }),
  broken: open({ verifyToken: () => Promise.reject(new Error('broken')) }),
  draining: open({ lifecycle: { isDraining: true, hasLostDisk: false, onRequestWhileDraining: () => undefined } }),
  limited: open({ rateLimits: createRateLimits({ perMinute: 1, trustedProxyCount: 0 }, () => 0) }),
  shortTimeouts: open({
    carrier: sandbox.carrier({ attempts: 1, timeoutMs: 300 }),
    config: { ...testConfig, carrier: { applicationsPerDay: 0, attempts: 1, timeoutMs: 50 }, requestTimeoutMs: 20 },
  }),
};

/** Sends the documented example as an authorized user, with overrides. */
async function send(app: () => Promise<TestApp>, { method, path, operation }: Route, overrides: CallOptions = {}) {
  const query = operation.parameters.flatMap(({ name, example }) => (example === undefined ? [] : [[name, example]]));
  const [first] = Object.values(operation.requestBody?.content['application/json'].examples ?? {});
  const options = { as: 'demo-manager', roles: ['salesManager'], body: first?.value, ...overrides };
  return (await app()).call(method, `${path}?${new URLSearchParams(query)}`, options);
}

/** Starts an application; the last name selects the behaviour of the carrier sandbox. */
function apply(app: () => Promise<TestApp>, route: Route, lastName: string, overrides: CallOptions = {}) {
  const [first] = Object.values(route.operation.requestBody?.content['application/json'].examples ?? {});
  return send(app, route, { body: { ...v.parse(v.looseObject({}), first?.value), lastName }, ...overrides });
}

async function sendStream({ method, path }: Route, body: ReadableStream): Promise<TestResponse> {
  const { app, now } = await apps.shortTimeouts();
  const headers = {
    authorization: `Bearer ${await testToken({ id: 'sender', now })}`,
    'content-type': 'application/json',
  };
  return readResponse(await app.handle(new Request(`http://localhost${path}`, { method, headers, body })));
}

async function sendManyParameters({ method, path }: Route) {
  const query = Array.from({ length: 65 }, (_, index) => `p${index}`).join('&');
  return (await apps.usual()).call(method, `${path}?${query}`);
}

const invalidQuery = ({ operation }: Route) => {
  const known = operation.parameters.filter((each) => each.in === 'query').map(({ name }) => name);
  return new URLSearchParams((known.length === 0 ? ['unknown'] : known).map((name) => [name, '?']));
};
/** A token whose signature cannot be verified without the keys. */
const unverifiable = `Bearer ${['{"alg":"ES256"}', '{}', 'x'].map((part) => Buffer.from(part).toString('base64url')).join('.')}`;

/** For each problem, a request that makes a route return it. */
const provocations: Partial<Record<ProblemSlug, (route: Route) => Promise<TestResponse | undefined>>> = {
  'malformed-json': (route) => send(apps.usual, route, { body: '{' }),
  'invalid-input': async (route) =>
    route.method === 'POST'
      ? send(apps.usual, route, { body: { unknownField: true } })
      : (await apps.usual()).call('GET', `${route.path}?${invalidQuery(route)}`, {
          as: 'demo-manager',
          roles: ['salesManager'],
        }),
  'unsupported-media-type': (route) =>
    send(apps.usual, route, { body: 'x', headers: { 'content-type': 'text/plain' } }),
  'payload-too-large': (route) => send(apps.usual, route, { body: 'x'.repeat(testConfig.bodyLimitBytes + 1) }),
  'malformed-request': sendManyParameters,
  'request-timeout': (route) => sendStream(route, new ReadableStream()),
  unauthenticated: async ({ method, path }) => (await apps.usual()).call(method, path),
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
    await (await apps.usual()).call('POST', '/v2/private/user/profile', { as: 'demo-manager', body: {} });
    return send(apps.usual, route, { headers: { 'if-match': '"another"' } });
  },
  'rate-limited': async (route) => {
    const caller = { as: route.path };
    await send(apps.limited, route, caller);
    return send(apps.limited, route, caller);
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
  const name = `${slug} ${route.method} ${route.path}`;
  const known = responses.get(name);
  if (known !== undefined) return known;
  const response = Promise.resolve(new Map(Object.entries(provocations)).get(slug)?.(route));
  responses.set(name, response);
  return response;
}

test.each(documented)(
  '$name: the response equals the documented example',
  async ({ slug, status, description, example, route }) => {
    const response = await provoke(slug, route);
    expect(response?.status).toBe(status);
    const { requestId: _, ...actual } = v.parse(Problem, response?.body);
    const { requestId: __, ...shown } = example;
    expect(actual).toEqual(shown);
    expect(actual.type).toBe(`/problems/${slug}`);
    expect(description).toContain(`\`${slug}\`: ${actual.title}.`);
  },
);

test('schema of a problem links to its page', () => {
  const links = Object.values(components.schemas).flatMap(
    ({ description = '' }) => description.match(/\/problems\/[\w-]+/) ?? [],
  );
  expect(links.toSorted()).toEqual([...new Set(documented.map(({ slug }) => `/problems/${slug}`))].toSorted());
});

test('every problem is documented at an operation or among the problems of any path', () => {
  const named = new Set([...documented.map(({ slug }) => slug), ...problemsAnywhere]);
  expect(Object.keys(problemKinds).filter((slug) => !named.has(slug))).toEqual([]);
  for (const slug of problemsAnywhere) expect(info.description).toContain(`(/problems/${slug})`);
});

test('page of a problem links to the operations that return it', async () => {
  const { call } = await apps.usual();
  for (const { slug, route } of documented) {
    const { text } = await call('GET', `/problems/${slug}`);
    expect(text).toContain(`/${route.method}${route.path}"><code>${route.method} ${route.path}</code></a>`);
  }
});

/** The example response on the page of a problem. */
async function shownOnPage(slug: string) {
  const { text } = await (await apps.usual()).call('GET', `/problems/${slug}`);
  const [head = '', body = ''] = (/<pre>([^<]+)<\/pre>/.exec(text)?.[1] ?? '').replaceAll('&amp;', '&').split('\n\n');
  const [first = '', ...lines] = head.split('\n');
  return {
    status: Number(first.split(' ')[1]),
    headers: lines.map((line) => line.split(': ')),
    body: v.parse(Problem, JSON.parse(body)),
  };
}

const firstOfEach = [...Map.groupBy(documented, ({ slug }) => slug).values()].flatMap(([first]) =>
  first === undefined ? [] : [first],
);
const pageCases = [
  ...firstOfEach.map(({ slug, route }) => ({
    slug,
    request: () => provoke(slug, route),
  })),
  ...(['route-not-found', 'method-not-allowed'] as const).map((slug) => ({
    slug,
    request: async () => (await apps.usual()).call('DELETE', (await shownOnPage(slug)).body.instance),
  })),
];

test.each(pageCases)('page of $slug shows the response of the service with its headers', async ({ slug, request }) => {
  const { status, headers, body } = await shownOnPage(slug);
  const response = await request();
  expect(response?.status).toBe(status);
  const { requestId: _, ...actual } = v.parse(Problem, response?.body);
  const { requestId: __, ...shown } = body;
  expect(actual).toEqual(shown);
  expect(headers.map(([name = '']) => [name, response?.headers.get(name) ?? undefined])).toEqual(headers);
  const own = ['allow', 'retry-after', 'www-authenticate'].filter((name) => response?.headers.has(name));
  expect(headers.map(([name = '']) => name)).toEqual(expect.arrayContaining(own));
});

test('problem whose remedy mentions `detail` has an example with a specific detail', () => {
  const withDetail = Object.entries(problemKinds).filter(([, { remedy }]) => remedy.includes('`detail`'));
  expect(withDetail.length).toBeGreaterThan(1);
  for (const [slug, { meaning }] of withDetail) {
    const details = documented.flatMap((each) => (each.slug === slug ? [each.example.detail] : []));
    expect([slug, details.length > 0, details.includes(meaning)]).toEqual([slug, true, false]);
  }
});

test('problem list links to every problem page, with and without a trailing slash', async () => {
  const { call } = await apps.usual();
  for (const path of ['/problems', '/problems/']) {
    const response = await call('GET', path);
    expect(response.headers.get('content-type')).toStartWith('text/html');
    for (const [slug, { code }] of Object.entries(problemKinds)) {
      expect(response.text).toContain(`<a href="/problems/${slug}">`);
      expect(response.text).toContain(`(code ${code})`);
    }
  }
});
