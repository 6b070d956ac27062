import type * as v from 'valibot';
import type { App } from '../app';
import type { LifeInsuranceAnswers, LifetimeCareAnswers, LtcLifetimeCareAnswers } from '../modules/answers/model';
import type { CemeteryQuery } from '../modules/cemeteries/model';
import type { ApplicationsQuery, totalCoverageRequest } from '../modules/coverage/model';
import type { MatchesQuery } from '../modules/matching/model';
import type { previewAnswers } from '../modules/matching/routes';
import type { MonthlyGlanceQuery } from '../modules/sales/model';
import type { profileAnswers } from '../modules/users/model';
import type { problemKinds } from '../shared/problems';

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

/** A bearer token, or a function that returns one for each attempt. */
export type TokenSetting = string | ((ask: { readonly isRefused: boolean }) => string | Promise<string>);

/** A refused token. */
export interface Refused {
  readonly token: string;
  /** The count of successful refreshes when the token was issued. */
  readonly refreshes: number;
}

/**
 * Gets tokens. Calls share one refresh in flight.
 *
 * @param longestMs the age up to which calls join a refresh, so that one that never ends does not block later calls
 */
export function createTokens(given: TokenSetting, longestMs: number) {
  let refreshes = 0;
  let newest: string | undefined;
  let inFlight: { readonly token: Promise<string>; readonly startedAtMs: number } | undefined;

  async function ask(isRefused: boolean): Promise<string> {
    const token: unknown = typeof given === 'string' ? given : await given({ isRefused });
    if (typeof token !== 'string' || token === '') throw new TypeError('token must be text');
    return token;
  }

  async function refresh(): Promise<string> {
    const token = await ask(true);
    refreshes += 1;
    newest = token;
    return token;
  }

  function sharedRefresh(): Promise<string> {
    if (inFlight !== undefined && performance.now() - inFlight.startedAtMs < longestMs) return inFlight.token;
    const started = { token: refresh(), startedAtMs: performance.now() };
    const forget = () => {
      if (inFlight === started) inFlight = undefined;
    };
    started.token.then(forget, forget);
    inFlight = started;
    return started.token;
  }

  return {
    refreshes: () => refreshes,
    /** Returns a token. A refused token is replaced by that of a later refresh, or of the refresh in flight. */
    get(refused: Refused | undefined): Promise<string> {
      if (refused === undefined) return ask(false);
      if (newest === undefined || newest === refused.token || refreshes === refused.refreshes) return sharedRefresh();
      return Promise.resolve(newest);
    },
  };
}
