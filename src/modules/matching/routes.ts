import { Elysia } from 'elysia';
import * as v from 'valibot';
import type { AppDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { requestExamples } from '../../http/docs/routes';
import { bodyProblems, problems } from '../../http/problem-response';
import { noParameters, requestBody, requestParameters } from '../../http/request-body';
import { requestIdOf } from '../../http/request-context';
import { readPreconditions, saveConditionParameters } from '../../http/response';
import type { CalendarDate } from '../../shared/calendar';
import { fields } from '../../shared/fields';
import { answerSections } from '../answers/sections';
import { UserBody } from '../users/model';
import { toUserJson, userResponse } from '../users/save';
import type { AnswerPatches, UserRecord } from '../users/store';
import { Matches, MatchesQuery } from './model';
import type { MatchingService } from './service';

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
  deps: AppDeps,
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
