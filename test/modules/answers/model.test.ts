import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import * as v from 'valibot';
import { type AnswerSection, answerSections, type MergePatch } from '../../../src/modules/answers/sections';
import { CemeteryRecord } from '../../../src/modules/cemeteries/model';
import { identityHash, totalCoverageRequest } from '../../../src/modules/coverage/service';
import { StaffRecord } from '../../../src/modules/sales/model';
import { findFieldErrors } from '../../../src/shared/field-errors';
import { StateCode, toHundredths } from '../../../src/shared/fields';
import { stateCodes, stateNames } from '../../../src/shared/states';
import { applicant, createTestApp, testConfig } from '../../support/app';
import { privateRoutes } from '../../support/contract';

const today = () => '2026-03-10';
const testApp = await createTestApp();
const profilePath = '/v2/private/user/profile';
const glance = '/v2/private/user/salesManager/monthly-glance';
const matches = '/v2/private/engine/matches';

const { profile, ltcLifetimeCare, lifeInsurance, lifetimeCare } = answerSections;
const patches: Record<AnswerSection, (body: unknown) => MergePatch> = {
  profile: (body) => profile.toPatch(v.parse(profile.request(today), body)),
  ltcLifetimeCare: (body) => ltcLifetimeCare.toPatch(v.parse(ltcLifetimeCare.request(), body)),
  lifeInsurance: (body) => lifeInsurance.toPatch(v.parse(lifeInsurance.request(), body)),
  lifetimeCare: (body) => lifetimeCare.toPatch(v.parse(lifetimeCare.request(), body)),
};
/** The merge patch of a valid request, as it is stored. */
const patchOf = (section: AnswerSection, body: unknown): unknown => JSON.parse(JSON.stringify(patches[section](body)));

function errorsOf(section: AnswerSection, body: unknown) {
  const schema: v.GenericSchema = answerSections[section].request(today);
  return findFieldErrors(schema, v.safeParse(schema, body).issues ?? [], 'pointer');
}

const item = (id: number, title = `t${id}`) => ({ id, title });
const typed = (title: string) => ({ title });
const pair = { selections: [item(1)], customSelections: [typed('x')] };
const chosenOnly = { selections: [item(1)], customSelections: [] };
const legacy = (selections: unknown) => ({ leaveFinancialLegacy: selections });

