/** The types of `openapi-typescript` equal those of the client. */

import type { Api, Operations } from 'api-of-client';
import type { operations } from 'types-of-document';

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
