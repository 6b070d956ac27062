import type { Catalog, CatalogProduct, CatalogRule } from './catalog-model';

/** What an operator wants to see before and after: a line for each difference, in the order of the later catalogue. */
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
