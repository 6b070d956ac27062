import { describe, expect, test } from 'bun:test';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import * as v from 'valibot';
import examples from '../../src/http/docs/examples.json';
import { toSchemas } from '../../src/http/docs/openapi';
import { tagGroups, tags } from '../../src/http/docs/routes';
import { seedDemo } from '../../src/seed';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp, listen, startSandbox, testConfig } from '../support/app';
import {
  documentOfSources,
  type Exchange,
  excludeFromChecks,
  mismatchesWith,
  trafficMismatches,
  watchedHandle,
} from '../support/conformance';
import { recordResponses } from '../support/pages';
import { atEnd } from '../support/resources';

const sandbox = await startSandbox();
const testApp = await createTestApp({ carrier: sandbox.carrier() });
await seedDemo(testApp.db, testApp.now);
await testApp.call('POST', '/v2/private/user/profile', { as: 'demo-manager', body: {} });
const demoPort = listen(
  await createTestApp({
    demoTokens: { 'demo-user': 'token-of-the-user', 'demo-manager': 'token-of-the-manager' },
    config: { ...testConfig, publicUrl: 'http://planning.test:8080' },
  }),
);
const manager = { as: 'demo-manager', roles: ['salesManager'] };

const Text = v.pipe(v.string(), v.minLength(10));
const Schema = v.looseObject({
  properties: v.optional(v.record(v.string(), v.unknown())),
  required: v.optional(v.union([v.array(v.string()), v.boolean()])),
  oneOf: v.optional(v.array(v.object({ $ref: v.optional(v.string()) }))),
  discriminator: v.optional(v.object({ propertyName: v.string(), mapping: v.record(v.string(), v.string()) })),
});
type Schema = v.InferOutput<typeof Schema>;
const Content = v.record(
  v.string(),
  v.looseObject({ examples: v.optional(v.record(v.string(), v.looseObject({ value: v.unknown() }))) }),
);
const Document = v.looseObject({
  info: v.looseObject({ description: Text }),
  tags: v.array(v.object({ name: v.string(), description: Text })),
  paths: v.record(
    v.string(),
    v.record(
      v.string(),
      v.looseObject({
        operationId: v.string(),
        summary: Text,
        description: Text,
        tags: v.array(v.string()),
        responses: v.record(
          v.string(),
          v.looseObject({
            description: v.string(),
            headers: v.record(v.string(), v.looseObject({ description: Text })),
            content: v.optional(Content),
          }),
        ),
      }),
    ),
  ),
  components: v.looseObject({ schemas: v.record(v.string(), Schema) }),
});

/** The served document, in which the schemas require a description of every operation, tag and header. */
const { text } = await testApp.call('GET', '/swagger/json');
const document = v.parse(Document, JSON.parse(text));
const { schemas } = document.components;
const { operations } = await documentOfSources();
const responsesOf = (path: string, method = 'post') => document.paths[path]?.[method.toLowerCase()]?.responses ?? {};

const rules = {
  'no-invalid-media-type-examples': 'error',
  'no-invalid-parameter-examples': 'error',
  'no-invalid-schema-examples': 'error',
} as const;
const lintConfig = await createConfig({ extends: ['recommended-strict'], rules });
const lint = async (json: unknown) =>
  (await lintFromString({ source: JSON.stringify(json), absoluteRef: '/openapi.json', config: lintConfig })).map(
    ({ ruleId, location: [at] }) => `${ruleId} ${at?.pointer}`,
  );

describe('lint of the OpenAPI document', () => {
  test('finds only three deliberate exceptions', async () => {
    expect(document).toMatchObject({ openapi: '3.1.0' });
    expect(await lint(document)).toEqual([
      // The service is private and has no licence.
      'info-license #/info',
      // The contract defines this path.
      'no-path-trailing-slash #/paths/~1v2~1private~1healthAndCare~1',
      // Client code refers to the generic problem; each response lists specific ones.
      'no-unused-components #/components/schemas/Problem',
    ]);
  });

  test('finds invalid structure, references and examples', async () => {
    const Faulty = { type: 'object', properties: { size: { type: 'integer', examples: ['x'] }, of: { $ref: '#/x' } } };
    const content = { 'application/json': { schema: { type: 'integer' }, examples: { one: { value: 'x' } } } };
    const get = { parameters: [{ name: 'a', in: 'query', schema: { type: 'integer' }, example: 'x' }], unknown: 1 };
    const paths = { '/faulty': { get: { ...get, responses: { 200: { description: 'Yes', content } } } } };
    expect(await lint({ ...document, paths, components: { schemas: { Faulty } } })).toEqual(
      expect.arrayContaining([
        'operation-4xx-response #/paths/~1faulty/get/responses',
        'struct #/paths/~1faulty/get/unknown',
        expect.stringMatching(/^no-unresolved-refs .*\/Faulty\/properties\/of$/),
        expect.stringMatching(/^no-invalid-schema-examples .*\/Faulty\/properties\/size/),
        expect.stringMatching(/^no-invalid-parameter-examples .*\/parameters\/0\/example$/),
        expect.stringMatching(/^no-invalid-media-type-examples .*\/examples\/one\/value$/),
      ]),
    );
  });
});

