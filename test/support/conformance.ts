import { join } from 'node:path';
import * as v from 'valibot';
import { lazy } from '../../src/shared/async';
import { toHundredths } from '../../src/shared/fields';
import { cachedFolder } from './artifacts';
import { runProgram } from './resources';

const Parameter = v.object({
  name: v.string(),
  in: v.picklist(['query', 'path', 'header']),
  required: v.boolean(),
  schema: v.looseObject({}),
  example: v.optional(v.string()),
});
const Schema = v.looseObject({ $ref: v.optional(v.string()) });
const Operation = v.object({
  operationId: v.string(),
  security: v.array(v.unknown()),
  parameters: v.array(Parameter),
  requestBody: v.optional(
    v.object({
      required: v.boolean(),
      content: v.object({
        'application/json': v.object({
          schema: Schema,
          examples: v.record(v.string(), v.object({ value: v.unknown() })),
        }),
      }),
    }),
  ),
  responses: v.record(v.string(), v.unknown()),
});
const DocumentResponse = v.object({
  headers: v.record(v.string(), v.object({ required: v.optional(v.boolean(), false) })),
  content: v.optional(v.record(v.string(), v.object({ schema: Schema })), {}),
});
const Document = v.object({
  paths: v.record(v.string(), v.record(v.string(), Operation)),
  components: v.looseObject({ schemas: v.record(v.string(), v.looseObject({})) }),
});

export type Schema = Readonly<Record<string, unknown>>;

/** Validates a value against a schema and sets `errors` when it does not match. */
interface Validate {
  (value: unknown): unknown;
  errors?: unknown;
}

interface DocumentedResponse {
  /** Undefined without a body. */
  readonly mediaType: string | undefined;
  readonly headers: ReadonlyMap<string, { readonly required: boolean }>;
  readonly validate: Validate;
}

/** One operation of the OpenAPI document. */
export interface DocumentedOperation {
  readonly operationId: string;
  readonly name: string;
  readonly method: string;
  readonly path: string;
  /** The path with the documented examples of its parameters. */
  readonly target: string;
  readonly isPrivate: boolean;
  readonly parameters: readonly v.InferOutput<typeof Parameter>[];
  readonly body:
    | {
        readonly schema: Schema;
        readonly examples: readonly unknown[];
        readonly isRequired: boolean;
        readonly validate: Validate;
      }
    | undefined;
  /** Undefined for an undocumented status. */
  response(status: number): DocumentedResponse | undefined;
}

export interface ServiceDocument {
  readonly operations: readonly DocumentedOperation[];
  readonly schemas: Readonly<Record<string, Schema>>;
}

/** Finds the validator of a schema by its name. */
type Validators = (name: string) => Validate;

function readDocument(json: unknown, validators: Validators): ServiceDocument {
  const { paths, components } = v.parse(Document, json);
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      const json = operation.requestBody?.content['application/json'];
      return {
        operationId: operation.operationId,
        name: `${method.toUpperCase()} ${path}`,
        method: method.toUpperCase(),
        path,
        target: exampleTarget(path, operation.parameters),
        isPrivate: operation.security.length > 0,
        parameters: operation.parameters,
        body: json && {
          schema: json.schema,
          examples: Object.values(json.examples).map(({ value }) => value),
          isRequired: operation.requestBody?.required ?? false,
          validate: validators(nameOf(json.schema, `${operation.operationId}_body`)),
        },
        response: responseReader(operation, validators),
      };
    }),
  );
  return { operations, schemas: components.schemas };
}

/** The path of an operation with the documented examples of its parameters. */
export function exampleTarget(
  path: string,
  parameters: readonly Pick<v.InferOutput<typeof Parameter>, 'name' | 'in' | 'example'>[],
): string {
  const examples = parameters.flatMap(({ name, in: place, example }) =>
    example === undefined ? [] : [{ name, place, example }],
  );
  const filled = examples
    .filter(({ place }) => place === 'path')
    .reduce((target, { name, example }) => target.replace(`{${name}}`, encodeURIComponent(example)), path);
  const query = new URLSearchParams(
    examples.filter(({ place }) => place === 'query').map(({ name, example }) => [name, example]),
  );
  return query.size === 0 ? filled : `${filled}?${query}`;
}

/** Parses responses lazily, because most test processes need few of two hundred. */
function responseReader({ operationId, responses }: v.InferOutput<typeof Operation>, validators: Validators) {
  const known = new Map<number, DocumentedResponse>();
  return (status: number): DocumentedResponse | undefined => {
    const response = responses[status];
    if (response === undefined || known.has(status)) return known.get(status);
    const { headers, content } = v.parse(DocumentResponse, response);
    const [entry] = Object.entries(content);
    const read = {
      mediaType: entry?.[0],
      headers: new Map(Object.entries(headers).map(([name, header]) => [name.toLowerCase(), header])),
      validate: entry === undefined ? () => true : validators(nameOf(entry[1].schema, `${operationId}_${status}`)),
    };
    known.set(status, read);
    return read;
  };
}