describe('a field of the profile', () => {
  test.each<[name: string, field: string, sent: unknown, stored?: unknown]>([
    ['a date', 'dateOfBirth', '1956-12-10'],
    ['yesterday', 'dateOfBirth', '2026-03-09'],
    ['the day before the 121st birthday', 'dateOfBirth', '1905-03-11'],
    ['the date as written in UTC', 'dateOfBirth', '1970-04-04T00:00:00.000Z', '1970-04-04'],
    ['the date as written west of UTC', 'dateOfBirth', '1970-04-04T23:30:00-10:00', '1970-04-04'],
    ['the date as written east of UTC', 'dateOfBirth', '1970-04-04T00:30:00+14:00', '1970-04-04'],
    ['a trimmed name', 'lastName', "  O'Brien ", "O'Brien"],
    ['another apostrophe', 'lastName', 'D’Arcy'],
    ['hyphens and accents', 'lastName', 'Anne-Núñez'],
    ['a name of 100 letters', 'lastName', 'Ł'.repeat(100)],
    ['a composed name', 'firstName', 'Zoe\u0308', 'Zo\u00eb'],
    ['the joiners of a Persian name', 'firstName', '\u0639\u0644\u06cc\u200c\u0631\u0636\u0627'],
    ['the joiners of a name in Devanagari', 'firstName', '\u0936\u0930\u094d\u200d\u092e\u093e'],
    ['the joiners of a name in Sinhala', 'firstName', '\u0dc1\u0dca\u200d\u0dbb\u0dd3'],
    ['a variation selector', 'firstName', '\u845b\u{e0100}\u57ce'],
    ['a composed emoji', 'firstName', 'Zo\u00eb \ud83d\udc69\u200d\u2695\ufe0f'],
    ['a gender in lower case', 'gender', 'male', 'Male'],
    ['a gender in capitals and spaces', 'gender', ' FEMALE ', 'Female'],
    ['a state in lower case', 'state', ' va ', 'VA'],
    ['a territory', 'state', 'pr', 'PR'],
    ['an e-mail address with an apostrophe', 'email', "o'brien@example.com"],
    ['an e-mail address in mixed case', 'email', ' Ada@Example.COM ', 'Ada@Example.COM'],
    ['two decimals', 'heightCm', 165.25],
    ['a converted weight, rounded', 'weightKg', 150 * 0.45359237, 68.04],
    ['the smallest weight once it is rounded', 'weightKg', 9.995, 10],
    ['the largest weight once it is rounded', 'weightKg', 700.004, 700],
    ['the smallest height once it is rounded', 'heightCm', 49.995, 50],
    ['the largest height once it is rounded', 'heightCm', 300.004, 300],
    ['no', 'tobacco', false],
    ['null', 'tobacco', null],
  ])('stores %s', (_, field, sent, stored = sent) => {
    expect(patchOf('profile', { [field]: sent })).toEqual({ [field]: stored });
  });

  test.each<readonly [name: string, field: string, sent: unknown, rule: string]>([
    ['29 February of a common year', 'dateOfBirth', '2021-02-29', 'calendar_date'],
    ['single digits', 'dateOfBirth', '1970-4-4', 'calendar_date'],
    ['slashes', 'dateOfBirth', '04/04/1970', 'calendar_date'],
    ['a space for T', 'dateOfBirth', '1970-04-04 10:00:00', 'calendar_date'],
    ['an hour of 25', 'dateOfBirth', '1970-04-04T25:00:00Z', 'calendar_date'],
    ['an empty text', 'dateOfBirth', '', 'calendar_date'],
    ['a number as date', 'dateOfBirth', 19700404, 'string'],
    ['today', 'dateOfBirth', '2026-03-10', 'past_date'],
    ['tomorrow', 'dateOfBirth', '2026-03-11', 'past_date'],
    ['an age of 121', 'dateOfBirth', '1905-03-10', 'max_age'],
    ...['XX', 'FX', 'UM', 'A', 'AEE', 'АЕ'].map(
      (state) => [`a state that USPS does not have: ${state}`, 'state', state, 'state_code'] as const,
    ),
    ['a ligature whose upper case is a state', 'state', '\ufb02', 'state_code'],
    ['a dotless i whose upper case is a state', 'state', '\u0131l', 'state_code'],
    ['a long s whose upper case is a state', 'state', '\u017fd', 'state_code'],
    ['a list for a text', 'state', ['VA'], 'string'],
    ['an invisible name', 'firstName', '\u200b', 'min_length name'],
    ['a name of spaces', 'firstName', '   ', 'min_length name'],
    ['a name of 101 characters', 'firstName', 'a'.repeat(101), 'max_length'],
    ['a right-to-left override', 'lastName', 'a\u202eb', 'one_line'],
    ['a line separator', 'lastName', 'a\u2028b', 'one_line'],
    ['a paragraph separator', 'lastName', 'a\u2029b', 'one_line'],
    ['a line break', 'lastName', 'a\nb', 'one_line'],
    ['half a surrogate pair', 'firstName', '\ud800a', 'storable_text'],
    ['a gender abbreviation', 'gender', 'm', 'picklist'],
    ['two dots in a domain', 'email', 'a@b..c', 'email'],
    ['an e-mail address in brackets', 'email', '<a@b.co>', 'email'],
    ['an e-mail address without a top-level domain', 'email', 'a@b', 'email'],
    ['an e-mail address without @', 'email', 'example.com', 'email'],
    ['an e-mail address of 255 characters', 'email', `${'a'.repeat(243)}@example.com`, 'max_length'],
    ['a height below the bound once it is rounded', 'heightCm', 49.994, 'min_value'],
    ['a weight above the bound once it is rounded', 'weightKg', 700.005, 'max_value'],
    ['a height above the bound once it is rounded', 'heightCm', 300.005, 'max_value'],
    ['a weight below the bound once it is rounded', 'weightKg', 9.994, 'min_value'],
    ['a number as text', 'weightKg', '61', 'number'],
    ['yes as text', 'tobacco', 'true', 'boolean'],
  ])('is rejected for %s', (_, field, sent, rules) => {
    const errors = rules.split(' ').map((rule) => ({ pointer: `/${field}`, rule, message: expect.any(String) }));
    expect(errorsOf('profile', { [field]: sent })).toEqual(errors);
  });
});

