import * as v from 'valibot';
import { line, twoDecimals, withoutInvisible } from '../../fields';
import { nearName } from '../../near-names';
import { type FactName, factDefinitions, factNames } from './facts';

/** |points| of one rule, and rules of one product: together they keep every score a safe integer of hundredths. */
const maxPoints = 10_000;
const maxRules = 1_000;
const maxProducts = 10_000;
const maxOperands = 100;

export const textLists = ['highlights', 'objectives', 'negatives'] as const;
export type TextList = (typeof textLists)[number];

const Bound = v.pipe(v.number(), v.minValue(-1e12), v.maxValue(1e12), twoDecimals);
const Operands = v.pipe(v.array(v.string()), v.minLength(1), v.maxLength(maxOperands));

const operators = {
  atLeast: v.optional(Bound),
  atMost: v.optional(Bound),
  above: v.optional(Bound),
  below: v.optional(Bound),
  is: v.optional(v.union([v.string(), v.boolean()], 'operand: must be a text, true or false')),
  isOneOf: v.optional(Operands),
  includes: v.optional(v.string()),
  includesAnyOf: v.optional(Operands),
  isEmpty: v.optional(v.boolean()),
};
const operatorNames = Object.keys(operators);

/** One fact against one operator, such as `{"fact": "age", "atLeast": 65}`. */
export const Comparison = v.pipe(
  v.strictObject({ fact: v.picklist(factNames, notAFact), ...operators }),
  v.rawCheck(({ dataset, addIssue }) => {
    const fault = dataset.typed ? findMisfit(dataset.value) : undefined;
    if (fault !== undefined) addIssue({ message: `operator: ${fault}` });
  }),
);
export type Comparison = v.InferOutput<typeof Comparison>;

export type Condition = Comparison | { all: Condition[] } | { any: Condition[] } | { not: Condition };

/** Chosen by its key, so that a fault is told of the form that was meant, not of all four. */
export const Condition: v.GenericSchema<Condition> = v.lazy((input) => {
  if (typeof input === 'object' && input !== null) {
    if ('all' in input) return AllOf;
    if ('any' in input) return AnyOf;
    if ('not' in input) return Not;
  }
  return Comparison;
});
const Conditions = v.pipe(v.array(Condition), v.maxLength(maxOperands));
export const AllOf = v.strictObject({ all: Conditions });
export const AnyOf = v.strictObject({ any: Conditions });
export const Not = v.strictObject({ not: Condition });

const ConditionCode = v.pipe(
  v.string(),
  v.regex(/^[a-zA-Z][a-zA-Z0-9]{0,63}$/, 'code: must be letters and digits, beginning with a letter'),
);

export const CatalogCondition = v.strictObject({
  code: v.pipe(ConditionCode, v.description('A disqualifier’s code, as products name it')),
  when: v.pipe(Condition, v.description('When the disqualifier holds; it does not while that is unknown')),
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
  reason: v.pipe(line(1000), v.description('Why a licensed agent would agree; for those who edit the catalogue')),
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

/** A catalogue as an operator edits it: one JSON file, whose order is the order of equal scores. */
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

function notAFact({ input }: v.BaseIssue<unknown>): string {
  const name = JSON.stringify(input)?.slice(0, 100);
  const near = nearName(input, factNames);
  const hint = near === undefined ? `the facts are ${factNames.join(', ')}` : `did you mean ${near}?`;
  return `fact: ${name} is not a fact; ${hint}`;
}

/** Why a comparison cannot be made, in words for the author of a catalogue; undefined when it can. */
function findMisfit({ fact, ...operation }: { fact: FactName } & Record<string, unknown>): string | undefined {
  const used = Object.entries(operation).filter(([, operand]) => operand !== undefined);
  const [operator, operand] = used[0] ?? [];
  if (used.length !== 1 || operator === undefined) return `must have exactly one of ${operatorNames.join(', ')}`;
  const definition = factDefinitions[fact];
  const fitting: readonly string[] = operatorsByKind[definition.kind];
  if (!fitting.includes(operator)) return `${operator} cannot be used on ${fact}: use ${fitting.join(', ')}`;
  if (definition.kind === 'flag' && typeof operand !== 'boolean') return `${fact} is true or false`;
  if (definition.kind === 'text' && typeof operand === 'boolean') return `${fact} is a text`;
  const values: readonly string[] | undefined = 'values' in definition ? definition.values : undefined;
  const strange = [operand].flat().filter((each) => typeof each === 'string' && values?.includes(each) === false);
  if (strange.length > 0 && values !== undefined) {
    return `${strange.join(', ')} is no answer to ${fact}: those are ${values.join(', ')}`;
  }
  return undefined;
}

const operatorsByKind = {
  number: ['atLeast', 'atMost', 'above', 'below'],
  ratio: ['atLeast', 'atMost', 'above', 'below'],
  text: ['is', 'isOneOf'],
  flag: ['is'],
  list: ['includes', 'includesAnyOf', 'isEmpty'],
} as const satisfies Record<string, readonly string[]>;
