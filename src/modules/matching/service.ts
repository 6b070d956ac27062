import { calendarDateAt } from '../../calendar';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { parseAnswers } from '../users/answers';
import { entityTag } from '../users/entity-tag';
import { type AnsweredRecord, type AnswerPatches, createUserStore, type StoredAnswers } from '../users/store';
import { createCurrentCatalog } from './current-catalog';
import { deriveFacts } from './facts';
import { match, rank } from './match';
import type { Matches } from './model';
import { printMatches } from './print-matches';
import { createCatalogStore } from './store';

/** How often a match is made again when the record has moved on in between. */
const attempts = 3;

export interface MatchRequest {
  readonly userId: string;
  readonly ifMatch: 'any' | readonly string[] | undefined;
  readonly requestId: string;
}

export function createMatchingService(
  deps: Pick<AppDeps, 'db' | 'clock' | 'machineClock' | 'config' | 'publicUrl' | 'log' | 'metrics'>,
) {
  const users = createUserStore(deps.db);
  const currentCatalog = createCurrentCatalog({ ...deps, store: createCatalogStore(deps.db) });
  const today = () => calendarDateAt(deps.clock(), deps.config.reportTimeZone);

  return {
    /**
     * Matches the saved answers, stores the result over the version of the record that it was made from, and gives
     * the record, and the matches with the explanation that is not stored.
     *
     * @throws AppError `precondition-failed`, or `database-unavailable` when the record moved on each time
     */
    async matchUser({
      userId,
      ifMatch,
      requestId,
    }: MatchRequest): Promise<{ record: AnsweredRecord; explain(): Matches }> {
      for (let attempt = 1; attempt <= attempts; attempt += 1) {
        const read = await users.findAnswers(userId);
        if (!isMeant(read, ifMatch)) throw new AppError('precondition-failed');
        const catalog = await currentCatalog();
        const facts = deriveFacts(read && parseAnswers(read), today());
        const record = await users.replaceMatches({
          userId,
          read,
          matches: printMatches(rank(facts, catalog)),
          requestId,
          now: deps.clock(),
        });
        if (record !== undefined) return { record, explain: () => match(facts, catalog, true) };
      }
      throw new AppError('database-unavailable', { detail: 'The record changes faster than it can be matched.' });
    },

    /** Explained matches of the saved answers with the patches merged over them. Stores nothing. */
    async preview(userId: string, patches: AnswerPatches): Promise<Matches> {
      const answers = await users.mergeAnswers(userId, patches);
      return match(deriveFacts(answers, today()), await currentCatalog(), true);
    },
  };
}

function isMeant(row: StoredAnswers | undefined, ifMatch: MatchRequest['ifMatch']): boolean {
  if (ifMatch === undefined) return true;
  return row !== undefined && (ifMatch === 'any' || ifMatch.includes(entityTag.format(row)));
}