describe('a title', () => {
  test.each<[name: string, sent: string, stored?: string]>([
    ['a trimmed and composed text', '\u00a0A\u030angstro\u0308m\u3000', '\u00c5ngstr\u00f6m'],
    ['Hangul, composed', ' \u1112\u1161\u11ab', '\ud55c'],
    ['two lines', 'one\n two ', 'one\n two'],
    ['the text after 5,000 spaces', `${' '.repeat(5000)}x`, 'x'],
    ['200 letters with accents', 'e\u0301'.repeat(200), '\u00e9'.repeat(200)],
    ['quotation marks, markup and two spaces', 'O\'Brien  "quoted" \\ {} <b>$1</b> 🎻'],
  ])('stores %s', (_, sent, stored = sent) => {
    const custom = (title: string) => ({ customSelections: [typed(title)] });
    expect(patchOf('lifetimeCare', custom(sent))).toEqual({ hobbies: custom(stored) });
    const chosen = (title: string) => ({ selections: [item(1, title)] });
    expect(patchOf('ltcLifetimeCare', chosen(sent))).toEqual({ leaveFinancialLegacy: chosen(stored) });
  });

  test.each([
    ...['', ' ', '\u3000\n', '\u200b', '\u2060 \ufeff', '\u3164'].map(
      (title) => [title, /min_length|not_blank/] as const,
    ),
    ...['a'.repeat(201), 'e\u0301'.repeat(201), '\u0301'.repeat(100_000)].map(
      (title) => [title, /max_length/] as const,
    ),
  ])('is rejected when it is empty or too long once it is trimmed: case %#', (title, rule) => {
    const [error] = errorsOf('lifetimeCare', { customSelections: [{ title }] });
    expect(error).toMatchObject({ pointer: '/customSelections/0/title', rule: expect.stringMatching(rule) });
  });
});

