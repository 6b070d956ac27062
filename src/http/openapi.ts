import { STATUS_CODES } from 'node:http';
import { toJsonSchema, toJsonSchemaDefs } from '@valibot/to-json-schema';
import * as v from 'valibot';
import type { DocumentedRoute, Models } from './docs';
import { ifMatchParameter, ifNoneMatchParameter } from './entity-tag';
import { problemMediaType } from './problem';
import { isValibotSchema } from './valibot-schema';

export const bearerScheme = 'bearer';

/** The `components.schemas` of the document: the models, by name. */
export function toSchemas(models: Models): Record<string, object> {
  return toJsonSchemaDefs({ ...models }, conversion(models));
}

/** The `paths` of the document: every route that has a `detail` and is not hidden. */
export function toPaths(routes: readonly DocumentedRoute[], models: Models): Record<string, Record<string, unknown>> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    if (route.hooks.detail === undefined || route.hooks.detail.hide) continue;
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route, models) };
  }
  return paths;
}

/** A parameter is text on the wire; what it is to a caller stands in its model's metadata. */
const DocumentedAs = v.object({ description: v.string(), documentedAs: v.looseObject({ type: v.string() }) });

const RequestExamples = v.optional(
  v.object({ content: v.object({ 'application/json': v.object({ examples: v.record(v.string(), v.unknown()) }) }) }),
);

function operation({ path, hooks }: DocumentedRoute, models: Models): Record<string, unknown> {
  const { parameters, requestBody, ...detail } = hooks.detail ?? {};
  const isPrivate = path.startsWith('/v2/private/');
  return {
    ...detail,
    security: isPrivate ? [{ [bearerScheme]: [] }] : [],
    parameters: [...pathParameters(path), ...queryParameters(hooks.query, models), ...asArray(parameters)],
    ...(isValibotSchema(hooks.body) && {
      requestBody: {
        required: hooks.body.type !== 'nullish',
        content: {
          'application/json': {
            schema: jsonSchema(hooks.body, models),
            examples: v.parse(RequestExamples, requestBody)?.content['application/json'].examples,
          },
        },
      },
    }),
    responses: Object.fromEntries(
      Object.entries(hooks.response ?? {}).map(([status, schema]) => [
        status,
        response(status, schema, { models, isLimited: isPrivate, isTagged: takesTags(parameters) }),
      ]),
    ),
  };
}

function response(
  status: string,
  schema: unknown,
  { models, ...kind }: { models: Models } & RouteKind,
): Record<string, unknown> {
  const mediaType = Number(status) < 400 ? 'application/json' : problemMediaType;
  return {
    description: STATUS_CODES[status] ?? status,
    headers: Object.fromEntries(headersOf(Number(status), kind).map((name) => [name, headerDoc(name)])),
    ...(isValibotSchema(schema) &&
      schema.type !== 'void' && { content: { [mediaType]: { schema: jsonSchema(schema, models) } } }),
  };
}

/** Those that not every such answer has: limits may be switched off, and matches that are explained have no tag. */
const optionalHeaders = ['RateLimit-Policy', 'RateLimit', 'ETag'];

const headerMeanings: Readonly<Record<string, string>> = {
  'X-Request-Id': 'Names this request; the caller’s own, if it sent one',
  'Cache-Control': 'Whether the answer may be kept, and for how long',
  'WWW-Authenticate': 'How to authenticate, and what is wrong with the token',
  ETag: 'Names this state of what is answered, for `If-Match` and `If-None-Match`',
  RateLimit: 'What is left of each policy, and the seconds until all of it is there again: `"default";r=599;t=42`',
  'RateLimit-Policy': 'How many requests a caller has in how many seconds: `"default";q=600;w=60`',
  'Retry-After': 'Seconds after which a repeat may succeed',
};

function headerDoc(name: string): object {
  return {
    description: headerMeanings[name],
    ...(!optionalHeaders.includes(name) && { required: true }),
    schema: { type: 'string' },
  };
}

interface RouteKind {
  readonly isLimited: boolean;
  /** Answers an entity tag. */
  readonly isTagged: boolean;
}

function takesTags(parameters: unknown): boolean {
  return asArray(parameters).some((each) => each === ifMatchParameter || each === ifNoneMatchParameter);
}

function headersOf(status: number, { isLimited, isTagged }: RouteKind): string[] {
  return [
    'X-Request-Id',
    'Cache-Control',
    ...(isTagged && status < 400 ? ['ETag'] : []),
    ...(status === 401 ? ['WWW-Authenticate'] : []),
    ...([409, 429, 502, 503, 504].includes(status) ? ['Retry-After'] : []),
    ...(isLimited ? ['RateLimit-Policy', 'RateLimit'] : []),
  ];
}

function pathParameters(path: string): object[] {
  return [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
}

function queryParameters(schema: unknown, models: Models): object[] {
  if (!isValibotSchema(schema)) return [];
  const { properties = {}, required = [] } = toJsonSchema(documented(schema), conversion(models));
  return Object.entries(properties).map(([name, property]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    schema: documentedForm(property),
  }));
}

function documentedForm(property: unknown): unknown {
  const { success, output } = v.safeParse(DocumentedAs, property);
  return success ? { description: output.description, ...output.documentedAs } : property;
}

/** The schema alone: what it refers to stands under /components, and the dialect is the document's. */
function jsonSchema(schema: v.GenericSchema, models: Models): object {
  const { $schema: _, $defs: __, ...own } = toJsonSchema(documented(schema), conversion(models));
  return own;
}

/** A request's schema is a copy that throws; the models are known by identity. */
function documented(schema: v.GenericSchema): v.GenericSchema {
  return 'documents' in schema && isValibotSchema(schema.documents) ? schema.documents : schema;
}

function asArray(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Requests are documented as they are sent, before defaults and transforms; checks of our own have no JSON form. */
function conversion(models: Models) {
  return {
    target: 'draft-2020-12',
    typeMode: 'input',
    errorMode: 'ignore',
    definitions: { ...models },
    overrideRef: ({ referenceId }: { referenceId: string }) => `#/components/schemas/${referenceId}`,
  } as const;
}
