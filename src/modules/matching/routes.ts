import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { AppDeps, RouteDeps } from '../../deps';
import { AppError } from '../../errors';
import { createAuth } from '../../http/auth';
import { requestExamples } from '../../http/docs/routes';
import { bodyProblems, problems } from '../../http/problem-response';
import { noParameters, requestBody, requestParameters } from '../../http/request-body';
import { requestIdOf } from '../../http/request-context';
import { isPreconditionMet, type Preconditions, readPreconditions, saveConditionParameters } from '../../http/response';
import { describeError } from '../../log';
import { cached, inSlices, jitteredPause } from '../../shared/async';
import type { CalendarDate } from '../../shared/calendar';
import { fields } from '../../shared/fields';
import { answerSections, parseAnswers } from '../answers/sections';
import { UserBody } from '../users/model';
import { toUserJson, userResponse } from '../users/save';
import type { AnswerPatches, UserRecord, UserStore } from '../users/store';
import { entityTag, staleRecord } from '../users/versions';
import type { CatalogStore } from './catalog-store';
import { deriveFacts } from './facts';
import { type CompiledCatalog, compileInSteps, match, printMatches, rank } from './match';
import { Matches, MatchesQuery } from './model';

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

/** Exported for the declarations of the client, which name it. */
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

type MatchingService = ReturnType<typeof createMatchingService>;

const { profile, ltcLifetimeCare, lifeInsurance, lifetimeCare } = answerSections;

/** Each member is the request body of the endpoint that would save it. */
export function previewAnswers(today: () => CalendarDate) {
  return fields({
    profile: v.optional(profile.request(today)),
    ltc: v.optional(ltcLifetimeCare.request()),
    lifeInsurance: v.optional(lifeInsurance.request()),
    lifetimeCare: v.optional(lifetimeCare.request()),
  });
}
type PreviewAnswers = v.InferOutput<ReturnType<typeof previewAnswers>>;

const previewExamples = {
  'what if care cost more': { ltc: { careCosts: 9000 }, profile: { seriousIllness: true } },
} satisfies Record<string, v.InferInput<ReturnType<typeof previewAnswers>>>;

export const PreviewBody = v.object({ data: v.object({ matches: Matches }) });

function toPatches(answers: PreviewAnswers): AnswerPatches {
  return {
    ...(answers.profile && { profile: profile.toPatch(answers.profile) }),
    ...(answers.ltc && { ltcLifetimeCare: ltcLifetimeCare.toPatch(answers.ltc) }),
    ...(answers.lifeInsurance && { lifeInsurance: lifeInsurance.toPatch(answers.lifeInsurance) }),
    ...(answers.lifetimeCare && { lifetimeCare: lifetimeCare.toPatch(answers.lifetimeCare) }),
  };
}

export function createMatchingRoutes(
  deps: RouteDeps,
  { matching: service, today }: { matching: MatchingService; today: () => CalendarDate },
) {
  return new Elysia({ prefix: '/engine', tags: ['Matches'] })
    .use(createAuth(deps))
    .post(
      '/matches',
      async ({ client, query, request, set }) => {
        const match = { userId: client.id, preconditions: readPreconditions(request), requestId: requestIdOf(set) };
        const { record, explain } = await service.matchUser(match);
        const json = query.explain ? explainedUserJson(record, explain()) : toUserJson(record);
        return userResponse(record, { request, set }, json);
      },
      {
        body: requestBody(v.nullish(fields({}))),
        query: requestParameters(MatchesQuery),
        response: { 200: UserBody, ...problems(...bodyProblems, 'precondition-failed') },
        detail: {
          parameters: saveConditionParameters,
          summary: 'Match insurance products to the saved answers',
          description:
            'Stores and returns `user.insurance.matches`. If two flows ask the same question, the newest answer counts; ' +
            'if that is cleared, the question is unanswered. With `explain=true` each match explains every point; ' +
            'explanations are not stored. Returns 429 if other requests of the client change the record during each attempt.',
          operationId: 'matchProducts',
          requestBody: requestExamples({ 'no parameters': {} }),
        },
      },
    )
    .post(
      '/preview',
      async ({ body, client, set }) => {
        set.headers['cache-control'] = 'private, no-store';
        return { data: { matches: await service.preview(client.id, toPatches(body)) } };
      },
      {
        body: requestBody(previewAnswers(today)),
        query: noParameters,
        response: { 200: PreviewBody, ...problems(...bodyProblems) },
        detail: {
          summary: 'Match with unsaved answers, with explanations',
          description:
            'Each member has the form of a request body of its endpoint. Its answers count as the newest. Nothing is stored.',
          operationId: 'previewMatches',
          requestBody: requestExamples(previewExamples),
        },
      },
    );
}

