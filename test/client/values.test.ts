import { describe, expect, test } from 'bun:test';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { createClient } from '../../src/client';

/** A client without types that records its requests. */
function recordingClient() {
  const sent: { url: string; body: unknown }[] = [];
  const fetch = async (url: string, { body }: RequestInit) => {
    sent.push({ url, body });
    return Response.json({});
  };
  const client: Record<'saveProfile' | 'listCemeteries', (value: unknown) => Promise<Outcome>> = createClient({
    baseUrl: 'http://service.test',
    token: 'token',
    fetch,
  }) as never;
  return { client, sent };
}
interface Outcome {
  readonly error?: { slug: string; errors: { pointer: string }[]; cause: unknown };
}

const refusal = (...errors: (readonly [pointer: string, message: string])[]) => ({
  data: undefined,
  error: {
    slug: 'invalid-call',
    errors: errors.map(([pointer, message]) => ({
      pointer,
      rule: 'unsendable',
      message: expect.stringMatching(message),
    })),
    cause: expect.any(TypeError),
  },
});

const withHole = [1, 2, 3];
delete withHole[1];
class Money {
  readonly amount = 4500;
}
const cyclic: { inner: { list: unknown[] } } = { inner: { list: [1] } };
cyclic.inner.list.push(cyclic);
const deep = (levels: number): unknown => (levels === 0 ? 1 : { a: deep(levels - 1) });
const revoked = Proxy.revocable({}, {});
revoked.revoke();
const throwing = (name: string) =>
  Object.defineProperty({}, name, {
    enumerable: true,
    get: () => {
      throw new Error('4500');
    },
  });
const finite = 'must be a finite number';
const plain = 'must be a plain object or a list';