describe('/swagger/json', () => {
  test('returns the same document to parallel first requests', async () => {
    const fresh = await createTestApp();
    const responses = await Promise.all(Array.from({ length: 5 }, () => fresh.call('GET', '/swagger/json')));
    expect(responses.map(({ text: each }) => Bun.hash(each))).toEqual(Array(5).fill(Bun.hash(text)));
  });

  test('has each operation under one tag, and the tags in the documented order', () => {
    const named = tags.map(({ name }) => name);
    expect(document).toMatchObject({ tags, 'x-tagGroups': tagGroups });
    expect(tagGroups.flatMap((group) => group.tags)).toEqual(named);
    const used = Object.values(document.paths).flatMap((path) => Object.values(path).flatMap((each) => each.tags));
    expect(used).toHaveLength(operations.length);
    expect(new Set(used)).toEqual(new Set(named));
  });

  test.each([
    '"name":"page","in":"query","required":false,"schema":{"description":"Page number from 1","type":"integer","minimum":1',
    '"name":"limit","in":"query","required":false,"schema":{"description":"Entries per page","type":"integer","minimum":1,"maximum":1000',
    ...['The calendar date as written counts, regardless of the offset', 'is ambiguous'],
    ...['USPS code of a state', 'rounded to two decimals'],
  ])('keeps the description of a field behind a transform: %s', (part) => {
    expect(text.includes(part)).toBeTrue();
  });

  test('has no trace of an unconverted schema', () => {
    expect(['"vendor"', '"schema":{}', '$schema', '$defs'].filter((trace) => text.includes(trace))).toEqual([]);
  });

  test('names a field whose metadata is behind a transform', () => {
    const change = v.transform((each: string) => each.toUpperCase());
    for (const Amount of [
      v.pipe(v.string(), change, v.description('Lost')),
      v.pipe(v.string(), change, v.examples(['1'])),
      v.pipe(v.string(), change, v.metadata({ documentedAs: { type: 'integer' } })),
    ]) {
      const Model = v.object({ amount: v.optional(Amount) });
      expect(() => toSchemas([], { models: { Model }, base: '' })).toThrow('The field amount ');
    }
  });

  test.each(operations)(
    'has request examples that the service accepts, and an ETag if and only if $name returns one',
    async ({ path, method, target, body }) => {
      if (method === 'POST') expect(body?.examples).not.toBeEmpty();
      const isDocumented = responsesOf(path, method)['200']?.headers.ETag !== undefined;
      for (const example of body?.examples ?? [undefined]) {
        const response = await testApp.call(method, target, { ...manager, body: example });
        expect([response.status, response.headers.has('etag')]).toEqual([200, isDocumented]);
      }
    },
  );

  test('has response examples equal to the responses of the service; `bun run docs:write` records them', async () => {
    expect(await recordResponses()).toEqual(examples);
    const shown = Object.values(document.paths)
      .flatMap((path) => Object.values(path))
      .map(({ operationId, responses }) => {
        const [example] = Object.values(responses['200']?.content?.['application/json']?.examples ?? {});
        return [operationId, example?.value];
      });
    expect(Object.fromEntries(shown)).toEqual(examples);
  });

  test('lists every status that a save and a conditional read can return', () => {
    const statuses = Object.keys(responsesOf('/v2/private/ltc/lifetimeCare')).join(' ');
    expect(statuses).toBe('200 400 401 408 412 413 415 422 429 500 503');
    expect(responsesOf('/v2/private/user', 'get')).toHaveProperty('304');
  });
});

