import { describe, expect, test } from 'bun:test';
import Ajv2020 from 'ajv/dist/2020';
import { catalogJsonSchema, diffCatalogs, parseCatalog } from '../../../src/modules/matching/catalog-check';
import { readShippedCatalog } from '../../../src/modules/matching/catalog-model';

const shippedCatalog = readShippedCatalog();
const rule = {
  id: 'wants-it',
  when: { fact: 'age', atLeast: 5 },
  points: 1,
  list: 'highlights',
  text: 'T',
  reason: 'R',
};
const product = {
  id: 12,
  productName: 'P',
  productWrapper: 'W',
  productIcon: '/icons/hybrid.svg',
  disqualifiers: ['old'],
  rules: [rule],
};
const old = { code: 'old', when: { fact: 'age', atLeast: 80 } };
const file = { conditions: [old], products: [product] };
const withRule = (change: object) => ({ ...file, products: [{ ...product, rules: [{ ...rule, ...change }] }] });
const withProduct = (change: object) => ({ ...file, products: [{ ...product, ...change }] });

function nested(levels: number): object {
  let condition: object = { fact: 'age', atLeast: 5 };
  for (let level = 0; level < levels; level += 1) condition = { not: condition };
  return condition;
}

const validate = new Ajv2020({ strict: false }).compile(catalogJsonSchema());

describe('parseCatalog', () => {
  test('accepts a valid catalogue', () => {
    expect(parseCatalog(file).errors).toBeUndefined();
    expect(parseCatalog({ ...file, $schema: './catalog.schema.json' }).errors).toBeUndefined();
    expect(parseCatalog(withProduct({ productIcon: 'icons/x.svg' })).errors).toBeUndefined();
    expect(parseCatalog(withProduct({ productIcon: 'https://x.example/a.svg' })).errors).toBeUndefined();
  });

  test.each<[name: string, value: unknown, fault: string]>([
    [
      'a fact that does not exist',
      withRule({ when: { fact: 'shoeSize', atLeast: 5 } }),
      'product 12, rule wants-it, when.fact "shoeSize" is not a fact; the facts are age, bmi',
    ],
    [
      'a deep fact that does not exist',
      withRule({ when: { all: [{ not: { fact: 'x', is: true } }] } }),
      'product 12, rule wants-it, when.all.0.not.fact "x" is not a fact',
    ],
    [
      'an operator that does not exist',
      withRule({ when: { fact: 'age', atleast: 5 } }),
      'product 12, rule wants-it, when.atleast is not a known field; did you mean atLeast?',
    ],
    [
      'no operator',
      withRule({ when: { fact: 'age' } }),
      'product 12, rule wants-it, when must have exactly one of atLeast',
    ],
    [
      'two operators',
      withRule({ when: { fact: 'age', atLeast: 5, below: 9 } }),
      'product 12, rule wants-it, when must have exactly one of',
    ],
    [
      'an operator for another kind',
      withRule({ when: { fact: 'age', includes: 'x' } }),
      'includes cannot be used on age: use atLeast, atMost, above, below',
    ],
    ['a text for true or false', withRule({ when: { fact: 'tobacco', is: 'yes' } }), 'tobacco is true or false'],
    ['true for a text', withRule({ when: { fact: 'gender', is: true } }), 'gender is a text'],
    [
      'an answer outside the options',
      withRule({ when: { fact: 'lifeInsurance.billsAndDebt', includes: 'morgage' } }),
      'morgage is no answer to lifeInsurance.billsAndDebt: those are medical, mortgage',
    ],
    [
      'a condition that is not an object',
      withRule({ when: 'always' }),
      'product 12, rule wants-it, when must be an object',
    ],
    [
      'an invalid condition of a code',
      { ...file, conditions: [{ code: 'old', when: { fact: 'agee', atLeast: 1 } }] },
      'condition old, when.fact "agee" is not a fact; did you mean age?',
    ],
    [
      'points with three decimals',
      withRule({ points: 1.005 }),
      'product 12, rule wants-it, points must have at most two decimals',
    ],
    ['too many points', withRule({ points: 10_000.01 }), 'product 12, rule wants-it, points must be at most 10000'],
    [
      'an unknown list',
      withRule({ list: 'highlight' }),
      'product 12, rule wants-it, list must be one of highlights, objectives, negatives',
    ],
    ['no reason', withRule({ reason: '' }), 'product 12, rule wants-it, reason must have at least 1 character'],
    ['an unknown field', withRule({ weight: 1 }), 'product 12, rule wants-it, weight is not a known field'],
    ['a product without a name', withProduct({ productName: undefined }), 'product 12, productName'],
    ['a product without an id', withProduct({ id: 'x' }), 'product x, id must be a number'],
    ['an id of 2^53', withProduct({ id: 2 ** 53 }), 'id must be a whole number'],
    ['1,001 rules', withProduct({ rules: Array(1001).fill(rule) }), 'product 12, rules must have at most 1000 items'],
    ['a product twice', { ...file, products: [product, product] }, 'product 12 is duplicated'],
    ['a rule twice', withProduct({ rules: [rule, rule] }), 'product 12, rule wants-it is duplicated'],
    [
      'a disqualifier twice',
      withProduct({ disqualifiers: ['old', 'old'] }),
      'product 12, disqualifier old is duplicated',
    ],
    ['a condition twice', { ...file, conditions: [old, old] }, 'condition old is duplicated'],
    [
      'a code without a condition',
      withProduct({ disqualifiers: ['young'] }),
      'product 12, disqualifier young has no condition',
    ],
    ['a number for a text', withRule({ when: { fact: 'age', is: 65 } }), 'when.is must be a text, true or false'],
    ['points of 1e-9', withRule({ points: 1e-9 }), 'points must have at most two decimals'],
    ['no product', { ...file, products: [] }, 'products must have at least 1 item'],
    ['an icon that is not a URL', withProduct({ productIcon: 'not a url' }), 'product 12, productIcon must be an http'],
    [
      'an icon with a javascript: URL',
      withProduct({ productIcon: 'javascript:alert(1)' }),
      'productIcon must be an http',
    ],
    ['a protocol-relative icon URL', withProduct({ productIcon: '//x.example/a.svg' }), 'productIcon must be an http'],
    ['4,000 levels', withRule({ when: nested(4000) }), 'the file is nested deeper than 32 levels'],
    ['an array', [], 'conditions is required'],
    ['a text', 'x', 'the file must be a JSON object'],
  ])('rejects %s and names the product and the rule', (_, value, fault) => {
    const { catalog, errors = [] } = parseCatalog(value);
    expect(catalog).toBeUndefined();
    expect(errors.join('\n')).toContain(fault);
  });
});

