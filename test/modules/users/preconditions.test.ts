import { describe, expect, test } from 'bun:test';
import { applicant, createTestApp, startSandbox, type TestApp, type TestResponse } from '../../support/app';
import { privateRoutes, saveRoutes } from '../../support/contract';
import { amount } from '../../support/resources';

const user = '/v2/private/user';
const profile = '/v2/private/user/profile';
const matches = '/v2/private/engine/matches';
const ltcCoverage = '/v2/private/ltc/totalCoverage';
const lists = '/v2/private/healthAndCare/';
const sandbox = await startSandbox();
const testApp = await createTestApp({
  carrier: sandbox.carrier({ attempts: 1, timeoutMs: 1_000, breakerFailures: 1_000 }),
});
const { call, db } = testApp;
const tagOf = ({ headers }: TestResponse) => headers.get('etag') ?? '';

let people = 0;
const newPerson = () => {
  people += 1;
  return `person-${people}`;
};
async function newUser() {
  const as = newPerson();
  return { as, tag: tagOf(await call('POST', profile, { as, body: { heightCm: 160 } })) };
}

/** Builds the tag of a request from the current one. */
type Form = (tag: string) => string;
const inside =
  (addition: string): Form =>
  (tag) =>
    tag.replace(/"$/, `${addition}"`);
const own: Form = (tag) => tag;

describe('a precondition of RFC 9110', () => {
  interface Case {
    readonly name: string;
    readonly ifMatch?: Form;
    readonly ifNoneMatch?: Form;
    /** The statuses of a save over a record, of a first save, and of a read. */
    readonly statuses: readonly [save: number, first: number, read: number];
  }
  const met = [200, 412, 200] as const;
  const failed = [412, 412, 412] as const;
  const cases: Case[] = [
    { name: 'no condition', statuses: [200, 200, 200] },
    { name: 'If-Match with the tag', ifMatch: own, statuses: met },
    { name: 'If-Match with the weak tag of a proxy', ifMatch: (tag) => `W/${inside('-gzip')(tag)}`, statuses: met },
    { name: 'If-Match: *', ifMatch: () => '*', statuses: met },
    { name: 'If-Match with spaces around *', ifMatch: () => ' \t* ', statuses: met },
    { name: 'If-Match with another tag', ifMatch: () => '"x"', statuses: failed },
    { name: 'If-Match with an empty list', ifMatch: () => ',', statuses: failed },
    { name: 'If-Match without quotes', ifMatch: (tag) => tag.slice(1, -1), statuses: failed },
    { name: 'If-Match with the tag and *', ifMatch: (tag) => `${tag}, *`, statuses: failed },
    { name: 'If-Match with the tag followed by *', ifMatch: (tag) => `${tag}*`, statuses: failed },
    { name: 'If-Match with **', ifMatch: () => '**', statuses: failed },
    { name: 'If-Match with a comment', ifMatch: () => '/* */', statuses: failed },
    { name: 'If-Match with tags side by side', ifMatch: (tag) => `"x" ${tag}`, statuses: failed },
    { name: 'If-Match with rubbish after the tag', ifMatch: (tag) => `${tag}, x`, statuses: failed },
    { name: 'If-Match with an open quote', ifMatch: (tag) => `${tag}, "x`, statuses: failed },
    { name: 'If-Match with empty elements', ifMatch: (tag) => `, ,${tag},\t,`, statuses: met },
    { name: 'If-Match with a comma in a tag', ifMatch: (tag) => `"a,b", ${tag}`, statuses: met },
    { name: 'If-Match with the tag as the 200th', ifMatch: (tag) => `${'"x", '.repeat(199)}${tag}`, statuses: met },
    { name: 'If-Match with more tags than SQL has variables', ifMatch: () => '"1-1",'.repeat(3000), statuses: failed },
    { name: 'If-None-Match with the tag', ifNoneMatch: own, statuses: [412, 200, 304] },
    { name: 'If-None-Match: *', ifNoneMatch: () => '*', statuses: [412, 200, 304] },
    { name: 'If-None-Match with another tag', ifNoneMatch: () => '"x"', statuses: [200, 200, 200] },
    { name: 'If-None-Match with an empty list', ifNoneMatch: () => ' ', statuses: [200, 200, 200] },
    { name: 'If-None-Match with a list', ifNoneMatch: (tag) => `"x",${tag}`, statuses: [412, 200, 304] },
    { name: 'If-None-Match that is not a list', ifNoneMatch: () => 'x', statuses: [412, 412, 200] },
    { name: 'If-None-Match with the tag and *', ifNoneMatch: (tag) => `*, ${tag}`, statuses: [412, 412, 200] },
    { name: 'both with the tag', ifMatch: own, ifNoneMatch: own, statuses: [412, 412, 304] },
    { name: 'If-Match that fails before the other', ifMatch: () => '"x"', ifNoneMatch: own, statuses: failed },
    { name: 'both met', ifMatch: own, ifNoneMatch: () => '"x"', statuses: met },
    { name: 'both *', ifMatch: () => '*', ifNoneMatch: () => '*', statuses: [412, 412, 304] },
  ];
  const headersOf = ({ ifMatch, ifNoneMatch }: Case, tag: string) => ({
    ...(ifMatch && { 'if-match': ifMatch(tag) }),
    ...(ifNoneMatch && { 'if-none-match': ifNoneMatch(tag) }),
  });
  const routes: { path: string; body?: unknown }[] = [
    { path: profile, body: { heightCm: 170 } },
    { path: '/v2/private/deepDives/lifetimeCare', body: { careFacilityType: 'inHome' } },
    { path: matches },
    { path: `${matches}?explain=true` },
    { path: '/v2/private/life/totalCoverage', body: applicant },
  ];
  const storedText = async (as: string) =>
    JSON.stringify((await db.$client.execute({ sql: 'SELECT * FROM users WHERE id = ?', args: [as] })).rows);

  test.each(cases)('decides a save over a record: $name', async (conditions) => {
    const [expected] = conditions.statuses;
    for (const { path, ...sent } of routes) {
      const { as, tag } = await newUser();
      const before = await storedText(as);
      const response = await call('POST', path, { as, headers: headersOf(conditions, tag), ...sent });
      expect([path, response.status]).toEqual([path, expected]);
      expect([path, (await storedText(as)) === before]).toEqual([path, expected === 412]);
      if (expected === 200) expect(response.body).toMatchObject({ user: { id: as } });
      else expect(response.body).toMatchObject({ type: '/problems/precondition-failed', code: 242 });
      if (expected === 412) expect(tagOf(response)).toBe(tag);
    }
  });

  test.each(cases)('decides a first save: $name', async (conditions) => {
    const [, expected] = conditions.statuses;
    for (const { path, ...sent } of routes) {
      const as = newPerson();
      const headers = headersOf(conditions, '"1795000000000-1-0123456789abcdef"');
      const response = await call('POST', path, { as, headers, ...sent });
      expect([path, response.status]).toEqual([path, expected]);
      expect([path, (await storedText(as)) === '[]']).toEqual([path, expected === 412]);
      if (expected === 200) expect(response.body).toMatchObject({ user: { id: as } });
      else expect(response.headers.get('etag')).toBeNull();
    }
  });

  test.each(cases)('decides a GET and a HEAD: $name', async (conditions) => {
    const { as, tag } = await newUser();
    const listTag = tagOf(await call('GET', lists, { as }));
    for (const [path, current] of [
      [user, tag],
      [lists, listTag],
    ] as const) {
      const headers = headersOf(conditions, current);
      for (const method of ['GET', 'HEAD']) {
        const response = await call(method, path, { as, headers });
        expect([method, path, response.status]).toEqual([method, path, conditions.statuses[2]]);
        expect([method, path, tagOf(response)]).toEqual([method, path, current]);
        if (method === 'HEAD' || response.status === 304)
          expect([method, path, response.text]).toEqual([method, path, '']);
      }
      expect((await call('GET', user, { as: 'absent', headers })).status).toBe(404);
    }
  });

  test.each<[name: string, form: Form]>([
    ['a leading zero in its first number', (tag) => tag.replace('"', '"0')],
    ['a leading zero in its version', (tag) => tag.replace('-', '-0')],
    ['its hexadecimal digits in capitals', (tag) => tag.toUpperCase()],
    ['a plus sign', (tag) => tag.replace('-', '-+')],
    ['one digit less', (tag) => tag.replace(/.(?="$)/, '')],
    ['a wildcard', (tag) => tag.replace(/.(?="$)/, '%')],
    ['an unknown suffix', inside('-other')],
    ['a known suffix twice', inside('-gzip-gzip')],
    ['a lower-case w', (tag) => `w/${tag}`],
    ['a space after W/', (tag) => `W/ ${tag}`],
    ['the suffix outside the quotes', (tag) => `${tag}-gzip`],
    ['a prefix', (tag) => tag.replace('"', '"gzip-')],
  ])('compares octet by octet and does not match a tag with %s', async (_, form) => {
    const { as, tag } = await newUser();
    const another = form(tag) === tag ? '"never"' : form(tag);
    for (const { path, ...sent } of routes) {
      expect((await call('POST', path, { as, headers: { 'if-match': another }, ...sent })).status).toBe(412);
    }
    expect((await call('GET', user, { as, headers: { 'if-none-match': another } })).status).toBe(200);
    expect((await call('GET', user, { as, headers: { 'if-match': another } })).status).toBe(412);
  });

  test.each<[name: string, form: Form]>([
    ['weak, by nginx or HAProxy', (tag) => `W/${tag}`],
    ['with -gzip, by Apache or Caddy', inside('-gzip')],
    ['with ;gzip', inside(';gzip')],
    ['with --gzip, by Jetty', inside('--gzip')],
    ['with -br', inside('-br')],
    ['with -zstd', inside('-zstd')],
    ['with -deflate', inside('-deflate')],
    ['in a list', (tag) => `"x", W/${tag} ,, "y"`],
  ])('matches a tag that a compressing proxy has changed: %s', async (_, form) => {
    const { as, tag } = await newUser();
    const read = await call('GET', user, { as, headers: { 'if-none-match': form(tag) } });
    expect([read.status, read.text]).toEqual([304, '']);
    const save = (heightCm: number) =>
      call('POST', profile, { as, headers: { 'if-match': form(tag) }, body: { heightCm } });
    expect([(await save(161)).status, (await save(162)).status]).toEqual([200, 412]);
    const listTag = form(tagOf(await call('GET', lists, { as })));
    expect((await call('GET', lists, { as, headers: { 'if-none-match': listTag } })).status).toBe(304);
  });

  test.each([
    { name: 'first saves with If-None-Match: *', condition: 'if-none-match' },
    { name: 'saves with the same If-Match', condition: 'if-match' },
  ])('lets one of eight parallel $name succeed', async ({ condition }) => {
    const { as, tag } = condition === 'if-match' ? await newUser() : { as: newPerson(), tag: '*' };
    const responses = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        call('POST', profile, { as, headers: { [condition]: tag }, body: { heightCm: 170 + index } }),
      ),
    );
    expect(responses.map(({ status }) => status).sort()).toEqual([200, ...Array(7).fill(412)]);
  });

  test('is no date', async () => {
    const { as } = await newUser();
    const [past, future] = [new Date(0).toUTCString(), new Date('2100-01-01').toUTCString()];
    const read = await call('GET', user, { as, headers: { 'if-modified-since': future, 'if-range': '"x"' } });
    expect(read.status).toBe(200);
    const headers = { 'if-unmodified-since': past };
    expect((await call('POST', profile, { as, headers, body: { heightCm: 171 } })).status).toBe(200);
  });

  test('applies after every other check', async () => {
    const { as } = await newUser();
    const headers = { 'if-match': '"stale"', 'if-none-match': '*' };
    expect((await call('POST', profile, { headers, body: {} })).status).toBe(401);
    expect((await call('POST', profile, { as, headers, body: { heightCm: 'x' } })).status).toBe(422);
    expect((await call('POST', profile, { as, headers, body: '{' })).status).toBe(400);
  });

  test('never makes a save return 304', async () => {
    const { as, tag } = await newUser();
    const save = async (headers: Record<string, string>) =>
      call('POST', profile, { as, headers, body: { heightCm: 180 } });
    const saved = await save({ 'if-none-match': '"x"' });
    expect(saved.body).toMatchObject({ user: { profile: { heightCm: 180 } } });
    // The save changes nothing, so its response has a tag of the request.
    for (const headers of [{ 'if-match': tagOf(saved) }, { 'if-none-match': tag }]) {
      const repeated = await save(headers);
      expect([repeated.status, repeated.text]).toEqual([200, saved.text]);
    }
  });
});

/** Checks that none of the tags matches in a read or a save. */
async function expectNoMatch({ call }: Pick<TestApp, 'call'>, as: string, tags: readonly string[]) {
  const before = await call('GET', user, { as });
  const list = tags.join(', ');
  expect((await call('GET', user, { as, headers: { 'if-none-match': list } })).status).toBe(200);
  for (const [path, body] of [
    [profile, { firstName: 'Overwritten' }],
    [matches, undefined],
    [ltcCoverage, applicant],
  ] as const) {
    expect([path, (await call('POST', path, { as, headers: { 'if-match': list }, body })).status]).toEqual([path, 412]);
  }
  expect((await call('GET', user, { as })).text).toBe(before.text);
}

describe('an ETag', () => {
  const save = async ({ call }: Pick<TestApp, 'call'>, as: string, firstName = 'Ada') =>
    tagOf(await call('POST', profile, { as, body: { firstName } }));

  test.each([
    { clock: 'that runs', overrides: { clock: () => new Date() } },
    { clock: 'that is frozen', overrides: {} },
  ])(
    'belongs to one record and version among users created in parallel, with a clock $clock',
    async ({ overrides }) => {
      const count = amount({ long: 10_000, short: 300 });
      const other = await createTestApp(overrides);
      const tags = await Promise.all(Array.from({ length: count }, (_, index) => save(other, `person-${index}`)));
      expect(new Set(tags).size).toBe(count);
      const [own = '', ...others] = tags;
      await expectNoMatch(other, 'person-0', others);
      expect((await other.call('GET', user, { as: 'person-0', headers: { 'if-none-match': own } })).status).toBe(304);
    },
  );

  test('of an erased record does not match the record that is created again in the same instant', async () => {
    const as = newPerson();
    const tags: string[] = [];
    for (let life = 0; life < 5; life += 1) {
      if (life > 0) await db.$client.execute({ sql: 'DELETE FROM users WHERE id = ?', args: [as] });
      tags.push(await save(testApp, as), await save(testApp, as, 'Augusta'));
    }
    expect(new Set(tags).size).toBe(10);
    await expectNoMatch(testApp, as, tags.slice(0, -1));
  });

  test('of another database with the same history does not match', async () => {
    const other = await createTestApp();
    const as = newPerson();
    const tag = await save(testApp, as);
    await save(other, as);
    await expectNoMatch(other, as, [tag]);
  });

  test('does not match when a restored backup repeats the version', async () => {
    const other = await createTestApp();
    await save(other, 'ada');
    await other.db.$client.execute('CREATE TABLE backup AS SELECT * FROM users');
    const lost = await save(other, 'ada', 'Lost');
    await other.db.$client.batch(['DELETE FROM users', 'INSERT INTO users SELECT * FROM backup'], 'write');
    expect(await save(other, 'ada', 'Kept')).not.toBe(lost);
    await expectNoMatch(other, 'ada', [lost]);
  });

  test('changes with the version that an older build writes beside this one', async () => {
    const [as, other] = [newPerson(), newPerson()];
    const sql = 'INSERT INTO users (id, version, created_at, updated_at) VALUES (?, 1, 5, 5), (?, 1, 5, 5)';
    await db.$client.execute({ sql, args: [as, other] });
    const tag = tagOf(await call('GET', user, { as }));
    expect(tag).not.toBe(tagOf(await call('GET', user, { as: other })));
    await db.$client.execute({
      sql: "UPDATE users SET profile = '{}', version = version + 1 WHERE id = ?",
      args: [as],
    });
    await expectNoMatch(testApp, as, [tag]);
  });

  test('changes with every kind of change and with no other request', async () => {
    const as = newPerson();
    const tags: string[] = [];
    for (const [path, body] of [
      [profile, { firstName: 'Ada' }],
      ['/v2/private/ltc/lifetimeCare', { careCosts: 1 }],
      [matches, undefined],
      [ltcCoverage, applicant],
      [profile, { firstName: null }],
    ] as const) {
      const tag = tagOf(await call('POST', path, { as, body }));
      expect([path, tags.includes(tag)]).toEqual([path, false]);
      expect([path, tagOf(await call('POST', path, { as, body }))]).toEqual([path, tag]);
      tags.push(tag);
    }
    await db.$client.execute({ sql: 'UPDATE users SET counselor_id = NULL WHERE id = ?', args: [as] });
    expect(tagOf(await call('GET', user, { as }))).toBe(tags.at(-1) ?? '');
  });

  const outcomes = [
    ['Declined', 422],
    ['Notfiled', 422],
    ['Broken', 503],
    ['Garbled', 502],
    ['Slow', 504],
  ] as const;
  test.each<{ path: string; body?: object; status: number }>([
    ...saveRoutes.map(({ path }) => ({ path, body: {}, status: 200 })),
    { path: matches, status: 200 },
    { path: `${matches}?explain=true`, status: 200 },
    { path: ltcCoverage, body: applicant, status: 200 },
    ...outcomes.flatMap(([lastName, status]) =>
      ['ltc', 'life'].map((flow) => ({
        path: `/v2/private/${flow}/totalCoverage`,
        body: { ...applicant, lastName },
        status,
      })),
    ),
  ])('of the stored record comes with $status of $path, and the next save with it is stored', async (route) => {
    const { as, tag } = await newUser();
    const moved = await call('POST', route.path, { as, headers: { 'if-match': tag }, body: route.body });
    expect(moved.status).toBe(route.status);
    expect(tagOf(moved)).toBe(tagOf(await call('GET', user, { as })));
    const headers = { 'if-match': tagOf(moved) };
    expect((await call('POST', profile, { as, headers, body: { heightCm: 170 } })).status).toBe(200);
  });
});

describe('Vary', () => {
  test.each(privateRoutes)('names Authorization in a private response: $method $path', async ({ method, path }) => {
    for (const options of [{}, { as: 'ada', roles: ['salesManager'] }, { as: 'ada', body: '{' }]) {
      const { headers } = await call(method, path, method === 'GET' ? { ...options, body: undefined } : options);
      expect((headers.get('vary') ?? '').split(', ')).toContain('Authorization');
    }
  });

  test.each(['/health/live', '/icons/term-life.svg', '/problems/forbidden'])(
    'does not name Authorization in a public response: %s',
    async (path) => {
      expect((await call('GET', path)).headers.get('vary') ?? '').not.toContain('Authorization');
    },
  );
});
