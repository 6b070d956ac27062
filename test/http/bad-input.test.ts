import { afterAll, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { users } from '../../src/db/schema/people';
import { createTestApp, readResponse, testToken } from '../support/app';
import { privateRoutes, saveRoutes } from '../support/contract';

/** Listens on a real socket, because Bun handles some invalid requests before the app. */
const testApp = await createTestApp();
testApp.app.listen({ port: 0, hostname: '127.0.0.1' });
afterAll(() => testApp.app.stop(true));
const port = testApp.app.server?.port ?? 0;
const token = await testToken({ id: 'bad-input', now: testApp.now });
const ltc = '/v2/private/ltc/lifetimeCare';
const json = { 'content-type': 'application/json' };

async function post(path: string, body: BodyInit | undefined, headers: Record<string, string> = json) {
  const request = {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, ...headers },
    ...(body === undefined ? {} : { body }),
  };
  return readResponse(await fetch(`http://127.0.0.1:${port}${path}`, request));
}

function chunked(text: string): ReadableStream {
  return new ReadableStream({
    start(controller) {
      for (let at = 0; at < text.length; at += 50_000)
        controller.enqueue(new TextEncoder().encode(text.slice(at, at + 50_000)));
      controller.close();
    },
  });
}

const latin1 = Uint8Array.from(Buffer.from('{"selections":[{"id":1,"title":"caf\u00e9"}]}', 'latin1'));
const large = JSON.stringify({ selections: [{ id: 1, title: 'x'.repeat(300_000) }] });
const deep = `${'['.repeat(1000)}${']'.repeat(1000)}`;
const selection = (value: string) => `{"selections":[${value}]}`;

