import type { Catalog, Condition, TextList } from './catalog-model';
import type { FactName, Facts } from './facts';
import type { Explanation, Match, Matches } from './model';
import { type CompiledCondition, compileCondition, type Truth } from './rules';

/** A catalogue as it is stored, inactive products included: points and penalty in hundredths, everything in the order of its position. */
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
  /** For those who edit the catalogue. */
  readonly reason: string;
}

interface CompiledProduct extends StoredProduct {
  readonly conditions: readonly { readonly code: string; readonly holds: CompiledCondition['holds'] }[];
  readonly compiledRules: readonly (StoredRule & Pick<CompiledCondition, 'holds'>)[];
  /** The facts that its rules and disqualifiers read, in alphabetical order. */
  readonly reads: readonly FactName[];
}

/** A catalogue made ready to match many people. */
export interface CompiledCatalog {
  readonly version: number;
  readonly penaltyHundredths: number;
  readonly products: readonly CompiledProduct[];
}

/** A stored catalogue as the file that it may have come from. */
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
 * The penalty of a disqualified product, in hundredths: one more than all that separates the best from the worst sum
 * of points, so that every disqualified product scores below zero and below every eligible one, whatever the catalogue.
 */
export function penaltyOf(products: readonly { readonly rules: readonly { pointsHundredths: number }[] }[]): number {
  let highest = 0;
  let lowest = 0;
  for (const { rules } of products) {
    let positive = 0;
    let negative = 0;
    for (const { pointsHundredths } of rules) {
      if (pointsHundredths > 0) positive += pointsHundredths;
      else negative += pointsHundredths;
    }
    highest = Math.max(highest, positive);
    lowest = Math.min(lowest, negative);
  }
  return highest - lowest + 1;
}

/** Makes the active products of a catalogue ready. */
export function compileCatalog({ version, penaltyHundredths, conditions, products }: StoredCatalog): CompiledCatalog {
  const compiledConditions = new Map(conditions.map(({ code, when }) => [code, compileCondition(when)]));
  return {
    version,
    penaltyHundredths,
    products: products
      .filter(({ isActive }) => isActive)
      .map((product) => {
        const disqualifying = product.disqualifiers.flatMap((code) => {
          const condition = compiledConditions.get(code);
          return condition === undefined ? [] : [{ code, ...condition }];
        });
        const compiledRules = product.rules.map((rule) => ({ ...rule, ...compileCondition(rule.when) }));
        const reads = new Set([...disqualifying, ...compiledRules].flatMap((part) => [...part.reads]));
        return { ...product, conditions: disqualifying, compiledRules, reads: [...reads].sort() };
      }),
  };
}

interface Scored {
  readonly product: CompiledProduct;
  readonly scoreHundredths: number;
  readonly truths: readonly Truth[];
  readonly held: readonly string[];
}

/**
 * Ranks every product of the catalogue for a person: the best that nothing disqualifies, and the others in the order
 * of score, then of the catalogue, then of id. No input but its arguments, so the same arguments give the same answer.
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

function rank(facts: Facts, catalog: CompiledCatalog): { best: Scored | undefined; others: Scored[] } {
  const ranked = catalog.products
    .map((product) => score(product, facts, catalog.penaltyHundredths))
    .sort(
      (left, right) =>
        right.scoreHundredths - left.scoreHundredths ||
        left.product.position - right.product.position ||
        left.product.id - right.product.id,
    );
  // Whatever is disqualified stands behind all that is not, so only the first can be the best.
  const [first, ...others] = ranked;
  return first === undefined || first.held.length > 0 ? { best: undefined, others: ranked } : { best: first, others };
}

function score(product: CompiledProduct, facts: Facts, penaltyHundredths: number): Scored {
  let scoreHundredths = 0;
  const truths: Truth[] = [];
  for (const { holds, pointsHundredths } of product.compiledRules) {
    const truth = holds(facts);
    truths.push(truth);
    if (truth === true) scoreHundredths += pointsHundredths;
  }
  const held = product.conditions.filter(({ holds }) => holds(facts) === true).map(({ code }) => code);
  return { product, truths, held, scoreHundredths: scoreHundredths - (held.length > 0 ? penaltyHundredths : 0) };
}

function toMatch(scored: Scored): Match {
  const { id, productName, productWrapper, productIcon, disqualifiers } = scored.product;
  return {
    id,
    productName,
    productWrapper,
    productIcon,
    disqualifiers: [...disqualifiers],
    score: toPoints(scored.scoreHundredths),
    highlights: textsOf(scored, 'highlights'),
    objectives: textsOf(scored, 'objectives'),
  };
}

function textsOf({ product, truths }: Scored, list: TextList): string[] {
  const texts: string[] = [];
  for (const [index, rule] of product.compiledRules.entries()) {
    if (rule.textList === list && truths[index] === true) texts.push(rule.text);
  }
  return texts;
}

function toExplanation({ product, truths, held }: Scored, facts: Facts, catalog: CompiledCatalog): Explanation {
  return {
    catalogVersion: catalog.version,
    rules: product.compiledRules.map(({ id, pointsHundredths, text }, index) => {
      const truth = truths[index];
      return {
        id,
        outcome: truth === undefined ? 'unknown' : truth ? 'met' : 'not-met',
        points: truth === true ? toPoints(pointsHundredths) : 0,
        text,
      };
    }),
    disqualifiersHeld: [...held],
    penalty: held.length > 0 ? toPoints(-catalog.penaltyHundredths) : 0,
    unanswered: product.reads.filter((fact) => !facts.has(fact)),
  };
}

/** Hundredths as the number with at most two decimals that JSON shows; never -0. */
function toPoints(hundredths: number): number {
  return hundredths === 0 ? 0 : hundredths / 100;
}
