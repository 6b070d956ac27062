import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import fc from 'fast-check';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { LifeInsuranceAnswers, LifetimeCareAnswers, LtcLifetimeCareAnswers } from '../../src/modules/answers/model';
import { CemeteryRecord } from '../../src/modules/cemeteries/model';
import { identityHash, totalCoverageRequest } from '../../src/modules/coverage/service';
import { StaffRecord } from '../../src/modules/sales/model';
import { profileAnswers, type UserBody } from '../../src/modules/users/model';
import { toHundredths } from '../../src/shared/fields';
import { applicant, createTestApp } from '../support/app';
import { beforeStatements, earlierMigrations } from '../support/database';
import { amount, temporaryFolder } from '../support/resources';

type User = UserBody['user'];

const today = () => '2026-03-10';
const testApp = await createTestApp();
const profile = '/v2/private/user/profile';
const ltc = '/v2/private/ltc/lifetimeCare';
const lifeInsurance = '/v2/private/deepDives/lifeInsurance';
const lifetimeCare = '/v2/private/deepDives/lifetimeCare';
const preview = '/v2/private/engine/preview';

/** Each saved section: its path and schema, its member in a preview, and its place in a response. */
const sections = [
  { path: profile, schema: profileAnswers(today), member: 'profile', read: (user: User): object => user.profile },
  {
    path: ltc,
    schema: LtcLifetimeCareAnswers,
    member: 'ltc',
    read: (user: User): object => user.ltc.lifetimeCare ?? {},
  },
  {
    path: lifeInsurance,
    schema: LifeInsuranceAnswers,
    member: 'lifeInsurance',
    read: (user: User): object => user.lifeInsurance,
  },
  {
    path: lifetimeCare,
    schema: LifetimeCareAnswers,
    member: 'lifetimeCare',
    read: (user: User): object => user.lifetimeCare,
  },
] as const;

let people = 0;
function newPerson(): string {
  people += 1;
  return `answers-${people}`;
}

async function save(path: string, as: string, body: unknown) {
  const { status, headers, text } = await testApp.call('POST', path, { as, body });
  expect(`${status} ${status === 200 ? '' : text}`).toBe('200 ');
  const { user }: UserBody = JSON.parse(text);
  return { user, text, etag: headers.get('etag') };
}

async function errorsOf(path: string, body: unknown) {
  const response = await testApp.call('POST', path, { as: 'refused', body });
  expect(response.status).toBe(422);
  return v.parse(v.object({ errors: v.array(v.looseObject({ pointer: v.string() })) }), response.body).errors;
}

const item = (id: number, title = `t${id}`) => ({ id, title });
const typed = (title: string) => ({ title });

