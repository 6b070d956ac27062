import { generateKeyBetween, generateNKeysBetween } from 'fractional-indexing';

/** A name, and the key by which it is stored in its place among the others. */
export interface PlacedName {
  readonly name: string;
  readonly key: string;
}

/** Names are ordered as a reader of English looks for them, whatever the language of the machine. */
const { compare } = new Intl.Collator('en');

/** A key grows by a character where some names come one by one into the same gap; past this all keys are made again. */
const maxKeyCharacters = 100;

/** Whether names in the order of their keys are in the order of the collator, equal ones under one key. */
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

/** Gives a key to each name that has none among those placed, between the keys of its neighbours; keys stay as they are. */
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

/** The key of a name that is placed, or of one equal to it. */
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
