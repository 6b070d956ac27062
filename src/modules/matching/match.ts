import {
  asciiJson,
  type Catalog,
  type CompiledCondition,
  type Condition,
  compileCondition,
  type TextList,
  type Truth,
} from './catalog-model';
import { type FactName, type Facts, isAsked } from './facts';
import type { Explanation, Match, Matches } from './model';

/** A stored catalogue with inactive products. Points and penalty are hundredths; lists are in the order of position. */
export interface StoredCatalog {
  readonly version: number;
  readonly penaltyHundredths: number;
  readonly conditions: readonly { readonly code: string; readonly when: Condition }[];
  readonly products: readonly StoredProduct[];
}

export interface StoredProduct {
  readonly id: number;
  readonly position: number;
  readonly productName: string;
  readonly productWrapper: string;
  readonly productIcon: string;
  readonly isActive: boolean;
  readonly disqualifiers: readonly string[];
  readonly rules: readonly StoredRule[];
}

export interface StoredRule {
  readonly id: string;
  readonly when: Condition;
  readonly pointsHundredths: number;
  readonly textList: TextList;
  readonly text: string;
  /** For editors of the catalogue. */
  readonly reason: string;
}

interface CompiledRule extends StoredRule {
  /** Index into the conditions of the catalogue. */
  readonly condition: number;
  /** `text` as JSON. */
  readonly printedText: string;
}

interface CompiledProduct extends StoredProduct {
  readonly compiledRules: readonly CompiledRule[];
  readonly disqualifying: readonly { readonly code: string; readonly condition: number }[];
  /** The facts of its rules and disqualifiers, in alphabetical order. */
  readonly reads: readonly FactName[];
  /** The beginning of its match as JSON, with the members that are the same for all users. */
  readonly printedStart: string;
}

export interface CompiledCatalog {
  readonly version: number;
  readonly penaltyHundredths: number;
  /** The distinct conditions: products share many. */
  readonly conditions: readonly CompiledCondition[];
  readonly products: readonly CompiledProduct[];
}

/** Converts a stored catalogue back into the form of a file. */
export function toCatalog({ conditions, products }: StoredCatalog): Catalog {
  return {
    conditions: conditions.map(({ code, when }) => ({ code, when })),
    products: products.map(({ isActive, position: _, rules, disqualifiers, ...product }) => ({
      id: product.id,
      productName: product.productName,
      productWrapper: product.productWrapper,
      productIcon: product.productIcon,
      active: isActive,
      disqualifiers: [...disqualifiers],
      rules: rules.map(({ id, when, pointsHundredths, textList, text, reason }) => ({
        id,
        when,
        points: toPoints(pointsHundredths),
        list: textList,
        text,
        reason,
      })),
    })),
  };
}

/**
 * The penalty of a disqualified product in hundredths: the largest sum of positive points minus the smallest sum of
 * negative points, plus 1. So every disqualified product scores below 0 and below every eligible product.
 */
export function penaltyOf(products: readonly { readonly rules: readonly { pointsHundredths: number }[] }[]): number {
  let highest = 0;
  let lowest = 0;
  for (const { rules } of products) {
    let positive = 0;
    let negative = 0;
    for (const { pointsHundredths } of rules) {
      positive += Math.max(pointsHundredths, 0);
      negative += Math.min(pointsHundredths, 0);
    }
    highest = Math.max(highest, positive);
    lowest = Math.min(lowest, negative);
  }
  return highest - lowest + 1;
}

