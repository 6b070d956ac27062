import * as v from 'valibot';
import { line, twoDecimals, withoutInvisible } from '../../shared/fields';
import { Condition } from './conditions';
import catalog from './shipped-catalog.json' with { type: 'json' };

/** |points| of one rule, and rules of one product: together they keep every score a safe integer of hundredths. */
const maxPoints = 10_000;
const maxRules = 1_000;
const maxProducts = 10_000;

const textLists = ['highlights', 'objectives', 'negatives'] as const;
export type TextList = (typeof textLists)[number];

const ConditionCode = v.pipe(
  v.string(),
  v.regex(/^[a-zA-Z][a-zA-Z0-9]{0,63}$/, 'code: must be letters and digits, beginning with a letter'),
);

export const CatalogCondition = v.strictObject({
  code: v.pipe(ConditionCode, v.description('The code of a disqualifier')),
  when: v.pipe(Condition, v.description('When the disqualifier holds; an unknown condition does not hold')),
});

export const CatalogRule = v.strictObject({
  id: v.pipe(
    v.string(),
    v.regex(/^[a-z0-9][a-z0-9-]{0,63}$/, 'rule_id: must be lower-case letters, digits and hyphens'),
    v.description('Unique within the product'),
  ),
  when: Condition,
  points: v.pipe(
    v.number(),
    v.minValue(-maxPoints),
    v.maxValue(maxPoints),
    twoDecimals,
    v.description('Added to the score when the rule is met; at most two decimals'),
  ),
  list: v.pipe(v.picklist(textLists), v.description('Where the text goes when the rule is met')),
  text: line(500),
  reason: v.pipe(line(1000), v.description('Why a licensed agent would agree; for editors of the catalogue')),
});
export type CatalogRule = v.InferOutput<typeof CatalogRule>;

export const CatalogProduct = v.strictObject({
  id: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  productName: line(200, withoutInvisible),
  productWrapper: v.pipe(line(200, withoutInvisible), v.description('Display name of the packaged offering')),
  productIcon: v.pipe(
    line(2000),
    v.description('URL of an icon, by http or https; a relative one is on this service'),
    v.check(isIconAddress, 'icon: must be an http or https address, or a relative one'),
  ),
  active: v.optional(v.pipe(v.boolean(), v.description('Whether the product is offered')), true),
  disqualifiers: v.pipe(v.array(ConditionCode), v.maxLength(100)),
  rules: v.pipe(v.array(CatalogRule), v.maxLength(maxRules)),
});
export type CatalogProduct = v.InferOutput<typeof CatalogProduct>;

/** A catalogue as an operator edits it: one JSON file. Products with equal scores keep its order. */
export const Catalog = v.strictObject({
  $schema: v.optional(v.string()),
  conditions: v.pipe(v.array(CatalogCondition), v.maxLength(1000)),
  products: v.pipe(v.array(CatalogProduct), v.minLength(1), v.maxLength(maxProducts)),
});
export type Catalog = v.InferOutput<typeof Catalog>;

/**
 * Whether a browser resolves an address to http, https or this service. Browsers read a backslash as a slash, and `//host`,
 * `https:host` and `https:///host` as another host.
 */
function isIconAddress(icon: string): boolean {
  if (/[\s\\]/.test(icon) || !URL.canParse(icon, relativeBase)) return false;
  const { protocol, host } = new URL(icon, relativeBase);
  if (!/^[a-z][a-z0-9+.-]*:/i.test(icon)) return host === new URL(relativeBase).host;
  return /^https?:$/.test(protocol) && /^https?:\/\/[^/?#@]+(?:[/?#]|$)/i.test(icon);
}
const relativeBase = 'http://localhost/';

/**
 * A value as JSON in ASCII. One other character in a text makes reading the text from the database ten times slower.
 */
export function asciiJson(value: object | string): string {
  return JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** The content of the file, unparsed: most starts only compare its hash. */
export const shippedFile: object = catalog;

/** The catalogue in force until an operator imports one. */
export function readShippedCatalog(): Catalog {
  return v.parse(Catalog, shippedFile);
}