describe('a stored section that is sent back', () => {
  const texts = fc.oneof(
    fc.string({ minLength: 1, maxLength: 30, unit: 'grapheme' }),
    fc.constantFrom(' e\u0301 ', '\u1e69 ', 'A\u030a', '\u2000x\u2001', 'x\n y', '\ud83d\udc69\u200d\u2695\ufe0f'),
  );
  // U+3164 is a letter that is not visible.
  const visible = /[[\p{L}\p{N}]--\p{Default_Ignorable_Code_Point}]/v;
  const titles = texts.filter((text) => visible.test(text) && !text.includes('\0') && text.isWellFormed());
  const names = fc.constantFrom(
    ' Ada ',
    'Zoe\u0308',
    'Jo\u200bhn',
    '\u200fNoa',
    'O\u2019Brien',
    '\u0639\u0644\u06cc\u200c\u0631\u0636\u0627',
  );
  const money = fc.oneof(fc.double({ min: 0, max: 1e12, noNaN: true }), fc.constantFrom(1.005, 0.1 + 0.2, 5e-324, -0));
  const selections = fc.array(fc.record({ id: fc.nat(3), title: titles }), { maxLength: 5 });
  const customs = fc.array(fc.record({ title: titles }), { maxLength: 5 });
  const either = fc.oneof(
    fc.array(fc.oneof(fc.record({ id: fc.nat(3), title: titles }), fc.record({ title: titles })), { maxLength: 5 }),
    fc.record({ selections: fc.option(selections), customSelections: fc.option(customs) }, { requiredKeys: [] }),
  );
  const some = <Values extends Record<string, fc.Arbitrary<unknown>>>(values: Values) =>
    fc.record(
      Object.fromEntries(Object.entries(values).map(([name, value]) => [name, fc.option(value, { freq: 8 })])),
      { requiredKeys: [], noNullPrototype: true },
    );
  const many = (...options: string[]) => fc.array(fc.constantFrom(...options), { maxLength: 6 });
  const bodies = {
    [profile]: some({
      firstName: names,
      lastName: names,
      dateOfBirth: fc.constantFrom('1956-12-10', '1956-12-10T23:00:00Z'),
      gender: fc.constantFrom('Male', 'female', ' MALE'),
      state: fc.constantFrom('va', 'Virginia', 'D.C.', ' puerto  rico'),
      email: fc.constantFrom('a@b.co', ' Z\u00fc\u200b@b.co'),
      heightCm: fc.double({ min: 49.996, max: 300.004, noNaN: true }),
      weightKg: fc.double({ min: 9.996, max: 700.004, noNaN: true }),
      tobacco: fc.boolean(),
    }),
    [ltc]: some({
      relationshipStatus: fc.oneof(fc.constantFrom('married'), many('married', 'dating')),
      insuranceCover: many('payingFuneral', 'donation'),
      careCosts: money,
      policyValue: money,
      careSafety: money,
      selections,
      leaveFinancialLegacy: fc.record({ selections: fc.option(selections) }, { requiredKeys: [] }),
    }),
    [lifeInsurance]: some({
      billsAndDebt: many('cc', 'auto'),
      policySupport: either,
      selections,
      customSelections: customs,
    }),
    [lifetimeCare]: some({
      familyHistory: many('stroke', 'cancer'),
      hobbies: either,
      selections,
      customSelections: customs,
    }),
  } as const;

  test.each(sections)(
    'B5 a stored section that is sent back changes nothing: $path',
    async ({ path, member, read }) => {
      await fc.assert(
        fc.asyncProperty(fc.array(bodies[path], { minLength: 1, maxLength: 3 }), async (series) => {
          const as = newPerson();
          let saved = await save(path, as, {});
          for (const body of series) saved = await save(path, as, body);
          const section = read(saved.user);
          expect(await save(path, as, section)).toEqual(saved);
          expect(await testApp.call('POST', preview, { as, body: { [member]: section } })).toMatchObject({
            status: 200,
          });
          expect((await testApp.call('GET', '/v2/private/user', { as })).text).toBe(saved.text);
        }),
        { numRuns: amount({ long: 500, short: 40 }) },
      );
    },
  );

  test.each(sections)('B17 B18 B19 validation returns its own output unchanged: $path', ({ path, schema }) => {
    fc.assert(
      fc.property(bodies[path], (body) => {
        const once: unknown = v.parse<v.GenericSchema>(schema, body);
        expect(v.parse<v.GenericSchema>(schema, once)).toEqual(once);
        expect(JSON.stringify(once)).not.toMatch(/:-0[,}]/);
      }),
      { numRuns: amount({ long: 5000, short: 500 }) },
    );
  });

  const pair = { selections: [item(1)], customSelections: [typed('x')] };
  const forms: [name: string, path: string, before: object, sent: object, expected: unknown][] = [
    ['an object', lifeInsurance, {}, { policySupport: pair }, pair],
    [
      'an object with one list',
      lifeInsurance,
      pair,
      { policySupport: { selections: [] } },
      { ...pair, selections: [] },
    ],
    ['an empty object', lifeInsurance, pair, { policySupport: {} }, pair],
    ['an empty object without a record', lifeInsurance, {}, { policySupport: {} }, undefined],
    ['an object with null', lifeInsurance, pair, { policySupport: { selections: null } }, { ...pair, selections: [] }],
    [
      'an object with two nulls',
      lifeInsurance,
      pair,
      { policySupport: { selections: null, customSelections: null } },
      undefined,
    ],
    [
      'an object beside a field',
      lifeInsurance,
      {},
      { policySupport: pair, selections: [item(2)] },
      { ...pair, selections: [item(2)] },
    ],
    [
      'an object beside null',
      lifeInsurance,
      {},
      { policySupport: pair, selections: null },
      { ...pair, selections: [] },
    ],
    [
      'null beside a field',
      lifeInsurance,
      pair,
      { policySupport: null, selections: [item(2)] },
      { selections: [item(2)], customSelections: [] },
    ],
    ['hobbies as an object', lifetimeCare, {}, { hobbies: pair }, pair],
    [
      'hobbies beside a field',
      lifetimeCare,
      {},
      { hobbies: pair, customSelections: [] },
      { ...pair, customSelections: [] },
    ],
    ['a legacy', ltc, {}, { leaveFinancialLegacy: { selections: [item(1)] } }, { selections: [item(1)] }],
    [
      'a legacy beside the field',
      ltc,
      {},
      { leaveFinancialLegacy: { selections: [item(1)] }, selections: [item(2)] },
      { selections: [item(2)] },
    ],
    ['an empty legacy', ltc, { selections: [item(1)] }, { leaveFinancialLegacy: {} }, { selections: [item(1)] }],
    ['a legacy that is null', ltc, { selections: [item(1)] }, { leaveFinancialLegacy: null }, undefined],
    ['a legacy with null', ltc, { selections: [item(1)] }, { leaveFinancialLegacy: { selections: null } }, undefined],
  ];
  test.each(forms)('B5 a save accepts %s', async (_, path, before, sent, expected) => {
    const as = newPerson();
    await save(path, as, before);
    const { user } = await save(path, as, sent);
    const stored = new Map<string, unknown>([
      [ltc, user.ltc.lifetimeCare?.leaveFinancialLegacy],
      [lifeInsurance, user.lifeInsurance.policySupport],
      [lifetimeCare, user.lifetimeCare.hobbies],
    ]);
    expect(stored.get(path)).toEqual(expected);
  });

  test.each([
    [lifeInsurance, { policySupport: { selection: [] } }, '/policySupport/selection', /did you mean selections\?/],
    [lifeInsurance, { policySupport: { selections: [{}] } }, '/policySupport/selections/0/id', /required/],
    [lifeInsurance, { policySupport: 'x' }, '/policySupport', /must be a list/],
    [lifetimeCare, { hobbies: { selections: {} } }, '/hobbies/selections', /must be a list/],
    [ltc, { leaveFinancialLegacy: [] }, '/leaveFinancialLegacy', /must be an object/],
    [
      ltc,
      { leaveFinancialLegacy: { customSelections: [] } },
      '/leaveFinancialLegacy/customSelections',
      /not a known field/,
    ],
  ])('B5 names the invalid field inside a stored form: %s %j', async (path, body, pointer, message) => {
    expect(await errorsOf(path, body)).toContainEqual(
      expect.objectContaining({ pointer, message: expect.stringMatching(message) }),
    );
  });
});

