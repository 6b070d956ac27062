/** The types of `openapi-typescript` equal those of the client. */

import type { Api, Operations } from 'api-of-client';
import type createClient from 'openapi-fetch';
import type { operations, paths } from 'types-of-document';

type Same<One, Other> =
  (<Type>() => Type extends One ? 1 : 2) extends <Type>() => Type extends Other ? 1 : 2 ? true : false;
const isTrue = <Value extends true>(value?: Value) => value;

/** The JSON form of a type: an undefined member is an absent one. */
type Plain<Type> = Type extends readonly (infer Item)[]
  ? Plain<Item>[]
  : Type extends object
    ? { -readonly [Name in keyof Type]: Plain<Exclude<Type[Name], undefined>> }
    : Type;

type Json<Body> = Body extends { content: { 'application/json': infer Value } } ? Value : never;
type DocumentedResponse<Id extends keyof Api> = Json<operations[Id]['responses'][200]>;
type DocumentedBody<Id extends keyof Api> = operations[Id] extends { requestBody?: infer Body }
  ? Json<NonNullable<Body>>
  : never;
type DocumentedQuery<Id extends keyof Api> = NonNullable<operations[Id]['parameters']['query']>;

type Sending<What> = { [Id in keyof Api]: Operations[Id] extends { sends: What } ? Id : never }[keyof Api];
type WithBody = Sending<'body'>;
type WithQuery = Sending<'query'>;

type OtherResponses = {
  [Id in keyof Api]: Same<Plain<Api[Id]['answer']>, Plain<DocumentedResponse<Id>>> extends true ? never : Id;
}[keyof Api];
type OtherBodies = {
  [Id in WithBody]: Same<Plain<Api[Id]['request']>, Plain<DocumentedBody<Id>>> extends true ? never : Id;
}[WithBody];
/** The client also accepts numbers as text, so its queries are wider. */
type OtherQueries = {
  [Id in WithQuery]: Plain<DocumentedQuery<Id>> extends Plain<Api[Id]['request']> ? never : Id;
}[WithQuery];

export const agreements = [
  isTrue<Same<Exclude<keyof operations, keyof Api>, 'getLiveness' | 'getReadiness'>>(),
  isTrue<Same<OtherResponses, never>>(),
  isTrue<Same<OtherBodies, never>>(),
  isTrue<Same<OtherQueries, never>>(),
  // @ts-expect-error: `Same` distinguishes these types
  isTrue<Same<Plain<DocumentedResponse<'getUser'>>, Plain<DocumentedResponse<'listCemeteries'>>>>(),
];

type Client = ReturnType<typeof createClient<paths>>;

/** A journey from a profile to an application compiles and runs, and its responses have typed members. */
export async function allowed(client: Client) {
  const saved = await client.POST('/v2/private/user/profile', {
    body: { firstName: 'Ada', lastName: 'Byron', dateOfBirth: '1956-12-10', heightCm: 165, tobacco: null },
  });
  const matched = await client.POST('/v2/private/engine/matches', { params: { query: { explain: true } } });
  const { firstName = '', lastName = '', dateOfBirth = '' } = saved.data?.user.profile ?? {};
  const started = await client.POST('/v2/private/ltc/totalCoverage', {
    params: { header: { 'Idempotency-Key': 'walk' } },
    body: { firstName, lastName, dateOfBirth, gender: 'Female', state: 'VA', email: 'a@example.com' },
  });
  const refused = await client.POST('/v2/private/ltc/lifetimeCare', { body: { careCosts: -1 } });
  const pointer = refused.error?.code === 201 ? refused.error.errors[0]?.pointer : undefined;
  const explanation = matched.data?.user.insurance.matches?.bestMatch?.explanation;
  const terms = started.data?.user.purchase.partner?.pricing[0]?.terms;
  return { pointer, countRules: explanation?.rules.length, countTerms: terms?.length };
}

export async function refused(client: Client) {
  // @ts-expect-error: a wrong value of an enum
  await client.POST('/v2/private/ltc/lifetimeCare', { body: { careFacilityType: 'atHome' } });
  // @ts-expect-error: an application without a name
  await client.POST('/v2/private/life/totalCoverage', { body: { firstName: 'Ada' } });
  // @ts-expect-error: no month
  await client.GET('/v2/private/user/salesManager/monthly-glance');
  // @ts-expect-error: an unknown path
  await client.GET('/v2/private/nowhere');
}

/** The `code` of an error determines its members, and the operation its possible codes. */
export async function narrowed(client: Client) {
  const { error } = await client.POST('/v2/private/user/profile', { body: { firstName: 'Ada' } });
  if (error?.code === 204) {
    // @ts-expect-error: a malformed request has no list of errors
    return error.errors.length;
  }
  // @ts-expect-error: saving a profile calls no carrier
  return error?.code === 313;
}
