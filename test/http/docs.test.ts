import { describe, expect, test } from 'bun:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import Ajv2020 from 'ajv/dist/2020';
import * as v from 'valibot';
import examples from '../../src/http/docs/examples.json';
import { toSchemas } from '../../src/http/docs/openapi';
import { tagGroups, tags } from '../../src/http/docs/routes';
import { seedDemo } from '../../src/seed';
import { createTestApp, startSandbox, testConfig } from '../support/app';
import { exampleTarget } from '../support/conformance';
import { privateRoutes } from '../support/contract';
import { recordResponses } from '../support/pages';
import { atEnd } from '../support/resources';

const sandbox = await startSandbox();
const testApp = await createTestApp({ carrier: sandbox.carrier() });

const Operation = v.object({
  summary: v.string(),
  operationId: v.string(),
  tags: v.array(v.string()),
  security: v.array(v.record(v.string(), v.array(v.string()))),
  parameters: v.array(
    v.object({ name: v.string(), in: v.picklist(['query', 'path', 'header']), example: v.optional(v.string()) }),
  ),
  requestBody: v.optional(
    v.object({
      required: v.boolean(),
      content: v.object({
        'application/json': v.object({
          schema: v.union([
            v.object({ $ref: v.string() }),
            v.object({ anyOf: v.array(v.unknown()) }),
            v.object({ additionalProperties: v.literal(false), properties: v.record(v.string(), v.unknown()) }),
          ]),
          examples: v.record(v.string(), v.object({ value: v.unknown() })),
        }),
      }),
    }),
  ),
  responses: v.record(
    v.string(),
    v.object({
      headers: v.optional(v.record(v.string(), v.unknown())),
      content: v.optional(
        v.record(
          v.string(),
          v.object({
            schema: v.unknown(),
            examples: v.optional(v.record(v.string(), v.object({ value: v.unknown() }))),
          }),
        ),
      ),
    }),
  ),
});
const Document = v.object({ paths: v.record(v.string(), v.record(v.string(), Operation)) });

const WithExamples = v.object({
  schema: v.optional(v.unknown()),
  example: v.optional(v.unknown()),
  examples: v.optional(v.union([v.array(v.unknown()), v.record(v.string(), v.unknown())])),
});

const document = async () => (await testApp.call('GET', '/swagger/json')).body;
const operations = async () =>
  Object.entries(v.parse(Document, await document()).paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );

