import * as v from 'valibot';
import { nearName } from '../../shared/field-errors';
import { line, twoDecimals, withoutInvisible } from '../../shared/fields';
import { type FactName, type Facts, type FactValue, factDefinitions, factNames } from './facts';
import catalog from './shipped-catalog.json' with { type: 'json' };

const maxOperands = 100;

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
    const error = dataset.typed ? findMisfit(dataset.value) : undefined;
    if (error !== undefined) addIssue({ message: `operator: ${error}` });
  }),
);
export type Comparison = v.InferOutput<typeof Comparison>;

export type Condition = Comparison | { all: Condition[] } | { any: Condition[] } | { not: Condition };

/** The key selects the schema, so that an error names the intended form and not all four. */
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

function notAFact({ input }: v.BaseIssue<unknown>): string {
  const name = JSON.stringify(input)?.slice(0, 100);
  const near = nearName(input, factNames);
  const hint = near === undefined ? `the facts are ${factNames.join(', ')}` : `did you mean ${near}?`;
  return `fact: ${name} is not a fact; ${hint}`;
}

/** Describes for the author of a catalogue why a comparison is invalid; undefined for a valid one. */
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

/** Whether a condition holds; undefined if unknown. */
export type Truth = boolean | undefined;

export interface CompiledCondition {
  readonly holds: (facts: Facts) => Truth;
  readonly reads: ReadonlySet<FactName>;
}

/**
 * Compiles a condition with Kleene's strong three-valued logic: `false and unknown` is false, `true or unknown` is true.
 * An empty `all` is true, an empty `any` is false.
 */
export function compileCondition(condition: Condition): CompiledCondition {
  if ('all' in condition) return combine(condition.all, false);
  if ('any' in condition) return combine(condition.any, true);
  if ('not' in condition) {
    const { holds, reads } = compileCondition(condition.not);
    return { reads, holds: (facts) => negate(holds(facts)) };
  }
  const { fact } = condition;
  const test = compileComparison(condition);
  return {
    reads: new Set([fact]),
    holds: (facts) => {
      const value = facts.get(fact);
      return value === undefined ? undefined : test(value);
    },
  };
}

/** @param decisive the operand that decides the result: false for `all`, true for `any` */
function combine(conditions: readonly Condition[], decisive: boolean): CompiledCondition {
  const parts = conditions.map(compileCondition);
  return {
    reads: new Set(parts.flatMap(({ reads }) => [...reads])),
    holds: (facts) => {
      let isUnknown = false;
      for (const { holds } of parts) {
        const truth = holds(facts);
        if (truth === decisive) return decisive;
        if (truth === undefined) isUnknown = true;
      }
      return isUnknown ? undefined : !decisive;
    },
  };
}

function negate(truth: Truth): Truth {
  return truth === undefined ? undefined : !truth;
}

/** The import has checked that the only operator fits the fact. */
function compileComparison(comparison: Comparison): (value: FactValue) => Truth {
  const { atLeast, atMost, above, below, is, isOneOf, includes, includesAnyOf, isEmpty } = comparison;
  if (atLeast !== undefined) return (value) => compare(value, atLeast) >= 0;
  if (atMost !== undefined) return (value) => compare(value, atMost) <= 0;
  if (above !== undefined) return (value) => compare(value, above) > 0;
  if (below !== undefined) return (value) => compare(value, below) < 0;
  if (is !== undefined) return (value) => value === is;
  if (isOneOf !== undefined) return (value) => typeof value === 'string' && isOneOf.includes(value);
  if (includes !== undefined) return (value) => isList(value) && value.includes(includes);
  if (includesAnyOf !== undefined)
    return (value) => isList(value) && includesAnyOf.some((item) => value.includes(item));
  if (isEmpty !== undefined) return (value) => isList(value) && (value.length === 0) === isEmpty;
  // An operator of a later build is unknown.
  return () => undefined;
}

/** Negative, zero or positive for a value below, at or above the bound; NaN for a value that is not a number. */
function compare(value: FactValue, bound: number): number {
  if (typeof value === 'number') return value - bound;
  if (typeof value !== 'object' || isList(value)) return Number.NaN;
  return value.numerator * 100 - Math.round(bound * 100) * value.denominator;
}

function isList(value: FactValue): value is readonly string[] {
  return Array.isArray(value);
}

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
