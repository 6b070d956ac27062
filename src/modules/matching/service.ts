import { calendarDateAt } from '../../calendar';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { isPreconditionMet, type Preconditions } from '../../http/entity-tag';
import { parseAnswers } from '../users/answers';
import { entityTag, staleRecord } from '../users/entity-tag';
import { type AnsweredRecord, type AnswerPatches, createUserStore } from '../users/store';
import { createCurrentCatalog } from './current-catalog';
import { deriveFacts } from './facts';
import { match, rank } from './match';
import type { Matches } from './model';
import { printMatches } from './print-matches';
import { createCatalogStore } from './store';

/** Attempts to store a match before another request changes the record. */
const maxAttempts = 12;
const backoffStepMs = 10;

export interface MatchRequest {
  readonly userId: string;
  readonly preconditions: Preconditions;
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
     * Matches the saved answers, stores the result over the version of the record that it was made from, and returns the
     * record and the matches with the explanation that is not stored. Matches of older answers are never stored.
     *
     * @throws AppError `precondition-failed`, or `rate-limited` when the caller's own requests keep changing the record
     */
    async matchUser({
      userId,
      preconditions,
      requestId,
    }: MatchRequest): Promise<{ record: AnsweredRecord; explain(): Matches }> {
      for (let attempt = 1; attempt <= maxAttempts; attempt += 1) {
        const read = await users.findAnswers(userId);
        if (!isPreconditionMet(preconditions, read && entityTag.format(read))) throw staleRecord(read);
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
        await Bun.sleep(Math.random() * attempt * backoffStepMs);
      }
      throw new AppError('rate-limited', {
        detail: 'Other requests of the caller change the record faster than its matches can be stored.',
        headers: { 'retry-after': '1' },
      });
    },

    /** Explained matches of the saved answers with the patches merged over them. Stores nothing. */
    async preview(userId: string, patches: AnswerPatches): Promise<Matches> {
      const answers = await users.mergeAnswers(userId, patches);
      return match(deriveFacts(answers, today()), await currentCatalog(), true);
    },
  };
}