describe('/swagger/json', () => {
  test('returns a valid OpenAPI 3.1 document that is stable between requests', async () => {
    const first = await document();
    const result = await new Validator().validate(JSON.parse(JSON.stringify(first)));
    expect(result).toEqual({ valid: true });
    expect(first).toMatchObject({ openapi: '3.1.0' });
    expect(await document()).toEqual(first);
  });

  test('describes every operation, tag and header', async () => {
    const text = v.pipe(v.string(), v.minLength(10));
    const Described = v.object({
      info: v.object({ description: text }),
      tags: v.array(v.object({ name: v.string(), description: text })),
      paths: v.record(
        v.string(),
        v.record(
          v.string(),
          v.object({
            summary: text,
            description: text,
            parameters: v.array(v.looseObject({})),
            responses: v.record(
              v.string(),
              v.object({ description: v.string(), headers: v.record(v.string(), v.object({ description: text })) }),
            ),
          }),
        ),
      ),
    });
    const { tags } = v.parse(Described, await document());
    const used = (await operations()).flatMap(({ operation }) => operation.tags);
    expect(tags.map(({ name }) => name).sort()).toEqual([...new Set(used)].sort());
  });

  test('has only examples that match their schema', async () => {
    const json = v.parse(v.looseObject({}), await document());
    const ajv = new Ajv2020({ strict: false, validateFormats: false, validateSchema: false, inlineRefs: false });
    ajv.addSchema(json, 'document');
    const mismatches: string[] = [];
    let count = 0;
    const visit = (at: unknown, pointer: string): void => {
      if (typeof at !== 'object' || at === null) return;
      const { schema, example, examples } = v.parse(WithExamples, at);
      const $ref = `document${pointer}${schema === undefined ? '' : '/schema'}`;
      for (const each of [...Object.values(examples ?? {}), ...(example === undefined ? [] : [example])]) {
        const named = v.safeParse(v.object({ value: v.unknown() }), each);
        count += 1;
        if (!ajv.validate({ $ref }, named.success ? named.output.value : each))
          mismatches.push(`${$ref} ${ajv.errorsText()}`);
      }
      for (const [key, inner] of Object.entries(at)) {
        const step = encodeURIComponent(key.replaceAll('~', '~0').replaceAll('/', '~1'));
        if (key !== 'examples' && key !== 'example') visit(inner, `${pointer}/${step}`);
      }
    };
    visit(json, '#');
    expect(mismatches).toEqual([]);
    expect(count).toBeGreaterThan(5);
  });

  test('has no unconverted schema and no dangling $ref', async () => {
    const text = JSON.stringify(await document());
    for (const trace of ['"vendor"', '"schema":{}', '$schema', '$defs']) expect(text.includes(trace)).toBeFalse();
    for (const [, name] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      expect(await document()).toHaveProperty(`components.schemas.${name}`);
    }
  });

  test('documents every private route with its models, examples, token and problems', async () => {
    const all = await operations();
    for (const { method, path } of privateRoutes) {
      const found = all.find((each) => each.path === path && each.method === method.toLowerCase());
      expect(found?.operation.security).toEqual([{ bearer: [] }]);
      expect(found?.operation.responses).toHaveProperty(['200', 'content', 'application/json']);
      expect(found?.operation.responses).toHaveProperty(['401', 'content', 'application/problem+json']);
      if (method === 'POST')
        expect(Object.keys(found?.operation.requestBody?.content['application/json'].examples ?? {})).not.toBeEmpty();
    }
    const ids = all.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('keeps descriptions of fields behind a transform', async () => {
    const text = JSON.stringify(await document());
    for (const part of [
      '"name":"page","in":"query","required":false,"schema":{"description":"Page number from 1","type":"integer","minimum":1',
      '"name":"limit","in":"query","required":false,"schema":{"description":"Entries per page","type":"integer","minimum":1,"maximum":1000',
      'The calendar date as written counts, regardless of the offset',
      'is ambiguous',
      'USPS code of a state',
      'rounded to two decimals',
    ]) {
      expect(text.includes(part) ? part : `missing: ${part}`).toBe(part);
    }
    expect(await document()).toHaveProperty(['paths', '/v2/private/user', 'get', 'responses', '304']);
  });

  test('names a field whose metadata is behind a transform', () => {
    const change = v.transform((text: string) => text.toUpperCase());
    for (const Amount of [
      v.pipe(v.string(), change, v.description('Lost')),
      v.pipe(v.string(), change, v.examples(['1'])),
      v.pipe(v.string(), change, v.metadata({ documentedAs: { type: 'integer' } })),
    ]) {
      const Model = v.object({ amount: v.optional(Amount) });
      expect(() => toSchemas([], { models: { Model }, base: '' })).toThrow('The field amount ');
    }
  });

  test('has request examples that the service accepts', async () => {
    for (const { path, operation } of await operations()) {
      for (const { value } of Object.values(operation.requestBody?.content['application/json'].examples ?? {})) {
        expect((await testApp.call('POST', path, { as: 'example', body: value })).status).toBe(200);
      }
    }
  });

  test('has response examples equal to the responses of the service; `bun run docs:write` records them', async () => {
    expect(await recordResponses()).toEqual(examples);
    for (const { operation } of await operations()) {
      const [example] = Object.values(operation.responses['200']?.content?.['application/json']?.examples ?? {});
      expect({ [operation.operationId]: example?.value }).toEqual({
        [operation.operationId]: Object.entries(examples).find(([id]) => id === operation.operationId)?.[1],
      });
    }
  });

  test('has each operation under one tag, and the tags in the documented order', async () => {
    const named = tags.map(({ name }) => name);
    expect(await document()).toMatchObject({ tags, 'x-tagGroups': tagGroups });
    expect(tagGroups.flatMap((group) => group.tags)).toEqual(named);
    const used = (await operations()).flatMap(({ operation }) => operation.tags);
    expect(used).toHaveLength((await operations()).length);
    expect(new Set(used)).toEqual(new Set(named));
  });

  test('documents ETag exactly on the operations that return one', async () => {
    const { call, db, now } = await createTestApp({ carrier: sandbox.carrier() });
    await seedDemo(db, now);
    await call('POST', '/v2/private/user/profile', { as: 'demo-manager', body: {} });
    for (const { path, method, operation } of await operations()) {
      const [first] = Object.values(operation.requestBody?.content['application/json'].examples ?? {});
      const options = { as: 'demo-manager', roles: ['salesManager'], body: first?.value };
      const response = await call(method.toUpperCase(), exampleTarget(path, operation.parameters), options);
      const isDocumented = operation.responses['200']?.headers?.ETag !== undefined;
      expect([path, response.status, response.headers.has('etag')]).toEqual([path, 200, isDocumented]);
    }
  });

  test('lists every status that a save can return', async () => {
    const save = (await operations()).find(({ path }) => path === '/v2/private/ltc/lifetimeCare');
    expect(Object.keys(save?.operation.responses ?? {})).toEqual([
      '200',
      '400',
      '401',
      '408',
      '412',
      '413',
      '415',
      '422',
      '429',
      '500',
      '503',
    ]);
  });
});

describe('/swagger', () => {
  test('compresses the document for gzip clients and returns 304 for a matching ETag', async () => {
    const { app } = await createTestApp();
    const request = (headers: Record<string, string>) =>
      app.handle(new Request('http://localhost/swagger/json', { headers }));
    const [plain, compressed] = [await request({}), await request({ 'accept-encoding': 'gzip, br' })];
    for (const { headers } of [plain, compressed]) expect(headers.get('vary')).toContain('Accept-Encoding');
    expect(plain.headers.get('content-encoding')).toBeNull();
    expect(compressed.headers.get('content-encoding')).toBe('gzip');
    const [text, bytes] = [await plain.text(), await compressed.bytes()];
    expect(bytes.byteLength).toBeLessThan(text.length / 5);
    expect(Buffer.from(Bun.gunzipSync(bytes)).toString()).toBe(text);

    const tag = plain.headers.get('etag') ?? '';
    expect(tag).toMatch(/^W\/"\w+"$/);
    expect(compressed.headers.get('etag')).toBe(tag);
    const again = await request({ 'if-none-match': tag });
    expect([again.status, again.headers.get('etag'), await again.text()]).toEqual([304, tag, '']);
    expect((await request({ 'if-none-match': '"another"' })).status).toBe(200);
  });

  test('returns the request id and, for HEAD, the Content-Length of GET', async () => {
    const { app } = await createTestApp();
    app.listen({ hostname: '127.0.0.1', port: 0 });
    atEnd(() => app.stop(true));
    for (const path of ['/swagger', '/swagger/', '/swagger/json']) {
      const request = (method: string) =>
        fetch(`http://127.0.0.1:${app.server?.port}${path}`, {
          method,
          headers: { 'x-request-id': 'reader-1', 'accept-encoding': 'identity' },
        });
      const [get, head] = [await request('GET'), await request('HEAD')];
      expect(head.headers.get('content-length')).toBe(String((await get.bytes()).byteLength));
      for (const { status, headers } of [get, head]) {
        expect(status).toBe(200);
        expect(headers.get('x-request-id')).toBe('reader-1');
      }
    }
  });

  test('returns the same document to parallel first requests', async () => {
    const fresh = await createTestApp();
    const documents = await Promise.all(Array.from({ length: 5 }, () => fresh.call('GET', '/swagger/json')));
    for (const { status, body } of documents) expect({ status, body }).toEqual({ status: 200, body: await document() });
  });

  test('serves its script compressed and immutable under a hashed path', async () => {
    const { call } = await createTestApp();
    const path = /src="([^"]+)"/.exec((await call('GET', '/swagger')).text)?.[1] ?? '';
    const load = async (address: string, accepted: string) => {
      const { app } = await createTestApp();
      const headers = { 'accept-encoding': accepted };
      return app.handle(new Request(`http://localhost${address}`, { headers }));
    };
    const plain = await (await load(path, 'br, gzip;q=0')).bytes();
    const response = await load(path, 'gzip, deflate, br');
    expect(response.headers.get('content-encoding')).toBe('gzip');
    expect(response.headers.get('vary')).toContain('Accept-Encoding');
    expect(response.headers.get('cache-control')).toContain('immutable');
    const compressed = await response.bytes();
    expect(compressed.byteLength).toBeLessThan(1_500_000);
    expect(Bun.hash(Bun.gunzipSync(compressed))).toBe(Bun.hash(plain));
    for (const other of ['/swagger/scalar.js', `${path}1`])
      expect((await load(other, '')).headers.get('cache-control')).not.toContain('immutable');
  });
});