/** Every schema of the document by its JSON pointer; examples are values and no schemas. */
function* schemasIn(node: unknown, pointer: string, isSchema = false): Generator<[string, Schema]> {
  if (typeof node !== 'object' || node === null) return;
  if (isSchema && !Array.isArray(node)) yield [pointer, v.parse(Schema, node)];
  const holdsSchemas = /\/(?:properties|schemas|anyOf|oneOf|allOf)$/.test(pointer);
  for (const [key, inner] of Object.entries(node)) {
    if (holdsSchemas || (key !== 'examples' && key !== 'example'))
      yield* schemasIn(inner, `${pointer}/${key}`, holdsSchemas || ['schema', 'items'].includes(key));
  }
}
const allSchemas = [...schemasIn(document, '#')];

/** Constructs that break code generators. */
const generatorFaults: Record<string, (schema: Schema) => boolean> = {
  'constant without a type': (schema) => 'const' in schema && schema.type === undefined,
  'enum without a type': (schema) => schema.enum !== undefined && schema.type === undefined,
  'list of types in one schema': ({ type }) => Array.isArray(type),
  'required name that the same schema does not declare': ({ required, properties }) =>
    Array.isArray(required) && required.some((name) => properties?.[name] === undefined),
  'empty schema': (schema) => Object.keys(schema).filter((key) => key !== 'description').length === 0,
  'list without items': ({ type, items }) => type === 'array' && items === undefined,
  'object without members': ({ type, properties, additionalProperties }) =>
    type === 'object' && properties === undefined && additionalProperties === undefined,
  intersection: ({ allOf }) => allOf !== undefined,
  'union of components without a discriminator': ({ oneOf, discriminator }) =>
    oneOf?.some(({ $ref }) => $ref !== undefined) === true && discriminator === undefined,
  'nullable of OpenAPI 3.0': (schema) => 'nullable' in schema,
};

describe('schemas of the OpenAPI document', () => {
  test('are found in parameters, bodies, responses and components', () => {
    const pointers = allSchemas.map(([pointer]) => pointer);
    expect(pointers.length).toBeGreaterThan(400);
    for (const part of ['/parameters/', '/requestBody/', '/responses/200/', '/components/schemas/InvalidInput'])
      expect(pointers.filter((pointer) => pointer.includes(part))).not.toBeEmpty();
  });

  test.each(Object.entries(generatorFaults))('have no %s', (_, hasFault) => {
    expect(allSchemas.filter(([, schema]) => hasFault(schema)).map(([pointer]) => pointer)).toEqual([]);
  });

  test('have discriminators that map each declared constant to its member', () => {
    const unions = allSchemas.filter(([, { discriminator }]) => discriminator !== undefined);
    expect(unions).not.toBeEmpty();
    for (const [pointer, { oneOf = [], discriminator }] of unions) {
      const declared = oneOf.map(({ $ref = '' }) => {
        const member = schemas[$ref.replace('#/components/schemas/', '')];
        return [Object(member?.properties?.[discriminator?.propertyName ?? '']).const, $ref];
      });
      expect({ pointer, mapping: discriminator?.mapping }).toEqual({ pointer, mapping: Object.fromEntries(declared) });
    }
  });
});

describe('component of a problem', () => {
  const components = Object.entries(problemKinds).map(([slug, { code, status }]) => {
    const name = slug.replace(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());
    return { slug, code, status, component: schemas[name] };
  });

  test('exists for every kind except those of unknown paths', () => {
    const missing = components.filter(({ component }) => component === undefined).map(({ slug }) => slug);
    expect(missing).toEqual(['route-not-found', 'method-not-allowed']);
  });

  test.each(components.filter(({ component }) => component !== undefined))(
    'declares the constants of $slug and requires its members',
    ({ slug, code, status, component }) => {
      const constants = { type: `/problems/${slug}`, status, code, http_code: status };
      const properties = Object.fromEntries(Object.entries(constants).map(([name, value]) => [name, { const: value }]));
      expect(component).toMatchObject({ type: 'object', properties });
      const members = ['type', 'title', 'status', 'detail', 'instance', 'code', 'http_code', 'requestId'];
      expect(component?.required).toEqual([...members, ...(slug === 'invalid-input' ? ['errors'] : [])]);
    },
  );
});

