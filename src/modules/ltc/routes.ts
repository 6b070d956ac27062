import { Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { noParameters, requestBody } from '../../http/request-schema';
import { createSaveAnswers, saveDetail, saveResponses } from '../users/save-answers';
import { LtcLifetimeCareAnswers, ltcLifetimeCareExamples, toLtcLifetimeCarePatch } from './model';

export function createLtcRoutes(deps: AppDeps) {
  const save = createSaveAnswers(deps);

  return new Elysia({ prefix: '/ltc', tags: ['Long-term care'] })
    .use(createAuth(deps))
    .post(
      '/lifetimeCare',
      ({ body, caller, request, set }) =>
        save('ltcLifetimeCare', toLtcLifetimeCarePatch(body), { caller, request, set }),
      {
        body: requestBody(LtcLifetimeCareAnswers),
        query: noParameters,
        response: saveResponses,
        detail: saveDetail(
          'Save the lifetime-care step of the long-term-care flow',
          'saveLtcLifetimeCare',
          ltcLifetimeCareExamples,
        ),
      },
    );
}
