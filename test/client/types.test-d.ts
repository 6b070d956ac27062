/** Calls that must not compile. `tsc` fails on an expectation as soon as its type becomes too wide. */

import { type CallOptions, type ClientError, createClient, type Result, type User } from '../../src/client';
import type { Api } from '../../src/client/api';

type Same<One, Other> =
  (<Type>() => Type extends One ? 1 : 2) extends <Type>() => Type extends Other ? 1 : 2 ? true : false;
const isTrue = <Value extends true>(value?: Value) => value;

const client = createClient({ baseUrl: 'http://127.0.0.1', token: 'token' });
const applicant = {
  firstName: 'Ada',
  lastName: 'Byron',
  dateOfBirth: '1956-12-10',
  gender: 'Female',
  state: 'va',
  email: 'ada@example.com',
} as const;

/** Valid requests compile. */
export async function allowed() {
  await client.saveLtcLifetimeCare({ relationshipStatus: 'married', propertyStatus: ['iRent'], careCosts: null });
  await client.startLtcApplication(applicant, { idempotencyKey: 'mine', ifMatch: '"1-1"' });
  await client.listCemeteries();
  await client.listCemeteries({ page: 2, limit: '5', sort: 'desc' }, { timeoutMs: 100 });
  await client.matchProducts({ explain: true });
  await client.getMonthlyGlance({ month: 'March', year: 2026 });
}

/** A stored section is a valid body of its save and of a preview. */
export async function sentBack({ profile, ltc, lifeInsurance, lifetimeCare }: User) {
  await client.saveProfile(profile);
  await client.saveLtcLifetimeCare(ltc.lifetimeCare ?? {});
  await client.saveLifeInsurance(lifeInsurance);
  await client.saveLifetimeCare(lifetimeCare);
  await client.previewMatches({ profile, ltc: ltc.lifetimeCare, lifeInsurance, lifetimeCare });
  await client.saveLifeInsurance({ policySupport: { selections: null, customSelections: [{ title: 'x' }] } });
  // @ts-expect-error: a list outside the stored form
  await client.saveLtcLifetimeCare({ leaveFinancialLegacy: { customSelections: [] } });
}

export async function refused() {
  // @ts-expect-error: a wrong value of an enum
  await client.saveLtcLifetimeCare({ careFacilityType: 'atHome' });
  // @ts-expect-error: a wrong value in a list
  await client.saveLifeInsurance({ billsAndDebt: ['mortgage', 'rent'] });
  // @ts-expect-error: a wrong value in a preview
  await client.previewMatches({ ltc: { careFacilityType: 'atHome' } });
  // @ts-expect-error: a wrong value in a query
  await client.listCemeteries({ sort: 'up' });
  // @ts-expect-error: an unknown field
  await client.saveLtcLifetimeCare({ careCost: 4500 });
  // @ts-expect-error: a text for a number
  await client.saveProfile({ heightCm: '165' });
  // @ts-expect-error: no body
  await client.saveProfile();
  // @ts-expect-error: no month
  await client.getMonthlyGlance({});
  // @ts-expect-error: a save has no If-None-Match
  await client.saveProfile({}, { ifNoneMatch: '"1-1"' });
  // @ts-expect-error: a read has no If-Match
  await client.getUser({ ifMatch: '"1-1"' });
  // @ts-expect-error: only an application has an Idempotency-Key
  await client.saveProfile({}, { idempotencyKey: 'mine' });
  // @ts-expect-error: a wrong gender
  await client.startLtcApplication({ ...applicant, gender: 'female' });
  // @ts-expect-error: a client without a token
  createClient({ baseUrl: 'http://127.0.0.1' });
}

type OptionalFields<Body> = { [Name in keyof Body]-?: object extends Pick<Body, Name> ? Name : never }[keyof Body];

/** Each field of an applicant is required. */
export const applicants = [
  isTrue<Same<OptionalFields<Api['startLtcApplication']['request']>, never>>(),
  isTrue<Same<OptionalFields<Api['startLifeApplication']['request']>, never>>(),
  isTrue<Same<keyof Api['startLtcApplication']['request'], keyof typeof applicant>>(),
  isTrue<Same<keyof Api['startLifeApplication']['request'], keyof typeof applicant>>(),
  // @ts-expect-error: the fields of a profile are optional
  isTrue<Same<OptionalFields<Api['saveProfile']['request']>, never>>(),
];

export async function results(options: CallOptions): Promise<User | undefined> {
  const { data, error } = await client.getUser(options);
  // @ts-expect-error: data is defined only without an error
  data.user;
  if (error !== undefined) return undefined;

  const conditional = await client.getUser({ ifNoneMatch: '"1-1"' });
  // @ts-expect-error: data is undefined when the response is 304
  if (conditional.error === undefined) conditional.data.user;
  if (conditional.error === undefined && !conditional.isNotModified) return conditional.data.user;

  const plain: Result<{ readonly user: User }> = await client.getUser();
  // @ts-expect-error: an unknown field of the response
  if (plain.error === undefined) plain.data.user.age;
  return data.user;
}

/** Handles every kind of error; a missing kind does not compile. */
export function everyKind(error: ClientError): string {
  switch (error.slug) {
    case 'invalid-input':
      return error.errors.map(({ pointer, message }) => `${pointer} ${message}`).join();
    case 'method-not-allowed':
      return error.allow.join();
    case 'unexpected-answer':
      return `${error.status} ${error.text}`;
    case 'network-failure':
    case 'aborted':
    case 'token-unavailable':
    case 'invalid-call':
      return String(error.cause);
    case 'timed-out':
      return String(error.timeoutMs);
    case 'application-in-progress':
    case 'auth-keys-unavailable':
    case 'rate-limited':
    case 'request-timeout':
    case 'database-unavailable':
    case 'shutting-down':
    case 'carrier-unavailable':
    case 'carrier-timeout':
    case 'carrier-bad-answer':
      return `${error.status} ${error.retryAfterSeconds}`;
    case 'malformed-json':
    case 'unsupported-media-type':
    case 'payload-too-large':
    case 'malformed-request':
    case 'unauthenticated':
    case 'forbidden':
    case 'route-not-found':
    case 'user-not-found':
    case 'idempotency-key-reused':
    case 'precondition-failed':
    case 'internal-error':
    case 'carrier-declined':
      return error.detail;
  }
}

// @ts-expect-error: unhandled kinds return undefined
export function unhandledKind(error: ClientError): string {
  switch (error.slug) {
    case 'invalid-input':
      return error.detail;
  }
}

export function unhandledKindByDefault(error: ClientError): string {
  switch (error.slug) {
    case 'invalid-input':
      return error.detail;
    default:
      // @ts-expect-error: other kinds remain
      return error satisfies never;
  }
}

export function members(error: ClientError) {
  // @ts-expect-error: a misspelt kind
  if (error.slug === 'invalid-imput') return;
  // @ts-expect-error: not every kind lists fields
  error.errors;
  if (error.slug === 'unauthenticated') {
    isTrue<Same<typeof error.status, 401>>();
    // @ts-expect-error: only some kinds have retryAfterSeconds
    error.retryAfterSeconds;
  }
}