const refPrefix = '#/components/schemas/';

/** The component name of a plain $ref, so that shared schemas are compiled once. */
function nameOf({ $ref, ...rest }: v.InferOutput<typeof Schema>, otherwise: string): string {
  return $ref === undefined || Object.keys(rest).length > 0 ? otherwise : $ref.replace(refPrefix, '');
}

/** Every schema of a document by name. */
export function namedSchemas(json: unknown): ReadonlyMap<string, Schema> {
  const { paths, components } = v.parse(Document, json);
  const named = new Map<string, Schema>(Object.entries(components.schemas));
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  for (const { operationId, requestBody, responses } of operations) {
    const bodies = Object.entries(responses).flatMap(([status, response]) =>
      Object.values(v.parse(DocumentResponse, response).content).map(({ schema }) => ({
        schema,
        name: nameOf(schema, `${operationId}_${status}`),
      })),
    );
    for (const { schema, name } of bodies) if (!named.has(name)) named.set(name, schema);
    if (requestBody === undefined) continue;
    const { schema } = requestBody.content['application/json'];
    const name = nameOf(schema, `${operationId}_body`);
    if (!named.has(name)) named.set(name, schema);
  }
  return named;
}

/** The path of a request target, without normalization. */
export function pathAt(target: string): string {
  return target.replace(/\?.*$/s, '');
}

/** The operations at the path of a request target, with or without a trailing slash. */
export function operationsAt({ operations }: ServiceDocument, target: string): readonly DocumentedOperation[] {
  const bare = (path: string) => path.replace(/\/$/, '');
  const path = bare(pathAt(target));
  return operations.filter((operation) => bare(operation.path) === path);
}

/** A request and its response. */
export interface Exchange {
  readonly method: string;
  /** Undefined without a body or for a body that is not text. */
  readonly sentText?: string | undefined;
  readonly status: number;
  readonly headers: {
    has(name: string): boolean;
    get(name: string): string | null | undefined;
    keys(): Iterable<string>;
  };
  readonly text: string;
}

/** Headers that every response may have: general HTTP headers and browser policies. */
const commonHeaders =
  /^(?:access-control-.*|connection|content-.*|cross-origin-.*|date|keep-alive|referrer-policy|server|server-timing|strict-transport-security|transfer-encoding|vary|x-content-type-options)$/;

/** The differences between an exchange and the document: an undocumented response or an undocumented accepted body. */
export function mismatchesWith(operation: DocumentedOperation, exchange: Exchange): string[] {
  const { method, status, headers, text } = exchange;
  const promised = operation.response(status);
  if (promised === undefined) return [`${status} is not documented`];
  return [
    ...[...promised.headers]
      .filter(([name, { required }]) => required && !headers.has(name))
      .map(([name]) => `the header ${name} is missing`),
    ...[...headers.keys()]
      .filter((name) => !promised.headers.has(name) && !commonHeaders.test(name))
      .map((name) => `the header ${name} is not documented`),
    ...bodyMismatches(promised, { isBodiless: method === 'HEAD' || promised.mediaType === undefined, headers, text }),
    ...(status === 200 ? requestMismatches(operation, exchange) : []),
  ];
}

function bodyMismatches(
  { mediaType, validate }: DocumentedResponse,
  { isBodiless, headers, text }: Pick<Exchange, 'headers' | 'text'> & { isBodiless: boolean },
): string[] {
  if (isBodiless) return text === '' ? [] : ['there is an undocumented body'];
  const type = headers.get('content-type')?.split(';')[0];
  if (type !== mediaType) return [`the type is ${type}, not ${mediaType}`];
  const body: unknown = JSON.parse(text);
  return validate(body) ? [] : [`the body is not as documented: ${JSON.stringify(validate.errors)}`];
}

function requestMismatches({ body }: DocumentedOperation, { sentText }: Exchange): string[] {
  if (body === undefined || sentText === undefined) return [];
  if (sentText.trim() === '') return body.isRequired ? ['no body was taken, but one is documented as required'] : [];
  return body.validate(JSON.parse(sentText.replace(/^\ufeff/, ''), asStored))
    ? []
    : [`a body was taken that is not as documented: ${JSON.stringify(body.validate.errors)}`];
}

/** Bounds in the document apply to the stored value, after trimming and rounding. */
function asStored(name: string, value: unknown): unknown {
  if (typeof value === 'number') return toHundredths(value);
  if (typeof value !== 'string') return value;
  const text = value.trim().normalize('NFC');
  return name === 'gender' ? text.charAt(0).toUpperCase() + text.slice(1).toLowerCase() : text;
}

const documentFolder = cachedFolder('documented', {
  make: buildDocument,
  alsoOf: ['test/support/{conformance,child}.ts'],
});
const Functions = v.record(
  v.string(),
  v.custom<Validate>((value) => typeof value === 'function'),
);