describe('demo tokens on /swagger', () => {
  const demoTokens = { 'demo-user': 'token-of-the-user', 'demo-manager': 'token-of-the-manager' };
  async function listen(publicUrl?: string) {
    const { app } = await createTestApp({ demoTokens, config: { ...testConfig, publicUrl } });
    app.listen({ hostname: '127.0.0.1', port: 0 });
    atEnd(() => app.stop(true));
    return async (headers: Record<string, string> = {}, path = '/swagger') => {
      const response = await fetch(`http://127.0.0.1:${app.server?.port}${path}`, { headers });
      expect(response.status).toBe(200);
      if (path === '/swagger') expect(response.headers.get('cache-control')).toBe('no-store');
      return (await response.text()).includes('token-of-the');
    };
  }

  test('appear for a local client under loopback names and PUBLIC_URL', async () => {
    const hasTokens = await listen('http://planning.test:8080');
    for (const host of ['127.0.0.1', 'localhost:3000', 'LOCALHOST', '[::1]:3000', 'planning.test:8080'])
      expect([host, await hasTokens({ host })]).toEqual([host, true]);
  });

  test('do not appear under other host names, for other origins and in the OpenAPI document', async () => {
    const hasTokens = await listen('http://planning.test:8080');
    const names = ['evil.example', '127.0.0.1.evil.example', 'localhost.evil.example', 'planning.test', '10.0.0.1'];
    for (const host of names) expect([host, await hasTokens({ host })]).toEqual([host, false]);
    expect(await hasTokens({ origin: 'http://evil.example' })).toBeFalse();
    for (const path of ['/swagger/json', '/problems']) expect(await hasTokens({}, path)).toBeFalse();
  });

  test('do not appear when the service has no demo tokens', async () => {
    const { call } = await createTestApp();
    const { text } = await call('GET', '/swagger', { headers: { host: '127.0.0.1' } });
    expect(text).not.toContain('<select');
  });
});
