import { type Api, type Operations, operations } from './client/api';
import { type CallOptions, type ClientSettings, createSender, type Query, randomId, type Send } from './client/request';
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
  /** The `etag` of the version to change: 412 if the record has changed since. Retried only if nothing was changed. */
  readonly ifMatch?: string | undefined;
}

export interface ApplicationOptions extends SaveOptions {
  /** Identifies this application in all attempts, also those of other calls. Default: a random key for each call. */
  readonly idempotencyKey?: string | undefined;
}

type Requested<Name extends keyof Api> = Api[Name] extends { request: infer Request } ? Request : never;

type OptionsOf<Name extends keyof Api> = Operations[Name] extends { option: 'idempotencyKey' }
  ? ApplicationOptions
  : Operations[Name] extends { option: 'ifMatch' }
    ? SaveOptions
    : CallOptions;

/** Returns `isNotModified` instead of the data if `ifNoneMatch` is the `etag` of the current version. */
interface ConditionalRead<Data> {
  (options?: CallOptions & { readonly ifNoneMatch?: undefined }): Promise<Result<Data>>;
  (options: CallOptions & { readonly ifNoneMatch: string }): Promise<Result<Data> | NotModified>;
}

type Method<Name extends keyof Api> = Operations[Name] extends { option: 'ifNoneMatch' }
  ? ConditionalRead<Api[Name]['answer']>
  : Operations[Name] extends { sends: 'body' }
    ? (request: Requested<Name>, options?: OptionsOf<Name>) => Promise<Result<Api[Name]['answer']>>
    : Record<never, never> extends Requested<Name>
      ? (query?: Requested<Name>, options?: OptionsOf<Name>) => Promise<Result<Api[Name]['answer']>>
      : (query: Requested<Name>, options?: OptionsOf<Name>) => Promise<Result<Api[Name]['answer']>>;

/** Every operation of the service, by its `operationId`. No call throws: a failure is the `error` of the result. */
export type Client = { readonly [Name in keyof Api]: Method<Name> };

/**
 * Creates a client of the service at `baseUrl`.
 *
 * @throws TypeError if `baseUrl` is not an address
 */
export function createClient(settings: ClientSettings): Client;
export function createClient(settings: ClientSettings): Readonly<Record<string, unknown>> {
  const send = createSender(settings);
  return Object.fromEntries(Object.entries(operations).map(([name, operation]) => [name, toMethod(send, operation)]));
}

function toMethod(send: Send, { method, path, sends, option }: Operations[keyof Api]) {
  if (sends === 'nothing') return (options?: CallOptions) => send({ ...options, method, path });
  if (sends === 'query') return (query?: Query, options?: CallOptions) => send({ ...options, method, path, query });
  return (body: unknown, options?: ApplicationOptions) => {
    // All attempts of a call have the same key.
    const key = option === 'idempotencyKey' && { idempotencyKey: options?.idempotencyKey ?? randomId() };
    return send({ ...options, ...key, method, path, body });
  };
}

/** The error that `dataOf` throws. */
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
 * Returns the data of a call, or throws its error: `const { user } = await dataOf(client.getUser())`.
 *
 * @throws CallFailure
 */
export async function dataOf<Data>(call: Promise<Result<Data>>): Promise<Data> {
  const result = await call;
  if (result.error !== undefined) throw new CallFailure(result);
  return result.data;
}
