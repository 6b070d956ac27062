import { describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import { users } from '../../src/db/schema/people';
import { createTestApp, listen, readResponse, testToken } from '../support/app';
import { privateRoutes, saveRoutes } from '../support/contract';
import { connectRaw } from '../support/http';

/** Listens on a real socket, because Bun handles some invalid requests before the app. */
const testApp = await createTestApp();
const port = listen(testApp);
const tokens = {
  refused: await testToken({ id: 'refused', now: testApp.now }),
  accepted: await testToken({ id: 'accepted', now: testApp.now }),
};
const ltc = '/v2/private/ltc/lifetimeCare';
const json = { 'content-type': 'application/json' };

interface Sent {
  readonly path?: string;
  readonly headers?: Record<string, string>;
  readonly as?: keyof typeof tokens;
}

async function post(body: BodyInit | undefined, { path = ltc, headers = json, as = 'accepted' }: Sent = {}) {
  const init = { method: 'POST', headers: { authorization: `Bearer ${tokens[as]}`, ...headers } };
  const address = `http://127.0.0.1:${port}${path}`;
  return readResponse(await fetch(address, body === undefined ? init : { ...init, body }));
}

const storedOfRefused = () => testApp.db.$count(users, eq(users.id, 'refused'));

function chunked(text: string): ReadableStream {
  return new ReadableStream({
    start(controller) {
      for (let at = 0; at < text.length; at += 50_000) controller.enqueue(Buffer.from(text.slice(at, at + 50_000)));
      controller.close();
    },
  });
}

const latin1 = Uint8Array.from(Buffer.from('{"selections":[{"id":1,"title":"caf\u00e9"}]}', 'latin1'));
const large = JSON.stringify({ selections: [{ id: 1, title: 'x'.repeat(300_000) }] });
const selection = (value: string) => `{"selections":[${value}]}`;
const titled = (title: string) => selection(`{"id":1,"title":"${title}"}`);
const identified = (id: string) => selection(`{"id":${id},"title":"a"}`);

const malformed: [name: string, body: BodyInit][] = [
  ['cut-off JSON', '{"careCosts":1'],
  ['a trailing comma', '{"careCosts":1,}'],
  ['NaN', '{"careCosts":NaN}'],
  ['two values', '{}{}'],
  ['bytes that are not UTF-8', latin1],
  ['a bare NUL', '\u0000'],
];
const invalid: [name: string, body: BodyInit | undefined][] = [
  ['nothing', undefined],
  ['an empty text', ''],
  ['null', 'null'],
  ['an array', '[]'],
  ['a number', '1'],
  ['a text', '"{}"'],
  ['__proto__', '{"__proto__":{"careCosts":1}}'],
  ['constructor', '{"constructor":{"prototype":{"a":1}}}'],
  ['__proto__ in an item', selection('{"id":1,"title":"a","__proto__":{"x":1}}')],
  ['a wrong enum', '{"careFacilityType":"castle"}'],
  ['a wrong enum in a list', '{"insuranceCover":["payingFuneral","x"]}'],
  ['a text for a list', '{"insuranceCover":"payingFuneral"}'],
  ['1e999', '{"careCosts":1e999}'],
  ['a negative amount', '{"careCosts":-0.01}'],
  ['more than 1e12', '{"policyValue":1000000000000.01}'],
  ['2^53 as an id', identified('9007199254740992')],
  ['an id with a fraction', identified('1.5')],
  ['an item without an id', selection('{"title":"a"}')],
  ['NUL in a title', titled('a\\u0000b')],
  ['a lone surrogate in a title', titled('\\ud800')],
  ['an array for an item', selection('[]')],
  ['null for an item', selection('null')],
];

describe('invalid body', () => {
  test.each([
    ...malformed.map(([name, body]) => ({ name, body, status: 400, slug: 'malformed-json' })),
    ...invalid.map(([name, body]) => ({ name, body, status: 422, slug: 'invalid-input' })),
    ...[large, chunked(large)].map((body) => ({
      ...{ body, status: 413, slug: 'payload-too-large' },
      name: body === large ? '300 KB' : '300 KB without a length',
    })),
  ])('returns $status and stores nothing for $name', async ({ body, status, slug }) => {
    const response = await post(body, { as: 'refused' });
    expect(response.status).toBe(status);
    expect(response.body).toMatchObject({
      type: `/problems/${slug}`,
      instance: ltc,
      requestId: response.headers.get('x-request-id'),
    });
    expect(response.text.length).toBeLessThan(20_000);
    expect(await storedOfRefused()).toBe(0);
  });

  test.each(saveRoutes)('stores nothing of a valid field beside an invalid one at $path', async ({ path }) => {
    const body = JSON.stringify({ careSafety: 1, firstName: 'a', livingStatus: 'rent', nope: 1 });
    expect((await post(body, { path, as: 'refused' })).status).toBe(422);
    expect(await storedOfRefused()).toBe(0);
  });

  test.each([
    ['100,000 nested lists', '['.repeat(100_000) + ']'.repeat(100_000)],
    ['130,000 unclosed lists', '['.repeat(130_000)],
    ['100,000 lists in a known field', `{"careCosts":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
    ['1,000 lists under an unknown field', `{"x":${'['.repeat(1000)}${']'.repeat(1000)}}`],
    ['40,000 nested objects', `${'{"a":'.repeat(40_000)}1${'}'.repeat(40_000)}`],
    ['30,000 nested objects in a known field', `{"selections":${'{"a":'.repeat(30_000)}1${'}'.repeat(30_000)}}`],
    ['20,000 unknown fields', `{${Array.from({ length: 20_000 }, (_, index) => `"u${index}":1`).join()}}`],
    ['an unknown field of 250,000 letters', `{"${'a'.repeat(250_000)}":1}`],
    ['a number of 250,000 digits', `{"careCosts":${'9'.repeat(250_000)}}`],
    ['an exponent of 200,000 digits', `{"careCosts":1e${'9'.repeat(200_000)}}`],
    ['the same invalid field 15,000 times', `{${Array(15_000).fill('"careCosts":"x"').join()}}`],
  ])('returns a short 400 or 422 from every POST route for %s', async (_, body) => {
    for (const { path } of privateRoutes.filter(({ method }) => method === 'POST')) {
      const { status, text } = await post(body, { path, as: 'refused' });
      expect([400, 422]).toContain(status);
      expect(text.length).toBeLessThan(30_000);
    }
    expect(await storedOfRefused()).toBe(0);
  });
});

describe('valid body', () => {
  const careCosts = (amount: number) => ({ user: { ltc: { lifetimeCare: { careCosts: amount } } } });

  test.each(['\ufeff{}', ' {\n} '])('succeeds with a byte order mark or white space: %j', async (body) => {
    expect((await post(body)).status).toBe(200);
  });

  test('uses the last of two equal fields', async () => {
    expect((await post('{"careCosts":1,"careCosts":2}')).body).toMatchObject(careCosts(2));
  });

  test('succeeds without Content-Length', async () => {
    expect((await post(chunked('{"careCosts":7}'))).body).toMatchObject(careCosts(7));
  });

  test('succeeds at exactly the size limit', async () => {
    expect((await post(`{}${' '.repeat(262_142)}`)).status).toBe(200);
    expect((await post(`{}${' '.repeat(262_143)}`)).status).toBe(413);
  });
});

describe('Content-Type', () => {
  const withParameter = (parameter: string) => `application/json; ${parameter}`;
  const withCharset = (charset: string) => withParameter(`charset=${charset}`);

  test.each([
    ...['application/json', 'Application/JSON', '\tapplication/json\t', 'application/json;;'],
    ...['charset=utf8', 'charset= utf-8', 'Charset="UTF-8"', 'charset="utf\\-8"', 'charset'].map(withParameter),
    ...['unicode-1-1-utf-8', 'unicode11utf8', 'unicode20utf8', 'x-unicode20utf8'].map(withCharset),
    ...['profile="a;charset=utf-16"', 'profile="a\\";charset=utf-16"; charset=utf-8'].map(withParameter),
    ...['charset=utf-8; charset=utf-16', 'version=1; ext="https://a.example/b?c=d;e"'].map(withParameter),
    ...['application/json;charset=utf8', 'application/json ;charset=utf-8'],
  ])('returns 200 for JSON in UTF-8: %s', async (type) => {
    expect((await post('{}', { headers: { 'content-type': type } })).status).toBe(200);
  });

  test.each([
    ...['text/plain', 'text/json', 'application/xml', 'application/x-www-form-urlencoded', 'application/jsonp'],
    ...['application/json-patch+json', 'application', 'application/', 'application/json, text/plain'],
    ...['utf-16', 'iso-8859-1', 'us-ascii', 'nothing', '""', "'utf-8'"].map(withCharset),
  ])('returns 415 for another type: %s', async (type) => {
    expect((await post('{}', { headers: { 'content-type': type } })).status).toBe(415);
  });

  test('returns 415 when missing', async () => {
    const { status, body } = await post(new Blob(['{}']), { headers: {} });
    expect({ status, body }).toMatchObject({ status: 415, body: { type: '/problems/unsupported-media-type' } });
  });
});

describe('Content-Encoding', () => {
  const statusWith = async (encoding: string, body: BodyInit = '{}') =>
    (await post(body, { headers: { ...json, 'content-encoding': encoding } })).status;

  test.each(['identity', 'Identity', 'IDENTITY', '', ' ', 'identity, identity'])(
    'returns 200 when it names no coding: "%s"',
    async (encoding) => expect(await statusWith(encoding)).toBe(200),
  );

  test.each(['gzip', 'GZIP', 'br', 'identity, gzip', 'gzip, identity', 'x'])(
    'returns 415 when it names a coding: %s',
    async (encoding) => expect(await statusWith(encoding, Bun.gzipSync('{}'))).toBe(415),
  );
});

describe('refusal', () => {
  const head = (token: string, type: string, ...others: string[]) =>
    [`POST ${ltc} HTTP/1.1`, 'Host: x', `Authorization: Bearer ${token}`, `Content-Type: ${type}`, ...others].join(
      '\r\n',
    );
  const valid = tokens.accepted;

  test.each([
    [415, 'a wrong type', head(valid, 'text/plain', 'Content-Length: 100')],
    [415, 'a wrong type in chunks', head(valid, 'text/plain', 'Transfer-Encoding: chunked', '', 'ff', '{')],
    [415, 'an encoded body', head(valid, 'application/json', 'Content-Encoding: gzip', 'Content-Length: 100')],
    [413, 'a large body', head(valid, 'application/json', 'Content-Length: 9999999')],
    [401, 'a bad token', head('x', 'application/json', 'Content-Length: 100')],
    [401, 'a bad token and a wrong type', head('x', 'text/plain', 'Content-Length: 100')],
    [415, 'a wrong type and Expect', head(valid, 'text/plain', 'Expect: 100-Continue', 'Content-Length: 100')],
  ])('with %i precedes the body for %s', async (status, _, bytes) => {
    const { socket, received } = await connectRaw(port);
    socket.write(bytes.includes('\r\n\r\n') ? bytes : `${bytes}\r\n\r\n`);
    expect(await received).toStartWith(`HTTP/1.1 ${status} `);
    socket.end();
  });

  test.each(['Content-Length: 0\r\n\r\n', 'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n'])(
    'does not name the type of an empty body: %j',
    async (body) => {
      const { exchange } = await connectRaw(port);
      const response = await exchange(`${head(valid, 'text/plain', 'Connection: close')}\r\n${body}`);
      expect(response).toStartWith('HTTP/1.1 422 ');
    },
  );

  test('does not affect other requests when the client aborts the body', async () => {
    const { socket } = await connectRaw(port);
    socket.write(`${head(valid, 'application/json', 'Content-Length: 100')}\r\n\r\n{"careCosts":`);
    socket.terminate();
    expect((await post('{}')).status).toBe(200);
  });
});