describe('a section', () => {
  test('B8 a section is {} in every response while it holds nothing', async () => {
    const empty = { profile: {}, insurance: {}, ltc: {}, purchase: {}, lifeInsurance: {}, lifetimeCare: {} };
    const as = newPerson();
    expect((await save(ltc, as, {})).user).toMatchObject(empty);
    expect((await testApp.call('GET', '/v2/private/user', { as })).body).toMatchObject({ user: empty });
    await save(profile, as, { tobacco: true });
    expect((await save(profile, as, { tobacco: null })).user).toMatchObject(empty);
    const { insurance: _, ...others } = empty;
    for (const query of ['', '?explain=true']) {
      const response = await testApp.call('POST', `/v2/private/engine/matches${query}`, { as, body: {} });
      expect(response.body).toMatchObject({ user: others });
    }
    const first = await testApp.call('POST', '/v2/private/engine/matches', { as: newPerson() });
    expect(first.body).toMatchObject({ user: others });
  });

  test.each([
    ['custom selections', { customSelections: [typed('x')] }, { selections: [], customSelections: [typed('x')] }],
    ['selections', { selections: [item(1)] }, { selections: [item(1)], customSelections: [] }],
    ['no selections', { selections: [] }, { selections: [], customSelections: [] }],
    ['one object', { policySupport: { customSelections: [] } }, { selections: [], customSelections: [] }],
  ])('B8 holds both lists when %s alone are saved', async (_, body, expected) => {
    const as = newPerson();
    expect<unknown>((await save(lifeInsurance, as, body)).user.lifeInsurance.policySupport).toEqual(expected);
    const headers = { 'if-match': '*' };
    const matched = await testApp.call('POST', lifeInsurance, { as, body, headers });
    expect(matched.body).toMatchObject({ user: { lifeInsurance: { policySupport: expected } } });
  });

  const old: [name: string, stored: string, read: object][] = [
    [
      'one list',
      '{"hobbies":{"selections":[{"id":1,"title":"t"}]}}',
      { hobbies: { selections: [item(1, 't')], customSelections: [] } },
    ],
    [
      'the other list',
      '{"familyHistory":[],"hobbies":{"customSelections":[]}}',
      { familyHistory: [], hobbies: { selections: [], customSelections: [] } },
    ],
    ['no list', '{"familyHistory":[],"hobbies":{}}', { familyHistory: [] }],
    ['nothing', '{}', {}],
    [
      'the names in a title',
      '{"hobbies":{"customSelections":[{"title":"\\"selections\\": \\"hobbies\\":{}"}]}}',
      { hobbies: { selections: [], customSelections: [typed('"selections": "hobbies":{}')] } },
    ],
  ];
  test('B8 the migration adds the other list of a pair, and a save of the same answers changes nothing', async () => {
    const url = `file:${join(temporaryFolder(), 'planning.db')}`;
    const db = await openDatabase({ url, timeoutMs: 10_000 });
    await migrateDatabase(db, await earlierMigrations(8));
    const insert = 'INSERT INTO users (id, lifetime_care, version, created_at, updated_at) VALUES (?, ?, 3, 0, 0)';
    await db.$client.batch(
      old.map(([as, stored]) => ({ sql: insert, args: [as, stored] })),
      'write',
    );
    await migrateDatabase(db);
    const upgraded = await createTestApp({ db });
    for (const [as, , read] of old) {
      const first = await upgraded.call('GET', '/v2/private/user', { as });
      expect(
        v.parse(v.object({ user: v.looseObject({ lifetimeCare: v.unknown() }) }), first.body).user.lifetimeCare,
      ).toEqual(read);
      for (const body of [read, {}, { hobbies: Object(read).hobbies ?? null }]) {
        for (const headers of [undefined, { 'if-match': '*' }]) {
          const again = await upgraded.call('POST', lifetimeCare, { as, body, ...(headers && { headers }) });
          expect([again.status, again.text]).toEqual([200, first.text]);
        }
      }
    }
    db.$client.close();
  });

  test.each([undefined, { 'if-match': '*' }])(
    'B8 the next save adds the other list when an earlier version has stored one list after the migration: %j',
    async (headers) => {
      for (const [, stored, read] of old) {
        const as = newPerson();
        await testApp.db.$client.execute({
          sql: 'INSERT INTO users (id, lifetime_care, version, created_at, updated_at) VALUES (?, ?, 3, 0, 0)',
          args: [as, stored],
        });
        expect((await testApp.call('GET', '/v2/private/user', { as })).status).toBe(200);
        expect((await testApp.call('POST', '/v2/private/engine/matches', { as })).status).toBe(200);
        const saved = await testApp.call('POST', lifetimeCare, { as, body: {}, ...(headers && { headers }) });
        expect(saved.body).toMatchObject({ user: { lifetimeCare: read } });
        const again = await testApp.call('POST', lifetimeCare, { as, body: {}, ...(headers && { headers }) });
        expect(again.text).toBe(saved.text);
      }
    },
  );

  test('B8 a save merges each column once, and a read calls no JSON function', async () => {
    const statements: string[] = [];
    const db = beforeStatements(testApp.db, (sql) => statements.push(sql));
    const { call } = await createTestApp({ db });
    const as = newPerson();
    const calls = (sql: string | undefined, name: string) => (sql ?? '').split(name).length - 1;
    for (const { path } of sections) {
      for (const headers of [{}, { 'if-match': '*' }]) {
        statements.length = 0;
        expect((await call('POST', path, { as, body: {}, headers })).status).toBe(200);
        const columns = path === ltc || path === lifetimeCare ? 2 : 1;
        expect(statements.map((sql) => [path, calls(sql, 'json_patch(')])).toEqual([[path, columns]]);
      }
    }
    statements.length = 0;
    await call('GET', '/v2/private/user', { as });
    expect(statements.map((sql) => calls(sql, 'json_'))).toEqual([0]);
  });

  test('B8 a section stays the same when an empty list is cleared, first or later', async () => {
    const as = newPerson();
    const saved = await save(lifeInsurance, as, { customSelections: [typed('x')] });
    for (const body of [{ selections: null }, { selections: [] }, { selections: null }]) {
      expect(await save(lifeInsurance, as, body)).toEqual(saved);
    }
  });

  test('B8 a preview has the answers that a save would store when a list is cleared', async () => {
    const as = newPerson();
    await save(lifetimeCare, as, { selections: [], customSelections: [typed('x')] });
    const cleared = { customSelections: null };
    const previewed = await testApp.call('POST', preview, { as, body: { lifetimeCare: cleared } });
    await save(lifetimeCare, as, cleared);
    expect((await testApp.call('POST', preview, { as, body: {} })).text).toBe(previewed.text);
  });
});

