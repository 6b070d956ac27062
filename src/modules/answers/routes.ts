import { Elysia } from 'elysia';
import type * as v from 'valibot';
import type { RouteDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { requestExamples } from '../../http/docs/routes';
import { problems } from '../../http/problem-response';
import { noParameters, requestBody } from '../../http/request-body';
import { saveConditionParameters } from '../../http/response';
import type { CalendarDate } from '../../shared/calendar';
import { UserBody } from '../users/model';
import { type SaveAnswers, saveProblems } from '../users/save';
import { answerSections } from './sections';

const { profile, ltcLifetimeCare, lifeInsurance, lifetimeCare } = answerSections;

interface SaveRoute<Request extends v.GenericSchema> {
  readonly definition: {
    readonly request: (today: () => CalendarDate) => Request;
    readonly examples: Readonly<Record<string, object>>;
  };
  readonly tag: string;
  readonly summary: string;
  readonly operationId: string;
}

/** The routes that save answers. Each merges its body into one section of the user's record. */
export function createAnswerRoutes(
  deps: RouteDeps,
  { saveAnswers, today }: { saveAnswers: SaveAnswers; today: () => CalendarDate },
) {
  const options = <Request extends v.GenericSchema>(route: SaveRoute<Request>) => ({
    body: requestBody(route.definition.request(today)),
    query: noParameters,
    response: { 200: UserBody, ...problems(...saveProblems) },
    detail: {
      tags: [route.tag],
      summary: route.summary,
      operationId: route.operationId,
      description:
        'A field that is left out stays as it is, null clears it, a list is replaced whole. Returns the whole user.',
      parameters: saveConditionParameters,
      requestBody: requestExamples(route.definition.examples),
    },
  });

  return new Elysia()
    .use(createAuth(deps))
    .post(
      '/user/profile',
      ({ body, client, request, set }) => saveAnswers(profile.section, profile.toPatch(body), { client, request, set }),
      options({ definition: profile, tag: 'Profile', summary: 'Save the profile', operationId: 'saveProfile' }),
    )
    .post(
      '/ltc/lifetimeCare',
      ({ body, client, request, set }) =>
        saveAnswers(ltcLifetimeCare.section, ltcLifetimeCare.toPatch(body), { client, request, set }),
      options({
        definition: ltcLifetimeCare,
        tag: 'Long-term care',
        summary: 'Save the lifetime-care step of the long-term-care flow',
        operationId: 'saveLtcLifetimeCare',
      }),
    )
    .post(
      '/deepDives/lifeInsurance',
      ({ body, client, request, set }) =>
        saveAnswers(lifeInsurance.section, lifeInsurance.toPatch(body), { client, request, set }),
      options({
        definition: lifeInsurance,
        tag: 'Deep dives',
        summary: 'Save the life-insurance deep dive',
        operationId: 'saveLifeInsurance',
      }),
    )
    .post(
      '/deepDives/lifetimeCare',
      ({ body, client, request, set }) =>
        saveAnswers(lifetimeCare.section, lifetimeCare.toPatch(body), { client, request, set }),
      options({
        definition: lifetimeCare,
        tag: 'Deep dives',
        summary: 'Save the lifetime-care deep dive',
        operationId: 'saveLifetimeCare',
      }),
    );
}
