import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import * as v from 'valibot';
import { UserBody } from '../../../src/modules/users/model';
import { createTestApp } from '../../support/app';

const testApp = await createTestApp();

/** RFC 7396, as its section 2 puts it. */
function mergePatch(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
  const merged = new Map(
    typeof target === 'object' && target !== null && !Array.isArray(target) ? Object.entries(target) : [],
  );
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) merged.delete(name);
    else merged.set(name, mergePatch(merged.get(name), value));
  }
  return Object.fromEntries(merged);
}

const title = fc
  .string({ minLength: 1, maxLength: 20, unit: 'grapheme' })
  .filter((text) => !text.includes('\0') && text.isWellFormed());
const amount = fc.oneof(
  fc.double({ min: 0, max: 1e12, noNaN: true }),
  fc.nat(),
  fc.constantFrom(0, 1e12, 0.1, 5e-324, 1e-7),
);
const optionally = <Value>(values: fc.Arbitrary<Value>) => fc.option(fc.option(values), { nil: undefined });

const answers = fc.record(
  {
    careCosts: optionally(amount),
    careSafety: optionally(amount),
    careFacilityType: optionally(fc.constantFrom('inHome', 'notSure')),
    insuranceCover: optionally(fc.array(fc.constantFrom('payingFuneral', 'donation'), { maxLength: 4 })),
    selections: optionally(fc.array(fc.record({ id: fc.maxSafeNat(), title }), { maxLength: 4 })),
  },
  { requiredKeys: [] },
);

describe('a series of saves', () => {
  test('leaves what RFC 7396 says, moves the version with each change alone, and survives a JSON round trip', async () => {
    let people = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(answers, { minLength: 1, maxLength: 6 }), async (series) => {
        people += 1;
        const as = `property-${people}`;
        let expected: unknown = {};
        let version = 0;
        for (const sent of series) {
          const { selections, ...rest } = JSON.parse(JSON.stringify(sent));
          const legacy = selections === null ? null : { selections };
          const patch = selections === undefined ? rest : { ...rest, leaveFinancialLegacy: legacy };
          const before = JSON.stringify(expected);
          expected = mergePatch(expected, patch);
          version += version === 0 || !Bun.deepEquals(JSON.parse(before), expected, true) ? 1 : 0;
          const answer = await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as, body: sent });
          expect(answer.status).toBe(200);
          const { ltc } = v.parse(UserBody, answer.body).user;
          expect<unknown>(ltc.lifetimeCare ?? {}).toEqual(expected);
          expect(answer.headers.get('etag')).toEndWith(`-${version}"`);
        }
      }),
      { numRuns: 150 },
    );
  });
});