describe('catalogue JSON Schema', () => {
  test('accepts the shipped catalogue and a minimal valid one', () => {
    for (const valid of [JSON.parse(JSON.stringify(shippedCatalog)), file]) {
      expect(validate(valid) ? [] : validate.errors).toEqual([]);
    }
  });

  test.each<[name: string, value: unknown]>([
    ['an unknown fact', withRule({ when: { fact: 'shoeSize', atLeast: 5 } })],
    ['an unknown operator', withRule({ when: { fact: 'age', atleast: 5 } })],
    ['a deep unknown fact', withRule({ when: { all: [{ not: { fact: 'x', is: true } }] } })],
    ['an unknown list', withRule({ list: 'highlight' })],
    ['a product without a name', withProduct({ productName: undefined })],
  ])('rejects %s', (_, value) => {
    expect(validate(JSON.parse(JSON.stringify(value)))).toBeFalse();
  });
});

describe('diffCatalogs', () => {
  const parsed = (value: unknown) => {
    const { catalog } = parseCatalog(value);
    if (catalog === undefined) throw new Error('Invalid catalogue');
    return catalog;
  };

  test('returns one line for each change and none for equal catalogues', () => {
    expect(diffCatalogs(parsed(file), parsed(file))).toEqual([]);
    expect(diffCatalogs(parsed(file), parsed(withRule({ points: 2 })))).toEqual([
      '  product 12, rule wants-it: points 1 -> 2',
    ]);
    expect(diffCatalogs(parsed(file), parsed(withProduct({ rules: [] })))).toEqual(['- product 12, rule wants-it']);
    const another = { ...product, id: 13 };
    expect(diffCatalogs(parsed(file), parsed({ ...file, products: [another, product] }))).toEqual(['+ product 13']);
    const both = (products: object[]) => parsed({ ...file, products });
    expect(diffCatalogs(both([product, another]), both([another, product]))).toEqual(['  the order of the products']);
    const rules = [rule, { ...rule, id: 'other' }];
    const inOrder = parsed(withProduct({ rules }));
    expect(diffCatalogs(inOrder, parsed(withProduct({ rules: rules.toReversed() })))).toEqual([
      '  product 12: the order of the rules',
    ]);
    expect(diffCatalogs(parsed(file), parsed(withProduct({ active: false })))).toEqual([
      '  product 12: active true -> false',
    ]);
  });
});