describe('a number', () => {
  test.each([
    [1.005, 1.01],
    [2.675, 2.68],
    [0.1 + 0.2, 0.3],
    [68.0388555, 68.04],
    [8.345, 8.35],
    [1.00499, 1],
    [0.005, 0.01],
    [0.00499, 0],
    [5e-324, 0],
    [1e-7, 0],
    [-0, 0],
    [-0.004, 0],
    [-1.005, -1.01],
    [999999999999.995, 1e12],
    [1e300, 1e300],
    [2 ** 52 + 1, 2 ** 52 + 1],
    [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY],
  ])('B17 rounds a number by its decimal form, half away from zero: %p is %p', (sent, kept) => {
    expect(toHundredths(sent)).toBe(kept);
  });

  test.each([
    [profile, { weightKg: 150 * 0.45359237 }, { profile: { weightKg: 68.04 } }],
    [profile, { heightCm: 69 * 2.54, weightKg: 9.995 }, { profile: { heightCm: 175.26, weightKg: 10 } }],
    [profile, { heightCm: 300.004 }, { profile: { heightCm: 300 } }],
    [
      ltc,
      { careCosts: 0.1 + 0.2, policyValue: 1.005, careSafety: 2.5000001 },
      { ltc: { lifetimeCare: { careCosts: 0.3, policyValue: 1.01, careSafety: 2.5 } } },
    ],
    [ltc, { policyValue: 1e12 + 0.004 }, { ltc: { lifetimeCare: { policyValue: 1e12 } } }],
    [lifetimeCare, { careSafety: -0 }, { lifetimeCare: { careSafety: 0 } }],
  ])('B17 rounds a number before it checks the bounds: %s %j', async (path, body, expected) => {
    expect((await save(path, newPerson(), body)).user).toMatchObject(expected);
  });

  test.each([
    [profile, { heightCm: 300.005 }],
    [profile, { weightKg: 9.994 }],
    [ltc, { careCosts: -0.005 }],
    [ltc, { policyValue: 1e12 + 0.006 }],
  ])('B17 refuses a number that is out of bounds once rounded: %s %j', async (path, body) => {
    expect(await errorsOf(path, body)).toHaveLength(1);
  });
});

