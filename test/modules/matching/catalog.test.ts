import { describe, expect, test } from 'bun:test';
import Ajv2020 from 'ajv/dist/2020';
import * as v from 'valibot';
import { openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { catalogJsonSchema, diffCatalogs, parseCatalog } from '../../../src/modules/matching/catalog-check';
import { Catalog, readShippedCatalog } from '../../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../../src/modules/matching/catalog-store';
import { toCatalog } from '../../../src/modules/matching/match';
import { createUserStore } from '../../../src/modules/users/store';
import { seedCatalog } from '../../../src/seed';
import { temporaryDatabase } from '../../support/database';
import { isLong, never } from '../../support/resources';
import { hasSqld, startSqld } from '../../support/servers';

const rule = { id: 'wants', when: { fact: 'age', atLeast: 5 }, points: 1, list: 'highlights', text: 'T', reason: 'R' };
const product = {
  ...{ id: 12, productName: 'P', productWrapper: 'W', productIcon: '/icons/hybrid.svg' },
  ...{ disqualifiers: ['old'], rules: [rule] },
};
const old = { code: 'old', when: { fact: 'age', atLeast: 80 } };
const file = { conditions: [old], products: [product] };
const withProduct = (change: object) => ({ ...file, products: [{ ...product, ...change }] });
const withRule = (change: object) => withProduct({ rules: [{ ...rule, ...change }] });

function parsed(value: unknown): Catalog {
  const { catalog, errors } = parseCatalog(value);
  if (catalog === undefined) throw new Error(errors.join('\n'));
  return catalog;
}

function faultsOf(value: unknown): string {
  const { catalog, errors = [] } = parseCatalog(value);
  expect(catalog).toBeUndefined();
  return errors.join('\n');
}

function nested(levels: number): object {
  let condition: object = { fact: 'age', atLeast: 5 };
  for (let level = 0; level < levels; level += 1) condition = { not: condition };
  return condition;
}

describe('parseCatalog', () => {
  test.each([file, { ...file, $schema: './catalog.schema.json' }])('accepts a valid catalogue: %j', (valid) => {
    expect(parseCatalog(valid).errors).toBeUndefined();
  });

  test.each<[change: object, fault: string]>([
    [{ when: { fact: 'shoeSize', atLeast: 5 } }, 'when.fact "shoeSize" is not a fact; the facts are age, bmi'],
    [{ when: { all: [{ not: { fact: 'x', is: true } }] } }, 'when.all.0.not.fact "x" is not a fact'],
    [{ when: { fact: 'age', atleast: 5 } }, 'when.atleast is not a known field; did you mean atLeast?'],
    [{ when: { fact: 'age' } }, 'when must have exactly one of atLeast'],
    [{ when: { fact: 'age', atLeast: 5, below: 9 } }, 'when must have exactly one of'],
    [{ when: { fact: 'age', includes: 'x' } }, 'includes cannot be used on age: use atLeast, atMost, above, below'],
    [{ when: { fact: 'age', is: 65 } }, 'when.is must be a text, true or false'],
    [{ when: { fact: 'tobacco', is: 'yes' } }, 'tobacco is true or false'],
    [{ when: { fact: 'gender', is: true } }, 'gender is a text'],
    [
      { when: { fact: 'lifeInsurance.billsAndDebt', includes: 'morgage' } },
      'morgage is no answer to lifeInsurance.billsAndDebt: those are medical, mortgage',
    ],
    [{ when: 'always' }, 'when must be an object'],
    [{ points: 1.005 }, 'points must have at most two decimals'],
    [{ points: 1e-9 }, 'points must have at most two decimals'],
    [{ list: 'highlight' }, 'list must be one of highlights, objectives, negatives'],
    [{ reason: '' }, 'reason must have at least 1 character'],
    [{ weight: 1 }, 'weight is not a known field'],
  ])('names the product, the rule and the field of a rule with %j', (change, fault) => {
    const faults = faultsOf(withRule(change));
    expect(faults).toStartWith('product 12, rule wants, ');
    expect(faults).toContain(fault);
  });

  test.each<[change: object, fault: string]>([
    [{ productName: undefined }, 'product 12, productName'],
    [{ id: 'x' }, 'product x, id must be a number'],
    [{ id: 2 ** 53 }, 'id must be a whole number below 2^53'],
    [{ rules: [rule, rule] }, 'product 12, rule wants is duplicated'],
    [{ disqualifiers: ['old', 'old'] }, 'product 12, disqualifier old is duplicated'],
    [{ disqualifiers: ['young'] }, 'product 12, disqualifier young has no condition'],
    [{ productIcon: 'javascript:alert(1)' }, 'product 12, productIcon must be an http'],
  ])('names the product and the field of a product with %j', (change, fault) => {
    expect(faultsOf(withProduct(change))).toContain(fault);
  });

  test.each<[name: string, value: unknown, fault: string]>([
    [
      'a condition with an unknown fact',
      { ...file, conditions: [{ code: 'old', when: { fact: 'agee', atLeast: 1 } }] },
      'condition old, when.fact "agee" is not a fact; did you mean age?',
    ],
    [
      '51,000 rules',
      { ...file, products: Array(51).fill({ ...product, rules: Array(1000).fill(rule) }) },
      'the file has 51000 rules; the maximum is 50000',
    ],
    ['a product twice', { ...file, products: [product, product] }, 'product 12 is duplicated'],
    ['a condition twice', { ...file, conditions: [old, old] }, 'condition old is duplicated'],
    ['no product', { ...file, products: [] }, 'products must have at least 1 item'],
    ['4,000 levels', withRule({ when: nested(4000) }), 'the file is nested deeper than 32 levels'],
    ['an array', [], 'conditions is required'],
    ['a text', 'x', 'the file must be a JSON object'],
  ])('rejects a file with %s', (_, value, fault) => {
    expect(faultsOf(value)).toContain(fault);
  });

  const text = (length: number) => 'a'.repeat(length);
  const many = <Item>(count: number, make: (index: number) => Item) =>
    Array.from({ length: count }, (_, at) => make(at));
  const codes = (count: number) => many(count, (at) => `code${at}`);
  test.each<[what: string, max: number, make: (size: number) => unknown]>([
    ['characters of a text', 500, (size) => withRule({ text: text(size) })],
    ['characters of a reason', 1000, (size) => withRule({ reason: text(size) })],
    ['characters of a name', 200, (size) => withProduct({ productName: text(size) })],
    ['characters of a display name', 200, (size) => withProduct({ productWrapper: text(size) })],
    ['characters of an icon', 2000, (size) => withProduct({ productIcon: text(size) })],
    ['points', 10_000, (size) => withRule({ points: size })],
    ['negative points', 10_000, (size) => withRule({ points: -size })],
    ['in a comparison', 1e12, (size) => withRule({ when: { fact: 'age', atLeast: size } })],
    ['below zero in a comparison', 1e12, (size) => withRule({ when: { fact: 'age', atLeast: -size } })],
    ['operands', 100, (size) => withRule({ when: { fact: 'state', isOneOf: Array(size).fill('VA') } })],
    ['conditions in one', 100, (size) => withRule({ when: { all: Array(size).fill(rule.when) } })],
    ['levels of a condition', 26, (size) => withRule({ when: nested(size) })],
    ['rules', 1000, (size) => withProduct({ rules: many(size, (at) => ({ ...rule, id: `rule-${at}` })) })],
    [
      'conditions',
      1000,
      (size) => ({ ...file, conditions: [old, ...codes(size - 1).map((code) => ({ ...old, code }))] }),
    ],
    [
      'disqualifiers',
      100,
      (size) => ({
        ...withProduct({ disqualifiers: codes(size) }),
        conditions: codes(101).map((code) => ({ ...old, code })),
      }),
    ],
  ])('accepts %s up to %i and no more', (_, max, make) => {
    expect(parseCatalog(make(max)).errors).toBeUndefined();
    expect(faultsOf(make(max + 1))).not.toBe('');
  });

  test.each([
    ...['\\\\host\\x', '/\\host/x', '\\/host/x', '//host/x', '/\t/host/x', '/\n/host/x', 'not a url', 'https://'],
    ...['icons/\u0000x.svg', 'icons/\u007fx.svg', 'icons/\u202ex.svg', 'https:host/x.svg', 'https:/host/x.svg'],
    ...['https:///host/x.svg', 'https:\\\\host\\x.svg', 'https://user@host.example/x.svg', 'https://@host.example/x'],
    ...['https://user:secret@host.example/x.svg', 'HTTPS://user@host.example/x.svg', 'ftp://host.example/x.svg'],
    ...['javascript:alert(1)', 'java\tscript:alert(1)', 'data:image/svg+xml,x', 'file:///etc/passwd', 'blob:https://x'],
  ])('rejects the icon %j', (productIcon) => {
    expect(faultsOf(withProduct({ productIcon }))).toContain('productIcon must ');
  });

  test.each([
    ...['/icons/hybrid.svg', 'icons/x.svg', './x.svg', 'x@2x.svg', '/a//b.svg', 'https://host.example/x@2x.svg'],
    ...['https://host.example/x.svg?size=2#part', 'http://host.example:8080/x.svg', 'HTTPS://host.example/x.svg'],
    'https://host.example',
  ])('accepts the icon %j', (productIcon) => {
    expect(parseCatalog(withProduct({ productIcon })).errors).toBeUndefined();
  });
});

describe('catalogJsonSchema', () => {
  const validate = new Ajv2020({ strict: false }).compile(catalogJsonSchema());

  test('accepts the shipped catalogue and a minimal one', () => {
    for (const valid of [JSON.parse(JSON.stringify(readShippedCatalog())), file]) {
      expect(validate(valid) ? [] : validate.errors).toEqual([]);
    }
  });

  test.each([
    withRule({ when: { fact: 'shoeSize', atLeast: 5 } }),
    withRule({ when: { fact: 'age', atleast: 5 } }),
    withRule({ when: { all: [{ not: { fact: 'x', is: true } }] } }),
    withRule({ list: 'highlight' }),
    withProduct({ productName: undefined }),
  ])('rejects %j', (invalid) => {
    expect(validate(JSON.parse(JSON.stringify(invalid)))).toBeFalse();
  });
});

describe('diffCatalogs', () => {
  const another = { ...product, id: 13 };
  const rules = [rule, { ...rule, id: 'other' }];

  test.each<[before: unknown, after: unknown, lines: string[]]>([
    [file, file, []],
    [file, withRule({ points: 2 }), ['  product 12, rule wants: points 1 -> 2']],
    [file, withProduct({ rules: [] }), ['- product 12, rule wants']],
    [file, withProduct({ active: false }), ['  product 12: active true -> false']],
    [file, { ...file, products: [another, product] }, ['+ product 13']],
    [
      { ...file, products: [product, another] },
      { ...file, products: [another, product] },
      ['  the order of the products'],
    ],
    [withProduct({ rules }), withProduct({ rules: rules.toReversed() }), ['  product 12: the order of the rules']],
  ])('returns one line for each change, from %j to %j', (before, after, lines) => {
    expect(diffCatalogs(parsed(before), parsed(after))).toEqual(lines);
  });
});

describe('the catalogue store', () => {
  const catalog = parsed(file);
  const by = { source: 'imported', contentHash: 'other', now: new Date(0) } as const;

  test('stores a shipped catalogue once when seeds run in parallel, and never after an import', async () => {
    const store = createCatalogStore((await temporaryDatabase()).db);
    const add = (contentHash: string) => store.add(catalog, { ...by, source: 'shipped', contentHash });
    const sources = async () => (await store.listVersions()).map(({ source }) => source);
    const added = await Promise.all([add('new'), add('new'), add('new')]);
    expect(added.filter((id) => id !== undefined)).toHaveLength(1);
    expect(await add('new')).toBeUndefined();
    await seedCatalog(store, by.now);
    expect(await sources()).toEqual(['shipped', 'shipped']);
    await store.add(catalog, by);
    expect(await add('newer')).toBeUndefined();
    expect(await sources()).toEqual(['shipped', 'shipped', 'imported']);
  });

  test('ignores a version whose import is incomplete, and removes it in an import more than an hour later', async () => {
    const { db } = await temporaryDatabase();
    const store = createCatalogStore(db);
    await store.add(catalog, by);
    const first = await store.find(1);
    await db.$client.execute('UPDATE catalog_versions SET is_complete = 0 WHERE id = 2');
    expect(await store.findLatestVersion()).toMatchObject({ id: 1 });
    expect(await store.find(2)).toBeUndefined();
    const storedAfterAdd = async (now: number) => {
      await store.add(catalog, { ...by, now: new Date(now) });
      const { rows } = await db.$client.execute('SELECT DISTINCT catalog_version FROM products ORDER BY 1');
      return rows.map((row) => row[0]);
    };
    expect(await storedAfterAdd(3_600_000)).toEqual([1, 2, 3]);
    expect(await storedAfterAdd(3_600_001)).toEqual([1, 3, 4]);
    expect(await store.find(1)).toEqual(first);
    expect(toCatalog((await store.find(4)) ?? never())).toEqual(catalog);
  });

  test('reads a catalogue of several pages whole, in its order', async () => {
    const store = createCatalogStore((await temporaryDatabase()).db);
    const large = parsed({
      conditions: [old, { ...old, code: 'aged' }],
      products: Array.from({ length: 1_001 }, (_, at) => ({ ...product, id: 2_000 - at })),
    });
    expect(toCatalog((await store.find((await store.add(large, by)) ?? 0)) ?? never())).toEqual(large);
  });

  test.skipIf(!hasSqld || !isLong)(
    'stores 10,000 products with 50,000 rules on a libSQL server during saves',
    async () => {
      const db = await openDatabase({ url: (await startSqld()).url, timeoutMs: 5000 });
      await migrateDatabase(db);
      const rules = Array.from({ length: 5 }, (_, index) => ({ ...rule, id: `rule-${index}`, text: 'T'.repeat(42) }));
      const products = Array.from({ length: 10_000 }, (_, id) => ({ ...product, id, rules }));
      const store = createCatalogStore(db);
      const users = createUserStore(db);
      let isAdded = false;
      let saves = 0;
      const adding = store.add(v.parse(Catalog, { ...file, products }), by).finally(() => {
        isAdded = true;
      });
      for (; !isAdded; saves += 1) {
        const patch = { heightCm: 100 + (saves % 2) };
        await users.saveSection({ userId: 'x', section: 'profile', patch, requestId: null, now: new Date() });
      }
      expect(await adding).toBe(1);
      expect(saves).toBeGreaterThan(10);
      expect((await store.find(1))?.products).toHaveLength(10_000);
      db.$client.close();
    },
    60_000,
  );
});
