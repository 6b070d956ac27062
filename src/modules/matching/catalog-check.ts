import { toJsonSchema } from '@valibot/to-json-schema';
import * as v from 'valibot';
import { findFieldErrors } from '../../shared/field-errors';
import {
  AllOf,
  AnyOf,
  Catalog,
  CatalogCondition,
  CatalogProduct,
  CatalogRule,
  Comparison,
  Condition,
  Not,
} from './catalog-model';

/** One line for each difference, in the order of the later catalogue. */
export function diffCatalogs(before: Catalog, after: Catalog): string[] {
  return [
    ...diffLists(before.conditions, after.conditions, ({ code }) => `condition ${code}`, diffFields),
    ...diffLists(before.products, after.products, ({ id }) => `product ${id}`, diffProducts),
    ...reordered('the order of the products', idsOf(before.products), idsOf(after.products)),
  ];
}

function diffProducts(place: string, before: CatalogProduct, after: CatalogProduct): string[] {
  const { rules: rulesBefore, ...fieldsBefore } = before;
  const { rules: rulesAfter, ...fieldsAfter } = after;
  const ruleName = ({ id }: CatalogRule) => `${place}, rule ${id}`;
  return [
    ...diffFields(place, fieldsBefore, fieldsAfter),
    ...diffLists(rulesBefore, rulesAfter, ruleName, diffFields),
    ...reordered(`${place}: the order of the rules`, idsOf(rulesBefore), idsOf(rulesAfter)),
  ];
}

function idsOf(items: readonly { readonly id: unknown }[]): unknown[] {
  return items.map(({ id }) => id);
}

function diffLists<Item extends object>(
  before: readonly Item[],
  after: readonly Item[],
  nameOf: (item: Item) => string,
  diff: (name: string, before: Item, after: Item) => string[],
): string[] {
  const known = new Map(before.map((item) => [nameOf(item), item]));
  const kept = new Set(after.map(nameOf));
  return [
    ...after.flatMap((item) => {
      const name = nameOf(item);
      const earlier = known.get(name);
      return earlier === undefined ? [`+ ${name}`] : diff(name, earlier, item);
    }),
    ...[...known.keys()].filter((name) => !kept.has(name)).map((name) => `- ${name}`),
  ];
}

function diffFields(place: string, before: object, after: object): string[] {
  const earlier = new Map(Object.entries(before));
  return Object.entries(after)
    .filter(([name, value]) => !Bun.deepEquals(earlier.get(name), value))
    .map(([name, value]) => `  ${place}: ${name} ${JSON.stringify(earlier.get(name))} -> ${JSON.stringify(value)}`);
}

function reordered(place: string, before: readonly unknown[], after: readonly unknown[]): string[] {
  const [early, late] = [new Set(before), new Set(after)];
  const isSame = Bun.deepEquals(
    before.filter((id) => late.has(id)),
    after.filter((id) => early.has(id)),
  );
  return isSame ? [] : [`  ${place}`];
}

type ParsedCatalog =
  | { readonly catalog: Catalog; readonly errors?: undefined }
  | { readonly catalog?: undefined; readonly errors: readonly string[] };

/** Far above the depth of any real condition. */
const maxDepth = 32;
const maxRulesInAll = 50_000;

/** Validates a catalogue. Each error names its product and rule, or its condition. */
export function parseCatalog(value: unknown): ParsedCatalog {
  if (isDeeperThan(value, maxDepth)) return { errors: [`the file is nested deeper than ${maxDepth} levels`] };
  const parsed = v.safeParse(Catalog, value, { abortPipeEarly: true });
  if (!parsed.success) {
    const errors = findFieldErrors(Catalog, parsed.issues, 'pointer');
    return { errors: errors.map(({ pointer, message }) => `${placeOf(value, pointer)} ${message}`) };
  }
  const errors = findContradictions(parsed.output);
  return errors.length > 0 ? { errors } : { catalog: parsed.output };
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((member) => isDeeperThan(member, levels - 1));
}

/** Errors across parts: duplicate names, and codes without a condition. */
function findContradictions({ conditions, products }: Catalog): string[] {
  const codes = new Set(conditions.map(({ code }) => code));
  const rules = products.reduce((count, product) => count + product.rules.length, 0);
  return [
    ...(rules > maxRulesInAll ? [`the file has ${rules} rules; the maximum is ${maxRulesInAll}`] : []),
    ...repeated(conditions.map(({ code }) => code)).map((code) => `condition ${code} is duplicated`),
    ...repeated(products.map(({ id }) => id)).map((id) => `product ${id} is duplicated`),
    ...products.flatMap(({ id, disqualifiers, rules }) => [
      ...repeated(rules.map((rule) => rule.id)).map((rule) => `product ${id}, rule ${rule} is duplicated`),
      ...repeated(disqualifiers).map((code) => `product ${id}, disqualifier ${code} is duplicated`),
      ...disqualifiers
        .filter((code) => !codes.has(code))
        .map((code) => `product ${id}, disqualifier ${code} has no condition`),
    ]),
  ];
}

function repeated<Value>(values: readonly Value[]): Value[] {
  const seen = new Set<Value>();
  const twice = new Set<Value>();
  for (const value of values) {
    if (seen.has(value)) twice.add(value);
    seen.add(value);
  }
  return [...twice];
}

/** Turns `/products/3/rules/0/when/fact` into `product 12, rule wants-a-legacy, when.fact`. */
function placeOf(document: unknown, pointer: string): string {
  const names: string[] = [];
  let at = document;
  const keys = pointer.split('/').slice(1);
  while (keys.length > 0) {
    const [list, index] = keys;
    const label = list === undefined ? undefined : labels.get(list);
    if (label === undefined || index === undefined || !/^\d+$/.test(index)) break;
    keys.splice(0, 2);
    at = child(child(at, list), index);
    const id = child(at, label.id);
    names.push(
      `${label.name} ${typeof id === 'string' || typeof id === 'number' ? id : `number ${Number(index) + 1}`}`,
    );
  }
  if (keys.length > 0) names.push(keys.join('.'));
  return names.length === 0 ? 'the file' : names.join(', ');
}

const labels = new Map([
  ['products', { name: 'product', id: 'id' }],
  ['rules', { name: 'rule', id: 'id' }],
  ['conditions', { name: 'condition', id: 'code' }],
]);

function child(value: unknown, key: string | undefined): unknown {
  if (typeof value !== 'object' || value === null || key === undefined) return undefined;
  return Object.entries(value).find(([name]) => name === key)?.[1];
}

const definitions = { AllOf, AnyOf, CatalogCondition, CatalogProduct, CatalogRule, Comparison, Condition, Not };
const forms = ['Comparison', 'AllOf', 'AnyOf', 'Not'].map((name) => ({ $ref: `#/$defs/${name}` }));

/** The JSON Schema of a catalogue file, for editors. An import also checks across parts. */
export function catalogJsonSchema(): object {
  return toJsonSchema(Catalog, {
    target: 'draft-2020-12',
    typeMode: 'input',
    errorMode: 'ignore',
    definitions,
    // The conversion cannot see that the key of a condition selects its schema.
    overrideSchema: ({ valibotSchema }) => (valibotSchema === Condition ? { anyOf: forms } : undefined),
  });
}
