import * as v from 'valibot';
import { applicationFlows, applicationStates } from '../../db/schema/people';
import { wholeNumber } from '../../http/response';
import type { CalendarDate } from '../../shared/calendar';
import { fields } from '../../shared/fields';
import { identityFields } from '../users/model';

/** A request with the identity of the applicant; every field is required. */
export function totalCoverageRequest(today: () => CalendarDate) {
  return fields(identityFields(today));
}

export const totalCoverageExamples = {
  'an applicant': {
    firstName: 'Ada',
    lastName: 'Byron',
    dateOfBirth: '1956-12-10T00:00:00.000Z',
    gender: 'Female',
    state: 'VA',
    email: 'ada@example.com',
  },
} satisfies Record<string, v.InferInput<ReturnType<typeof totalCoverageRequest>>>;

export const IdempotencyKey = v.optional(
  v.pipe(v.string(), v.regex(/^[\x21-\x7e]{1,255}$/, 'idempotency_key: must be 1 to 255 visible ASCII characters')),
);

export const ApplicationsQuery = v.strictObject({
  limit: v.optional(wholeNumber('Applications a page', 1, 100), '20'),
  after: v.optional(v.pipe(v.string(), v.description('`next` of the page before'), v.minLength(1), v.maxLength(64))),
});
export type ApplicationsQuery = v.InferOutput<typeof ApplicationsQuery>;

export const ApplicationsBody = v.object({
  data: v.object({
    applications: v.array(
      v.object({
        id: v.string(),
        flow: v.picklist(applicationFlows),
        state: v.pipe(
          v.picklist([...applicationStates, 'abandoned']),
          v.description(
            '`submitting` and `unknown` are open. `abandoned`: the carrier refused the request repeatedly; only a new request ' +
              'of the user sends the application again, under the same id',
          ),
        ),
        appNumber: v.nullable(v.number()),
        supersedes: v.pipe(v.nullable(v.string()), v.description('The previous application, with other identity data')),
        createdAt: v.string(),
        settledAt: v.nullable(v.string()),
      }),
    ),
    next: v.pipe(v.nullable(v.string()), v.description('`after` of the next page; null on the last page')),
  }),
});
export type ApplicationsBody = v.InferOutput<typeof ApplicationsBody>;
