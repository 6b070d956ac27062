import { distance } from 'fastest-levenshtein';

const nearEdits = 2;
const maxCharacters = 100;

/** Returns the nearest name within two edits. Only letters and digits count, in any case. */
export function nearName(text: unknown, names: readonly string[]): string | undefined {
  if (typeof text !== 'string' || text.length > maxCharacters) return undefined;
  const written = lettersOf(text);
  let nearest: string | undefined;
  let fewest = nearEdits + 1;
  for (const name of names) {
    if (Math.abs(written.length - name.length) > nearEdits) continue;
    const edits = distance(written, lettersOf(name));
    // Two edits turn any two-letter word into any other.
    if (edits >= fewest || edits * 2 > name.length) continue;
    nearest = name;
    fewest = edits;
  }
  return nearest;
}

/** The suggestion at the end of a message about an unknown name. It never contains the unknown name. */
export function hint(text: unknown, names: readonly string[]): string {
  const name = nearName(text, names);
  return name === undefined ? '' : `; did you mean ${name}?`;
}

function lettersOf(text: string): string {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
}
