import * as v from 'valibot';
import { toHundredths } from '../../src/shared/fields';

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
const Response = v.object({
  headers: v.record(v.string(), v.object({ required: v.optional(v.boolean(), false) })),
  content: v.optional(v.record(v.string(), v.object({ schema: Schema })), {}),
});
const Document = v.object({
  paths: v.record(v.string(), v.record(v.string(), Operation)),
  components: v.looseObject({ schemas: v.record(v.string(), v.looseObject({})) }),
});

export type Schema = Readonly<Record<string, unknown>>;

/** Validates a value against a schema and sets `errors` when it does not match. */
export interface Validate {
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

export function readDocument(json: unknown, validators: Validators): ServiceDocument {
  const { paths, components } = v.parse(Document, json);
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      const json = operation.requestBody?.content['application/json'];
      return {
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
    const { headers, content } = v.parse(Response, response);
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
      Object.values(v.parse(Response, response).content).map(({ schema }) => ({
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