describe('a list', () => {
  test.each([
    [
      ltc,
      { insuranceCover: ['donation', 'payingFuneral', 'donation'] },
      { ltc: { lifetimeCare: { insuranceCover: ['donation', 'payingFuneral'] } } },
    ],
    [ltc, { relationshipStatus: ['dating', 'dating'] }, { ltc: { lifetimeCare: { relationshipStatus: ['dating'] } } }],
    [lifeInsurance, { billsAndDebt: ['cc', 'cc', 'auto', 'cc'] }, { lifeInsurance: { billsAndDebt: ['cc', 'auto'] } }],
    [lifetimeCare, { familyHistory: Array(100).fill('stroke') }, { lifetimeCare: { familyHistory: ['stroke'] } }],
    [
      ltc,
      { selections: [item(2), item(1), item(2)] },
      { ltc: { lifetimeCare: { leaveFinancialLegacy: { selections: [item(2), item(1)] } } } },
    ],
    [
      ltc,
      { selections: [{ title: 'a', id: 1 }, item(1, ' a')] },
      { ltc: { lifetimeCare: { leaveFinancialLegacy: { selections: [item(1, 'a')] } } } },
    ],
    [
      ltc,
      { selections: [item(1, 'a'), item(1, 'b')] },
      { ltc: { lifetimeCare: { leaveFinancialLegacy: { selections: [item(1, 'a'), item(1, 'b')] } } } },
    ],
    [
      lifeInsurance,
      { customSelections: [typed('\u00e9'), typed('e\u0301 '), typed('E\u0301')] },
      { lifeInsurance: { policySupport: { customSelections: [typed('\u00e9'), typed('\u00c9')] } } },
    ],
    [
      lifetimeCare,
      { hobbies: [item(1), typed('t1'), item(1), typed(' t1 ')] },
      { lifetimeCare: { hobbies: { selections: [item(1)], customSelections: [typed('t1')] } } },
    ],
  ])('B18 stores a list without repeated items: %s %j', async (path, body, expected) => {
    expect((await save(path, newPerson(), body)).user).toMatchObject(expected);
  });

  test('B18 counts the items of a list before repeated items are removed', async () => {
    expect(await errorsOf(lifetimeCare, { familyHistory: Array(101).fill('stroke') })).toEqual([
      { pointer: '/familyHistory', rule: 'max_length', message: 'must have at most 100 items' },
    ]);
  });
});

