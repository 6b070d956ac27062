import * as v from 'valibot';

/** A whole number in a query. */
export function wholeNumber(meaning: string, min: number, max: number) {
  return v.pipe(
    v.string(),
    v.description(meaning),
    v.metadata({ documentedAs: { type: 'integer', minimum: min, maximum: max } }),
    v.trim(),
    v.regex(/^\d{1,15}$/, `whole_number: must be a whole number from ${min} to ${max}`),
    v.transform(Number),
    v.minValue(min),
    v.maxValue(max),
  );
}

/** Query entries of every paged list. A page past the end is empty, not an error. */
export const pageQuery = {
  page: v.optional(wholeNumber('Page number from 1', 1, 1e15 - 1), '1'),
  limit: v.optional(wholeNumber('Entries a page', 1, 1000), '10'),
};
