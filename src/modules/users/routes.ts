import { Elysia } from 'elysia';
import type { AppDeps } from '../../deps';
import { AppError } from '../../errors';
import { createAuth } from '../../http/auth';
import { problems, readProblems } from '../../http/problem-response';
import { noParameters, requestBody } from '../../http/request-body';
import { ifNoneMatchParameter, notModified, readIfNoneMatch } from '../../http/response';
import { calendarDateAt } from '../../shared/calendar';
import { profileAnswers, profileExamples, UserBody } from './model';
import { createReadRecord, createSaveAnswers, saveDetail, saveResponses, userResponse } from './save';

export function createUserRoutes(deps: AppDeps) {
  const readRecord = createReadRecord(deps);
  const save = createSaveAnswers(deps);
  const today = () => calendarDateAt(deps.clock(), deps.config.reportTimeZone);

  return new Elysia({ prefix: '/user' })
    .use(createAuth(deps))
    .get(
      '',
      async ({ client, request, set }) => {
        const row = await readRecord(client.id, readIfNoneMatch(request));
        if (row === undefined) throw new AppError('user-not-found');
        return userResponse(row, { request, set });
      },
      {
        query: noParameters,
        response: {
          200: UserBody,
          ...notModified,
          ...problems(...readProblems, 'user-not-found', 'precondition-failed'),
        },
        detail: {
          tags: ['User object'],
          summary: 'Read the whole user object',
          description: 'Everything that was saved, matched and priced. 404 until the first save has made the record.',
          operationId: 'getUser',
          parameters: [ifNoneMatchParameter],
        },
      },
    )
    .post('/profile', ({ body, client, request, set }) => save('profile', body, { client, request, set }), {
      body: requestBody(profileAnswers(today)),
      query: noParameters,
      response: saveResponses,
      detail: { ...saveDetail('Save the profile', 'saveProfile', profileExamples), tags: ['Profile'] },
    });
}
