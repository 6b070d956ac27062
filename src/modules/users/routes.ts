import { Elysia } from 'elysia';
import type { RouteDeps } from '../../deps';
import { AppError } from '../../errors';
import { createAuth } from '../../http/auth';
import { problems, readProblems } from '../../http/problem-response';
import { noParameters } from '../../http/request-body';
import { ifNoneMatchParameter, notModified, readIfNoneMatch } from '../../http/response';
import { UserBody } from './model';
import { userResponse } from './save';
import type { UserRecord } from './store';
import type { ReadRecord } from './versions';

export function createUserRoutes(deps: RouteDeps, readRecord: ReadRecord<UserRecord>) {
  return new Elysia({ prefix: '/user' }).use(createAuth(deps)).get(
    '',
    async ({ client, request, set }) => {
      const record = await readRecord(client.id, readIfNoneMatch(request));
      if (record === undefined) throw new AppError('user-not-found');
      return userResponse(record, { request, set });
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
        description: 'Everything that was saved, matched and priced. 404 until the first save has created the record.',
        operationId: 'getUser',
        parameters: [ifNoneMatchParameter],
      },
    },
  );
}