describe('invalid body', () => {
  const cases: [
    name: string,
    body: BodyInit | undefined,
    headers: Record<string, string>,
    status: number,
    slug: string,
  ][] = [
    ['cut-off JSON', '{"careCosts":1', json, 400, 'malformed-json'],
    ['a trailing comma', '{"careCosts":1,}', json, 400, 'malformed-json'],
    ['NaN', '{"careCosts":NaN}', json, 400, 'malformed-json'],
    ['two values', '{}{}', json, 400, 'malformed-json'],
    ['bytes that are not UTF-8', latin1, json, 400, 'malformed-json'],
    ['a bare NUL', '\u0000', json, 400, 'malformed-json'],
    ['no content type', new Blob(['{"careCosts":1}']), {}, 415, 'unsupported-media-type'],
    ['text/plain', '{"careCosts":1}', { 'content-type': 'text/plain' }, 415, 'unsupported-media-type'],
    ['a form', 'careCosts=1', { 'content-type': 'application/x-www-form-urlencoded' }, 415, 'unsupported-media-type'],
    ['XML', '<a/>', { 'content-type': 'application/xml' }, 415, 'unsupported-media-type'],
    ['a type that begins like JSON', '{}', { 'content-type': 'application/jsonx' }, 415, 'unsupported-media-type'],
    ['JSON in Latin-1', '{}', { 'content-type': 'application/json; charset=latin1' }, 415, 'unsupported-media-type'],
    ['gzip', Bun.gzipSync('{}'), { ...json, 'content-encoding': 'gzip' }, 415, 'unsupported-media-type'],
    ['300 KB', large, json, 413, 'payload-too-large'],
    ['300 KB without a length', chunked(large), json, 413, 'payload-too-large'],
    ['nothing', undefined, json, 422, 'invalid-input'],
    ['an empty text', '', json, 422, 'invalid-input'],
    ['null', 'null', json, 422, 'invalid-input'],
    ['an array', '[]', json, 422, 'invalid-input'],
    ['a filled array', '[1]', json, 422, 'invalid-input'],
    ['a number', '1', json, 422, 'invalid-input'],
    ['a text', '"{}"', json, 422, 'invalid-input'],
    ['an unknown field', '{"unknown":1}', json, 422, 'invalid-input'],
    ['a field in other case', '{"carecosts":1}', json, 422, 'invalid-input'],
    ['__proto__', '{"__proto__":{"careCosts":1}}', json, 422, 'invalid-input'],
    ['constructor', '{"constructor":{"prototype":{"a":1}}}', json, 422, 'invalid-input'],
    ['__proto__ in an item', selection('{"id":1,"title":"a","__proto__":{"x":1}}'), json, 422, 'invalid-input'],
    ['a wrong enum', '{"careFacilityType":"castle"}', json, 422, 'invalid-input'],
    ['an enum in other case', '{"careFacilityType":"INHOME"}', json, 422, 'invalid-input'],
    ['a wrong enum in a list', '{"insuranceCover":["payingFuneral","x"]}', json, 422, 'invalid-input'],
    ['a text for a list', '{"insuranceCover":"payingFuneral"}', json, 422, 'invalid-input'],
    ['an object for a list', '{"insuranceCover":{"0":"payingFuneral"}}', json, 422, 'invalid-input'],
    ['a number as text', '{"careCosts":"1"}', json, 422, 'invalid-input'],
    ['1e999', '{"careCosts":1e999}', json, 422, 'invalid-input'],
    ['a negative amount', '{"careCosts":-0.01}', json, 422, 'invalid-input'],
    ['more than 1e12', '{"policyValue":1000000000000.01}', json, 422, 'invalid-input'],
    ['2^53 as an id', selection('{"id":9007199254740992,"title":"a"}'), json, 422, 'invalid-input'],
    ['an id with a fraction', selection('{"id":1.5,"title":"a"}'), json, 422, 'invalid-input'],
    ['a negative id', selection('{"id":-1,"title":"a"}'), json, 422, 'invalid-input'],
    ['an item without an id', selection('{"title":"a"}'), json, 422, 'invalid-input'],
    ['an empty title', selection('{"id":1,"title":""}'), json, 422, 'invalid-input'],
    ['a title of 201 characters', selection(`{"id":1,"title":"${'a'.repeat(201)}"}`), json, 422, 'invalid-input'],
    ['NUL in a title', selection('{"id":1,"title":"a\\u0000b"}'), json, 422, 'invalid-input'],
    ['a lone surrogate in a title', selection('{"id":1,"title":"\\ud800"}'), json, 422, 'invalid-input'],
    ['101 items', selection(Array(101).fill('{"id":1,"title":"a"}').join()), json, 422, 'invalid-input'],
    ['an array for an item', selection('[]'), json, 422, 'invalid-input'],
    ['null for an item', selection('null'), json, 422, 'invalid-input'],
    ['1,000 levels', `{"selections":${deep}}`, json, 422, 'invalid-input'],
    ['100,000 levels', `{"careCosts":${'['.repeat(100_000)}${']'.repeat(100_000)}}`, json, 422, 'invalid-input'],
    ['1,000 levels under an unknown field', `{"x":${deep}}`, json, 422, 'invalid-input'],
  ];

  test.each(cases)('returns a problem and stores nothing for %s', async (_, body, headers, status, slug) => {
    const response = await post(ltc, body, headers);
    expect(response.status).toBe(status);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    expect(response.body).toMatchObject({
      type: `/problems/${slug}`,
      status,
      http_code: status,
      title: expect.any(String),
      detail: expect.any(String),
      instance: ltc,
      code: expect.any(Number),
      requestId: response.headers.get('x-request-id'),
    });
    if (status === 422) {
      expect(response.body).toMatchObject({
        errors: expect.arrayContaining([
          { pointer: expect.any(String), rule: expect.any(String), message: expect.any(String) },
        ]),
      });
    }
    expect(response.text.length).toBeLessThan(20_000);
    expect(await testApp.db.$count(users)).toBe(0);
  });

  test.each(saveRoutes)('stores nothing of a valid field beside an invalid one at $path', async ({ path }) => {
    expect(
      (await post(path, JSON.stringify({ careSafety: 1, firstName: 'a', livingStatus: 'rent', nope: 1 }))).status,
    ).toBe(422);
    expect(await testApp.db.$count(users)).toBe(0);
  });

  test('lists every error in one response and suggests similar field names', async () => {
    const response = await post(
      ltc,
      JSON.stringify({ carecost: 1, careFacilityType: 'x', zzz: 1, selections: [{ id: -1, title: '', colour: 1 }] }),
    );
    expect(response.body).toMatchObject({
      errors: [
        {
          pointer: '/careFacilityType',
          rule: 'picklist',
          message: 'must be one of inHome, independentLiving, assistedLiving, nursingHome, notSure',
        },
        { pointer: '/selections/0/id', rule: 'min_value' },
        { pointer: '/selections/0/title', rule: 'min_length' },
        { pointer: '/selections/0/colour', rule: 'unknown_field' },
        { pointer: '/carecost', rule: 'unknown_field', message: 'is not a known field; did you mean careCosts?' },
        { pointer: '/zzz', rule: 'unknown_field' },
      ],
    });
  });

  test('has no sent value in the response or the log', async () => {
    const canary = 'canary-4711';
    const bodies = [
      { careFacilityType: canary },
      { relationshipStatus: [canary] },
      { relationshipStatus: canary },
      { careCosts: canary },
      { selections: [{ id: canary, title: [canary] }] },
      { insuranceCover: canary },
    ];
    for (const body of bodies) {
      const response = await post(ltc, JSON.stringify(body));
      expect(response.status).toBe(422);
      expect(response.text).not.toContain(canary);
    }
    await post(ltc, `{"${canary}`);
    expect(testApp.logLines.join('\n')).not.toContain(canary);
  });

  test.each([
    ['9,000 numbers for a list', `{"insuranceCover":[${Array(9_000).fill('1').join()}]}`],
    ['9,000 numbers for one or many', `{"relationshipStatus":[${Array(9_000).fill('1').join()}]}`],
    ['4,000 invalid selections', selection(Array(4_000).fill('{"id":-1}').join())],
  ])('returns one error for %s', async (_, body) => {
    const response = await post(ltc, body);
    expect(response.status).toBe(422);
    expect(response.body).toMatchObject({ errors: [{ rule: 'max_length', message: 'must have at most 100 items' }] });
  });

  test.each([
    ['100,000 nested lists', '['.repeat(100_000) + ']'.repeat(100_000)],
    ['130,000 unclosed lists', '['.repeat(130_000)],
    ['40,000 nested objects', `${'{"a":'.repeat(40_000)}1${'}'.repeat(40_000)}`],
    ['30,000 nested objects in a known field', `{"selections":${'{"a":'.repeat(30_000)}1${'}'.repeat(30_000)}}`],
    ['20,000 unknown fields', `{${Array.from({ length: 20_000 }, (_, index) => `"u${index}":1`).join()}}`],
    ['an unknown field of 250,000 letters', `{"${'a'.repeat(250_000)}":1}`],
    ['a number of 250,000 digits', `{"careCosts":${'9'.repeat(250_000)}}`],
    ['an exponent of 200,000 digits', `{"careCosts":1e${'9'.repeat(200_000)}}`],
    ['the same invalid field 15,000 times', `{${Array(15_000).fill('"careCosts":"x"').join()}}`],
  ])('returns 400 or 422 within bounds from every POST route for %s', async (_, body) => {
    for (const { path } of privateRoutes.filter(({ method }) => method === 'POST')) {
      const startedAtMs = performance.now();
      const { status, text } = await post(path, body);
      expect([400, 422]).toContain(status);
      expect(text.length).toBeLessThan(30_000);
      expect(performance.now() - startedAtMs).toBeLessThan(2000);
    }
    expect(await testApp.db.$count(users)).toBe(0);
  });

  test('uses the last of two equal fields', async () => {
    const response = await post(ltc, '{"careCosts":1,"careCosts":2}');
    expect(response.body).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts: 2 } } } });
    await testApp.db.delete(users);
  });

  test('returns the first 100 of 150 errors', async () => {
    const fields = Object.fromEntries(Array.from({ length: 150 }, (_, index) => [`unknown${index}`, 1]));
    expect((await post(ltc, JSON.stringify(fields))).body).toMatchObject({ errors: { length: 100 } });
  });
});

describe('valid body', () => {
  test.each([
    ['application/json', '{}'],
    ['application/json; charset=utf-8', '{}'],
    ['Application/JSON;charset="UTF-8"', '{}'],
    ['application/json', '\ufeff{}'],
    ['application/json', ' {\n} '],
  ])('succeeds with type %s: %j', async (type, body) => {
    expect((await post(ltc, body, { 'content-type': type })).status).toBe(200);
  });

  test('succeeds without Content-Length', async () => {
    const response = await post(ltc, chunked('{"careCosts":7}'));
    expect(response.body).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts: 7 } } } });
  });

  test('succeeds at exactly the size limit', async () => {
    expect((await post(ltc, `{}${' '.repeat(262_142)}`)).status).toBe(200);
    expect((await post(ltc, `{}${' '.repeat(262_143)}`)).status).toBe(413);
  });
});

describe('aborted body', () => {
  test('does not affect other requests', async () => {
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `POST ${ltc} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"careCosts":`,
    );
    await new Promise((resolve) => socket.once('connect', resolve));
    socket.destroy();
    expect((await post(ltc, '{}')).status).toBe(200);
  });
});
