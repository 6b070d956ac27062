import type { Comparison, Condition } from './catalog-model';
import type { FactName, Facts, FactValue } from './facts';

/** Whether a condition holds; undefined where an answer that it needs is unknown. */
export type Truth = boolean | undefined;

/** A condition made ready to be asked many times. */
export interface CompiledCondition {
  readonly holds: (facts: Facts) => Truth;
  readonly reads: ReadonlySet<FactName>;
}

/**
 * Kleene's strong three-valued logic: `false and unknown` is false, `true or unknown` is true, and what stays open is
 * unknown. `all` of nothing is true, `any` of nothing is false.
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

/** `decisive` is the truth that settles the whole: false for `all`, true for `any`. */
function combine(conditions: readonly Condition[], decisive: boolean): CompiledCondition {
  const parts = conditions.map(compileCondition);
  return {
    reads: new Set(parts.flatMap(({ reads }) => [...reads])),
    holds: (facts) => {
      let isOpen = false;
      for (const { holds } of parts) {
        const truth = holds(facts);
        if (truth === decisive) return decisive;
        if (truth === undefined) isOpen = true;
      }
      return isOpen ? undefined : !decisive;
    },
  };
}

function negate(truth: Truth): Truth {
  return truth === undefined ? undefined : !truth;
}

/** An import has made sure that the one operator fits the fact. */
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
  // An operator of a later build: unknown here, and neither met nor failed.
  return () => undefined;
}

/** Negative, zero or positive as the value lies below, at or above the bound; NaN for what is no number. */
function compare(value: FactValue, bound: number): number {
  if (typeof value === 'number') return value - bound;
  if (typeof value !== 'object' || isList(value)) return Number.NaN;
  return value.numerator * 100 - Math.round(bound * 100) * value.denominator;
}

function isList(value: FactValue): value is readonly string[] {
  return Array.isArray(value);
}
