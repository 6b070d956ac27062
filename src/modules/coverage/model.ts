import { createHash } from 'node:crypto';
import * as v from 'valibot';
import type { CalendarDate } from '../../calendar';
import { fields } from '../../fields';
import { identityFields } from '../users/model';
import type { Applicant } from './carrier/carrier';

/** Who applies, as a frontend sends it; every field is required. */
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

export const ApplicationsBody = v.object({
  data: v.object({
    applications: v.array(
      v.object({
        id: v.string(),
        flow: v.picklist(['ltc', 'life']),
        state: v.picklist(['submitting', 'submitted', 'declined', 'unknown']),
        appNumber: v.nullable(v.number()),
        supersedes: v.pipe(
          v.nullable(v.string()),
          v.description('The application before it, with other identity data'),
        ),
        createdAt: v.string(),
        settledAt: v.nullable(v.string()),
      }),
    ),
  }),
});
export type ApplicationsBody = v.InferOutput<typeof ApplicationsBody>;

/** The same for the same person, whatever the case of the e-mail address and the spacing of the names. */
export function identityHash(applicant: Applicant): string {
  const name = (text: string) => text.normalize('NFC').trim().replace(/\s+/g, ' ');
  const canonical = [
    name(applicant.firstName),
    name(applicant.lastName),
    applicant.dateOfBirth,
    applicant.gender,
    applicant.state,
    applicant.email.toLowerCase(),
  ];
  return createHash('sha256').update(JSON.stringify(canonical)).digest('hex');
}
