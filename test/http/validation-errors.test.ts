import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { applications, users } from '../../src/db/schema/people';
import { applicant, createTestApp, startSandbox, testConfig } from '../support/app';

const testApp = await createTestApp();
const ltc = '/v2/private/ltc/lifetimeCare';
const lifeInsurance = '/v2/private/deepDives/lifeInsurance';
const preview = '/v2/private/engine/preview';
const Refusal = v.object({
  type: v.string(),
  errors: v.optional(v.array(v.object({ pointer: v.string(), rule: v.string() }))),
});
const Errors = v.object({ errors: v.array(v.object({ pointer: v.string(), rule: v.string(), message: v.string() })) });

async function errorsOf(path: string, body: unknown): Promise<string[]> {
  const response = await testApp.call('POST', path, { as: 'faulty', body });
  expect(response.status).toBe(422);
  return v.parse(Errors, response.body).errors.map(({ pointer, message }) => `${pointer} ${message}`);
}

const many = (count: number, item: unknown) => Array(count).fill(item);
const long = 'must have at most 100 items';

describe('validation errors', () => {
  test.each<[path: string, body: unknown, errors: string[]]>([
    [ltc, { selections: many(101, 1), careCosts: 'x' }, [`/selections ${long}`, '/careCosts must be a number']],
    [
      ltc,
      { selections: many(101, 1), insuranceCover: many(9_000, 1), relationshipStatus: many(102, 'x'), careCost: 1 },
      [
        `/selections ${long}`,
        `/insuranceCover ${long}`,
        `/relationshipStatus ${long}`,
        '/careCost is not a known field; did you mean careCosts?',
      ],
    ],
    [
      ltc,
      { leaveFinancialLegacy: { selections: many(101, 1) }, careSafety: [] },
      [`/leaveFinancialLegacy/selections ${long}`, '/careSafety must be a number'],
    ],
    [
      ltc,
      { careCosts: many(9_000, 1), policyValue: -1 },
      ['/careCosts must be a number', '/policyValue must be at least 0'],
    ],
    [ltc, { zzz: many(9_000, 1), policyValue: -1 }, ['/zzz is not a known field', '/policyValue must be at least 0']],
    [
      lifeInsurance,
      { policySupport: many(101, {}), livingStatus: 1 },
      [`/policySupport ${long}`, '/livingStatus must be one of stayHome, upgrade, downsize, rent'],
    ],
    [
      ltc,
      { careFacilityType: 'x', selections: [{ id: -1, title: '', colour: 1 }] },
      [
        '/careFacilityType must be one of inHome, independentLiving, assistedLiving, nursingHome, notSure',
        ...['/selections/0/id must be at least 0', '/selections/0/title must have at least 1 character'],
        '/selections/0/colour is not a known field',
      ],
    ],
    [
      lifeInsurance,
      { selections: [[], 1], billsAndDebt: {} },
      ['/selections/0 must be an object', '/selections/1 must be an object', '/billsAndDebt must be a list'],
    ],
    [
      preview,
      { profile: [], ltc: [1], lifeInsurance: { billsAndDebt: many(101, 'cc') }, lifetimeCare: { careSafety: 'x' } },
      [
        '/profile must be an object',
        '/ltc must be an object',
        `/lifeInsurance/billsAndDebt ${long}`,
        '/lifetimeCare/careSafety must be a number',
      ],
    ],
    [ltc, [], [' must be a JSON object']],
    ['/v2/private/ltc/totalCoverage', [], [' must be a JSON object']],
    ['/v2/private/engine/matches', many(9_000, 1), [' must be a JSON object']],
  ])('appear beside a list that is too long or in the wrong place: %s, case %#', async (path, body, expected) => {
    expect((await errorsOf(path, body)).sort()).toEqual([...expected].sort());
  });

  test('have an upper limit', async () => {
    const keys = Object.fromEntries(Array.from({ length: 190 }, (_, index) => [`u${index}`, 1]));
    const bad = many(15, keys);
    const body = { selections: bad, customSelections: bad, policySupport: bad };
    expect(await errorsOf(lifeInsurance, body)).toHaveLength(100);
    expect(await testApp.db.$count(users)).toBe(0);
  });
});

test.each(['ltc', 'life'])(
  'the birth date of an applicant must be in the past, and at most 120 years ago, in the reporting time zone: %s',
  async (flow) => {
    const sandbox = await startSandbox();
    const errorsIn = async (reportTimeZone: string, now: string, dateOfBirth: string) => {
      const opened = await createTestApp({ carrier: sandbox.carrier(), config: { ...testConfig, reportTimeZone } });
      opened.now = new Date(now);
      const body = { ...applicant, dateOfBirth };
      const response = await opened.call('POST', `/v2/private/${flow}/totalCoverage`, { as: 'early', body });
      expect(response.status).toBe(422);
      const { type, errors = [] } = v.parse(Refusal, response.body);
      expect(await opened.db.$count(applications)).toBe(errors.length === 0 ? 1 : 0);
      return [type, ...errors.map(({ pointer, rule }) => `${pointer} ${rule}`)];
    };
    const invalid = (rule: string) => ['/problems/invalid-input', `/dateOfBirth ${rule}`];
    const declined = ['/problems/carrier-declined'];
    const west = ['America/Los_Angeles', '2026-03-11T05:00:00Z'] as const;
    const east = ['Pacific/Kiritimati', '2026-03-10T12:00:00Z'] as const;
    expect(await errorsIn(...west, '2026-03-10')).toEqual(invalid('past_date'));
    expect(await errorsIn(...east, '2026-03-10')).toEqual(declined);
    // The 121st birthday in UTC; in the west it is one day earlier, and in the east one day later.
    expect(await errorsIn(...west, '1905-03-11')).toEqual(declined);
    expect(await errorsIn(...east, '1905-03-11')).toEqual(invalid('max_age'));
  },
);
