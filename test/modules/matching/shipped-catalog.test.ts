import { describe, expect, test } from 'bun:test';
import { parseCatalog } from '../../../src/modules/matching/catalog-faults';
import { deriveFacts, factNames } from '../../../src/modules/matching/facts';
import { compileCatalog, match, penaltyOf, type StoredProduct } from '../../../src/modules/matching/match';
import { shippedCatalog } from '../../../src/modules/matching/shipped-catalog';
import type { Answers } from '../../../src/modules/users/store';

const today = '2026-03-10';
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

const matchOf = (answers: Partial<Answers>, on = today) => {
  const nobody = { profile: null, ltcLifetimeCare: null, lifeInsurance: null, lifetimeCare: null };
  const matches = match(deriveFacts({ ...nobody, ...answers }, on), catalog, true);
  const all = [...(matches.bestMatch === null ? [] : [matches.bestMatch]), ...matches.remainingMatches];
  return { ...matches, all, place: (id: number) => all.findIndex((each) => each.id === id) };
};

/** The codes that hold for a person, over all products. */
const codesHeld = (answers: Partial<Answers>, on = today) =>
  [...new Set(matchOf(answers, on).all.flatMap(({ explanation }) => explanation?.disqualifiersHeld ?? []))].sort();

const termLife = [6, 7, 14];
const [hybrid, finalExpense, guaranteedIssue, medicalAnnuity] = [1, 8, 9, 12];

describe('the shipped catalogue', () => {
  test('is a catalogue that an import takes, of at least 12 products', () => {
    const file = JSON.parse(JSON.stringify(shippedCatalog));
    expect(parseCatalog(file).faults).toBeUndefined();
    expect(products.length).toBeGreaterThanOrEqual(12);
  });

  test('has the codes of the contract, each with a condition and used', () => {
    const codes = shippedCatalog.conditions.map(({ code }) => code);
    expect(codes).toEqual(['seriousIllness', 'inCare', 'obese', 'ageBetween65To69', 'ageBetween70To79', 'age80Plus']);
    expect(new Set(products.flatMap(({ disqualifiers }) => disqualifiers))).toEqual(new Set(codes));
  });

  test('reads answers of every flow', () => {
    const read = JSON.stringify(shippedCatalog);
    const flows = ['age', 'seriousIllness', 'ltc.lifetimeCare.', 'lifeInsurance.', 'lifetimeCare.'];
    for (const flow of flows) expect(read).toContain(`"fact":"${flow}`);
    expect(factNames.length).toBeGreaterThan(20);
  });

  test('gives somebody without answers the full list and no disqualifier', () => {
    const { all, bestMatch } = matchOf({});
    expect(all).toHaveLength(products.length);
    expect(bestMatch).not.toBeNull();
    expect(codesHeld({})).toEqual([]);
    for (const { highlights } of all) expect(highlights).not.toBeEmpty();
  });

  test('holds every text once a product, so that no answer repeats itself', () => {
    for (const { rules } of products) {
      const texts = rules.map(({ text }) => text);
      expect(new Set(texts).size).toBe(texts.length);
    }
  });
});

describe('an age code', () => {
  test.each([
    ['the day before the 65th birthday', '1961-03-11', []],
    ['the 65th birthday', '1961-03-10', ['ageBetween65To69']],
    ['the day before the 70th birthday', '1956-03-11', ['ageBetween65To69']],
    ['the 70th birthday', '1956-03-10', ['ageBetween70To79']],
    ['the day before the 80th birthday', '1946-03-11', ['ageBetween70To79']],
    ['the 80th birthday', '1946-03-10', ['age80Plus']],
    ['101 years', '1925-03-10', ['age80Plus']],
  ])('on %s holds alone', (_, dateOfBirth, expected) => {
    expect(codesHeld({ profile: { dateOfBirth } })).toEqual(expected);
  });

  test.each([
    ['2025-02-28', []],
    ['2025-03-01', ['ageBetween65To69']],
  ])('for somebody born on 29 February 1960 comes on 1 March: %s', (on, expected) => {
    expect(codesHeld({ profile: { dateOfBirth: '1960-02-29' } }, on)).toEqual(expected);
  });

  test('needs a birth date', () => {
    expect(codesHeld({ profile: { gender: 'Female', seriousIllness: false } })).toEqual([]);
  });
});

describe('obese', () => {
  test.each([
    [29.95, []],
    [30, ['obese']],
    [30.05, ['obese']],
  ])('at a BMI of %p is %p', (weightKg, expected) => {
    expect(codesHeld({ profile: { heightCm: 100, weightKg } })).toEqual(expected);
  });

  test('needs a weight', () => {
    expect(codesHeld({ profile: { heightCm: 150 } })).toEqual([]);
  });
});

