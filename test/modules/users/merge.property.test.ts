import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import * as v from 'valibot';
import { UserBody } from '../../../src/modules/users/model';
import { createTestApp, mergePatch } from '../../support/app';
import { amount } from '../../support/resources';

const testApp = await createTestApp();

const title = fc
  .string({ minLength: 1, maxLength: 20, unit: 'grapheme' })
  .map((text) => text.trim().normalize('NFC'))
  .filter((text) => /[\p{L}\p{N}\p{P}]/u.test(text) && !text.includes('\0') && text.isWellFormed());
const amounts = fc.oneof(fc.nat({ max: 1e9 }), fc.constantFrom(0, 1e12, 0.1, 0.07, 999999999999.99));
const unique = <Value>(values: fc.Arbitrary<Value>, maxLength: number) =>
  fc.uniqueArray(values, { maxLength, selector: (value) => JSON.stringify(value) });
const optionally = <Value>(values: fc.Arbitrary<Value>) => fc.option(fc.option(values), { nil: undefined });

const answers = fc.record(
  {
    careCosts: optionally(amounts),
    careSafety: optionally(amounts),
    careFacilityType: optionally(fc.constantFrom('inHome', 'notSure')),
    insuranceCover: optionally(unique(fc.constantFrom('payingFuneral', 'donation'), 4)),
    selections: optionally(unique(fc.record({ id: fc.maxSafeNat(), title }), 4)),
  },
  { requiredKeys: [] },
);

const lists = fc.record(
  {
    selections: optionally(unique(fc.record({ id: fc.maxSafeNat(), title }), 3)),
    customSelections: optionally(unique(fc.record({ title }), 3)),
  },
  { requiredKeys: [] },
);

/**
 * The expected section after a patch: a pair of lists always has both members and is removed when one is cleared and
 * the other is empty; empty objects are removed.
 */
function asStored(section: unknown, patch: unknown): unknown {
  if (typeof section !== 'object' || section === null || Array.isArray(section)) return section;
  const members = Object.entries(section).map(([name, value]) => {
    if (name !== 'policySupport' && name !== 'hobbies') return [name, value];
    const clears = Object.values(Object(Object(patch)[name])).includes(null);
    const isOver = Object.keys(value).length < 2 && Object.values(value).flat().length === 0;
    return [name, clears && isOver ? {} : { selections: [], customSelections: [], ...value }];
  });
  return Object.fromEntries(members.filter(([, value]) => !Bun.deepEquals(value, {}, true)));
}

type User = UserBody['user'];
let people = 0;

async function expectSeries(
  path: string,
  series: readonly object[],
  patches: readonly object[],
  read: (user: User) => object | undefined,
) {
  people += 1;
  const as = `property-${people}`;
  let expected: unknown = {};
  let version = 0;
  for (const [index, body] of series.entries()) {
    const before = expected;
    expected = asStored(mergePatch(expected, patches[index]), patches[index]);
    version += version === 0 || !Bun.deepEquals(before, expected, true) ? 1 : 0;
    const response = await testApp.call('POST', path, { as, body });
    expect(response.status).toBe(200);
    expect<unknown>(read(v.parse(UserBody, response.body).user) ?? {}).toEqual(expected);
    expect(response.headers.get('etag')).toMatch(new RegExp(`-${version}-[0-9a-f]{16}"$`));
  }
}

describe('series of random saves', () => {
  test('follows RFC 7396 and increments the version only on a change', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(answers, { minLength: 1, maxLength: 6 }), async (series) => {
        const patches = series.map((sent) => {
          const { selections, ...rest } = JSON.parse(JSON.stringify(sent));
          if (selections === undefined) return rest;
          return { ...rest, leaveFinancialLegacy: selections === null ? null : { selections } };
        });
        await expectSeries('/v2/private/ltc/lifetimeCare', series, patches, ({ ltc }) => ltc.lifetimeCare);
      }),
      { numRuns: amount({ long: 500, short: 40 }) },
    );
  });

  test.each([
    { path: '/v2/private/deepDives/lifeInsurance', field: 'policySupport', read: (user: User) => user.lifeInsurance },
    { path: '/v2/private/deepDives/lifetimeCare', field: 'hobbies', read: (user: User) => user.lifetimeCare },
  ])('leaves no empty object for selections of $path', async ({ path, field, read }) => {
    await fc.assert(
      fc.asyncProperty(fc.array(lists, { minLength: 1, maxLength: 6 }), async (series) => {
        const patches = series.map((sent) => {
          const patch = JSON.parse(JSON.stringify(sent));
          return Object.keys(patch).length === 0 ? {} : { [field]: patch };
        });
        await expectSeries(path, series, patches, read);
      }),
      { numRuns: amount({ long: 500, short: 40 }) },
    );
  });
});