/** The OpenAPI document of the sources with compiled validators, cached across test processes. */
export const documentOfSources = lazy(async (): Promise<ServiceDocument> => {
  const folder = await documentFolder();
  const validators = v.parse(Functions, { ...(await import(join(folder, 'validators.js'))) });
  return readDocument(await Bun.file(join(folder, 'document.json')).json(), (name) => {
    const validate = validators[name];
    if (validate === undefined) throw new Error(`There is no schema ${name}.`);
    return validate;
  });
});

async function buildDocument(folder: string): Promise<void> {
  await runProgram(process.cwd(), [process.execPath, join(import.meta.dirname, 'child.ts'), 'document', folder]);
}

/** Pending checks and their requests. */
const checks = new Map<Promise<void>, string>();
const mismatches: string[] = [];
/** Origins of other servers, which are not checked. */
const others = new Set<string>();

/** Excludes an address from the check: another server, or one that responds wrongly on purpose. */
export function excludeFromChecks(address: string | URL): void {
  others.add(new URL(address).origin);
}

/** The differences from the document since the last call. */
export async function trafficMismatches(timeoutMs = 5000): Promise<string[]> {
  if (checks.size > 0) {
    // The build is slow; if it fails, each check reports it.
    await documentOfSources().catch(() => undefined);
    const { promise: isOver, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, timeoutMs);
    await Promise.race([isOver, finishChecks()]);
    clearTimeout(timer);
    for (const request of checks.values()) mismatches.push(`${request}: the response or the request body never ends`);
    checks.clear();
  }
  return [...new Set(mismatches.splice(0))];
}

async function finishChecks(): Promise<void> {
  while (checks.size > 0) await Promise.all(checks.keys());
}

/** The request data to check, or undefined for a path outside the document. */
function observedRequest(input: string | URL | Request, init?: RequestInit) {
  const url = input instanceof Request ? input.url : String(input);
  if (!/^https?:\/\/(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?\/(?:v2\/private|health)\//.test(url)) return undefined;
  const { origin, pathname } = new URL(url);
  if (others.has(origin)) return undefined;
  const request = input instanceof Request ? input : undefined;
  const body = init?.body ?? undefined;
  return {
    target: pathname,
    method: init?.method ?? request?.method ?? 'GET',
    sentText: typeof body === 'string' ? body : body === undefined && request?.body ? textOf(request) : undefined,
  };
}

/** Undefined for an aborted body. */
function textOf(request: Request): Promise<string | undefined> {
  return request
    .clone()
    .text()
    .catch(() => undefined);
}

/** Checks a response in the background. */
function startCheck(
  { target, sentText, method }: NonNullable<ReturnType<typeof observedRequest>>,
  readResponse: () => Promise<Pick<Exchange, 'status' | 'headers' | 'text'> | undefined>,
): void {
  const check = async () => {
    const response = await readResponse();
    if (response === undefined) return;
    // The body of a rejected request may never end.
    const acceptedText = response.status === 200 ? await sentText : undefined;
    compare(await documentOfSources(), target, { ...response, method, sentText: acceptedText });
  };
  const request = `${method} ${target}`;
  const checking = check()
    .catch((error: unknown) => void mismatches.push(`${request}: ${error}`))
    .finally(() => checks.delete(checking));
  checks.set(checking, request);
}

function compare(known: ServiceDocument, target: string, exchange: Exchange): void {
  const method = exchange.method === 'HEAD' ? 'GET' : exchange.method;
  const operation = operationsAt(known, target).find((each) => each.method === method);
  if (operation === undefined) return;
  for (const mismatch of mismatchesWith(operation, exchange)) mismatches.push(`${operation.name}: ${mismatch}`);
}

type Handle = (request: Request) => Promise<Response>;

/** Checks an app in this process. Its responses are texts, so reading one is cheaper than a clone. */
export function watchedHandle(handle: Handle): Handle {
  return async (request) => {
    const sent = observedRequest(request);
    const response = await handle(request);
    if (sent === undefined) return response;
    const text = await response.text();
    const { status, headers } = response;
    startCheck(sent, async () => ({ status, headers, text }));
    return new Response(text === '' ? null : text, { status, headers });
  };
}

/** Checks every response that `fetch` receives from a service on this machine. */
export function watchFetch(): void {
  const plainFetch = globalThis.fetch;
  const watchedFetch = async (input: string | URL | Request, init?: RequestInit) => {
    const sent = observedRequest(input, init);
    const response = await plainFetch(input, init);
    if (sent === undefined) return response;
    const copy = response.clone();
    startCheck(sent, async () => {
      // An aborted body is not an error here.
      const text = await copy.text().catch(() => undefined);
      return text === undefined ? undefined : { status: copy.status, headers: copy.headers, text };
    });
    return response;
  };
  globalThis.fetch = Object.assign(watchedFetch, { preconnect: plainFetch.preconnect });
}
