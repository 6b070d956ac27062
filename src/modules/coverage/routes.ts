import { type Context, Elysia } from 'elysia';
import * as v from 'valibot';
import type { AuthenticatedClient } from '../../auth/verifier';
import type { RouteDeps } from '../../deps';
import { createAuth } from '../../http/auth';
import { requestExamples } from '../../http/docs/routes';
import { problems, readProblems } from '../../http/problem-response';
import { noParameters, requestBody, requestParameters } from '../../http/request-body';
import { requestIdOf } from '../../http/request-context';
import { readPreconditions, saveConditionParameters } from '../../http/response';
import type { CalendarDate } from '../../shared/calendar';
import type { Applicant } from '../../shared/carrier';
import { UserBody } from '../users/model';
import { type AuthenticatedContext, saveProblems, userResponse } from '../users/save';
import { entityTag, type RecordVersion } from '../users/versions';
import type { CoverageService } from './service';
import {
  ApplicationsBody,
  ApplicationsQuery,
  IdempotencyKey,
  totalCoverageExamples,
  totalCoverageRequest,
} from './service';
import type { ListedApplication } from './store';

const responses = {
  200: UserBody,
  ...problems(
    ...saveProblems,
    'application-in-progress',
    'idempotency-key-reused',
    'carrier-declined',
    'carrier-bad-answer',
    'carrier-unavailable',
    'carrier-timeout',
  ),
};
const headers = requestParameters(v.object({ 'idempotency-key': IdempotencyKey }));

export function createCoverageRoutes(
  deps: RouteDeps,
  { coverage: service, today }: { coverage: CoverageService; today: () => CalendarDate },
) {
  const body = requestBody(totalCoverageRequest(today));

  const start = async (
    flow: 'ltc' | 'life',
    applicant: Applicant,
    { client, headers, request, set }: CoverageContext,
  ) => {
    const idempotencyKey = headers['idempotency-key'];
    const requestId = requestIdOf(set);
    const coverage = {
      ...{ userId: client.id, flow, applicant, idempotencyKey, requestId },
      preconditions: readPreconditions(request),
      onSaved: (record: RecordVersion) => {
        set.headers.etag = entityTag.format(record);
      },
    };
    return userResponse(await service.start(coverage), { request, set });
  };

  const transform = ({ client, request, set }: Pick<Context, 'request' | 'set'> & { client: AuthenticatedClient }) =>
    deps.rateLimits?.takeCoverage(client.id, { request, server: deps.server(), set });

  return new Elysia({ tags: ['Coverage'] })
    .use(createAuth(deps))
    .post(
      '/ltc/totalCoverage',
      ({ body, client, headers, request, set }) => start('ltc', body, { client, headers, request, set }),
      {
        transform,
        body,
        query: noParameters,
        headers,
        response: responses,
        detail: coverageDetail('long-term-care', 'startLtcApplication'),
      },
    )
    .post(
      '/life/totalCoverage',
      ({ body, client, headers, request, set }) => start('life', body, { client, headers, request, set }),
      {
        transform,
        body,
        query: noParameters,
        headers,
        response: responses,
        detail: coverageDetail('life', 'startLifeApplication'),
      },
    )
    .get(
      '/user/applications',
      async ({ client, query: { limit, after }, set }) => {
        set.headers['cache-control'] = 'private, no-store';
        const { applications, next } = await service.list({ userId: client.id, limit, after });
        return { data: { applications: applications.map(toApplication), next } };
      },
      {
        query: requestParameters(ApplicationsQuery),
        response: { 200: ApplicationsBody, ...problems(...readProblems) },
        detail: {
          summary: 'List the user’s applications, newest first',
          description:
            'Includes declined applications and those without an outcome. Send `next` as `after` to get the next page.',
          operationId: 'listApplications',
        },
      },
    );
}

interface CoverageContext extends AuthenticatedContext {
  readonly headers: { readonly 'idempotency-key'?: string | undefined };
}

const idempotencyKeyParameter = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  schema: { type: 'string', minLength: 1, maxLength: 255 },
  description: 'A repeated request with the same key starts no second application; keys are kept for a day',
} as const;

function coverageDetail(flow: string, operationId: string) {
  return {
    summary: `Start a ${flow} application at the partner carrier`,
    description:
      'Returns the carrier’s number and pricing in `user.purchase.partner`. The same data never start a second ' +
      'application: a repeated request, a second tab and a retry get the same number. Regardless of the decision, the ' +
      'identity fills empty fields of `user.profile` and replaces no answer; use `POST /v2/private/user/profile` to ' +
      'correct an answer.',
    operationId,
    requestBody: requestExamples(totalCoverageExamples),
    parameters: [idempotencyKeyParameter, ...saveConditionParameters],
  };
}

function toApplication(row: ListedApplication): ApplicationsBody['data']['applications'][number] {
  // An earlier build that settles an abandoned application does not clear `abandonedAt`.
  const isAbandoned = row.abandonedAt !== null && row.state !== 'submitted' && row.state !== 'declined';
  const settledAt = isAbandoned ? row.abandonedAt : row.settledAt;
  return {
    id: row.id,
    flow: row.flow,
    state: isAbandoned ? 'abandoned' : row.state,
    appNumber: row.applicationNumber,
    supersedes: row.supersedes,
    createdAt: new Date(row.createdAt).toISOString(),
    // `createdAt` may be later than the clock, see `open` in the store.
    settledAt: settledAt === null ? null : new Date(Math.max(settledAt, row.createdAt)).toISOString(),
  };
}
