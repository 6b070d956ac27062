import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import type { Answers } from '../../../src/modules/answers/sections';
import { parseCatalog } from '../../../src/modules/matching/catalog-check';
import { readShippedCatalog, shippedFile } from '../../../src/modules/matching/catalog-model';
import { deriveFacts, factNames } from '../../../src/modules/matching/facts';
import { compileCatalog, match, penaltyOf, type StoredProduct } from '../../../src/modules/matching/match';

const shippedCatalog = readShippedCatalog();
const products: StoredProduct[] = shippedCatalog.products.map((product, position) => ({
  ...product,
  position,
  isActive: product.active,
  rules: product.rules.map((rule) => ({
    ...rule,
    textList: rule.list,
    pointsHundredths: Math.round(rule.points * 100),
  })),
}));
const catalog = compileCatalog({
  version: 1,
  penaltyHundredths: penaltyOf(products),
  conditions: shippedCatalog.conditions,
  products,
});

const unanswered = { profile: null, ltcLifetimeCare: null, lifeInsurance: null, lifetimeCare: null };
const matchOf = (answers: Partial<Answers>) => {
  const matches = match(deriveFacts({ ...unanswered, ...answers }, '2026-03-10'), catalog, true);
  const all = [...(matches.bestMatch === null ? [] : [matches.bestMatch]), ...matches.remainingMatches];
  return { ...matches, all, place: (id: number) => all.findIndex((each) => each.id === id) };
};

const contractCodes = ['seriousIllness', 'inCare', 'obese', 'ageBetween65To69', 'ageBetween70To79', 'age80Plus'];

/** The contract's disqualifier codes that apply to a person, over all products. */
const codesHeld = (answers: Partial<Answers>) =>
  [...new Set(matchOf(answers).all.flatMap(({ explanation }) => explanation?.disqualifiersHeld ?? []))]
    .filter((code) => contractCodes.includes(code))
    .sort();

const termLife = [6, 7, 14];
const [hybrid, finalExpense, guaranteedIssue, medicalAnnuity] = [1, 8, 9, 12];

describe('shipped catalogue', () => {
  test('passes the import validation and has at least 12 products', () => {
    expect(parseCatalog(JSON.parse(JSON.stringify(shippedCatalog))).errors).toBeUndefined();
    expect(products.length).toBeGreaterThanOrEqual(12);
  });

  test('parses to the same JSON as its file, so both have the same content hash', () => {
    expect(JSON.stringify(shippedFile)).toBe(JSON.stringify(shippedCatalog));
  });

  test('defines and uses every disqualifier code of the contract', () => {
    const codes = shippedCatalog.conditions.map(({ code }) => code);
    expect(codes.slice(0, 6)).toEqual(contractCodes);
    expect(new Set(products.flatMap(({ disqualifiers }) => disqualifiers))).toEqual(new Set(codes));
  });

  test('has rules on answers of every flow', () => {
    const read = JSON.stringify(shippedCatalog);
    const flows = ['age', 'seriousIllness', 'ltc.lifetimeCare.', 'lifeInsurance.', 'lifetimeCare.'];
    for (const flow of flows) expect(read).toContain(`"fact":"${flow}`);
    expect(factNames.length).toBeGreaterThan(20);
  });

  test('matches all products without disqualifiers when there are no answers', () => {
    const { all } = matchOf({});
    expect(all).toHaveLength(products.length);
    expect(codesHeld({})).toEqual([]);
    for (const { highlights } of all) expect(highlights).not.toBeEmpty();
  });

  test('repeats no text within a product', () => {
    for (const { rules } of products) {
      const texts = rules.map(({ text }) => text);
      expect(new Set(texts).size).toBe(texts.length);
    }
  });
});

describe('disqualifiers of the shipped catalogue', () => {
  test.each<[dateOfBirth: string, codes: string[]]>([
    ['1961-03-11', []],
    ['1961-03-10', ['ageBetween65To69']],
    ['1956-03-11', ['ageBetween65To69']],
    ['1956-03-10', ['ageBetween70To79']],
    ['1946-03-11', ['ageBetween70To79']],
    ['1946-03-10', ['age80Plus']],
    ['1925-03-10', ['age80Plus']],
  ])('by age, born on %s: %j', (dateOfBirth, codes) => {
    expect(codesHeld({ profile: { dateOfBirth, seriousIllness: false } })).toEqual(codes);
  });

  test.each([
    [29.95, []],
    [30, ['obese']],
    [30.05, ['obese']],
    [undefined, []],
  ])('by body mass index, at 100 cm and %p kg: %j', (weightKg, codes) => {
    expect(codesHeld({ profile: { heightCm: 100, ...(weightKg && { weightKg }) } })).toEqual(codes);
  });
});

