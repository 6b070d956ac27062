import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { type Comparison, type Condition, compileCondition } from '../../../src/modules/matching/catalog-model';
import type { FactName, Facts, FactValue } from '../../../src/modules/matching/facts';
import {
  compileCatalog,
  match,
  penaltyOf,
  printMatches,
  rank,
  type StoredProduct,
  type StoredRule,
} from '../../../src/modules/matching/match';
import type { Matches } from '../../../src/modules/matching/model';

/** Few facts with few values, so that rules often apply. */
const factValues: Record<'age' | 'tobacco' | 'gender' | 'lifeInsurance.billsAndDebt', fc.Arbitrary<FactValue>> = {
  age: fc.integer({ min: 60, max: 85 }),
  tobacco: fc.boolean(),
  gender: fc.constantFrom('Male', 'Female'),
  'lifeInsurance.billsAndDebt': fc.subarray(['cc', 'auto']),
};

const names = ['age', 'tobacco', 'gender', 'lifeInsurance.billsAndDebt'] as const;

const person: fc.Arbitrary<Facts> = fc
  .record(factValues, { requiredKeys: [] })
  .map(
    (known) =>
      new Map<FactName, FactValue>(names.flatMap((name) => (known[name] === undefined ? [] : [[name, known[name]]]))),
  );

const comparison: fc.Arbitrary<Condition> = fc.oneof(
  fc.integer({ min: 60, max: 85 }).map((atLeast) => ({ fact: 'age' as const, atLeast })),
  fc.integer({ min: 60, max: 85 }).map((below) => ({ fact: 'age' as const, below })),
  fc.boolean().map((is) => ({ fact: 'tobacco' as const, is })),
  fc.constantFrom('Male', 'Female').map((is) => ({ fact: 'gender' as const, is })),
  fc.constantFrom('cc', 'auto').map((includes) => ({ fact: 'lifeInsurance.billsAndDebt' as const, includes })),
);
const condition: fc.Arbitrary<Condition> = fc.letrec<{ condition: Condition }>((tie) => ({
  condition: fc.oneof(
    { maxDepth: 3 },
    comparison,
    fc.array(tie('condition'), { maxLength: 3 }).map((all) => ({ all })),
    fc.array(tie('condition'), { maxLength: 3 }).map((any) => ({ any })),
    tie('condition').map((not) => ({ not })),
  ),
})).condition;

/** Includes quotes, control characters, other scripts and lone surrogates. */
const text = fc.oneof(
  fc.string({
    unit: fc.constantFrom('"', '\\', '\n', '\0', '\u007f', '\u0080', 'é', '\u2028', '\ud83d', '\ude00', '😀', '$&'),
  }),
  fc.string(),
);

const rule: fc.Arbitrary<Omit<StoredRule, 'id'>> = fc.record({
  when: condition,
  pointsHundredths: fc.oneof(fc.integer({ min: -1_000_000, max: 1_000_000 }), fc.constantFrom(0, 1, -1)),
  textList: fc.constantFrom('highlights', 'objectives', 'negatives'),
  text,
  reason: fc.constant('none'),
});
const codes = ['a', 'b'];

const catalog = fc
  .record({
    whens: fc.tuple(condition, condition),
    products: fc.array(
      fc.record({
        productName: text,
        productWrapper: text,
        productIcon: text,
        disqualifiers: fc.subarray(codes),
        rules: fc.array(rule, { maxLength: 5 }),
        isActive: fc.boolean(),
      }),
      { maxLength: 8 },
    ),
  })
  .map(({ whens, products }) => {
    const stored: StoredProduct[] = products.map((product, position) => ({
      ...product,
      id: 100 - position,
      position,
      rules: product.rules.map((each, index) => ({ ...each, id: `rule-${index}` })),
    }));
    return {
      version: 1,
      penaltyHundredths: penaltyOf(stored.filter(({ isActive }) => isActive)),
      conditions: whens.map((when, index) => ({ code: codes[index] ?? '', when })),
      products: stored,
    };
  });

const run = (property: Parameters<typeof fc.assert>[0]) => fc.assert(property, { numRuns: 300 });

const allOf = ({ bestMatch, remainingMatches }: Matches) => [
  ...(bestMatch === null ? [] : [bestMatch]),
  ...remainingMatches,
];

function shuffle<Item>(items: readonly Item[], seed: number): Item[] {
  return items
    .map((item, index) => ({ item, key: Bun.hash(`${seed}-${index}`) }))
    .sort((left, right) => (left.key < right.key ? -1 : 1))
    .map(({ item }) => item);
}