describe('a flow', () => {
  test.each<[name: string, AnswerSection, sent: object, patch?: object]>([
    ['rounded amounts', 'ltcLifetimeCare', { policyValue: 1e12 + 0.004 }, { policyValue: 1e12 }],
    ['zero for negative zero', 'lifetimeCare', { careSafety: -0 }, { careSafety: 0 }],
    ['careCosts beside careSafety', 'ltcLifetimeCare', { careCosts: 10.25, careSafety: 3 }],
    ['one text as a list', 'ltcLifetimeCare', { propertyStatus: 'iRent' }, { propertyStatus: ['iRent'] }],
    ['one text once', 'ltcLifetimeCare', { propertyStatus: ['iRent', 'iRent'] }, { propertyStatus: ['iRent'] }],
    ['values once', 'lifeInsurance', { billsAndDebt: ['cc', 'cc', 'auto', 'cc'] }, { billsAndDebt: ['cc', 'auto'] }],
    ['100 values once', 'lifetimeCare', { familyHistory: Array(100).fill('stroke') }, { familyHistory: ['stroke'] }],
    [
      'items once, by id and title',
      'ltcLifetimeCare',
      { selections: [item(2), { title: ' t2', id: 2 }, item(1), item(1, 'b')] },
      legacy({ selections: [item(2), item(1), item(1, 'b')] }),
    ],
    [
      'typed items once, by composed title',
      'lifeInsurance',
      { customSelections: [typed('\u00e9'), typed('e\u0301 '), typed('E\u0301')] },
      { policySupport: { customSelections: [typed('\u00e9'), typed('\u00c9')] } },
    ],
    ['two lists', 'lifeInsurance', pair, { policySupport: pair }],
    ['one list', 'lifetimeCare', { selections: [] }, { hobbies: { selections: [] } }],
    ['an array, split by the id', 'lifeInsurance', { policySupport: [typed('x'), item(1)] }, { policySupport: pair }],
    ['an array without typed items', 'lifetimeCare', { hobbies: [item(1)] }, { hobbies: chosenOnly }],
    ['repeated items of an array once', 'lifetimeCare', { hobbies: [item(1), typed('x'), item(1)] }, { hobbies: pair }],
    [
      'a field rather than that list of an array',
      'lifetimeCare',
      { hobbies: [item(1), typed('y')], customSelections: [typed('x')] },
      { hobbies: pair },
    ],
    ['null for both lists', 'lifetimeCare', { hobbies: null }],
    [
      'null beside a field',
      'lifeInsurance',
      { policySupport: null, selections: [item(2)] },
      { policySupport: { selections: [item(2)], customSelections: null } },
    ],
    ['the stored form', 'lifeInsurance', { policySupport: pair }],
    ['the stored form with one list', 'lifeInsurance', { policySupport: { selections: [] } }],
    ['the stored form with null', 'lifeInsurance', { policySupport: { selections: null } }],
    [
      'two nulls of the stored form as null',
      'lifetimeCare',
      { hobbies: { selections: null, customSelections: null } },
      { hobbies: null },
    ],
    ['nothing for an empty stored form', 'lifeInsurance', { policySupport: {} }, {}],
    [
      'a field rather than that list of the stored form',
      'lifeInsurance',
      { policySupport: pair, selections: null },
      { policySupport: { ...pair, selections: null } },
    ],
    ['a legacy', 'ltcLifetimeCare', { selections: [item(1)] }, legacy({ selections: [item(1)] })],
    ['the stored form of a legacy', 'ltcLifetimeCare', legacy({ selections: [item(1)] })],
    [
      'a field rather than a legacy',
      'ltcLifetimeCare',
      { ...legacy({ selections: [item(1)] }), selections: [item(2)] },
      legacy({ selections: [item(2)] }),
    ],
    ['nothing for an empty legacy', 'ltcLifetimeCare', legacy({}), {}],
    ['null for a legacy', 'ltcLifetimeCare', legacy(null)],
    ['null for a legacy with null', 'ltcLifetimeCare', legacy({ selections: null }), legacy(null)],
    ['null for a legacy whose field is null', 'ltcLifetimeCare', { selections: null }, legacy(null)],
  ])('stores %s', (_, section, sent, patch = sent) => {
    expect<unknown>(patchOf(section, sent)).toEqual(patch);
  });

  test.each<[AnswerSection, body: object, pointer: string, message: string]>([
    ['ltcLifetimeCare', { careCosts: -0.005 }, '/careCosts', 'must be at least 0'],
    ['ltcLifetimeCare', { policyValue: 1e12 + 0.006 }, '/policyValue', 'must be at most 1000000000000'],
    ['lifetimeCare', { familyHistory: Array(101).fill('stroke') }, '/familyHistory', 'must have at most 100 items'],
    ['lifeInsurance', { policySupport: { selections: [{}] } }, '/policySupport/selections/0/id', 'is required'],
    ['lifeInsurance', { selections: [item(1.5)] }, '/selections/0/id', 'must be a whole number below 2^53'],
    ['lifeInsurance', { policySupport: 'x' }, '/policySupport', 'must be a list'],
    ['lifetimeCare', { hobbies: { selections: {} } }, '/hobbies/selections', 'must be a list'],
    ['ltcLifetimeCare', legacy([]), '/leaveFinancialLegacy', 'must be an object'],
    [
      'ltcLifetimeCare',
      legacy({ customSelections: [] }),
      '/leaveFinancialLegacy/customSelections',
      'is not a known field',
    ],
  ])('is rejected at the invalid place: %s %#', (section, body, pointer, message) => {
    expect(errorsOf(section, body)).toContainEqual(expect.objectContaining({ pointer, message }));
  });
});

test('a birth date must be past in the configured time zone', async () => {
  const statusIn = async (reportTimeZone: string, dateOfBirth: string) => {
    const zoned = await createTestApp({ config: { ...testConfig, reportTimeZone } });
    zoned.now = new Date('2026-03-11T03:30:00.000Z');
    return (await zoned.call('POST', profilePath, { as: 'ada', body: { dateOfBirth } })).status;
  };
  expect(await statusIn('America/New_York', '2026-03-10')).toBe(422);
  expect(await statusIn('America/New_York', '2026-03-09')).toBe(200);
  expect(await statusIn('UTC', '2026-03-10')).toBe(200);
});

describe('toHundredths', () => {
  test.each([
    [5e-324, 0],
    [-0, 0],
    [999999999999.995, 1e12],
    [1e300, 1e300],
    [2 ** 52 + 1, 2 ** 52 + 1],
    [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY],
  ])('of %p is %p', (sent, kept) => {
    expect(toHundredths(sent)).toBe(kept);
  });

  test('rounds by the decimal form, half away from zero', () => {
    fc.assert(
      fc.property(fc.nat(1e9), fc.nat(999), (hundredths, thousandths) => {
        const digits = `${hundredths}${String(thousandths).padStart(3, '0')}e-5`;
        const rounded = (hundredths + (thousandths >= 500 ? 1 : 0)) / 100;
        expect(toHundredths(Number(digits))).toBe(rounded);
        expect(toHundredths(-Number(digits))).toBe(rounded === 0 ? 0 : -rounded);
      }),
    );
  });
});

