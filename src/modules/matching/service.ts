import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { isPreconditionMet, type Preconditions } from '../../http/response';
import { describeError } from '../../log';
import { cached, inSlices, jitteredPause } from '../../shared/async';
import type { CalendarDate } from '../../shared/calendar';
import { parseAnswers } from '../answers/sections';
import type { AnswerPatches, UserRecord, UserStore } from '../users/store';
import { entityTag, staleRecord } from '../users/versions';
import type { CatalogStore } from './catalog-store';
import { deriveFacts } from './facts';
import { type CompiledCatalog, compileInSteps, match, printMatches, rank } from './match';
import type { Matches } from './model';

/** Upper bound of the delay until an import by another process is used. */
const cacheTtlMs = 5_000;

/**
 * The compiled catalogue in force. A request checks for a newer version at most every five seconds; an idle process does not.
 *
 * @throws AppError `database-unavailable` before a catalogue is stored
 */
function createCurrentCatalog({
  store,
  monotonicMs,
  publicUrl,
  log,
  metrics,
}: { store: CatalogStore } & Pick<
  AppDeps,
  'monotonicMs' | 'publicUrl' | 'log' | 'metrics'
>): () => Promise<CompiledCatalog> {
  const absolute = (icon: string) => new URL(icon, `${publicUrl()}/`).href;
  return cached({
    ttlMs: cacheTtlMs,
    now: monotonicMs,
    async load(current) {
      const latest = await store.findLatestVersion();
      const stored = latest === undefined || latest.id === current?.version ? undefined : await store.find(latest.id);
      if (stored !== undefined) {
        const compiled = await inSlices(compileInSteps(stored, absolute));
        metrics?.catalogLoaded(compiled.version);
        return compiled;
      }
      if (current === undefined) throw new AppError('database-unavailable', { detail: 'There is no catalogue yet.' });
      return current;
    },
    onReloadFailure: (error) => log.warn(describeError(error), 'using previous catalogue version: reload failed'),
  });
}

/** Attempts to store the matches of an unchanged record. */
const maxAttempts = 12;
const backoffStepMs = 10;

export interface MatchRequest {
  readonly userId: string;
  readonly preconditions: Preconditions;
  readonly requestId: string;
}

export function createMatchingService(
  deps: Pick<AppDeps, 'clock' | 'monotonicMs' | 'publicUrl' | 'log' | 'metrics'>,
  { users, catalogs, today }: { users: UserStore; catalogs: CatalogStore; today: () => CalendarDate },
) {
  const currentCatalog = createCurrentCatalog({ ...deps, store: catalogs });

  return {
    /**
     * Matches the saved answers and stores the matches if the record still has the version that was read; otherwise tries
     * again. `explain` returns the matches with explanations, which are not stored.
     *
     * @throws AppError `precondition-failed`, or `rate-limited` when other requests of the user keep changing the record
     */
    async matchUser({
      userId,
      preconditions,
      requestId,
    }: MatchRequest): Promise<{ record: UserRecord; explain(): Matches }> {
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
        await jitteredPause(0, attempt * backoffStepMs);
      }
      throw new AppError('rate-limited', {
        detail: 'Other requests of the client change the record faster than its matches can be stored.',
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

export type MatchingService = ReturnType<typeof createMatchingService>;
