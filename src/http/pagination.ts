import * as v from 'valibot';

function wholeNumber(min: number, max: number) {
  return v.pipe(
    v.string(),
    v.regex(/^\d{1,9}$/, `whole_number: must be a whole number from ${min} to ${max}`),
    v.transform(Number),
    v.minValue(min),
    v.maxValue(max),
  );
}

/** Query entries of every paged list. A page past the end is empty, not an error. */
export const pageQuery = {
  page: v.optional(v.pipe(wholeNumber(1, 999_999_999), v.description('Page number from 1')), '1'),
  limit: v.optional(v.pipe(wholeNumber(1, 1000), v.description('Entries a page, 1 to 1000')), '10'),
};