/** The user with explained matches. Explanations are not stored; the ETag is that of the record. */
function explainedUserJson(record: UserRecord, matches: Matches): string {
  const { user } = v.parse(UserBody, JSON.parse(toUserJson(record)));
  return JSON.stringify({ user: { ...user, insurance: { ...user.insurance, matches } } });
}

/** The icons of the shipped products, by file name. */
export const icons: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'care-annuity.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Care annuity</title><circle cx="24" cy="24" r="16"/><path d="M24 32s-7-4-7-9a4 4 0 0 1 7-2.5 4 4 0 0 1 7 2.5c0 5-7 9-7 9z"/></svg>',
    'final-expense.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Final expense</title><path d="M24 42V20M24 28c-7 0-10-4-10-9 6 0 10 3 10 9zM24 24c6 0 9-4 9-8-5 0-9 3-9 8z"/><circle cx="24" cy="11" r="4"/></svg>',
    'guaranteed-issue.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Guaranteed issue</title><path d="M10 8h20l8 8v24H10z"/><path d="M30 8v8h8M17 28l5 5 9-10"/></svg>',
    'home-care.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Home care</title><path d="M8 24 24 10l16 14M12 21v18h24V21"/><path d="M24 34s-5-3-5-6.5a2.8 2.8 0 0 1 5-1.7 2.8 2.8 0 0 1 5 1.7c0 3.5-5 6.5-5 6.5z"/></svg>',
    'hybrid.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Hybrid</title><path d="M24 40s-14-8.5-14-18a8 8 0 0 1 14-5 8 8 0 0 1 14 5c0 9.5-14 18-14 18z"/><path d="M18 24h12M24 18v12"/></svg>',
    'indexed-annuity.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Indexed annuity</title><path d="M8 8v32h32"/><path d="m13 32 8-8 6 5 11-14M31 15h7v7"/></svg>',
    'legacy.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Legacy</title><rect x="10" y="20" width="28" height="20"/><path d="M8 14h32v6H8zM24 14v26M24 14c-8 0-8-8-3-8 3 0 3 5 3 8zM24 14c8 0 8-8 3-8-3 0-3 5-3 8z"/></svg>',
    'long-term-care.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Long term care</title><circle cx="24" cy="14" r="5"/><path d="M14 38c0-8 4-14 10-14s10 6 10 14M34 22v16"/></svg>',
    'medical-annuity.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Medical annuity</title><path d="M6 26h9l4-10 7 20 5-14 3 4h8"/></svg>',
    'term-life.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Term life</title><circle cx="24" cy="26" r="14"/><path d="M24 18v8l6 4M19 6h10"/></svg>',
    'whole-life.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Whole life</title><path d="M24 6 38 12v10c0 10-6 17-14 20-8-3-14-10-14-20V12z"/><path d="m17 24 5 5 9-10"/></svg>',
  }),
);

export const iconRoutes = new Elysia({ name: 'http.icons' }).get(
  '/icons/:name',
  ({ params: { name } }) => {
    const icon = icons.get(name);
    if (icon === undefined) throw new AppError('route-not-found');
    return new Response(icon, {
      headers: {
        'content-type': 'image/svg+xml',
        'cache-control': 'public, max-age=86400',
        // Frontends of other origins show it.
        'cross-origin-resource-policy': 'cross-origin',
      },
    });
  },
  { params: requestParameters(v.object({ name: v.string() })), detail: { hide: true } },
);
