import type { Matches } from './model';

/**
 * Matches as the JSON that is stored and answered. A match at a time and in ASCII alone: one other character in a text
 * makes the whole of it three times as slow to print, and ten times as slow to read from the database.
 */
export function printMatches({ bestMatch, remainingMatches }: Matches): string {
  return `{"bestMatch":${print(bestMatch)},"remainingMatches":[${remainingMatches.map(print).join(',')}]}`;
}

function print(value: object | null): string {
  return JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