describe('check of responses against the OpenAPI document', () => {
  const usual = { 'content-type': 'application/json', 'x-request-id': 'request-1', 'cache-control': 'no-store' };
  const headersOf = (headers: Record<string, string>) => new Headers({ ...usual, ...headers });
  const time = '2026-03-10T12:00:00.000Z';
  const sections = { insurance: {}, ltc: {}, purchase: {}, lifeInsurance: {}, lifetimeCare: {} };
  const user = { id: 'one', createdAt: time, updatedAt: time, profile: { firstName: 'Ada' }, ...sections };
  const returning = (changed: object) => ({ text: JSON.stringify({ user: { ...user, ...changed } }) });
  const valid: Exchange = {
    ...{ method: 'POST', sentText: '{"firstName":"Ada"}', status: 200, headers: headersOf({}) },
    ...returning({}),
  };
  const problem = {
    ...{ type: '/problems/invalid-input', title: 'Invalid input', status: 422, detail: 'Some' },
    ...{ instance: '/v2/private/user/profile', code: 201, http_code: 422, requestId: 'request-1' },
  };
  /** A problem that this operation does not document. */
  const otherProblem = { ...problem, type: '/problems/carrier-declined', code: 313, errors: [] };
  const problemType = { 'content-type': 'application/problem+json' };
  const refusing = (body: object) => ({ status: 422, headers: headersOf(problemType), text: JSON.stringify(body) });

  function mismatchesOf(change: Partial<Exchange>, name = 'POST /v2/private/user/profile'): string {
    const operation = operations.find((each) => each.name === name);
    if (operation === undefined) throw new Error(`${name} is not documented`);
    return mismatchesWith(operation, { ...valid, ...change }).join();
  }

  test('knows every operation of the served document', () => {
    const served = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(operations.map(({ name }) => name)).toEqual(served);
  });

  test('reports nothing for a conforming exchange', () => {
    expect(mismatchesOf({})).toBe('');
    expect(mismatchesOf({ sentText: '\ufeff{"state":" va ","firstName":null}' })).toBe('');
    expect(mismatchesOf({ method: 'HEAD', text: '', sentText: undefined }, 'GET /v2/private/user')).toBe('');
  });

  test.each<[string, Partial<Exchange>]>([
    ['418 is not documented', { status: 418 }],
    ['the header x-request-id is missing', { headers: new Headers({ 'content-type': 'application/json' }) }],
    ['the header retry-after is missing', { status: 503, headers: headersOf(problemType), text: '{}' }],
    ['the header x-powered-by is not documented', { headers: headersOf({ 'x-powered-by': 'us' }) }],
    ['the type is text/plain, not application/json', { headers: headersOf({ 'content-type': 'text/plain' }) }],
    ['the type is application/json, not application/problem+json', { status: 422, text: '{}' }],
    ['must be equal to constant', refusing(otherProblem)],
    ["must have required property 'errors'", refusing(problem)],
    ["must have required property 'type'", refusing({ status: 422 })],
    ['must be equal to one of the allowed values', returning({ profile: { gender: 'X' } })],
    ['"additionalProperty":"nickName"', returning({ profile: { nickName: 'Ada' } })],
    ["must have required property 'insurance'", returning({ insurance: undefined })],
    ['a body was taken that is not as documented', { sentText: '{"nickName":"Ada"}' }],
    ['a body was taken that is not as documented', { sentText: '{"heightCm":1}' }],
    ['no body was taken, but one is documented', { sentText: '' }],
  ])('reports: %s', (mismatch, change) => {
    expect(mismatchesOf(change)).toContain(mismatch);
  });

  test('sees responses by an address, by a request and in the process, but not of other servers and paths', async () => {
    const wrong = () => new Response('{}', { status: 418 });
    const [service, other] = [1, 2].map(() => Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: wrong }));
    if (service === undefined || other === undefined) throw new Error('There is no server');
    atEnd(() => Promise.all([service.stop(true), other.stop(true)]));
    excludeFromChecks(other.url);
    await fetch(`${other.url}v2/private/user`);
    await fetch(`${service.url}v2/other`);
    expect(await trafficMismatches()).toEqual([]);

    const seen = async (exchange: Promise<Response>) => {
      await exchange;
      return trafficMismatches();
    };
    const { url } = service;
    expect(await seen(fetch(`${url}v2/private/user`))).toEqual(['GET /v2/private/user: 418 is not documented']);
    expect(await seen(fetch(new Request(`${url}health/live`)))).toEqual(['GET /health/live: 418 is not documented']);
    expect(await seen(watchedHandle(async () => wrong())(new Request('http://localhost/v2/private/user/')))).toEqual([
      'GET /v2/private/user: 418 is not documented',
    ]);
  });

  test('reports a response that never ends', async () => {
    const fetchForever = () => new Response(new ReadableStream({ start: (controller) => controller.enqueue('{') }));
    const service = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: fetchForever });
    atEnd(() => service.stop(true));
    await fetch(`${service.url}v2/private/user`);
    expect(await trafficMismatches(50)).toEqual(['GET /v2/private/user: the response or the request body never ends']);
    expect(await trafficMismatches()).toEqual([]);
  });
});

