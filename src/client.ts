import type { Api } from './client/api';
import { type CallOptions, type ClientSettings, createSender, randomId, type Send } from './client/request';
import type { ClientError, Failure, NotModified, Result } from './client/result';

export type { Api } from './client/api';
export type { CallOptions, ClientSettings } from './client/request';
export type {
  CallProblem,
  ClientError,
  Failure,
  FieldError,
  NotModified,
  Result,
  ServiceProblem,
  Success,
} from './client/result';

export type User = Api['getUser']['answer']['user'];

export interface SaveOptions extends CallOptions {
  /** The `etag` of the answer that was decided on: 412 if the record has changed since. Such a save is not repeated. */
  readonly ifMatch?: string | undefined;
}

export interface ApplicationOptions extends SaveOptions {
  /** Names this application over all repeats, those by another call too. Made by the client if it is left out. */
  readonly idempotencyKey?: string | undefined;
}

type Answered<Name extends keyof Api> = Promise<Result<Api[Name]['answer']>>;
type Requested<Name extends keyof Api> = Api[Name] extends { request: infer Request } ? Request : never;

type Ask<Name extends keyof Api, Options = CallOptions> = (
  query?: Requested<Name>,
  options?: Options,
) => Answered<Name>;
type Submit<Name extends keyof Api, Options = CallOptions> = (
  request: Requested<Name>,
  options?: Options,
) => Answered<Name>;

/** Answers `isNotModified` in the place of data that the caller still has, if `ifNoneMatch` holds their `etag`. */
interface ConditionalRead<Data> {
  (options?: CallOptions & { readonly ifNoneMatch?: undefined }): Promise<Result<Data>>;
  (options: CallOptions & { readonly ifNoneMatch: string }): Promise<Result<Data> | NotModified>;
}

/** Every operation of the service, by its `operationId`. None throws: what fails is answered as `error`. */
export interface Client {
  /** Reads the whole user object. */
  readonly getUser: ConditionalRead<Api['getUser']['answer']>;
  /** Saves the profile. As in every save, what is left out stays, and null clears. */
  readonly saveProfile: Submit<'saveProfile', SaveOptions>;
  /** Saves the lifetime-care step of the long-term-care flow. */
  readonly saveLtcLifetimeCare: Submit<'saveLtcLifetimeCare', SaveOptions>;
  /** Saves the life-insurance deep dive. */
  readonly saveLifeInsurance: Submit<'saveLifeInsurance', SaveOptions>;
  /** Saves the lifetime-care deep dive. */
  readonly saveLifetimeCare: Submit<'saveLifetimeCare', SaveOptions>;
  /** Matches products to the saved answers, and stores the matches; with `explain` each tells why. */
  readonly matchProducts: Ask<'matchProducts', SaveOptions>;
  /** Matches as if these answers were saved, and explains it. Stores nothing. */
  readonly previewMatches: Submit<'previewMatches'>;
  /** Starts a long-term-care application at the carrier (`ltc/totalCoverage`), once however often it is called. */
  readonly startLtcApplication: Submit<'startLtcApplication', ApplicationOptions>;
  /** Starts a life application at the carrier (`life/totalCoverage`), once however often it is called. */
  readonly startLifeApplication: Submit<'startLifeApplication', ApplicationOptions>;
  /** Lists the caller's applications, the newest first. */
  readonly listApplications: Ask<'listApplications'>;
  /** Lists cemeteries by name, a page at a time. */
  readonly listCemeteries: Ask<'listCemeteries'>;
  /** Reports a month's sales of the calling sales manager's team. */
  readonly getMonthlyGlance: Submit<'getMonthlyGlance'>;
  /** Reads the reference lists and the chat widget's values. */
  readonly getHealthAndCare: ConditionalRead<Api['getHealthAndCare']['answer']>;
}

/**
 * A client of the service at `baseUrl`.
 *
 * @throws TypeError if `baseUrl` is no address
 */
export function createClient(settings: ClientSettings): Client {
  const send = createSender(settings);
  return {
    getUser: conditionalRead(send, '/user'),
    saveProfile: (body, options) => send({ ...options, method: 'POST', path: '/user/profile', body }),
    saveLtcLifetimeCare: (body, options) => send({ ...options, method: 'POST', path: '/ltc/lifetimeCare', body }),
    saveLifeInsurance: (body, options) => send({ ...options, method: 'POST', path: '/deepDives/lifeInsurance', body }),
    saveLifetimeCare: (body, options) => send({ ...options, method: 'POST', path: '/deepDives/lifetimeCare', body }),
    matchProducts: (query, options) => send({ ...options, method: 'POST', path: '/engine/matches', query }),
    previewMatches: (body, options) => send({ ...options, method: 'POST', path: '/engine/preview', body }),
    startLtcApplication: (body, options) =>
      send({ ...options, ...keyed(options), method: 'POST', path: '/ltc/totalCoverage', body }),
    startLifeApplication: (body, options) =>
      send({ ...options, ...keyed(options), method: 'POST', path: '/life/totalCoverage', body }),
    listApplications: (query, options) => send({ ...options, method: 'GET', path: '/user/applications', query }),
    listCemeteries: (query, options) => send({ ...options, method: 'GET', path: '/cemetery/all', query }),
    getMonthlyGlance: (query, options) =>
      send({ ...options, method: 'GET', path: '/user/salesManager/monthly-glance', query }),
    getHealthAndCare: conditionalRead(send, '/healthAndCare/'),
  };
}

/** One key for one call, the same in all its attempts. */
function keyed(options: ApplicationOptions | undefined) {
  return { idempotencyKey: options?.idempotencyKey ?? randomId() };
}

function conditionalRead<Data>(send: Send, path: string): ConditionalRead<Data> {
  function read(options?: CallOptions & { readonly ifNoneMatch?: undefined }): Promise<Result<Data>>;
  function read(options: CallOptions & { readonly ifNoneMatch: string }): Promise<Result<Data> | NotModified>;
  function read(options?: CallOptions & { readonly ifNoneMatch?: string | undefined }) {
    return send<Data>({ ...options, method: 'GET', path });
  }
  return read;
}

/** What `dataOf` throws. */
export class CallFailure extends Error {
  // Class fields are newer than some browsers.
  declare readonly name: 'CallFailure';
  declare readonly error: ClientError;
  /** As in `Failure`. */
  declare readonly etag: string | undefined;
  declare readonly requestId: string;

  constructor({ error, etag, requestId }: Failure) {
    super('title' in error ? `${error.title} (${error.slug})` : error.slug, 'cause' in error ? error : undefined);
    this.name = 'CallFailure';
    this.error = error;
    this.etag = etag;
    this.requestId = requestId;
  }
}

/**
 * The data of a call, for code that would rather catch: `const { user } = await dataOf(client.getUser())`.
 *
 * @throws CallFailure
 */
export async function dataOf<Data>(call: Promise<Result<Data>>): Promise<Data> {
  const result = await call;
  if (result.error !== undefined) throw new CallFailure(result);
  return result.data;
}
