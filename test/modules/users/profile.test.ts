import { describe, expect, test } from 'bun:test';
import { createTestApp, testConfig } from '../../support/app';

const testApp = await createTestApp();
testApp.now = new Date('2026-03-10T12:00:00.000Z');

async function saveProfile(body: object, as = 'person') {
  return testApp.call('POST', '/v2/private/user/profile', { as, body });
}

describe('POST /v2/private/user/profile', () => {
  test.each([
    ['a date', '1956-12-10', '1956-12-10'],
    ['a date-time in UTC', '1970-04-04T00:00:00.000Z', '1970-04-04'],
    ['the date as written, west of UTC', '1970-04-04T23:30:00-10:00', '1970-04-04'],
    ['the date as written, east of UTC', '1970-04-04T00:30:00+14:00', '1970-04-04'],
    ['29 February of a leap year', '2024-02-29', '2024-02-29'],
    ['yesterday', '2026-03-09', '2026-03-09'],
    ['the day after the 121st birthday was missed', '1905-03-11', '1905-03-11'],
  ])('stores a birth date: %s', async (_, sent, kept) => {
    const response = await saveProfile({ dateOfBirth: sent });
    expect(response.body).toMatchObject({ user: { profile: { dateOfBirth: kept } } });
  });

  test.each([
    ['29 February of a common year', '2021-02-29', 'calendar_date'],
    ['31 February', '2020-02-31T00:00:00Z', 'calendar_date'],
    ['42 March', '2011-03-42', 'calendar_date'],
    ['29 February 1900', '1900-02-29', 'calendar_date'],
    ['single digits', '1970-4-4', 'calendar_date'],
    ['slashes', '04/04/1970', 'calendar_date'],
    ['a space for T', '1970-04-04 10:00:00', 'calendar_date'],
    ['an hour of 25', '1970-04-04T25:00:00Z', 'calendar_date'],
    ['empty text', '', 'calendar_date'],
    ['a number', 19700404, 'string'],
    ['today', '2026-03-10', 'past_date'],
    ['tomorrow', '2026-03-11', 'past_date'],
    ['an age of 121', '1905-03-10', 'max_age'],
  ])('rejects a birth date: %s', async (_, dateOfBirth, rule) => {
    const response = await saveProfile({ dateOfBirth });
    expect(response.status).toBe(422);
    expect(response.body).toMatchObject({ errors: [{ pointer: '/dateOfBirth', rule }] });
  });

  test('checks for a past date in the configured time zone', async () => {
    const lateEvening = new Date('2026-03-11T03:30:00.000Z');
    const config = { ...testConfig, reportTimeZone: 'America/New_York' };
    const newYork = await createTestApp({ config });
    newYork.now = lateEvening;
    const save = (dateOfBirth: string) =>
      newYork.call('POST', '/v2/private/user/profile', { as: 'person', body: { dateOfBirth } });
    expect((await save('2026-03-10')).status).toBe(422);
    expect((await save('2026-03-09')).status).toBe(200);
    testApp.now = lateEvening;
    expect((await saveProfile({ dateOfBirth: '2026-03-10' })).status).toBe(200);
    testApp.now = new Date('2026-03-10T12:00:00.000Z');
  });

  test.each(["O'Brien", 'D’Arcy', 'Núñez', 'Anne-Marie', 'de la Cruz', 'X', 'Ł'.repeat(100)])(
    'stores the name %s trimmed and otherwise unchanged',
    async (lastName) => {
      expect((await saveProfile({ lastName: `  ${lastName} ` })).body).toMatchObject({
        user: { profile: { lastName } },
      });
    },
  );

  test('normalizes a name to NFC', async () => {
    const response = await saveProfile({ firstName: 'Zoe\u0308' });
    expect(response.body).toMatchObject({ user: { profile: { firstName: 'Zo\u00eb' } } });
  });

  test.each([
    ['a state in lower case', { state: ' va ' }, { state: 'VA' }],
    ['a territory', { state: 'pr' }, { state: 'PR' }],
    ['an e-mail address with an apostrophe', { email: "o'brien@example.com" }, { email: "o'brien@example.com" }],
    ['an e-mail address in mixed case', { email: ' Ada@Example.COM ' }, { email: 'Ada@Example.COM' }],
    ['two decimals', { heightCm: 165.25, weightKg: 61.5 }, { heightCm: 165.25, weightKg: 61.5 }],
    ['yes and no', { seriousIllness: false, inCare: true, tobacco: false }, { seriousIllness: false, inCare: true }],
  ])('accepts %s', async (_, sent, kept) => {
    expect((await saveProfile(sent)).body).toMatchObject({ user: { profile: kept } });
  });

  test.each([
    ['a state that does not exist', { state: 'XX' }, 'state_code'],
    ['a ligature whose upper case is a state', { state: '\ufb02' }, 'state_code'],
    ['a dotless i whose upper case is a state', { state: '\u0131l' }, 'state_code'],
    ['a long s whose upper case is a state', { state: '\u017fd' }, 'state_code'],
    ['an invisible name', { firstName: '\u200b' }, 'min_length'],
    ['a name with a right-to-left override', { lastName: 'a\u202eb' }, 'one_line'],
    ['a name with a line separator', { lastName: 'a\u2028b' }, 'one_line'],
    ['a name with a paragraph separator', { lastName: 'a\u2029b' }, 'one_line'],
    ['half a surrogate pair', { firstName: '\ud800a' }, 'storable_text'],
    ['a list for a text', { state: ['VA'] }, 'string'],
    ['two dots in a domain', { email: 'a@b..c' }, 'email'],
    ['an address in brackets', { email: '<a@b.co>' }, 'email'],
    ['a gender abbreviation', { gender: 'm' }, 'picklist'],
    ['an e-mail address without a domain', { email: 'a@b' }, 'email'],
    ['an e-mail address without @', { email: 'example.com' }, 'email'],
    ['an e-mail address of 255 characters', { email: `${'a'.repeat(243)}@example.com` }, 'max_length'],
    ['a name of spaces', { firstName: '   ' }, 'min_length'],
    ['a name of 101 characters', { firstName: 'a'.repeat(101) }, 'max_length'],
    ['a name with a line break', { firstName: 'a\nb' }, 'one_line'],
    ['a height in metres', { heightCm: 1.65 }, 'min_value'],
    ['a weight below the bound once it is rounded', { weightKg: 9.994 }, 'min_value'],
    ['a number as text', { weightKg: '61' }, 'number'],
    ['yes as text', { tobacco: 'true' }, 'boolean'],
  ])('rejects %s', async (_, sent, rule) => {
    const response = await saveProfile(sent, 'refused');
    expect(response.status).toBe(422);
    expect(response.body).toMatchObject({ errors: [{ pointer: `/${Object.keys(sent)[0]}`, rule }] });
    expect((await testApp.call('GET', '/v2/private/user', { as: 'refused' })).status).toBe(404);
  });
});
