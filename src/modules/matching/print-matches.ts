import type { TextList } from './catalog-model';
import { isEligible, type Ranking, type Scored } from './match';

/**
 * A ranking as the JSON of its matches, which is stored and answered. It is put together of what the catalogue has printed
 * already: to make the matches and print them takes five times as long.
 */
export function printMatches({ best, others }: Ranking): string {
  const bestMatch = best === undefined ? 'null' : `${printMatch(best)}}`;
  const remainingMatches = others.map(
    (scored) => `${printMatch(scored)},"negatives":${printTexts(scored, 'negatives')}}`,
  );
  return `{"bestMatch":${bestMatch},"remainingMatches":[${remainingMatches.join(',')}]}`;
}

function printMatch(scored: Scored): string {
  const lists = `"highlights":${printTexts(scored, 'highlights')},"objectives":${printTexts(scored, 'objectives')}`;
  return `${scored.product.printedStart},"score":${scored.score},"isEligible":${isEligible(scored)},${lists}`;
}

function printTexts({ met }: Scored, list: TextList): string {
  let texts = '';
  for (const { textList, printedText } of met) {
    if (textList === list) texts += texts === '' ? printedText : `,${printedText}`;
  }
  return `[${texts}]`;
}
