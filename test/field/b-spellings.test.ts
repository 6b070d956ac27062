import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { parseMonth } from '../../src/modules/sales/model';
import { StateCode } from '../../src/shared/fields';
import { stateCodes, stateNames } from '../../src/shared/states';
import { createTestApp } from '../support/app';
import { documentOfSources } from '../support/conformance';
import { privateRoutes } from '../support/contract';

const testApp = await createTestApp();
const profile = '/v2/private/user/profile';
const ltc = '/v2/private/ltc/lifetimeCare';
const lifeInsurance = '/v2/private/deepDives/lifeInsurance';
const glance = '/v2/private/user/salesManager/monthly-glance';
const Errors = v.object({ errors: v.array(v.object({ pointer: v.string(), rule: v.string(), message: v.string() })) });

const call = (method: string, path: string, body?: unknown) =>
  testApp.call(method, path, { as: 'speller', roles: ['salesManager'], ...(body === undefined ? {} : { body }) });

async function errorsOf(method: string, path: string, body?: unknown) {
  const response = await call(method, path, body);
  expect(response.status).toBe(422);
  return v.parse(Errors, response.body).errors;
}

describe('another spelling', () => {
  test.each([
    ['/v2/private/cemetery/all?sort=ASC'],
    ['/v2/private/cemetery/all?sort=Desc&page=%202&limit=10%20'],
    ['/v2/private/cemetery/all?sort=+asc'],
  ])('B15 returns 200 in a query: %s', async (path) => {
    expect((await call('GET', path)).status).toBe(200);
  });

  test.each(['TRUE', 'True', ' true'])('B15 works for a flag in a query: %j', async (explain) => {
    const { text } = await call('POST', `/v2/private/engine/matches?${new URLSearchParams({ explain })}`);
    expect(text).toContain('"explanation":');
  });

  test.each([
    ['male', 'Male'],
    ['FEMALE', 'Female'],
    [' Female ', 'Female'],
  ])('B15 works for a gender: %j', async (gender, kept) => {
    expect((await call('POST', profile, { gender })).body).toMatchObject({ user: { profile: { gender: kept } } });
  });

  test.each([
    ['Virginia', 'VA'],
    ['virginia', 'VA'],
    ['WEST  VIRGINIA', 'WV'],
    [' new\u00a0york ', 'NY'],
    ['N.Y.', 'NY'],
    ['District of Columbia', 'DC'],
    ['Washington, D.C.', 'DC'],
    ['Washington', 'WA'],
    ['U.S. Virgin Islands', 'VI'],
    ['Puerto Rico', 'PR'],
    ['armed forces europe', 'AE'],
    ['Micronesia', 'FM'],
  ])('B15 works for a state: %j', (sent, code) => {
    expect(v.parse(StateCode, sent)).toBe(code);
  });

  test('B15 works for each state by its name', () => {
    expect(stateNames.map((name) => v.parse(StateCode, name.toUpperCase()))).toEqual([...stateCodes]);
  });

  test.each([
    ['nov.', 11, undefined],
    ['Sept.', 9, undefined],
    [' May', 5, undefined],
    ['May.', 5, undefined],
    ['december ', 12, undefined],
    ['2026-1', 1, 2026],
    [' 2026-01 ', 1, 2026],
    [' 7', 7, undefined],
  ])('B15 works for a month: %j', (sent, month, year) => {
    expect(parseMonth(sent)).toEqual({ month, year });
  });

  test.each([
    'nov..',
    '.',
    '',
    ' ',
    '1.',
    '2026-',
    '2026-1.',
    '2026-nov',
    '2026-13',
    '2026-001',
    '-1',
    '2026 1',
    'no v',
  ])('B15 fails for an ambiguous month: %j', (sent) => {
    expect(parseMonth(sent)).toBeUndefined();
  });
});

