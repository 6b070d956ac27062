import type * as v from 'valibot';
import type { App } from '../app';
import type { CemeteryQuery } from '../modules/cemeteries/model';
import type { ApplicationsQuery, totalCoverageRequest } from '../modules/coverage/model';
import type { LifeInsuranceAnswers, LifetimeCareAnswers } from '../modules/deep-dives/model';
import type { LtcLifetimeCareAnswers } from '../modules/ltc/model';
import type { MatchesQuery } from '../modules/matching/model';
import type { previewAnswers } from '../modules/matching/preview-model';
import type { MonthlyGlanceQuery } from '../modules/sales/model';
import type { profileAnswers } from '../modules/users/model';
import type { problemKinds } from '../problems';

type Private = App['~Routes']['v2']['private'];

/** What is answered, by the app's own type. */
type Answer<Route extends { response: { 200: unknown } }> = Route['response'][200];

/**
 * What is sent. The app's type knows only what validation makes of it, so it is read from the route's model; another
 * model than the route's does not compile.
 */
type Body<Route extends { body: unknown }, Model extends v.GenericSchema<unknown, Route['body']>> = v.InferInput<Model>;

/** A query is text on the wire; it may be given as whatever plain value that text becomes. */
type Query<Route extends { query: unknown }, Model extends v.GenericSchema<unknown, Route['query']>> = Printable<
  v.InferInput<Model>,
  v.InferOutput<Model>
>;
type Printable<Sent, Read> = {
  [Name in keyof Sent]: Sent[Name] | (Name extends keyof Read ? Extract<Read[Name], string | number | boolean> : never);
};

/** Every operation of the service: what is sent to it, and what it answers. */
export interface Api {
  getUser: { answer: Answer<Private['user']['get']> };
  saveProfile: {
    request: Body<Private['user']['profile']['post'], ReturnType<typeof profileAnswers>>;
    answer: Answer<Private['user']['profile']['post']>;
  };
  saveLtcLifetimeCare: {
    request: Body<Private['ltc']['lifetimeCare']['post'], typeof LtcLifetimeCareAnswers>;
    answer: Answer<Private['ltc']['lifetimeCare']['post']>;
  };
  saveLifeInsurance: {
    request: Body<Private['deepDives']['lifeInsurance']['post'], typeof LifeInsuranceAnswers>;
    answer: Answer<Private['deepDives']['lifeInsurance']['post']>;
  };
  saveLifetimeCare: {
    request: Body<Private['deepDives']['lifetimeCare']['post'], typeof LifetimeCareAnswers>;
    answer: Answer<Private['deepDives']['lifetimeCare']['post']>;
  };
  matchProducts: {
    request: Query<Private['engine']['matches']['post'], typeof MatchesQuery>;
    answer: Answer<Private['engine']['matches']['post']>;
  };
  previewMatches: {
    request: Body<Private['engine']['preview']['post'], ReturnType<typeof previewAnswers>>;
    answer: Answer<Private['engine']['preview']['post']>;
  };
  startLtcApplication: {
    request: Body<Private['ltc']['totalCoverage']['post'], ReturnType<typeof totalCoverageRequest>>;
    answer: Answer<Private['ltc']['totalCoverage']['post']>;
  };
  startLifeApplication: {
    request: Body<Private['life']['totalCoverage']['post'], ReturnType<typeof totalCoverageRequest>>;
    answer: Answer<Private['life']['totalCoverage']['post']>;
  };
  listApplications: {
    request: Query<Private['user']['applications']['get'], typeof ApplicationsQuery>;
    answer: Answer<Private['user']['applications']['get']>;
  };
  listCemeteries: {
    request: Query<Private['cemetery']['all']['get'], typeof CemeteryQuery>;
    answer: Answer<Private['cemetery']['all']['get']>;
  };
  getMonthlyGlance: {
    request: Query<Private['user']['salesManager']['monthly-glance']['get'], typeof MonthlyGlanceQuery>;
    answer: Answer<Private['user']['salesManager']['monthly-glance']['get']>;
  };
  getHealthAndCare: { answer: Answer<Private['healthAndCare']['get']> };
}

/** Every kind of problem of the service, by its slug. */
export type ProblemKinds = {
  [Slug in keyof typeof problemKinds]: Pick<(typeof problemKinds)[Slug], 'code' | 'status'>;
};