describe('shipped rules, checked against the judgement of a licensed agent', () => {
  test('serious illness raises a medically underwritten annuity and disqualifies term life', () => {
    const before = matchOf({ profile: { dateOfBirth: '1950-01-01' } });
    const after = matchOf({ profile: { dateOfBirth: '1950-01-01', seriousIllness: true } });
    const score = (matches: typeof before) => matches.all.find(({ id }) => id === medicalAnnuity)?.score ?? 0;
    expect(score(after)).toBeGreaterThan(score(before));
    for (const id of termLife) expect(after.all[after.place(id)]?.score).toBeLessThan(0);
  });

  const bornIn = (year: number, health: Answers['profile'] = {}) => ({ dateOfBirth: `${year}-01-01`, ...health });
  const wishes = {
    ...{ relationshipStatus: ['married' as const], policyValue: 150_000, careCosts: 6000 },
    insuranceCover: ['leavingForFamily' as const],
  };
  test.each<[best: string, expected: number[], person: string, answers: Partial<Answers>]>([
    [
      'final expense',
      [finalExpense],
      'a person of 50 with a funeral wish and a small budget',
      { profile: bornIn(1976), ltcLifetimeCare: { insuranceCover: ['payingFuneral'], policyValue: 5000 } },
    ],
    [
      'a product that accepts people in care',
      [guaranteedIssue, medicalAnnuity, 13],
      'a person of 72 in care',
      { profile: bornIn(1954, { inCare: true, seriousIllness: true }) },
    ],
    [
      'hybrid',
      [hybrid],
      'a couple with savings, a legacy wish and dementia in the family',
      { profile: bornIn(1964), ltcLifetimeCare: wishes, lifetimeCare: { familyHistory: ['dementia'] } },
    ],
    [
      'term life',
      termLife,
      'a parent of 40 with an income and a mortgage',
      {
        profile: bornIn(1986),
        ltcLifetimeCare: { insuranceCover: ['replaceMyIncome'], propertyStatus: ['ownedByBank'] },
        lifeInsurance: { billsAndDebt: ['mortgage'], policySupport: { selections: [{ id: 0, title: 'My children' }] } },
      },
    ],
    [
      'no product with a single premium',
      [2, 3, 4, 6, 7, 8, 9, 13, 14],
      'a person in care without savings',
      {
        profile: bornIn(1956, { seriousIllness: true, inCare: true }),
        ltcLifetimeCare: { policyValue: 0, careCosts: 6000 },
      },
    ],
  ])('%s (%j) is the best match of %s', (_, expected, __, answers) => {
    expect(expected).toContain(matchOf(answers).bestMatch?.id ?? 0);
  });

  test('an eligible best match meets the age and health limits of its product for all answers', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1906, max: 2025 }),
        fc.record({ seriousIllness: fc.boolean(), inCare: fc.boolean(), tobacco: fc.boolean() }, { requiredKeys: [] }),
        fc.record(
          {
            policyValue: fc.constantFrom(0, 5000, 30_000, 200_000),
            insuranceCover: fc.subarray([
              'payingFuneral',
              'unpaidBills',
              'replaceMyIncome',
              'leavingForFamily',
            ] as const),
          },
          { requiredKeys: [] },
        ),
        (year, health, wishes) => {
          const { bestMatch, all } = matchOf({
            profile: { dateOfBirth: `${year}-01-01`, ...health },
            ltcLifetimeCare: wishes,
          });
          if (bestMatch?.isEligible !== true) {
            for (const { isEligible } of all) expect(isEligible).toBeFalse();
            return;
          }
          const met = (bestMatch?.explanation?.rules ?? []).filter(({ outcome }) => outcome === 'met');
          expect(met.map(({ text }) => text).filter((text) => /^Issued (from|to) age|^Not offered/.test(text))).toEqual(
            [],
          );
        },
      ),
      { numRuns: 1000 },
    );
  });

  test.each([
    [6, 18, 64],
    [7, 18, 75],
    [8, 50, 85],
    [9, 50, 85],
    [13, 50, 85],
    [11, 40, 120],
    [12, 60, 120],
    [14, 18, 69],
    [1, 35, 79],
    [2, 40, 79],
    [3, 40, 79],
    [4, 18, 79],
    [5, 45, 79],
    [10, 60, 79],
  ])('product %i is sold from %i to %i years', (id, from, to) => {
    const isSold = (age: number) => {
      const dateOfBirth = `${2026 - age}-01-01`;
      return (
        matchOf({ profile: { dateOfBirth } }).all.find((each) => each.id === id)?.explanation?.disqualifiersHeld
          .length === 0
      );
    };
    expect([from - 1, from, to, to + 1].filter((age) => age <= 120).map(isSold)).toEqual(
      [false, true, true, false].slice(0, to === 120 ? 3 : 4),
    );
  });
});