describe('body of a call', () => {
  test.each<[what: string, body: unknown, pointer: string, message: string]>([
    ['the NaN of a form', { careCosts: Number('4.500,50') }, '/careCosts', finite],
    ['Infinity', { careCosts: 1 / 0 }, '/careCosts', finite],
    ['-Infinity in a list', { a: [1, -1 / 0] }, '/a/1', finite],
    ['a bigint', { careCosts: 4500n }, '/careCosts', 'must not be bigint'],
    ['undefined in a list', { a: [undefined] }, '/a/0', 'must not be undefined'],
    ['a hole in a list', { a: withHole }, '/a/1', 'must not be undefined'],
    ['a long list of holes', { a: new Array(1e9) }, '/a/0', 'must not be undefined'],
    ['undefined alone', undefined, '', 'must not be undefined'],
    ['a list with a member of its own', { a: Object.assign([1], { total: 1 }) }, '/a', 'items alone'],
    ['the match of a pattern', { a: /a/.exec('a') }, '/a', 'items alone'],
    ['a Date', { dateOfBirth: new Date(1956, 11, 10) }, '/dateOfBirth', 'local calendar date as text'],
    ['an invalid Date', { dateOfBirth: new Date('') }, '/dateOfBirth', 'local calendar date as text'],
    ['a Date of another realm', { dateOfBirth: runInNewContext('new Date()') }, '/dateOfBirth', 'local calendar date'],
    ['a Map', { a: { b: new Map([['careCosts', 1]]) } }, '/a/b', plain],
    ['a Set', new Set([1]), '', plain],
    ['a pattern', { a: /a/ }, '/a', plain],
    ['an error', { a: new Error('x') }, '/a', plain],
    ['a promise', { a: Promise.resolve(1) }, '/a', plain],
    ['a typed array', { a: new Float64Array([1]) }, '/a', plain],
    ['a FormData', new FormData(), '', plain],
    ['an object of a class', { careCosts: new Money() }, '/careCosts', plain],
    ['an object that inherits its members', { a: Object.create({ careCosts: 1 }) }, '/a', plain],
    ['an object that inherits from a bare one', { a: Object.create(Object.create(null)) }, '/a', plain],
    ['a URL, which has toJSON', { a: new URL('http://a') }, '/a', plain],
    ['a number as an object', { a: Object(Number.NaN) }, '/a', plain],
    ['a function', { a: () => 1 }, '/a', 'must not be function'],
    ['toJSON of the object itself', { toJSON: () => ({}) }, '/toJSON', 'must not be function'],
    ['a symbol', { a: Symbol('a') }, '/a', 'must not be symbol'],
    ['a key that is a symbol', { a: { [Symbol('a')]: 1 } }, '/a', 'symbol as a key'],
    ['half a surrogate pair', { firstName: 'A\ud83d' }, '/firstName', 'half a surrogate pair'],
    ['half a surrogate pair in a key', { '\udc00': 1 }, '/\udc00', 'half a surrogate pair'],
    ['an object that contains itself', cyclic, '/inner/list/1', 'must not contain itself'],
    ['a deeply nested object', deep(1e4), '/a'.repeat(100), 'nested'],
    ['a getter that throws', throwing('careCosts'), '/careCosts', 'must be readable'],
    ['a revoked proxy', { a: revoked.proxy }, '/a', 'must be readable'],
    ['a key with ~ and /', { 'a~/b': Number.NaN }, '/a~0~1b', finite],
  ])('is rejected with its path and not sent when it has %s', async (_, body, pointer, message) => {
    const { client, sent } = recordingClient();
    expect(await client.saveProfile(body)).toMatchObject(refusal([pointer, message]));
    expect(sent).toEqual([]);
  });

  test('is rejected with the path of every invalid field and no value when it has several', async () => {
    const { client } = recordingClient();
    const { error } = await client.saveProfile({ heightCm: Number.NaN, weightKg: 1 / 0, firstName: 'Ada\ud83d' });
    const expected = refusal(['/heightCm', finite], ['/weightKg', finite], ['/firstName', 'surrogate']);
    expect(error).toMatchObject(expected.error);
    expect(String(error?.cause)).not.toMatch(/NaN|Infinity|Ada/);
  });

  test.each<[what: string, body: unknown, text: string]>([
    ['an undefined member', { firstName: 'Ada', lastName: undefined }, '{"firstName":"Ada"}'],
    ['null, which clears', { firstName: null }, '{"firstName":null}'],
    ['a date as text', { dateOfBirth: '1956-12-10' }, '{"dateOfBirth":"1956-12-10"}'],
    ['-0', { careCosts: -0 }, '{"careCosts":0}'],
    ['an object without a prototype', Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ['an object of another realm', runInNewContext('({ a: [1] })'), '{"a":[1]}'],
    ['a proxy of an object, as Vue makes', new Proxy({ a: new Proxy([1], {}) }, {}), '{"a":[1]}'],
    ['a member that is not enumerable', Object.defineProperty({ a: 1 }, 'b', { value: () => 1 }), '{"a":1}'],
    ['one object twice', ((a) => ({ b: a, c: a }))({ d: 1 }), '{"b":{"d":1},"c":{"d":1}}'],
    ['pairs of surrogates', { a: '👵' }, '{"a":"👵"}'],
    ['a key named __proto__', JSON.parse('{"__proto__":{"a":1}}'), '{"__proto__":{"a":1}}'],
  ])('is sent when it has %s', async (_, body, text) => {
    const { client, sent } = recordingClient();
    await client.saveProfile(body);
    expect(sent[0]?.body).toBe(text);
  });

  const awkward = fc.oneof(
    fc.constantFrom<unknown>(undefined, Number.NaN, 1 / 0, -1 / 0, -0, null, 1n, Symbol('a'), () => 1, new Date(0)),
    fc.constantFrom<unknown>(new Map(), new Money(), '\ud800', Object(1), new Uint8Array(2), withHole),
    fc.double(),
    fc.string({ unit: 'binary' }),
    fc.boolean(),
  );
  const { body: bodies } = fc.letrec((tie) => ({
    body: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      awkward,
      fc.array(tie('body'), { maxLength: 4 }),
      fc.dictionary(fc.string({ unit: 'binary', maxLength: 3 }), tie('body'), { maxKeys: 4 }),
      fc.dictionary(fc.constantFrom('a', 'b', '__proto__', 'toJSON', '~/'), tie('body'), { noNullPrototype: true }),
    ),
  }));
  const withoutUndefined = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(withoutUndefined);
    if (typeof value !== 'object' || value === null) return Object.is(value, -0) ? 0 : value;
    const kept = Object.entries(value).filter(([, member]) => member !== undefined);
    return Object.fromEntries(kept.map(([name, member]) => [name, withoutUndefined(member)]));
  };
  /** Throws for a pointer that does not lead into the value. */
  const at = (value: unknown, pointer: string): unknown =>
    pointer
      .split('/')
      .slice(1)
      .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'))
      .reduce((inner, name) => (inner as Record<string, unknown>)[name], value);

  test('arrives unchanged or is rejected with a path into it when it has any shape', async () => {
    const { client, sent } = recordingClient();
    const outcomes = { sent: 0, refused: 0 };
    const property = fc.asyncProperty(bodies, async (body) => {
      sent.length = 0;
      const { error } = await client.saveProfile(body);
      if (error?.slug === 'invalid-call') {
        outcomes.refused += 1;
        expect(sent.length).toBe(0);
        expect(error.errors.length).toBeGreaterThan(0);
        for (const { pointer } of error.errors) at(body, pointer);
      } else {
        outcomes.sent += 1;
        expect(JSON.parse(String(sent[0]?.body))).toStrictEqual(withoutUndefined(body));
      }
    });
    await fc.assert(property, { numRuns: 400 });
    expect(Math.min(outcomes.sent, outcomes.refused)).toBeGreaterThan(20);
  });
});

describe('query of a call', () => {
  const scalar = 'must be text, a number or a boolean';
  test.each<[what: string, query: unknown, pointer: string, message: string]>([
    ['NaN', { page: Number('x') }, '/page', finite],
    ['Infinity', { limit: 1 / 0 }, '/limit', finite],
    ['a Date', { page: new Date() }, '/page', 'must not be a Date'],
    ['an object', { page: { number: 2 } }, '/page', scalar],
    ['a list', { sort: ['asc', 'desc'] }, '/sort', scalar],
    ['null', { sort: null }, '/sort', scalar],
    ['a bigint', { page: 2n }, '/page', 'must not be bigint'],
    ['half a surrogate pair', { sort: '\ud83d' }, '/sort', 'half a surrogate pair'],
    ['a getter that throws', throwing('page'), '/page', 'must be readable'],
    ['the members of a URLSearchParams', new URLSearchParams({ page: '2' }), '', 'plain object'],
    ['no members, because it is null', null, '', 'plain object'],
  ])('is rejected with its path and not sent when it has %s', async (_, query, pointer, message) => {
    const { client, sent } = recordingClient();
    expect(await client.listCemeteries(query)).toMatchObject(refusal([pointer, message]));
    expect(sent).toEqual([]);
  });

  test('arrives unchanged when it has reserved characters', async () => {
    const { client, sent } = recordingClient();
    const query = { sort: 'a&b=c +%é👵', page: 2, limit: undefined };
    await client.listCemeteries(query);
    expect(Object.fromEntries(new URL(sent[0]?.url ?? '').searchParams)).toEqual({ sort: query.sort, page: '2' });
  });
});