describe('an invisible character', () => {
  test.each(
    [
      ...['\u00ad', '\u034f', '\u061c', '\u115f', '\u180e', '\u200b', '\u200c', '\u200d', '\u200e', '\u200f'],
      ...['\u202a', '\u202c', '\u2060', '\u2066', '\u2069', '\u2064', '\u3164', '\ufeff', '\u{e0041}'],
    ].map((character) => [`U+${character.codePointAt(0)?.toString(16)}`, character]),
  )('does not count in names and e-mail, so that the application is the same: %s', (_, character) => {
    const parse = (sent: object) => v.parse(totalCoverageRequest(today), { ...applicant, ...sent });
    const firstName = `A${character}da`;
    const lastName = `${character}By\u0301ron ${character}`;
    const sent = parse({ firstName, lastName, email: `ada${character}@example.com` });
    const plain = parse({ lastName: 'B\u00fdron' });
    expect(sent).toEqual(plain);
    expect(identityHash(sent)).toBe(identityHash(plain));
    const staff = { id: 's', role: 'salesManager', firstName, lastName: 'x', managerId: '' };
    expect(v.parse(StaffRecord, staff)).toMatchObject({ firstName: 'Ada' });
    const cemetery = { externalId: 'c', name: `Oak${character} Hill`, city: `To${character}wn`, state: 'VA' };
    expect(v.parse(CemeteryRecord, cemetery)).toMatchObject({ name: 'Oak Hill', city: 'Town' });
  });

  test('does not occur in this identity, whose hash stays the same', () => {
    expect(identityHash(v.parse(totalCoverageRequest(today), applicant))).toBe(
      '338ed3d38ac5b634c7bd910a20f88c7a762861ffd359c0f6ae2dfc6110023826',
    );
  });
});

test('an imported record has at most 100 or 200 characters in each text', () => {
  const cemetery = { externalId: 'c', name: 'Oak', street: '', city: 'Town', state: 'VA' };
  const staff = { id: 's', role: 'salesManager', firstName: 'Ada', lastName: 'King' };
  for (const [schema, record, maximum] of [
    [CemeteryRecord, cemetery, { externalId: 100, name: 200, street: 200, city: 100 }],
    [StaffRecord, staff, { firstName: 100, lastName: 100 }],
  ] as const) {
    for (const [field, max] of Object.entries(maximum)) {
      const isValid = (length: number) => v.is(schema, { ...record, [field]: 'a'.repeat(length) });
      expect([field, isValid(max), isValid(max + 1)]).toEqual([field, true, false]);
    }
  }
});

describe('another spelling', () => {
  test.each(['?sort=ASC', '?sort=Desc&page=%202&limit=10%20', '?sort=+asc'])(
    'is accepted in a query: %s',
    async (query) => {
      expect((await testApp.call('GET', `/v2/private/cemetery/all${query}`, { as: 'ada' })).status).toBe(200);
    },
  );

  test.each(['TRUE', 'True', ' true'])('is accepted for a flag in a query: %j', async (explain) => {
    const { text } = await testApp.call('POST', `${matches}?${new URLSearchParams({ explain })}`, { as: 'ada' });
    expect(text).toContain('"explanation":');
  });

  test.each([
    ['WEST  VIRGINIA', 'WV'],
    [' new\u00a0york ', 'NY'],
    ['N.Y.', 'NY'],
    ['Washington, D.C.', 'DC'],
    ['Washington', 'WA'],
    ['U.S. Virgin Islands', 'VI'],
    ['armed forces europe', 'AE'],
    ['Micronesia', 'FM'],
  ])('is accepted for a state: %j', (sent, code) => {
    expect(v.parse(StateCode, sent)).toBe(code);
  });

  test('is accepted for each state: its name in capitals, and its code in lower case, of every kind of person', () => {
    expect(stateNames.map((name) => v.parse(StateCode, name.toUpperCase()))).toEqual([...stateCodes]);
    expect(stateCodes).toContainValues(['AA', 'AE', 'AP', 'FM', 'MH', 'PW']);
    for (const code of stateCodes) {
      const state = ` ${code.toLowerCase()} `;
      const cemetery = { externalId: 'c', name: 'Oak', city: 'Town', state };
      expect(patchOf('profile', { state })).toEqual({ state: code });
      expect(v.parse(totalCoverageRequest(today), { ...applicant, state }).state).toBe(code);
      expect(v.parse(CemeteryRecord, cemetery).state).toBe(code);
    }
  });
});

