import { generateKeyBetween, generateNKeysBetween } from 'fractional-indexing';

/** A name and its sort key. */
export interface PlacedName {
  readonly name: string;
  readonly key: string;
}

/** English order, independent of the machine's locale. */
const { compare } = new Intl.Collator('en');

/** Keys grow when names are added one by one into the same gap. Beyond this length all keys are regenerated. */
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
  if (found === undefined || compare(found.name, name) !== 0) throw new Error('The name has no place');
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
