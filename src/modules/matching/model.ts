import * as v from 'valibot';
import { anyCase } from '../../shared/fields';

export const Explanation = v.object({
  catalogVersion: v.number(),
  rules: v.array(
    v.object({
      id: v.string(),
      outcome: v.picklist(['met', 'not-met', 'unknown']),
      points: v.pipe(v.number(), v.description('0 unless the rule is met')),
      text: v.string(),
    }),
  ),
  disqualifiersHeld: v.array(v.string()),
  penalty: v.pipe(v.number(), v.description('0 or negative; with the points it adds up to the score')),
  unanswered: v.pipe(
    v.array(v.string()),
    v.description('Unanswered questions that apply and that the product’s rules or disqualifiers use'),
  ),
});
export type Explanation = v.InferOutput<typeof Explanation>;

export const Match = v.object({
  id: v.number(),
  productName: v.string(),
  productWrapper: v.string(),
  productIcon: v.pipe(v.string(), v.description('URL of an icon')),
  disqualifiers: v.pipe(v.array(v.string()), v.description('Condition codes of the product, not of the person')),
  score: v.pipe(v.number(), v.description('At most two decimals; negative for a product that is disqualified')),
  isEligible: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        'Whether no disqualifier of the product holds for the person. Absent only from matches that an earlier version ' +
          'stored, until they are calculated again',
      ),
    ),
  ),
  highlights: v.array(v.string()),
  objectives: v.array(v.string()),
  explanation: v.optional(v.pipe(Explanation, v.description('Present on request only; never stored'))),
});
export type Match = v.InferOutput<typeof Match>;

export const RemainingMatch = v.object({ ...Match.entries, negatives: v.array(v.string()) });
export type RemainingMatch = v.InferOutput<typeof RemainingMatch>;

/** `user.insurance.matches`. */
export const Matches = v.object({
  bestMatch: v.pipe(
    v.nullable(Match),
    v.description(
      'The highest-scored match. Show it as a recommendation only if `isEligible` is true: when every product is ' +
        'disqualified, it is the least unsuitable one and its score is negative. null only for a catalogue without ' +
        'products, and in matches that an earlier version stored where every product was disqualified',
    ),
  ),
  remainingMatches: v.pipe(v.array(RemainingMatch), v.description('The others by descending score')),
});
export type Matches = v.InferOutput<typeof Matches>;

export const MatchesQuery = v.strictObject({
  explain: v.pipe(
    v.optional(anyCase(['true', 'false']), 'false'),
    v.description('Whether each match explains every point'),
    v.metadata({ documentedAs: { type: 'boolean', default: false } }),
    v.transform((text) => text === 'true'),
  ),
});
