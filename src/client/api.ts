import type * as v from 'valibot';
import type { App } from '../app';
import type { LifeInsuranceAnswers, LifetimeCareAnswers, LtcLifetimeCareAnswers } from '../modules/answers/model';
import type { CemeteryQuery } from '../modules/cemeteries/model';
import type { ApplicationsQuery, totalCoverageRequest } from '../modules/coverage/service';
import type { MatchesQuery } from '../modules/matching/model';
import type { previewAnswers } from '../modules/matching/routes';
import type { MonthlyGlanceQuery } from '../modules/sales/model';
import type { profileAnswers } from '../modules/users/model';
import type { problemKinds } from '../shared/problems';

type Private = App['~Routes']['v2']['private'];

/** The body of a 200 response, as the app declares it. */
type ResponseBody<Route extends { response: { 200: unknown } }> = Route['response'][200];

/**
 * The body of a request before validation. The app's type has only the validated form, so the route's model gives this
 * one; the model of another route does not compile.
 */
type Body<Route extends { body: unknown }, Model extends v.GenericSchema<unknown, Route['body']>> = v.InferInput<Model>;

/** A query parameter may be text, or the plain value that validation makes of the text. */
type Query<Route extends { query: unknown }, Model extends v.GenericSchema<unknown, Route['query']>> = Printable<
  v.InferInput<Model>,
  v.InferOutput<Model>
>;
type Printable<Sent, Read> = {
  [Name in keyof Sent]: Sent[Name] | (Name extends keyof Read ? Extract<Read[Name], string | number | boolean> : never);
};

/** Types of the request and of the response of each operation. */
export interface Api {
  /** Reads the whole user object. */
  getUser: { answer: ResponseBody<Private['user']['get']> };
  /** Saves the profile. As in every save, an omitted field stays unchanged, and null clears a field. */
  saveProfile: {
    request: Body<Private['user']['profile']['post'], ReturnType<typeof profileAnswers>>;
    answer: ResponseBody<Private['user']['profile']['post']>;
  };
  /** Saves the lifetime-care step of the long-term-care flow. */
  saveLtcLifetimeCare: {
    request: Body<Private['ltc']['lifetimeCare']['post'], typeof LtcLifetimeCareAnswers>;
    answer: ResponseBody<Private['ltc']['lifetimeCare']['post']>;
  };
  /** Saves the life-insurance deep dive. */
  saveLifeInsurance: {
    request: Body<Private['deepDives']['lifeInsurance']['post'], typeof LifeInsuranceAnswers>;
    answer: ResponseBody<Private['deepDives']['lifeInsurance']['post']>;
  };
  /** Saves the lifetime-care deep dive. */
  saveLifetimeCare: {
    request: Body<Private['deepDives']['lifetimeCare']['post'], typeof LifetimeCareAnswers>;
    answer: ResponseBody<Private['deepDives']['lifetimeCare']['post']>;
  };
  /** Matches products to the saved answers and stores the matches. With `explain`, each match has its reasons. */
  matchProducts: {
    request: Query<Private['engine']['matches']['post'], typeof MatchesQuery>;
    answer: ResponseBody<Private['engine']['matches']['post']>;
  };
  /** Matches as if these answers were saved, with reasons. Stores nothing. */
  previewMatches: {
    request: Body<Private['engine']['preview']['post'], ReturnType<typeof previewAnswers>>;
    answer: ResponseBody<Private['engine']['preview']['post']>;
  };
  /** Starts one long-term-care application at the carrier (`ltc/totalCoverage`), however often it is called. */
  startLtcApplication: {
    request: Body<Private['ltc']['totalCoverage']['post'], ReturnType<typeof totalCoverageRequest>>;
    answer: ResponseBody<Private['ltc']['totalCoverage']['post']>;
  };
  /** Starts one life application at the carrier (`life/totalCoverage`), however often it is called. */
  startLifeApplication: {
    request: Body<Private['life']['totalCoverage']['post'], ReturnType<typeof totalCoverageRequest>>;
    answer: ResponseBody<Private['life']['totalCoverage']['post']>;
  };
  /** Lists the applications of the user, the newest first. */
  listApplications: {
    request: Query<Private['user']['applications']['get'], typeof ApplicationsQuery>;
    answer: ResponseBody<Private['user']['applications']['get']>;
  };
  /** Lists cemeteries by name, a page at a time. */
  listCemeteries: {
    request: Query<Private['cemetery']['all']['get'], typeof CemeteryQuery>;
    answer: ResponseBody<Private['cemetery']['all']['get']>;
  };
  /** Reports a month of sales of the team of the sales manager. */
  getMonthlyGlance: {
    request: Query<Private['user']['salesManager']['monthly-glance']['get'], typeof MonthlyGlanceQuery>;
    answer: ResponseBody<Private['user']['salesManager']['monthly-glance']['get']>;
  };
  /** Reads the reference lists and the values of the chat widget. */
  getHealthAndCare: { answer: ResponseBody<Private['healthAndCare']['get']> };
}

/**
 * How the client sends each operation, at a path below /v2/private. A body is required, and a query only if it has a required
 * parameter. `option` is the option that the call takes in addition to the common ones.
 */
export const operations = {
  getUser: { method: 'GET', path: '/user', sends: 'nothing', option: 'ifNoneMatch' },
  saveProfile: { method: 'POST', path: '/user/profile', sends: 'body', option: 'ifMatch' },
  saveLtcLifetimeCare: { method: 'POST', path: '/ltc/lifetimeCare', sends: 'body', option: 'ifMatch' },
  saveLifeInsurance: { method: 'POST', path: '/deepDives/lifeInsurance', sends: 'body', option: 'ifMatch' },
  saveLifetimeCare: { method: 'POST', path: '/deepDives/lifetimeCare', sends: 'body', option: 'ifMatch' },
  matchProducts: { method: 'POST', path: '/engine/matches', sends: 'query', option: 'ifMatch' },
  previewMatches: { method: 'POST', path: '/engine/preview', sends: 'body', option: 'none' },
  startLtcApplication: { method: 'POST', path: '/ltc/totalCoverage', sends: 'body', option: 'idempotencyKey' },
  startLifeApplication: { method: 'POST', path: '/life/totalCoverage', sends: 'body', option: 'idempotencyKey' },
  listApplications: { method: 'GET', path: '/user/applications', sends: 'query', option: 'none' },
  listCemeteries: { method: 'GET', path: '/cemetery/all', sends: 'query', option: 'none' },
  getMonthlyGlance: { method: 'GET', path: '/user/salesManager/monthly-glance', sends: 'query', option: 'none' },
  getHealthAndCare: { method: 'GET', path: '/healthAndCare/', sends: 'nothing', option: 'ifNoneMatch' },
} as const satisfies Record<keyof Api, { method: string; path: string; sends: string; option: string }>;
export type Operations = typeof operations;

/** Every kind of error of the service by its slug. */
export type ProblemKinds = {
  [Slug in keyof typeof problemKinds]: Pick<(typeof problemKinds)[Slug], 'code' | 'status'>;
};
