/** Removes features that older platforms lack from a realm. Its source text also runs on a page and in Node.js. */
export function makeOlder(): void {
  const missing: readonly (readonly [holder: object, names: readonly string[]])[] = [
    [globalThis, ['crypto', 'AbortController', 'AbortSignal', 'URLSearchParams', 'structuredClone']],
    [globalThis.URL ?? {}, ['canParse', 'parse']],
    [Object, ['hasOwn', 'groupBy']],
    [Promise, ['withResolvers', 'try', 'any']],
    [Array, ['fromAsync']],
    [Array.prototype, ['at', 'findLast', 'findLastIndex', 'toSorted', 'toReversed', 'toSpliced', 'with']],
    [String.prototype, ['at', 'replaceAll', 'isWellFormed', 'toWellFormed']],
  ];
  for (const [holder, names] of missing) {
    for (const name of names) {
      Reflect.deleteProperty(holder, name);
      if (name in holder) throw new Error(`${name} cannot be removed`);
    }
  }
}