describe('a hint', () => {
  test.each([
    [ltc, { relationshipStatus: 'Married' }, '/relationshipStatus', 'married'],
    [ltc, { relationshipStatus: ['maried'] }, '/relationshipStatus/0', 'married'],
    [ltc, { relationshipStatus: 'fly solo' }, '/relationshipStatus', 'flySolo'],
    [ltc, { propertyStatus: 'OWN_OUT_RIGHT' }, '/propertyStatus', 'ownOutRight'],
    [ltc, { careFacilityType: 'in-home' }, '/careFacilityType', 'inHome'],
    [ltc, { facilityLocationPriority: 'nearFamily' }, '/facilityLocationPriority', 'nearfamily'],
    [ltc, { insuranceCover: ['donation', 'donations'] }, '/insuranceCover/1', 'donation'],
    [lifeInsurance, { livingStatus: 'Stay home' }, '/livingStatus', 'stayHome'],
    [lifeInsurance, { billsAndDebt: ['CC'] }, '/billsAndDebt/0', 'cc'],
    [profile, { gender: 'femal' }, '/gender', 'Female'],
    [profile, { state: 'Virgina' }, '/state', 'Virginia'],
    [profile, { state: 'Massachusets' }, '/state', 'Massachusetts'],
  ])('B15 names the nearest value: %s %j', async (path, body, pointer, near) => {
    const [error] = await errorsOf('POST', path, body);
    expect(error).toMatchObject({ pointer, message: expect.stringContaining(`; did you mean ${near}?`) });
  });

  test.each([
    ['GET', `${glance}?month=Novembr`, 'November'],
    ['GET', `${glance}?month=1&yaer=2025`, 'year'],
    ['GET', '/v2/private/cemetery/all?sort=descc', 'desc'],
    ['GET', '/v2/private/cemetery/all?Page=1', 'page'],
    ['GET', '/v2/private/cemetery/all?limt=1', 'limit'],
    ['POST', '/v2/private/engine/matches?explian=true', 'explain'],
  ])('B15 names the nearest value in a query: %s %s', async (method, path, near) => {
    expect(await errorsOf(method, path)).toEqual([
      expect.objectContaining({ message: expect.stringContaining(`did you mean ${near}?`) }),
    ]);
  });

  test.each([
    [ltc, { relationshipStatus: 'xx-canary' }],
    [lifeInsurance, { billsAndDebt: ['xy'] }],
    [profile, { state: 'Ontario-canary' }],
    [profile, { gender: 'x' }],
    [ltc, { relationshipStatus: 'm'.repeat(200_000) }],
  ])('B15 does not appear when no value is near, nor does the sent value: %#', async (path, body) => {
    const response = await call('POST', path, body);
    expect(response.status).toBe(422);
    expect(response.text).not.toMatch(/did you mean|canary|mmm/);
  });
});

describe('an unknown query parameter', () => {
  test.each(
    privateRoutes.flatMap(({ method, path, target }) =>
      ['_', 'utm_source', '__proto__', ''].map((name) => [method, path, name, target.split('?')[1] ?? '']),
    ),
  )('B15 returns 422 that names it: %s %s?%s=123', async (method = '', path = '', name = '', needed = '') => {
    const body = method === 'POST' ? {} : undefined;
    expect(await errorsOf(method, `${path}?${name}=123${needed && `&${needed}`}`, body)).toEqual([
      { pointer: name, rule: 'unknown_field', message: expect.stringMatching(/^is not a known parameter/) },
    ]);
  });

  test('B15 fails after the token check and stores nothing', async () => {
    expect((await testApp.call('GET', '/v2/private/user?x=1')).status).toBe(401);
    await testApp.call('POST', `${profile}?x=1`, { as: 'unsaved', body: { tobacco: true } });
    expect((await testApp.call('GET', '/v2/private/user', { as: 'unsaved' })).status).toBe(404);
  });

  test.each(['/health/live', '/health/ready', '/swagger/json', '/problems/invalid-input'])(
    'B15 has no effect at an operational path: %s',
    async (path) => {
      expect((await testApp.call('GET', `${path}?_=123`)).status).toBe(200);
    },
  );
});

test('B16 each birth date has a description', async () => {
  const { operations } = await documentOfSources();
  const document = JSON.stringify(await (await testApp.call('GET', '/swagger/json')).body);
  expect(operations.length).toBeGreaterThan(0);
  expect(document).toMatch(/"dateOfBirth":\{[^}]*`Z`[^}]*ambiguous/);
});
