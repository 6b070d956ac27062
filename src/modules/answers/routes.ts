import { Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { noParameters, requestBody } from '../../http/request-body';
import { createSaveAnswers, saveDetail, saveResponses } from '../users/save';
import {
  LifeInsuranceAnswers,
  LifetimeCareAnswers,
  LtcLifetimeCareAnswers,
  lifeInsuranceExamples,
  lifetimeCareExamples,
  ltcLifetimeCareExamples,
  toLifeInsurancePatch,
  toLifetimeCarePatch,
  toLtcLifetimeCarePatch,
} from './model';

export function createLtcRoutes(deps: AppDeps) {
  const save = createSaveAnswers(deps);

  return new Elysia({ prefix: '/ltc', tags: ['Long-term care'] })
    .use(createAuth(deps))
    .post(
      '/lifetimeCare',
      ({ body, client, request, set }) =>
        save('ltcLifetimeCare', toLtcLifetimeCarePatch(body), { client, request, set }),
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

export function createDeepDiveRoutes(deps: AppDeps) {
  const save = createSaveAnswers(deps);

  return new Elysia({ prefix: '/deepDives', tags: ['Deep dives'] })
    .use(createAuth(deps))
    .post(
      '/lifeInsurance',
      ({ body, client, request, set }) => save('lifeInsurance', toLifeInsurancePatch(body), { client, request, set }),
      {
        body: requestBody(LifeInsuranceAnswers),
        query: noParameters,
        response: saveResponses,
        detail: saveDetail('Save the life-insurance deep dive', 'saveLifeInsurance', lifeInsuranceExamples),
      },
    )
    .post(
      '/lifetimeCare',
      ({ body, client, request, set }) => save('lifetimeCare', toLifetimeCarePatch(body), { client, request, set }),
      {
        body: requestBody(LifetimeCareAnswers),
        query: noParameters,
        response: saveResponses,
        detail: saveDetail('Save the lifetime-care deep dive', 'saveLifetimeCare', lifetimeCareExamples),
      },
    );
}
