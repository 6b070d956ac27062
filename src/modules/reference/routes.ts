import { Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { ifNoneMatchParameter, notModified } from '../../http/entity-tag';
import { answerJson } from '../../http/json-answer';
import { problems, readProblems } from '../../http/problem';
import { noParameters } from '../../http/request-schema';
import { HealthAndCareBody } from './model';
import { createReferenceService } from './service';
import { createReferenceStore } from './store';

export function createReferenceRoutes(deps: AppDeps) {
  const service = createReferenceService({
    store: createReferenceStore(deps.reads),
    chat: deps.config.chat,
    machineClock: deps.machineClock,
    log: deps.log,
  });

  return new Elysia({ prefix: '/healthAndCare', tags: ['Lists'] }).use(createAuth(deps)).get(
    '/',
    async ({ request, set }) => {
      const { json, entityTag } = await service.healthAndCare();
      set.headers.etag = entityTag;
      set.headers['cache-control'] = 'private, max-age=300';
      return answerJson(json, { request, set });
    },
    {
      query: noParameters,
      response: { 200: HealthAndCareBody, ...notModified, ...problems(...readProblems, 'precondition-failed') },
      detail: {
        summary: 'Read the reference lists and the chat widget’s values',
        description: 'The same for all callers, and seldom changed. Cache it, and revalidate with `If-None-Match`.',
        operationId: 'getHealthAndCare',
        parameters: [ifNoneMatchParameter],
      },
    },
  );
}
