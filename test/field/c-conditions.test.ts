import { describe, expect, test } from 'bun:test';
import { applicant, createTestApp, startSandbox } from '../support/app';

const user = '/v2/private/user';
const profile = '/v2/private/user/profile';
const lists = '/v2/private/healthAndCare/';
const sandbox = await startSandbox();
const { call, db } = await createTestApp({ carrier: sandbox.carrier() });

/** Builds the tag of a request from the current one. */
type Form = (tag: string) => string;
const inside =
  (addition: string): Form =>
  (tag) =>
    tag.replace(/"$/, `${addition}"`);
const own: Form = (tag) => tag;

let people = 0;
async function newUser() {
  people += 1;
  const as = `person-${people}`;
  const tag = (await call('POST', profile, { as, body: { heightCm: 160 } })).headers.get('etag') ?? '';
  return { as, tag };
}

describe('C1 a tag that a compressing proxy has changed', () => {
  const forms: [name: string, form: Form][] = [
    ['weak, by nginx or HAProxy', (tag) => `W/${tag}`],
    ['with -gzip, by Apache or Caddy', inside('-gzip')],
    ['with ;gzip', inside(';gzip')],
    ['with --gzip, by Jetty', inside('--gzip')],
    ['with -br', inside('-br')],
    ['with -zstd', inside('-zstd')],
    ['with -deflate', inside('-deflate')],
    ['weak and with -gzip', (tag) => `W/${inside('-gzip')(tag)}`],
    ['in a list', (tag) => `"x", W/${tag} ,, "y"`],
  ];

  test.each(forms)('C1 matches the version for a save, a match, an application and a read: %s', async (_, form) => {
    const { as, tag } = await newUser();
    const read = await call('GET', user, { as, headers: { 'if-none-match': form(tag) } });
    expect([read.status, read.text]).toEqual([304, '']);
    const saved = await call('POST', profile, { as, headers: { 'if-match': form(tag) }, body: { heightCm: 161 } });
    expect(saved.status).toBe(200);
    const stale = await call('POST', profile, { as, headers: { 'if-match': form(tag) }, body: { heightCm: 162 } });
    expect(stale.status).toBe(412);
    const next = form(saved.headers.get('etag') ?? '');
    const matched = await call('POST', '/v2/private/engine/matches', { as, headers: { 'if-match': next } });
    expect(matched.status).toBe(200);
    const headers = { 'if-match': form(matched.headers.get('etag') ?? '') };
    expect((await call('POST', '/v2/private/ltc/totalCoverage', { as, headers, body: applicant })).status).toBe(200);
    const listTag = (await call('GET', lists, { as })).headers.get('etag') ?? '';
    expect((await call('GET', lists, { as, headers: { 'if-none-match': form(listTag) } })).status).toBe(304);
  });

  test.each<[name: string, form: Form]>([
    ['an unknown suffix', inside('-other')],
    ['a known suffix twice', inside('-gzip-gzip')],
    ['a lower-case w', (tag) => `w/${tag}`],
    ['a space after W/', (tag) => `W/ ${tag}`],
    ['the suffix outside the quotes', (tag) => `${tag}-gzip`],
    ['a prefix', (tag) => tag.replace('"', '"gzip-')],
  ])('C1 does not match the version with %s', async (_, form) => {
    const { as, tag } = await newUser();
    expect((await call('GET', user, { as, headers: { 'if-none-match': form(tag) } })).status).toBe(200);
    const saved = await call('POST', profile, { as, headers: { 'if-match': form(tag) }, body: { heightCm: 161 } });
    expect(saved.status).toBe(412);
  });
});

describe('C14 the preconditions of RFC 9110', () => {
  interface Case {
    readonly name: string;
    readonly ifMatch?: Form;
    readonly ifNoneMatch?: Form;
    /** Status of a save over a record. */
    readonly save: number;
    /** Status of a first save. */
    readonly first: number;
    readonly read: number;
  }
  const cases: Case[] = [
    { name: 'no condition', save: 200, first: 200, read: 200 },
    { name: 'If-Match with the tag', ifMatch: own, save: 200, first: 412, read: 200 },
    { name: 'If-Match: *', ifMatch: () => '*', save: 200, first: 412, read: 200 },
    { name: 'If-Match with spaces around *', ifMatch: () => ' \t* ', save: 200, first: 412, read: 200 },
    { name: 'If-Match with another tag', ifMatch: () => '"x"', save: 412, first: 412, read: 412 },
    { name: 'If-Match with an empty list', ifMatch: () => ',', save: 412, first: 412, read: 412 },
    { name: 'If-Match without quotes', ifMatch: (tag) => tag.slice(1, -1), save: 412, first: 412, read: 412 },
    { name: 'If-Match with the tag and *', ifMatch: (tag) => `${tag}, *`, save: 412, first: 412, read: 412 },
    { name: 'If-Match with tags side by side', ifMatch: (tag) => `"x" ${tag}`, save: 412, first: 412, read: 412 },
    { name: 'If-Match with rubbish after the tag', ifMatch: (tag) => `${tag}, x`, save: 412, first: 412, read: 412 },
    { name: 'If-Match with an open quote', ifMatch: (tag) => `${tag}, "x`, save: 412, first: 412, read: 412 },
    { name: 'If-Match with empty elements', ifMatch: (tag) => `, ,${tag},\t,`, save: 200, first: 412, read: 200 },
    { name: 'If-Match with a comma in a tag', ifMatch: (tag) => `"a,b", ${tag}`, save: 200, first: 412, read: 200 },
    {
      name: 'If-Match with the tag as the 200th',
      ifMatch: (tag) => `${'"x", '.repeat(199)}${tag}`,
      save: 200,
      first: 412,
      read: 200,
    },
    { name: 'If-None-Match with the tag', ifNoneMatch: own, save: 412, first: 200, read: 304 },
    { name: 'If-None-Match: *', ifNoneMatch: () => '*', save: 412, first: 200, read: 304 },
    { name: 'If-None-Match with another tag', ifNoneMatch: () => '"x"', save: 200, first: 200, read: 200 },
    { name: 'If-None-Match with an empty list', ifNoneMatch: () => ' ', save: 200, first: 200, read: 200 },
    { name: 'If-None-Match with a list', ifNoneMatch: (tag) => `"x",${tag}`, save: 412, first: 200, read: 304 },
    { name: 'If-None-Match that is not a list', ifNoneMatch: () => 'x', save: 412, first: 412, read: 200 },
    { name: 'If-None-Match with the tag and *', ifNoneMatch: (tag) => `*, ${tag}`, save: 412, first: 412, read: 200 },
    { name: 'both with the tag', ifMatch: own, ifNoneMatch: own, save: 412, first: 412, read: 304 },
    {
      name: 'If-Match that fails before If-None-Match',
      ifMatch: () => '"x"',
      ifNoneMatch: own,
      save: 412,
      first: 412,
      read: 412,
    },
    { name: 'both met', ifMatch: own, ifNoneMatch: () => '"x"', save: 200, first: 412, read: 200 },
    { name: 'both *', ifMatch: () => '*', ifNoneMatch: () => '*', save: 412, first: 412, read: 304 },
  ];
  const headersOf = ({ ifMatch, ifNoneMatch }: Case, tag: string) => ({
    ...(ifMatch && { 'if-match': ifMatch(tag) }),
    ...(ifNoneMatch && { 'if-none-match': ifNoneMatch(tag) }),
  });
  const routes: { path: string; body?: unknown }[] = [
    { path: profile, body: { heightCm: 170 } },
    { path: '/v2/private/deepDives/lifetimeCare', body: { careFacilityType: 'inHome' } },
    { path: '/v2/private/engine/matches' },
    { path: '/v2/private/engine/matches?explain=true' },
    { path: '/v2/private/life/totalCoverage', body: applicant },
  ];
  const storedText = async (as: string) =>
    JSON.stringify((await db.$client.execute({ sql: 'SELECT * FROM users WHERE id = ?', args: [as] })).rows);

  test.each(cases)('C14 decide a save over a record: $name', async (conditions) => {
    for (const { path, ...sent } of routes) {
      const { as, tag } = await newUser();
      const before = await storedText(as);
      const response = await call('POST', path, { as, headers: headersOf(conditions, tag), ...sent });
      expect([path, response.status]).toEqual([path, conditions.save]);
      expect([path, (await storedText(as)) === before]).toEqual([path, conditions.save === 412]);
      if (response.status === 200) expect(response.body).toMatchObject({ user: { id: as } });
      else expect(response.headers.get('etag')).toBe(tag);
    }
  });

  test.each(cases)('C14 decide a first save: $name', async (conditions) => {
    for (const { path, ...sent } of routes) {
      people += 1;
      const as = `first-${people}`;
      const headers = headersOf(conditions, '"1795000000000-1-0123456789abcdef"');
      const response = await call('POST', path, { as, headers, ...sent });
      expect([path, response.status]).toEqual([path, conditions.first]);
      expect([path, (await storedText(as)) === '[]']).toEqual([path, conditions.first === 412]);
      if (response.status === 200) expect(response.body).toMatchObject({ user: { id: as } });
    }
  });

  test.each(cases)('C14 decide a GET and a HEAD: $name', async (conditions) => {
    const { as, tag } = await newUser();
    const listTag = (await call('GET', lists, { as })).headers.get('etag') ?? '';
    for (const [path, current] of [
      [user, tag],
      [lists, listTag],
    ] as const) {
      for (const method of ['GET', 'HEAD']) {
        const { status, headers, text } = await call(method, path, { as, headers: headersOf(conditions, current) });
        expect([method, path, status]).toEqual([method, path, conditions.read]);
        expect([method, path, headers.get('etag')]).toEqual([method, path, current]);
        if (method === 'HEAD' || status === 304) expect([method, path, text]).toEqual([method, path, '']);
      }
      expect((await call('GET', user, { as: 'absent', headers: headersOf(conditions, current) })).status).toBe(404);
    }
  });

  test.each<[name: string, form: Form]>([
    ['a leading zero in its first number', (tag) => tag.replace('"', '"0')],
    ['a leading zero in its version', (tag) => tag.replace('-', '-0')],
    ['its hexadecimal digits in capitals', (tag) => tag.toUpperCase()],
    ['a plus sign', (tag) => tag.replace('-', '-+')],
    ['one digit less', (tag) => tag.replace(/.(?="$)/, '')],
    ['a wildcard', (tag) => tag.replace(/.(?="$)/, '%')],
  ])('C14 compare octet by octet and refuse a tag with %s', async (_, form) => {
    const { as, tag } = await newUser();
    const another = form(tag) === tag ? '"never"' : form(tag);
    for (const { path, ...sent } of routes) {
      expect((await call('POST', path, { as, headers: { 'if-match': another }, ...sent })).status).toBe(412);
    }
    expect((await call('GET', user, { as, headers: { 'if-none-match': another } })).status).toBe(200);
    expect((await call('GET', user, { as, headers: { 'if-match': another } })).status).toBe(412);
  });

  test('C14 accept one of many first saves with If-None-Match: *', async () => {
    const responses = await Promise.all(
      Array.from({ length: 8 }, (_, heightCm) =>
        call('POST', profile, { as: 'raced', headers: { 'if-none-match': '*' }, body: { heightCm: 150 + heightCm } }),
      ),
    );
    expect(responses.map(({ status }) => status).sort()).toEqual([200, ...Array(7).fill(412)]);
  });

  test('C14 ignore dates', async () => {
    const { as } = await newUser();
    const past = new Date(0).toUTCString();
    const future = new Date('2100-01-01').toUTCString();
    const read = await call('GET', user, { as, headers: { 'if-modified-since': future, 'if-range': '"x"' } });
    expect(read.status).toBe(200);
    const headers = { 'if-unmodified-since': past };
    expect((await call('POST', profile, { as, headers, body: { heightCm: 171 } })).status).toBe(200);
  });

  test('C14 apply after every other check', async () => {
    const { as } = await newUser();
    const headers = { 'if-match': '"stale"', 'if-none-match': '*' };
    expect((await call('POST', profile, { headers, body: {} })).status).toBe(401);
    expect((await call('POST', profile, { as, headers, body: { heightCm: 'x' } })).status).toBe(422);
    expect((await call('POST', profile, { as, headers, body: '{' })).status).toBe(400);
  });
});

test('G11 a save never returns 304', async () => {
  const { as, tag } = await newUser();
  const saved = await call('POST', profile, { as, headers: { 'if-none-match': '"x"' }, body: { heightCm: 180 } });
  expect(saved.body).toMatchObject({ user: { profile: { heightCm: 180 } } });
  // The save changes nothing, so its response has a tag of the request.
  const current = saved.headers.get('etag') ?? '';
  for (const [name, value] of [
    ['if-match', current],
    ['if-none-match', tag],
  ] as const) {
    const repeated = await call('POST', profile, { as, headers: { [name]: value }, body: { heightCm: 180 } });
    expect([name, repeated.status]).toEqual([name, 200]);
    expect(repeated.text).not.toBe('');
  }
  const first = await call('POST', profile, { as: 'never-304', headers: { 'if-none-match': '*' }, body: {} });
  expect([first.status, first.text === '']).toEqual([200, false]);
});