/** Compiles the active products of a catalogue in one step. */
export function compileCatalog(stored: StoredCatalog): CompiledCatalog {
  const steps = compileInSteps(stored);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/**
 * Compiles one product a step, because thousands of products would block the event loop.
 *
 * @param toIcon returns the icon's URL of a match
 */
export function* compileInSteps(
  { version, penaltyHundredths, conditions, products }: StoredCatalog,
  toIcon: (stored: string) => string = (stored) => stored,
): Generator<undefined, CompiledCatalog, undefined> {
  const compiledConditions: CompiledCondition[] = [];
  const places = new Map<string, number>();
  const placeOf = (when: Condition): number => {
    const text = JSON.stringify(when);
    const place = places.get(text) ?? compiledConditions.push(compileCondition(when)) - 1;
    places.set(text, place);
    return place;
  };
  const byCode = new Map(conditions.map(({ code, when }) => [code, placeOf(when)]));
  const compiledProducts: CompiledProduct[] = [];
  for (const stored of products) {
    if (!stored.isActive) continue;
    const product = { ...stored, productIcon: toIcon(stored.productIcon) };
    const disqualifying = product.disqualifiers.flatMap((code) => {
      const condition = byCode.get(code);
      return condition === undefined ? [] : [{ code, condition }];
    });
    const compiledRules = product.rules.map((rule) => ({
      ...rule,
      condition: placeOf(rule.when),
      printedText: asciiJson(rule.text),
    }));
    const reads = new Set(
      [...disqualifying, ...compiledRules].flatMap(({ condition }) => [
        ...(compiledConditions[condition]?.reads ?? []),
      ]),
    );
    const printedStart = asciiJson(constantsOf(product)).slice(0, -1);
    compiledProducts.push({ ...product, compiledRules, disqualifying, reads: [...reads].sort(), printedStart });
    yield;
  }
  return { version, penaltyHundredths, conditions: compiledConditions, products: compiledProducts };
}

/** A product's result for one user. */
interface Scored {
  readonly product: CompiledProduct;
  readonly score: number;
  /** The rules that are met. */
  readonly met: readonly CompiledRule[];
  /** The disqualifiers that hold. */
  readonly held: readonly string[];
}

interface Ranking {
  /** The highest-scored match, even if every product is disqualified; undefined without products. */
  readonly best: Scored | undefined;
  readonly others: readonly Scored[];
}

/**
 * The matches of a user. A pure function.
 *
 * @param withExplanation adds to each match the reason of every point
 */
export function match(facts: Facts, catalog: CompiledCatalog, withExplanation = false): Matches {
  const { best, others } = rank(facts, catalog);
  const explain = (scored: Scored) => (withExplanation ? { explanation: toExplanation(scored, facts, catalog) } : {});
  return {
    bestMatch: best === undefined ? null : { ...toMatch(best), ...explain(best) },
    remainingMatches: others.map((scored) => ({
      ...toMatch(scored),
      negatives: textsOf(scored, 'negatives'),
      ...explain(scored),
    })),
  };
}

/** Ranks all products for a user by score, then by position in the catalogue, then by id. */
export function rank(facts: Facts, catalog: CompiledCatalog): Ranking {
  const truths = catalog.conditions.map(({ holds }) => holds(facts));
  const [best, ...others] = catalog.products
    .map((product) => score(product, truths, catalog.penaltyHundredths))
    .sort(
      (left, right) =>
        right.score - left.score ||
        left.product.position - right.product.position ||
        left.product.id - right.product.id,
    );
  return { best, others };
}

function score(product: CompiledProduct, truths: readonly Truth[], penaltyHundredths: number): Scored {
  const met = product.compiledRules.filter(({ condition }) => truths[condition] === true);
  const held = product.disqualifying.filter(({ condition }) => truths[condition] === true).map(({ code }) => code);
  let hundredths = held.length > 0 ? -penaltyHundredths : 0;
  for (const { pointsHundredths } of met) hundredths += pointsHundredths;
  return { product, met, held, score: toPoints(hundredths) };
}

function isEligible({ held }: Scored): boolean {
  return held.length === 0;
}

function toMatch(scored: Scored): Match {
  return {
    ...constantsOf(scored.product),
    score: scored.score,
    isEligible: isEligible(scored),
    highlights: textsOf(scored, 'highlights'),
    objectives: textsOf(scored, 'objectives'),
  };
}

/** The members of a match that are the same for all users. */
function constantsOf({ id, productName, productWrapper, productIcon, disqualifiers }: StoredProduct) {
  return { id, productName, productWrapper, productIcon, disqualifiers: [...disqualifiers] };
}

function textsOf({ met }: Scored, list: TextList): string[] {
  return met.filter(({ textList }) => textList === list).map(({ text }) => text);
}

function toExplanation({ product, held }: Scored, facts: Facts, catalog: CompiledCatalog): Explanation {
  return {
    catalogVersion: catalog.version,
    rules: product.compiledRules.map(({ id, condition, pointsHundredths, text }) => {
      const truth = catalog.conditions[condition]?.holds(facts);
      return {
        id,
        outcome: truth === undefined ? 'unknown' : truth ? 'met' : 'not-met',
        points: truth === true ? toPoints(pointsHundredths) : 0,
        text,
      };
    }),
    disqualifiersHeld: [...held],
    penalty: held.length > 0 ? toPoints(-catalog.penaltyHundredths) : 0,
    unanswered: product.reads.filter((fact) => !facts.has(fact) && isAsked(fact, facts)),
  };
}

/** Hundredths as the number with at most two decimals that JSON shows; never -0. */
function toPoints(hundredths: number): number {
  return hundredths === 0 ? 0 : hundredths / 100;
}

/**
 * The matches of a ranking as JSON. Joins JSON texts of the compiled catalogue, which is five times faster than
 * `JSON.stringify` of the matches.
 */
export function printMatches({ best, others }: Ranking): string {
  const bestMatch = best === undefined ? 'null' : `${printMatch(best)}}`;
  const remainingMatches = others.map(
    (scored) => `${printMatch(scored)},"negatives":${printTexts(scored, 'negatives')}}`,
  );
  return `{"bestMatch":${bestMatch},"remainingMatches":[${remainingMatches.join(',')}]}`;
}

function printMatch(scored: Scored): string {
  const lists = `"highlights":${printTexts(scored, 'highlights')},"objectives":${printTexts(scored, 'objectives')}`;
  return `${scored.product.printedStart},"score":${scored.score},"isEligible":${isEligible(scored)},${lists}`;
}

function printTexts({ met }: Scored, list: TextList): string {
  let texts = '';
  for (const { textList, printedText } of met) {
    if (textList === list) texts += texts === '' ? printedText : `,${printedText}`;
  }
  return `[${texts}]`;
}
