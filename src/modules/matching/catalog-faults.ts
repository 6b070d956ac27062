import * as v from 'valibot';
import { findFieldErrors } from '../../field-errors';
import { Catalog } from './catalog-model';

export type ParsedCatalog =
  | { readonly catalog: Catalog; readonly faults?: undefined }
  | { readonly catalog?: undefined; readonly faults: readonly string[] };

/** How deep a file may be nested: far deeper than any condition that a person would write. */
const maxDepth = 32;
const maxRulesInAll = 50_000;

/** Reads a catalogue; every fault names the product and the rule, or the condition, that has it. */
export function parseCatalog(value: unknown): ParsedCatalog {
  if (isDeeperThan(value, maxDepth)) return { faults: [`the file is nested deeper than ${maxDepth} levels`] };
  const parsed = v.safeParse(Catalog, value, { abortPipeEarly: true });
  if (!parsed.success) {
    const errors = findFieldErrors(Catalog, parsed.issues, 'pointer');
    return { faults: errors.map(({ pointer, message }) => `${placeOf(value, pointer)} ${message}`) };
  }
  const faults = findContradictions(parsed.output);
  return faults.length > 0 ? { faults } : { catalog: parsed.output };
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((member) => isDeeperThan(member, levels - 1));
}

/** What each part alone cannot show: names given twice, and codes that nothing explains. */
function findContradictions({ conditions, products }: Catalog): string[] {
  const codes = new Set(conditions.map(({ code }) => code));
  const rules = products.reduce((count, product) => count + product.rules.length, 0);
  return [
    ...(rules > maxRulesInAll
      ? [`the file has ${rules} rules; ${maxRulesInAll} are the most that is matched in time`]
      : []),
    ...repeated(conditions.map(({ code }) => code)).map((code) => `condition ${code} is there twice`),
    ...repeated(products.map(({ id }) => id)).map((id) => `product ${id} is there twice`),
    ...products.flatMap(({ id, disqualifiers, rules }) => [
      ...repeated(rules.map((rule) => rule.id)).map((rule) => `product ${id}, rule ${rule} is there twice`),
      ...repeated(disqualifiers).map((code) => `product ${id}, disqualifier ${code} is there twice`),
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

/** `/products/3/rules/0/when/fact` as `product 12, rule wants-a-legacy, when.fact`, as far as the ids are there. */
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
