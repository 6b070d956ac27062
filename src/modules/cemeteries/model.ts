import { generateKeyBetween, generateNKeysBetween } from 'fractional-indexing';
import * as v from 'valibot';
import { pageQuery } from '../../http/response';
import { anyCase, line, optionalLine, StateCode, withoutInvisible } from '../../shared/fields';

export const Cemetery = v.object({
  _id: v.pipe(v.string(), v.description('24 hex digits')),
  name: v.string(),
  address: v.object({ street: v.string(), city: v.string(), state: v.string(), zip: v.string() }),
  createdBy: v.string(),
  createdAt: v.pipe(v.string(), v.description('ISO 8601, UTC')),
  updatedAt: v.pipe(v.string(), v.description('ISO 8601, UTC')),
  __v: v.pipe(v.number(), v.description('The number of changes of the record')),
});
export type Cemetery = v.InferOutput<typeof Cemetery>;

export const CemeteryPage = v.object({
  data: v.object({
    cemeteries: v.array(Cemetery),
    count: v.pipe(v.number(), v.description('The number of all cemeteries')),
  }),
});
export type CemeteryPage = v.InferOutput<typeof CemeteryPage>;

export const CemeteryQuery = v.strictObject({
  ...pageQuery,
  sort: v.optional(
    v.pipe(
      anyCase(['asc', 'desc']),
      v.description(
        'Direction of the order by name, then by _id. English order; accented letters sort with their base letters',
      ),
    ),
    'asc',
  ),
});
export type CemeteryQuery = v.InferOutput<typeof CemeteryQuery>;

/** Leading zeros of a state's ZIP codes, which spreadsheets drop. */
const zerosOf = new Map([
  ...['AE', 'CT', 'MA', 'ME', 'NH', 'NJ', 'RI', 'VT'].map((state) => [state, '0'] as const),
  ...['PR', 'VI'].map((state) => [state, '00'] as const),
]);
const zipRule = 'must be 5 digits, or 5 and 4 with a hyphen between them, or empty';

/** Says how to correct a ZIP code. The service does not correct it, because the missing digits would be a guess. */
function zipHint(zip: string, state: string | undefined): string {
  if (/^\d+(?=[.E])(?:\.\d*)?(?:E\+?\d+)?$/i.test(zip))
    return 'write it as text, without a decimal point or an exponent';
  if (/^[='"’]/.test(zip)) return 'write it without quotes, an apostrophe or an equals sign';
  const [, { length } = '', dash = '-'] = /^(\d{1,9})(?:(\D)\d{4})?$/.exec(zip) ?? [];
  if (length === 5 && dash !== '-') return 'write a plain hyphen (-) after the fifth digit';
  if (length === 9) return 'write a hyphen after the fifth digit';
  if (length === 0 || length === 5 || length === 6) return '';
  const zeros = zerosOf.get(state ?? '');
  const dropped = zeros === undefined ? 'a leading 0 may have been dropped' : `it begins with ${zeros} in ${state}`;
  return `${dropped}: write all ${length > 6 ? '9 digits, with a hyphen after the fifth' : '5 digits'}`;
}

const StateOf = v.object({ state: StateCode });

/** A cemetery in an import, with the id of its source. */
export const CemeteryRecord = v.lazy((row) => {
  const placed = v.safeParse(StateOf, row);
  const state = placed.success ? placed.output.state : undefined;
  return v.strictObject({
    externalId: line(100),
    name: line(200, withoutInvisible),
    street: v.optional(optionalLine(200), ''),
    city: line(100, withoutInvisible),
    state: StateCode,
    zip: v.optional(
      v.pipe(
        v.string('zip: must be text in quotes, since a number has no leading zeros'),
        v.trim(),
        v.regex(/^(?:\d{5}(?:-\d{4})?)?$/, ({ input }) =>
          [`zip: ${zipRule}`, zipHint(input, state)].filter(Boolean).join('; '),
        ),
      ),
      '',
    ),
  });
});
export type CemeteryRecord = v.InferOutput<typeof CemeteryRecord>;

/** A name and its sort key. */
export interface PlacedName {
  readonly name: string;
  readonly key: string;
}

/** English order, independent of the machine's locale. */
const { compare } = new Intl.Collator('en');

/** Keys grow when names are added one by one into the same gap. Longer keys cause all keys to be generated again. */
const maxKeyCharacters = 100;

/** Whether names sorted by key are in the collator's order, with one key for equal names. */
export function isInOrder(placed: readonly PlacedName[]): boolean {
  return placed.every(({ name, key }, index) => {
    const before = placed[index - 1];
    if (before?.key === key) return compare(before.name, name) === 0;
    return isOrderKey(key) && (before === undefined || (before.key < key && compare(before.name, name) < 0));
  });
}

function isOrderKey(key: string): boolean {
  try {
    return key.length <= maxKeyCharacters && /^[0-9A-Za-z]+$/.test(key) && generateKeyBetween(key, null) > key;
  } catch {
    return false;
  }
}

/** Assigns each new name a key between those of its neighbours. Existing keys do not change. */
export function placeNames(placed: readonly PlacedName[], names: readonly string[]): PlacedName[] {
  const inOrder = [...new Set(names)].sort(compare);
  const distinct = inOrder.filter((name, index) => index === 0 || compare(inOrder[index - 1] ?? '', name) !== 0);
  const gaps = Map.groupBy(distinct, (name) => positionOf(placed, name));
  const keyed = (position: number): PlacedName[] => {
    const [before, next] = [placed[position - 1], placed[position]];
    const missing = (gaps.get(position) ?? []).filter((name) => next === undefined || compare(next.name, name) !== 0);
    const keys = generateNKeysBetween(before?.key ?? null, next?.key ?? null, missing.length);
    return missing.map((name, index) => ({ name, key: keys[index] ?? '' }));
  };
  const merged = placed.flatMap((each, position) => (gaps.has(position) ? [...keyed(position), each] : each));
  return [...merged, ...keyed(placed.length)];
}

/** The key of a placed name, or of an equal name. */
export function keyOf(placed: readonly PlacedName[], name: string): string {
  const found = placed[positionOf(placed, name)];
  if (found === undefined || compare(found.name, name) !== 0) throw new Error('The name has no sort key');
  return found.key;
}

/** The index of the first placed name that does not come before this one. */
function positionOf(placed: readonly PlacedName[], name: string): number {
  let [low, high] = [0, placed.length];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (compare(placed[middle]?.name ?? '', name) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