describe('/swagger', () => {
  const request = (path: string, headers: Record<string, string> = {}) =>
    testApp.app.handle(new Request(`http://localhost${path}`, { headers }));

  test('compresses the document for gzip clients and returns 304 for a matching ETag', async () => {
    const plain = await request('/swagger/json');
    const compressed = await request('/swagger/json', { 'accept-encoding': 'gzip, br' });
    for (const { headers } of [plain, compressed]) expect(headers.get('vary')).toContain('Accept-Encoding');
    expect(plain.headers.get('content-encoding')).toBeNull();
    expect(compressed.headers.get('content-encoding')).toBe('gzip');
    const [plainText, bytes] = [await plain.text(), await compressed.bytes()];
    expect(bytes.byteLength).toBeLessThan(plainText.length / 5);
    expect(Buffer.from(Bun.gunzipSync(bytes)).toString()).toBe(plainText);

    const tag = plain.headers.get('etag') ?? '';
    expect(tag).toMatch(/^W\/"\w+"$/);
    expect(compressed.headers.get('etag')).toBe(tag);
    const again = await request('/swagger/json', { 'if-none-match': tag });
    expect([again.status, again.headers.get('etag'), await again.text()]).toEqual([304, tag, '']);
    expect((await request('/swagger/json', { 'if-none-match': '"another"' })).status).toBe(200);
  });

  test('serves its script compressed and immutable under a hashed path', async () => {
    const path = /src="([^"]+)"/.exec(await (await request('/swagger')).text())?.[1] ?? '';
    const plain = await (await request(path, { 'accept-encoding': 'br, gzip;q=0' })).bytes();
    const response = await request(path, { 'accept-encoding': 'gzip, deflate, br' });
    expect(response.headers.get('content-encoding')).toBe('gzip');
    expect(response.headers.get('vary')).toContain('Accept-Encoding');
    expect(response.headers.get('cache-control')).toContain('immutable');
    const compressed = await response.bytes();
    expect(compressed.byteLength).toBeLessThan(1_500_000);
    expect(Bun.hash(Bun.gunzipSync(compressed))).toBe(Bun.hash(plain));
    for (const other of ['/swagger/scalar.js', `${path}1`])
      expect((await request(other)).headers.get('cache-control')).not.toContain('immutable');
  });
});

describe('/swagger over a socket', () => {
  const request = (path: string, init: RequestInit = {}) => fetch(`http://127.0.0.1:${demoPort}${path}`, init);

  async function hasTokens(headers: Record<string, string>, path = '/swagger'): Promise<boolean> {
    const response = await request(path, { headers });
    expect(response.status).toBe(200);
    if (path === '/swagger') expect(response.headers.get('cache-control')).toBe('no-store');
    return (await response.text()).includes('token-of-the');
  }

  test.each(['/swagger', '/swagger/', '/swagger/json'])(
    'returns the request id and, for HEAD, the Content-Length of GET: %s',
    async (path) => {
      const headers = { 'x-request-id': 'reader-1', 'accept-encoding': 'identity' };
      const [get, head] = [await request(path, { headers }), await request(path, { method: 'HEAD', headers })];
      expect([get.status, head.status]).toEqual([200, 200]);
      expect(head.headers.get('content-length')).toBe(String((await get.bytes()).byteLength));
      for (const each of [get, head]) expect(each.headers.get('x-request-id')).toBe('reader-1');
    },
  );

  test('shows demo tokens to a local client under a loopback name or PUBLIC_URL, and under no other name', async () => {
    const shownAt = (host: string) => hasTokens({ host });
    expect(await Promise.all(['localhost:3000', '[::1]:3000', 'planning.test:8080'].map(shownAt))).not.toContain(false);
    const others = ['evil.example', 'localhost.evil.example', 'planning.test', '10.0.0.1'];
    expect(await Promise.all(others.map(shownAt))).not.toContain(true);
  });

  test('shows no demo tokens to another origin, in the OpenAPI document or without any', async () => {
    expect(await hasTokens({ origin: 'http://evil.example' })).toBeFalse();
    for (const path of ['/swagger/json', '/problems']) expect(await hasTokens({}, path)).toBeFalse();
    const { text: page } = await testApp.call('GET', '/swagger', { headers: { host: '127.0.0.1' } });
    expect(page).not.toContain('<select');
  });
});
