import { distance } from 'fastest-levenshtein';

const nearEdits = 2;
const maxCharacters = 100;

/** Of the names, the one that was probably meant: within two edits, case and all but letters and digits aside. */
export function nearName(text: unknown, names: readonly string[]): string | undefined {
  if (typeof text !== 'string' || text.length > maxCharacters) return undefined;
  const written = lettersOf(text);
  let nearest: string | undefined;
  let fewest = nearEdits + 1;
  for (const name of names) {
    if (Math.abs(written.length - name.length) > nearEdits) continue;
    const edits = distance(written, lettersOf(name));
    // Two edits make any word of two letters of any other.
    if (edits >= fewest || edits * 2 > name.length) continue;
    nearest = name;
    fewest = edits;
  }
  return nearest;
}

/** The end of a message about a text that is none of the names. It never holds the text itself. */
export function hint(text: unknown, names: readonly string[]): string {
  const name = nearName(text, names);
  return name === undefined ? '' : `; did you mean ${name}?`;
}

function lettersOf(text: string): string {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
}
