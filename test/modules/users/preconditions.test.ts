import { describe, expect, test } from 'bun:test';
import { type CarrierDecision, CarrierError } from '../../../src/shared/carrier';
import {
  applicant,
  createTestApp,
  createTestCarrier,
  declined,
  refused,
  type TestApp,
  type TestResponse,
  unavailable,
} from '../../support/app';
import { privateRoutes, saveRoutes } from '../../support/contract';
import { amount } from '../../support/resources';

const user = '/v2/private/user';
const profile = '/v2/private/user/profile';
const matches = '/v2/private/engine/matches';
const ltcCoverage = '/v2/private/ltc/totalCoverage';
const lifeCoverage = '/v2/private/life/totalCoverage';
const lists = '/v2/private/healthAndCare/';
const carrier = createTestCarrier();
const testApp = await createTestApp({ carrier });
const { call, db } = testApp;
const tagOf = ({ headers }: TestResponse) => headers.get('etag') ?? '';
const listTag = tagOf(await call('GET', lists, { as: 'ada' }));

let people = 0;
const newPerson = () => {
  people += 1;
  return `person-${people}`;
};
async function newUser() {
  const as = newPerson();
  return { as, tag: tagOf(await call('POST', profile, { as, body: { heightCm: 160 } })) };
}

/** Builds the value of a condition from the current tag. */
type Form = (tag: string) => string;
const inside =
  (addition: string): Form =>
  (tag) =>
    tag.replace(/"$/, `${addition}"`);
const own: Form = (tag) => tag;
const any: Form = () => '*';
const another: Form = () => '"x"';
const bare: Form = (tag) => tag.slice(1, -1);

/** The statuses of a save over a record, of a first save, and of a read. */
type Statuses = readonly [save: number, first: number, read: number];
const failed = [412, 412, 412] as const;
const statuses = {
  'if-match': { matches: [200, 412, 200], differs: failed, invalid: failed },
  'if-none-match': { matches: [412, 200, 304], differs: [200, 200, 200], invalid: [412, 412, 200] },
} as const;

describe('a precondition of RFC 9110', () => {
  const routes: { path: string; body?: unknown }[] = [
    { path: profile, body: { heightCm: 170 } },
    { path: matches },
    { path: lifeCoverage, body: applicant },
  ];
  /** The stored record and the number of its applications. */
  const storedText = async (as: string) => {
    const sql = 'SELECT *, (SELECT count(*) FROM applications WHERE user_id = users.id) FROM users WHERE id = ?';
    return JSON.stringify((await db.$client.execute({ sql, args: [as] })).rows);
  };

  /** Checks the statuses of saves over a record, of first saves, and of reads, and that a failed save stores nothing. */
  async function expectStatuses(
    headersOf: (tag: string) => Record<string, string>,
    [save, first, read]: Statuses,
    saving = routes,
  ) {
    for (const { path, ...sent } of saving) {
      for (const [expected, { as, tag }] of [
        [save, await newUser()],
        [first, { as: newPerson(), tag: '' }],
      ] as const) {
        const before = await storedText(as);
        const headers = headersOf(tag || '"1795000000000-1-0123456789abcdef"');
        const response = await call('POST', path, { as, headers, ...sent });
        expect([path, response.status, (await storedText(as)) === before]).toEqual([path, expected, expected === 412]);
        const refusal = { type: '/problems/precondition-failed', code: 242 };
        expect(response.body).toMatchObject(expected === 200 ? { user: { id: as } } : refusal);
        if (expected === 412) expect(tagOf(response)).toBe(tag);
      }
    }
    const { as, tag } = await newUser();
    for (const method of ['GET', 'HEAD']) {
      const response = await call(method, user, { as, headers: headersOf(tag) });
      expect([method, response.status, tagOf(response)]).toEqual([method, read, tag]);
      if (method === 'HEAD' || read === 304) expect(response.text).toBe('');
    }
    expect((await call('GET', user, { as: 'absent', headers: headersOf(tag) })).status).toBe(404);
  }

  test.each<readonly [name: string, form: Form, outcome: 'matches' | 'differs' | 'invalid']>([
    ['the tag', own, 'matches'],
    ['*', any, 'matches'],
    ['spaces around *', () => ' \t* ', 'matches'],
    ['empty elements', (tag) => `, ,${tag},\t,`, 'matches'],
    ['a comma in a tag', (tag) => `"a,b", ${tag}`, 'matches'],
    ['the tag as the 200th', (tag) => `${'"x", '.repeat(199)}${tag}`, 'matches'],
    ['a weak tag, by nginx or HAProxy', (tag) => `W/${tag}`, 'matches'],
    ['a weak tag with -gzip', (tag) => `W/${inside('-gzip')(tag)}`, 'matches'],
    ...['-gzip', ';gzip', '--gzip', '-br', '-zstd', '-deflate'].map(
      (suffix) => [`${suffix} in the tag`, inside(suffix), 'matches'] as const,
    ),
    ['a weak tag in a list', (tag) => `"x", W/${tag} ,, "y"`, 'matches'],
    ['another tag', another, 'differs'],
    ['an empty list', () => ',', 'differs'],
    ['more tags than SQL has variables', () => '"1-1",'.repeat(3000), 'differs'],
    ['a leading zero in the first number', (tag) => tag.replace('"', '"0'), 'differs'],
    ['a leading zero in the version', (tag) => tag.replace('-', '-0'), 'differs'],
    ['a capital digit', (tag) => tag.replace(/[a-f]|"$/, (at) => (at === '"' ? 'A"' : at.toUpperCase())), 'differs'],
    ['a plus sign', (tag) => tag.replace('-', '-+'), 'differs'],
    ['one digit less', (tag) => tag.replace(/.(?="$)/, ''), 'differs'],
    ['a wildcard', (tag) => tag.replace(/.(?="$)/, '%'), 'differs'],
    ['an unknown suffix', inside('-other'), 'differs'],
    ['a known suffix twice', inside('-gzip-gzip'), 'differs'],
    ['a prefix', (tag) => tag.replace('"', '"gzip-'), 'differs'],
    ['no quotes', bare, 'invalid'],
    ['the tag and *', (tag) => `${tag}, *`, 'invalid'],
    ['* and the tag', (tag) => `*, ${tag}`, 'invalid'],
    ['the tag followed by *', (tag) => `${tag}*`, 'invalid'],
    ['**', () => '**', 'invalid'],
    ['a comment', () => '/* */', 'invalid'],
    ['tags side by side', (tag) => `"x" ${tag}`, 'invalid'],
    ['rubbish after the tag', (tag) => `${tag}, x`, 'invalid'],
    ['an open quote', (tag) => `${tag}, "x`, 'invalid'],
    ['a lower-case w', (tag) => `w/${tag}`, 'invalid'],
    ['a space after W/', (tag) => `W/ ${tag}`, 'invalid'],
    ['the suffix outside the quotes', (tag) => `${tag}-gzip`, 'invalid'],
  ])('compares octet by octet, except for what a compressing proxy adds: %s', async (_, form, outcome) => {
    // All routes read the same list, so one form of each outcome is enough for the others.
    const saving = [own, any, another, bare].includes(form) ? routes : routes.slice(0, 1);
    for (const name of ['if-match', 'if-none-match'] as const) {
      await expectStatuses((tag) => ({ [name]: form(tag) }), statuses[name][outcome], saving);
      const headers = { [name]: form(listTag) };
      const [, , read] = statuses[name][outcome];
      if (outcome !== 'differs') expect((await call('GET', lists, { as: 'ada', headers })).status).toBe(read);
    }
  });

  test.each<[name: string, ifMatch: Form | undefined, ifNoneMatch: Form | undefined, Statuses]>([
    ['no condition', undefined, undefined, [200, 200, 200]],
    ['both with the tag', own, own, [412, 412, 304]],
    ['If-Match fails, before the other', another, own, failed],
    ['both met', own, another, [200, 412, 200]],
    ['both *', any, any, [412, 412, 304]],
  ])('decides together with the other: %s', async (_, ifMatch, ifNoneMatch, expected) => {
    const headersOf = (tag: string) => ({
      ...(ifMatch && { 'if-match': ifMatch(tag) }),
      ...(ifNoneMatch && { 'if-none-match': ifNoneMatch(tag) }),
    });
    await expectStatuses(headersOf, expected);
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

  test('belongs to one record and version among users created at one instant', async () => {
    const count = amount({ long: 10_000, short: 300 });
    const people = Array.from({ length: count }, newPerson);
    const [own = '', ...others] = await Promise.all(people.map((as) => save(testApp, as)));
    expect(new Set([own, ...others]).size).toBe(count);
    const [as = ''] = people;
    await expectNoMatch(testApp, as, others);
    expect((await call('GET', user, { as, headers: { 'if-none-match': own } })).status).toBe(304);
  });

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
    [declined, 422],
    [unavailable(), 503],
    [refused(), 502],
    [new CarrierError('timeout', ''), 504],
  ] as const;
  test.each<{ path: string; body?: object; status: number; reply?: CarrierDecision | CarrierError }>([
    ...saveRoutes.map(({ path }) => ({ path, body: {}, status: 200 })),
    { path: matches, status: 200 },
    { path: `${matches}?explain=true`, status: 200 },
    { path: ltcCoverage, body: applicant, status: 200 },
    ...outcomes.flatMap(([reply, status]) =>
      [ltcCoverage, lifeCoverage].map((path) => ({ path, body: applicant, status, reply })),
    ),
  ])('of the stored record comes with $status of $path, and the next save with it is stored', async (route) => {
    const { path, body, reply, status } = route;
    const { as, tag } = await newUser();
    carrier.respond = (sent) => reply ?? carrier.acceptAll(sent);
    const moved = await call('POST', path, { as, headers: { 'if-match': tag }, body });
    carrier.respond = carrier.acceptAll;
    expect(moved.status).toBe(status);
    expect(tagOf(moved)).toBe(tagOf(await call('GET', user, { as })));
    const headers = { 'if-match': tagOf(moved) };
    expect((await call('POST', profile, { as, headers, body: { heightCm: 170 } })).status).toBe(200);
  });
});

test('Vary names Authorization in every private response, also in errors, and in no public one', async () => {
  for (const { method, path } of privateRoutes) {
    for (const options of [{}, { as: 'ada', ...(method === 'POST' && { body: '{' }) }]) {
      const { headers } = await call(method, path, options);
      expect([path, (headers.get('vary') ?? '').split(', ')]).toEqual([
        path,
        expect.arrayContaining(['Authorization']),
      ]);
    }
  }
  for (const path of ['/health/live', '/icons/term-life.svg', '/problems/forbidden']) {
    expect((await call('GET', path)).headers.get('vary') ?? '').not.toContain('Authorization');
  }
});
