import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { coverages, issueAges, priceApplication } from '../../src/carrier-sandbox/tariff';
import { stateCodes } from '../../src/shared/states';

const prices = (ageYears: number, gender: 'Male' | 'Female', state = 'VA', coverage = 500_000) =>
  priceApplication({ ageYears, gender, state }, coverage).map(({ terms }) => terms[0]?.price);

describe('tariff', () => {
  test.each([
    [30, 'Male', [25.74, 28.6, 34.32, 42.9, 54.34]],
    [30, 'Female', [21.74, 24.02, 28.6, 35.46, 44.62]],
    [45, 'Male', [48.43, 58.85, 75.19, 100.15, 134.05]],
    [45, 'Female', [39.89, 48.23, 61.29, 81.27, 108.38]],
    [65, 'Male', [291.42, 431.62, 544.88]],
    [65, 'Female', [211.43, 312.37, 393.91]],
    [70, 'Male', [486.2, 726.44]],
    [70, 'Female', [351.67, 524.64]],
  ] as const)('equals the published prices at age %i for %s', (age, gender, expected) => {
    expect(prices(age, gender)).toEqual([...expected]);
  });

  test('has equal prices for men and women in Montana', () => {
    expect(prices(45, 'Male', 'MT')).toEqual(prices(45, 'Female', 'MT'));
    expect(priceApplication({ ageYears: 80, gender: 'Male', state: 'MT' })).toEqual(
      priceApplication({ ageYears: 80, gender: 'Female', state: 'MT' }),
    );
  });

  test('never decreases with age, term or coverage', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: issueAges.min, max: 75 }),
        fc.constantFrom('Male' as const, 'Female' as const),
        fc.constantFrom(...stateCodes),
        fc.nat(coverages.length - 1),
        (age, gender, state, size) => {
          const coverage = coverages[size] ?? 0;
          const now = prices(age, gender, state, coverage);
          for (const [index, price] of now.entries()) {
            expect(price).toBeGreaterThan(now[index - 1] ?? 0);
            expect(prices(age - 1, gender, state, coverage)[index] ?? 0).toBeLessThanOrEqual(price ?? 0);
            const larger = coverages[size + 1];
            if (larger !== undefined) expect(prices(age, gender, state, larger)[index]).toBeGreaterThan(price ?? 0);
          }
        },
      ),
      { numRuns: 1000 },
    );
  });

  test('returns one entry for each term length within its issue ages, from 18 to 90 in every state', () => {
    const years = { 10: 75, 15: 70, 20: 65, 25: 60, 30: 55 };
    for (let age = issueAges.min; age <= issueAges.max; age += 1) {
      for (const state of stateCodes) {
        const pricing = priceApplication({ ageYears: age, gender: 'Female', state });
        const expected = Object.entries(years)
          .filter(([, toAge]) => age <= toAge)
          .map(([term]) => Number(term));
        expect(pricing.map(({ terms }) => terms[0]?.years)).toEqual(age > 75 ? [121 - age] : expected);
        for (const { terms } of pricing) {
          expect(terms).toHaveLength(1);
          expect(JSON.stringify(terms[0]?.price)).toMatch(/^\d+(\.\d{1,2})?$/);
        }
      }
    }
    expect(issueAges).toEqual({ min: 18, max: 90 });
  });

  test('omits a rider above its issue age', () => {
    const riders = (ageYears: number) =>
      priceApplication({ ageYears, gender: 'Male', state: 'VA' })[0]?.terms[0]?.riders.map(({ type }) => type);
    expect(riders(60)).toEqual(['ACCELERATED_DEATH_BENEFIT', 'WAIVER_OF_PREMIUM', 'ACCIDENTAL_DEATH', 'CHILD_TERM']);
    expect(riders(61)).toEqual(['ACCELERATED_DEATH_BENEFIT', 'ACCIDENTAL_DEATH']);
    expect(riders(66)).toEqual(['ACCELERATED_DEATH_BENEFIT']);
    expect(riders(90)).toEqual(['ACCELERATED_DEATH_BENEFIT']);
  });
});
