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

/** Tells whether a value is of a schema; if not, it has `errors`. */
export interface Validate {
  (value: unknown): unknown;
  errors?: unknown;
}

interface PromisedAnswer {
  /** Undefined where there is no body. */
  readonly mediaType: string | undefined;
  readonly headers: ReadonlyMap<string, { readonly required: boolean }>;
  readonly validate: Validate;
}

/** What one route promises, as the OpenAPI document says. */
export interface Promised {
  readonly name: string;
  readonly method: string;
  readonly path: string;
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
  /** Undefined for a status that is not documented. */
  answer(status: number): PromisedAnswer | undefined;
}

export interface ServiceDocument {
  readonly operations: readonly Promised[];
  readonly schemas: Readonly<Record<string, Schema>>;
}

/** The validators of a document, by the names of its schemas. */
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
        isPrivate: operation.security.length > 0,
        parameters: operation.parameters,
        body: json && {
          schema: json.schema,
          examples: Object.values(json.examples).map(({ value }) => value),
          isRequired: operation.requestBody?.required ?? false,
          validate: validators(nameOf(json.schema, `${operation.operationId}_body`)),
        },
        answer: answerReader(operation, validators),
      };
    }),
  );
  return { operations, schemas: components.schemas };
}

/** Reads each as it is asked for: most processes of the tests meet few of two hundred. */
function answerReader({ operationId, responses }: v.InferOutput<typeof Operation>, validators: Validators) {
  const known = new Map<number, PromisedAnswer>();
  return (status: number): PromisedAnswer | undefined => {
    const response = responses[status];
    if (response === undefined || known.has(status)) return known.get(status);
    const { headers, content } = v.parse(Response, response);
    const [entry] = Object.entries(content);
    const answer = {
      mediaType: entry?.[0],
      headers: new Map(Object.entries(headers).map(([name, header]) => [name.toLowerCase(), header])),
      validate: entry === undefined ? () => true : validators(nameOf(entry[1].schema, `${operationId}_${status}`)),
    };
    known.set(status, answer);
    return answer;
  };
}

const refPrefix = '#/components/schemas/';

/** Most schemas are a component’s alone, and are compiled once. */
function nameOf({ $ref, ...rest }: v.InferOutput<typeof Schema>, otherwise: string): string {
  return $ref === undefined || Object.keys(rest).length > 0 ? otherwise : $ref.replace(refPrefix, '');
}

/** Every schema of a document, by its name; whatever it refers to, by that one's. */
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

/** The path that a target asks for, as it is sent. */
export function pathAt(target: string): string {
  return target.replace(/\?.*$/s, '');
}

/** The operations at the path that a target asks for, with or without its last slash. */
export function operationsAt({ operations }: ServiceDocument, target: string): readonly Promised[] {
  const bare = (path: string) => path.replace(/\/$/, '');
  const path = bare(pathAt(target));
  return operations.filter((operation) => bare(operation.path) === path);
}

/** A request that was answered. */
export interface Exchanged {
  readonly method: string;
  /** Undefined where nothing was sent, or something that is not looked at. */
  readonly sentText?: string | undefined;
  readonly status: number;
  readonly headers: {
    has(name: string): boolean;
    get(name: string): string | null | undefined;
    keys(): Iterable<string>;
  };
  readonly text: string;
}

/** Every answer may have these: they are HTTP’s, or tell a browser what it may do. */
const commonHeaders =
  /^(?:access-control-.*|connection|content-.*|cross-origin-.*|date|keep-alive|referrer-policy|server|server-timing|strict-transport-security|transfer-encoding|vary|x-content-type-options)$/;

/** Where an answer is not what the document promises, or takes what it does not allow; nothing, if all is well. */
export function faultsAgainst(operation: Promised, exchanged: Exchanged): string[] {
  const { method, status, headers, text } = exchanged;
  const promised = operation.answer(status);
  if (promised === undefined) return [`${status} is not documented`];
  return [
    ...[...promised.headers]
      .filter(([name, { required }]) => required && !headers.has(name))
      .map(([name]) => `the header ${name} is missing`),
    ...[...headers.keys()]
      .filter((name) => !promised.headers.has(name) && !commonHeaders.test(name))
      .map((name) => `the header ${name} is not documented`),
    ...bodyFaults(promised, { isBodiless: method === 'HEAD' || promised.mediaType === undefined, headers, text }),
    ...(status === 200 ? requestFaults(operation, exchanged) : []),
  ];
}

function bodyFaults(
  { mediaType, validate }: PromisedAnswer,
  { isBodiless, headers, text }: Pick<Exchanged, 'headers' | 'text'> & { isBodiless: boolean },
): string[] {
  if (isBodiless) return text === '' ? [] : ['there is a body where none may be'];
  const type = headers.get('content-type')?.split(';')[0];
  if (type !== mediaType) return [`the type is ${type}, not ${mediaType}`];
  const body: unknown = JSON.parse(text);
  return validate(body) ? [] : [`the body is not as documented: ${JSON.stringify(validate.errors)}`];
}

function requestFaults({ body }: Promised, { sentText }: Exchanged): string[] {
  if (body === undefined || sentText === undefined) return [];
  if (sentText.trim() === '') return body.isRequired ? ['no body was taken, but one is documented as required'] : [];
  return body.validate(JSON.parse(sentText.replace(/^\ufeff/, ''), asKept))
    ? []
    : [`a body was taken that is not as documented: ${JSON.stringify(body.validate.errors)}`];
}

/** A bound in the document is of a value as it is stored, which the document says in words. */
function asKept(name: string, value: unknown): unknown {
  if (typeof value === 'number') return toHundredths(value);
  if (typeof value !== 'string') return value;
  const text = value.trim().normalize('NFC');
  return name === 'gender' ? text.charAt(0).toUpperCase() + text.slice(1).toLowerCase() : text;
}