describe('a licensed agent would agree that', () => {
  test('a serious illness raises a medically underwritten annuity and disqualifies term life', () => {
    const before = matchOf({ profile: { dateOfBirth: '1950-01-01' } });
    const after = matchOf({ profile: { dateOfBirth: '1950-01-01', seriousIllness: true } });
    const score = (matches: typeof before) => matches.all.find(({ id }) => id === medicalAnnuity)?.score ?? 0;
    expect(score(after)).toBeGreaterThan(score(before));
    for (const id of termLife) expect(after.all[after.place(id)]?.score).toBeLessThan(0);
  });

  test('nobody of 81 is shown term life as the best, whatever the other answers', () => {
    const wishes: Partial<Answers>[] = [
      {},
      { ltcLifetimeCare: { insuranceCover: ['replaceMyIncome', 'unpaidBills'] } },
      { lifeInsurance: { billsAndDebt: ['mortgage', 'cc'], financialPriorities: ['unpaidBills'] } },
      { ltcLifetimeCare: { insuranceCover: ['replaceMyIncome'], propertyStatus: ['ownedByBank'], policyValue: 1000 } },
    ];
    for (const wish of wishes) {
      const { bestMatch } = matchOf({
        ...wish,
        profile: { dateOfBirth: '1945-01-01', seriousIllness: false, tobacco: false },
      });
      expect(termLife).not.toContain(bestMatch?.id ?? 0);
    }
  });

  test('somebody of 50 who wants a funeral paid and sets little aside sees final expense above hybrid', () => {
    const { place } = matchOf({
      profile: { dateOfBirth: '1976-01-01' },
      ltcLifetimeCare: { insuranceCover: ['payingFuneral'], policyValue: 5000 },
    });
    expect(place(finalExpense)).toBeLessThan(place(hybrid));
    expect(place(finalExpense)).toBe(0);
  });

  test('somebody of 72 in care is offered what accepts it', () => {
    const { bestMatch } = matchOf({ profile: { dateOfBirth: '1954-01-01', inCare: true, seriousIllness: true } });
    expect([guaranteedIssue, medicalAnnuity, 13]).toContain(bestMatch?.id ?? 0);
  });

  test('a couple with savings, a legacy and dementia in the family is offered the hybrid', () => {
    const { bestMatch } = matchOf({
      profile: { dateOfBirth: '1964-01-01' },
      ltcLifetimeCare: {
        relationshipStatus: ['married'],
        policyValue: 150_000,
        careCosts: 6000,
        insuranceCover: ['leavingForFamily'],
      },
      lifetimeCare: { familyHistory: ['dementia'] },
    });
    expect(bestMatch?.id).toBe(hybrid);
  });

  test('a parent of 40 with a mortgage who lives on an income is offered term life', () => {
    const { bestMatch } = matchOf({
      profile: { dateOfBirth: '1986-01-01' },
      ltcLifetimeCare: { insuranceCover: ['replaceMyIncome'], propertyStatus: ['ownedByBank'] },
      lifeInsurance: { billsAndDebt: ['mortgage'], policySupport: { selections: [{ id: 0, title: 'My children' }] } },
    });
    expect(termLife).toContain(bestMatch?.id ?? 0);
  });

  test('nobody below an issue age is offered a product as the best', () => {
    const { bestMatch } = matchOf({
      profile: { dateOfBirth: '2000-01-01' },
      ltcLifetimeCare: { insuranceCover: ['payingFuneral'], policyValue: 5000 },
    });
    expect([finalExpense, guaranteedIssue, medicalAnnuity, 13]).not.toContain(bestMatch?.id ?? 0);
  });
});

describe('50 products with 300 rules', () => {
  test('are matched often enough in a second that a match is far below a millisecond', () => {
    const many = Array.from({ length: 50 }, (_, index) => {
      const product = products[index % products.length] ?? products[0];
      if (product === undefined) throw new Error('No product');
      return { ...product, id: index, position: index, rules: product.rules.slice(0, 6) };
    });
    const large = compileCatalog({
      version: 1,
      penaltyHundredths: penaltyOf(many),
      conditions: shippedCatalog.conditions,
      products: many,
    });
    const facts = deriveFacts(
      {
        profile: { dateOfBirth: '1960-01-01', heightCm: 170, weightKg: 80 },
        ltcLifetimeCare: null,
        lifeInsurance: null,
        lifetimeCare: null,
      },
      today,
    );
    const deadline = performance.now() + 1000;
    let matches = 0;
    while (performance.now() < deadline && matches < 3000) {
      match(facts, large);
      matches += 1;
    }
    expect(matches).toBe(3000);
  });
});