describe('match', () => {
  test('ranks every active product once, by score, with the best eligible product first', () => {
    run(
      fc.property(person, catalog, (facts, stored) => {
        const { bestMatch, remainingMatches } = match(facts, compileCatalog(stored), true);
        const all = allOf({ bestMatch, remainingMatches });
        const active = stored.products.filter(({ isActive }) => isActive).map(({ id }) => id);
        expect(all.map(({ id }) => id).sort()).toEqual(active.sort());
        for (const [index, { score }] of all.entries()) {
          expect(score).toBeLessThanOrEqual(all[index - 1]?.score ?? Number.POSITIVE_INFINITY);
        }
        expect(bestMatch === null).toBe(active.length === 0);
        for (const { explanation, isEligible } of all) {
          expect(isEligible).toBe(explanation?.disqualifiersHeld.length === 0);
        }
        const held = all.filter(({ explanation }) => explanation?.disqualifiersHeld.length);
        const eligible = all.filter(({ explanation }) => explanation?.disqualifiersHeld.length === 0);
        if (eligible.length > 0) expect(bestMatch?.isEligible).toBeTrue();
        const lowestEligible = Math.min(...eligible.map(({ score }) => score));
        for (const { score } of held) {
          expect(score).toBeLessThan(0);
          expect(score).toBeLessThan(lowestEligible);
        }
        for (const remaining of remainingMatches) expect(Array.isArray(remaining.negatives)).toBeTrue();
        expect(bestMatch ?? {}).not.toHaveProperty('negatives');
      }),
    );
  });

  test('returns scores that equal points plus penalty, with at most two decimals and never -0', () => {
    run(
      fc.property(person, catalog, (facts, stored) => {
        for (const { score, explanation } of allOf(match(facts, compileCatalog(stored), true))) {
          const points = (explanation?.rules ?? []).map((each) => Math.round(each.points * 100));
          const sum = points.reduce((left, right) => left + right, Math.round((explanation?.penalty ?? 0) * 100));
          expect(Math.round(score * 100)).toBe(sum);
          expect(JSON.stringify(score)).toMatch(/^-?\d+(\.\d{1,2})?$/);
          expect(Object.is(score, -0)).toBeFalse();
          for (const each of explanation?.rules ?? []) if (each.outcome !== 'met') expect(each.points).toBe(0);
        }
      }),
    );
  });

  test('returns identical bytes when repeated and when the rows are shuffled', () => {
    run(
      fc.property(person, catalog, fc.integer(), (facts, stored, seed) => {
        const once = JSON.stringify(match(facts, compileCatalog(stored)));
        expect(JSON.stringify(match(facts, compileCatalog(stored)))).toBe(once);
        const shuffled = {
          ...stored,
          products: shuffle(stored.products, seed),
          conditions: shuffle(stored.conditions, seed),
        };
        expect(JSON.stringify(match(facts, compileCatalog(shuffled)))).toBe(once);
        expect(JSON.stringify(match(new Map([...facts].reverse()), compileCatalog(stored)))).toBe(once);
      }),
    );
  });

  test('prints the same JSON as JSON.stringify, in ASCII, for a series of people', () => {
    run(
      fc.property(fc.array(person, { minLength: 1, maxLength: 5 }), catalog, (people, stored) => {
        const compiled = compileCatalog(stored);
        for (const facts of people) {
          const printed = printMatches(rank(facts, compiled));
          const inAscii = JSON.stringify(match(facts, compiled)).replace(
            /[^\0-\x7f]/g,
            (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
          );
          expect(printed).toBe(inAscii);
          expect(JSON.parse(printed)).toEqual(match(facts, compiled));
        }
      }),
    );
  });

  test('changes only unknown rules that read the new answer when an answer is added', () => {
    run(
      fc.property(person, catalog, fc.integer({ min: 60, max: 85 }), (facts, stored, age) => {
        const before = new Map(facts);
        before.delete('age');
        const after = new Map(before).set('age', age);
        const compiled = compileCatalog(stored);
        const outcomes = (known: Facts) =>
          new Map(allOf(match(known, compiled, true)).map(({ id, explanation }) => [id, explanation]));
        const [early, late] = [outcomes(before), outcomes(after)];
        for (const product of stored.products) {
          for (const [index, { when }] of product.rules.entries()) {
            const [was, is] = [early, late].map((each) => each.get(product.id)?.rules[index]?.outcome);
            if (!compileCondition(when).reads.has('age') || was !== 'unknown') expect(is).toBe(was);
          }
        }
      }),
    );
  });
});

describe('match of products with given points', () => {
  const ranked = (
    points: Readonly<Record<string, number>>,
    disqualified: string,
    placeOf = (index: number): [id: number, position: number] => [index, index],
  ) => {
    const products = Object.entries(points).map(([name, each], index) => {
      const [id, position] = placeOf(index);
      return {
        ...{ id, position, productName: name, productWrapper: '', productIcon: '', isActive: true },
        disqualifiers: [disqualified.includes(name) ? 'always' : 'never'],
        rules: [
          { ...always, id: 'base', pointsHundredths: each * 100, textList: 'negatives' as const, text: '', reason: '' },
        ],
      };
    });
    const conditions = [
      { code: 'always', ...always },
      { code: 'never', when: { any: [] } },
    ];
    const catalog = compileCatalog({ version: 1, penaltyHundredths: penaltyOf(products), conditions, products });
    return allOf(match(new Map(), catalog)).map(({ productName, score }) => `${productName} ${score}`);
  };
  const always = { when: { all: [] } };

  test.each([
    [{ A: 1, B: 3, C: 2 }, 'ABC', ['B -0.01', 'C -1.01', 'A -2.01']],
    [{ A: -50, B: 100 }, 'B', ['A -50', 'B -50.01']],
    [{ A: 5, B: 5 }, 'AB', ['A -0.01', 'B -0.01']],
  ])('ranks %j with the disqualified %j', (points, disqualified, expected) => {
    expect(ranked(points, disqualified)).toEqual(expected);
  });

  test('orders equal scores by catalogue position, then by id', () => {
    const ids = [30, 10, 20];
    const order = (position: (index: number) => number) =>
      ranked({ A: 0, B: 0, C: 0 }, '', (index) => [ids[index] ?? 0, position(index)]);
    expect(order((index) => index)).toEqual(['A 0', 'B 0', 'C 0']);
    expect(order((index) => 2 - index)).toEqual(['C 0', 'B 0', 'A 0']);
    expect(order(() => 0)).toEqual(['B 0', 'C 0', 'A 0']);
  });
});

const facts = (entries: readonly (readonly [FactName, FactValue])[]): Facts => new Map(entries);
const holds = (condition: Condition, known: Facts) => compileCondition(condition).holds(known);

const yes: Comparison = { fact: 'tobacco', is: true };
const no: Comparison = { fact: 'tobacco', is: false };
const open: Comparison = { fact: 'inCare', is: true };
const smoker = facts([['tobacco', true]]);

describe('compileCondition', () => {
  test.each<[name: string, condition: Condition, expected: boolean | undefined]>([
    ['all of nothing', { all: [] }, true],
    ['any of nothing', { any: [] }, false],
    ['true and true', { all: [yes, yes] }, true],
    ['true and false', { all: [yes, no] }, false],
    ['true and unknown', { all: [yes, open] }, undefined],
    ['false and unknown', { all: [no, open] }, false],
    ['unknown and false', { all: [open, no] }, false],
    ['true or unknown', { any: [yes, open] }, true],
    ['unknown or true', { any: [open, yes] }, true],
    ['false or unknown', { any: [no, open] }, undefined],
    ['false or false', { any: [no, no] }, false],
    ['not true', { not: yes }, false],
    ['not unknown', { not: open }, undefined],
    ['not (unknown and false)', { not: { all: [open, no] } }, true],
  ])('uses three-valued logic: %s', (_, condition, expected) => {
    expect(holds(condition, smoker)).toBe(expected);
  });

  test('lists every fact it reads once', () => {
    const { reads } = compileCondition({ all: [yes, { any: [no, open] }, { not: { fact: 'age', atLeast: 5 } }] });
    expect([...reads].sort()).toEqual(['age', 'inCare', 'tobacco']);
  });

  test.each<[comparison: Comparison, value: FactValue, expected: boolean]>([
    [{ fact: 'age', atLeast: 65 }, 64, false],
    [{ fact: 'age', atLeast: 65 }, 65, true],
    [{ fact: 'age', atMost: 65 }, 65, true],
    [{ fact: 'age', atMost: 65 }, 66, false],
    [{ fact: 'age', above: 65 }, 65, false],
    [{ fact: 'age', above: 65 }, 66, true],
    [{ fact: 'age', below: 65 }, 65, false],
    [{ fact: 'age', below: 65 }, 64, true],
    [{ fact: 'age', atLeast: 0 }, 0, true],
    [{ fact: 'gender', is: 'Male' }, 'Male', true],
    [{ fact: 'gender', is: 'Male' }, 'Female', false],
    [{ fact: 'tobacco', is: false }, false, true],
    [{ fact: 'tobacco', is: false }, true, false],
    [{ fact: 'state', isOneOf: ['NY', 'CA'] }, 'CA', true],
    [{ fact: 'state', isOneOf: ['NY', 'CA'] }, 'VA', false],
    [{ fact: 'lifeInsurance.billsAndDebt', includes: 'cc' }, ['auto', 'cc'], true],
    [{ fact: 'lifeInsurance.billsAndDebt', includes: 'cc' }, [], false],
    [{ fact: 'lifeInsurance.billsAndDebt', includesAnyOf: ['cc', 'other'] }, ['other'], true],
    [{ fact: 'lifeInsurance.billsAndDebt', includesAnyOf: ['cc', 'other'] }, ['auto'], false],
    [{ fact: 'lifeInsurance.billsAndDebt', isEmpty: true }, [], true],
    [{ fact: 'lifeInsurance.billsAndDebt', isEmpty: true }, ['cc'], false],
    [{ fact: 'lifeInsurance.billsAndDebt', isEmpty: false }, ['cc'], true],
  ])('compares %j with %j as %p', (comparison, value, expected) => {
    expect(holds(comparison, facts([[comparison.fact, value]]))).toBe(expected);
    expect(holds(comparison, facts([]))).toBeUndefined();
  });
});