describe('a hint', () => {
  test.each<[AnswerSection, body: object, pointer: string, near: string]>([
    ['ltcLifetimeCare', { relationshipStatus: ['maried'] }, '/relationshipStatus/0', 'married'],
    ['ltcLifetimeCare', { relationshipStatus: 'fly solo' }, '/relationshipStatus', 'flySolo'],
    ['ltcLifetimeCare', { propertyStatus: 'OWN_OUT_RIGHT' }, '/propertyStatus', 'ownOutRight'],
    ['ltcLifetimeCare', { facilityLocationPriority: 'nearFamily' }, '/facilityLocationPriority', 'nearfamily'],
    ['lifeInsurance', { billsAndDebt: ['cc', 'CC'] }, '/billsAndDebt/1', 'cc'],
    ['lifeInsurance', { policySupport: { selection: [] } }, '/policySupport/selection', 'selections'],
    ['profile', { gender: 'femal' }, '/gender', 'Female'],
    ['profile', { state: 'Massachusets' }, '/state', 'Massachusetts'],
  ])('names the nearest value: %s %j', (section, body, pointer, near) => {
    const message = expect.stringContaining(`; did you mean ${near}?`);
    expect(errorsOf(section, body)).toEqual([expect.objectContaining({ pointer, message })]);
  });

  test.each<[AnswerSection, body: object]>([
    ['ltcLifetimeCare', { relationshipStatus: 'xx-canary' }],
    ['ltcLifetimeCare', { relationshipStatus: 'm'.repeat(200_000) }],
    ['lifeInsurance', { billsAndDebt: ['xy'] }],
    ['profile', { state: 'Massachxxxtts' }],
    ['profile', { gender: 'x' }],
  ])('does not appear when no value is near, nor does the sent value: %s %#', (section, body) => {
    const errors = errorsOf(section, body);
    expect(errors).toHaveLength(1);
    expect(JSON.stringify(errors)).not.toMatch(/did you mean|canary|mmm/);
  });
});

describe('a query parameter', () => {
  const errorsAt = async (method: string, path: string) => {
    const body = method === 'POST' ? {} : undefined;
    const response = await testApp.call(method, path, { as: 'ada', roles: ['salesManager'], body });
    expect(response.status).toBe(422);
    return v.parse(v.object({ errors: v.array(v.unknown()) }), response.body).errors;
  };

  test.each([
    ['GET', `${glance}?month=Novembr`, 'November'],
    ['GET', `${glance}?month=1&yaer=2025`, 'year'],
    ['GET', '/v2/private/cemetery/all?sort=descc', 'desc'],
    ['GET', '/v2/private/cemetery/all?Page=1', 'page'],
    ['POST', `${matches}?explian=true`, 'explain'],
  ])('gets a hint: %s %s', async (method, path, near) => {
    const message = expect.stringContaining(`did you mean ${near}?`);
    expect(await errorsAt(method, path)).toEqual([expect.objectContaining({ message })]);
  });

  test.each(privateRoutes)('that is not known returns 422 with its name: $method $path', async (route) => {
    const needed = route.target.split('?')[1];
    for (const name of ['_', 'utm_source', '__proto__', '']) {
      const query = `${name}=123${needed === undefined ? '' : `&${needed}`}`;
      expect(await errorsAt(route.method, `${route.path}?${query}`)).toEqual([
        { pointer: name, rule: 'unknown_field', message: expect.stringMatching(/^is not a known parameter/) },
      ]);
    }
  });

  test('that is not known is rejected after the token check, and nothing is stored', async () => {
    expect((await testApp.call('GET', '/v2/private/user?x=1')).status).toBe(401);
    await testApp.call('POST', `${profilePath}?x=1`, { as: 'unsaved', body: { tobacco: true } });
    expect((await testApp.call('GET', '/v2/private/user', { as: 'unsaved' })).status).toBe(404);
  });

  test('has no effect at an operational path', async () => {
    for (const path of ['/health/live', '/health/ready', '/swagger/json', '/problems/invalid-input']) {
      expect((await testApp.call('GET', `${path}?_=123`)).status).toBe(200);
    }
  });
});
