/** What `openapi-typescript` makes of the document is what the client of this package has. */

import type { Api } from 'api-of-client';
import type { operations } from 'types-of-document';

type Same<One, Other> =
  (<Type>() => Type extends One ? 1 : 2) extends <Type>() => Type extends Other ? 1 : 2 ? true : false;
const isTrue = <Value extends true>(value?: Value) => value;

/** Written out, as JSON has it: a member that is undefined is one that is left out. */
type Plain<Type> = Type extends readonly (infer Item)[]
  ? Plain<Item>[]
  : Type extends object
    ? { -readonly [Name in keyof Type]: Plain<Exclude<Type[Name], undefined>> }
    : Type;

type Json<Body> = Body extends { content: { 'application/json': infer Value } } ? Value : never;
type DocumentedAnswer<Id extends keyof Api> = Json<operations[Id]['responses'][200]>;
type DocumentedBody<Id extends keyof Api> = operations[Id] extends { requestBody?: infer Body }
  ? Json<NonNullable<Body>>
  : never;
type DocumentedQuery<Id extends keyof Api> = NonNullable<operations[Id]['parameters']['query']>;

/** Those that send a query alone. */
type Asking = 'matchProducts' | 'listApplications' | 'listCemeteries' | 'getMonthlyGlance';
type Sending = Exclude<{ [Id in keyof Api]: Api[Id] extends { request: unknown } ? Id : never }[keyof Api], Asking>;

type OtherAnswers = {
  [Id in keyof Api]: Same<Plain<Api[Id]['answer']>, Plain<DocumentedAnswer<Id>>> extends true ? never : Id;
}[keyof Api];
type OtherBodies = {
  [Id in Sending]: Same<Plain<Api[Id]['request']>, Plain<DocumentedBody<Id>>> extends true ? never : Id;
}[Sending];
/** The client takes a number as a text, too, so its queries are wider. */
type OtherQueries = {
  [Id in Asking]: Plain<DocumentedQuery<Id>> extends Plain<Api[Id]['request']> ? never : Id;
}[Asking];

export const agreements = [
  isTrue<Same<Exclude<keyof operations, keyof Api>, 'getLiveness' | 'getReadiness'>>(),
  isTrue<Same<OtherAnswers, never>>(),
  isTrue<Same<OtherBodies, never>>(),
  isTrue<Same<OtherQueries, never>>(),
  // @ts-expect-error: `Same` tells these types apart
  isTrue<Same<Plain<DocumentedAnswer<'getUser'>>, Plain<DocumentedAnswer<'listCemeteries'>>>>(),
];