describe('a text', () => {
  test.each([
    [
      ltc,
      { selections: [item(1, '  cafe\u0301\t')] },
      { ltc: { lifetimeCare: { leaveFinancialLegacy: { selections: [item(1, 'caf\u00e9')] } } } },
    ],
    [
      lifeInsurance,
      { customSelections: [typed('\u00a0A\u030angstro\u0308m\u3000')] },
      { lifeInsurance: { policySupport: { customSelections: [typed('\u00c5ngstr\u00f6m')] } } },
    ],
    [
      lifeInsurance,
      { policySupport: [item(1, ' \u1112\u1161\u11ab')] },
      { lifeInsurance: { policySupport: { selections: [item(1, '\ud55c')] } } },
    ],
    [
      lifetimeCare,
      { hobbies: { customSelections: [typed('one\n two ')] } },
      { lifetimeCare: { hobbies: { customSelections: [typed('one\n two')] } } },
    ],
    [
      lifetimeCare,
      { customSelections: [typed(`${' '.repeat(5000)}x`)] },
      { lifetimeCare: { hobbies: { customSelections: [typed('x')] } } },
    ],
    [
      lifetimeCare,
      { customSelections: [typed('e\u0301'.repeat(200))] },
      { lifetimeCare: { hobbies: { customSelections: [typed('\u00e9'.repeat(200))] } } },
    ],
  ])('B19 trims and composes a text: %s %j', async (path, body, expected) => {
    expect((await save(path, newPerson(), body)).user).toMatchObject(expected);
  });

  test.each([
    '',
    ' ',
    '\u3000\n',
    '\u200b',
    '\u2060 \ufeff',
    '\u3164',
    'a'.repeat(201),
    'e\u0301'.repeat(201),
    '\u0301'.repeat(100_000),
  ])('B19 refuses a title that is empty or too long after trimming: case %#', async (title) => {
    expect(await errorsOf(lifetimeCare, { customSelections: [{ title }] })).toMatchObject([
      { pointer: '/customSelections/0/title' },
    ]);
  });

  const hidden = [
    '\u00ad',
    '\u034f',
    '\u061c',
    '\u115f',
    '\u180e',
    '\u200b',
    '\u200c',
    '\u200d',
    '\u200e',
    '\u200f',
    '\u202a',
    '\u202c',
    '\u2060',
    '\u2066',
    '\u2069',
    '\u2064',
    '\u3164',
    '\ufeff',
    '\u{e0041}',
  ];
  test.each(hidden.map((character) => [`U+${character.codePointAt(0)?.toString(16).padStart(4, '0')}`, character]))(
    'G10 removes %s from names and e-mail, so that the application is the same',
    (_, character) => {
      const parse = (sent: object) => v.parse(totalCoverageRequest(today), { ...applicant, ...sent });
      const typedWith = {
        firstName: `A${character}da`,
        lastName: `${character}By\u0301ron ${character}`,
        email: `ada${character}@example.com`,
      };
      const plain = { lastName: 'B\u00fdron' };
      expect(parse(typedWith)).toEqual(parse(plain));
      expect(identityHash(parse(typedWith))).toBe(identityHash(parse(plain)));
      expect(
        v.parse(StaffRecord, {
          id: 's',
          role: 'salesManager',
          firstName: typedWith.firstName,
          lastName: 'x',
          managerId: '',
        }),
      ).toMatchObject({ firstName: 'Ada' });
      const cemetery = { externalId: 'c', name: `Oak${character} Hill`, city: `To${character}wn`, state: 'VA' };
      expect(v.parse(CemeteryRecord, cemetery)).toMatchObject({ name: 'Oak Hill', city: 'Town' });
    },
  );

  test.each([
    ['a Persian name', '\u0639\u0644\u06cc\u200c\u0631\u0636\u0627'],
    ['a name in Devanagari', '\u0936\u0930\u094d\u200d\u092e\u093e'],
    ['a name in Sinhala', '\u0dc1\u0dca\u200d\u0dbb\u0dd3'],
    ['a Japanese name with a variation selector', '\u845b\u{e0100}\u57ce'],
    ['a composed emoji', 'Zo\u00eb \ud83d\udc69\u200d\u2695\ufe0f'],
  ])('G10 keeps the joiners of %s', async (_, firstName) => {
    expect((await save(profile, newPerson(), { firstName })).user.profile.firstName).toBe(firstName);
  });

  test('G10 keeps the hash of an identity without such characters', () => {
    expect(identityHash(v.parse(totalCoverageRequest(today), applicant))).toBe(
      '338ed3d38ac5b634c7bd910a20f88c7a762861ffd359c0f6ae2dfc6110023826',
    );
  });
});
