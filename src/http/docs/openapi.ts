import { STATUS_CODES } from 'node:http';
import { type JsonSchema, toJsonSchema, toJsonSchemaDefs } from '@valibot/to-json-schema';
import * as v from 'valibot';
import { type ProblemSlug, problemKinds } from '../../shared/problems';
import { Problem, problemMediaType, slugsOf, toProblem } from '../problem-response';
import { isValibotSchema } from '../response';
import { type DocumentedRoute, exampleFailure, exampleRequestId } from './problem-pages';

export type Models = Readonly<Record<string, v.GenericSchema>>;

export const bearerScheme = 'bearer';

/** The `components.schemas` of the document: the models, and each problem that an operation may return. */
export function toSchemas(
  routes: readonly DocumentedRoute[],
  { models, base }: Pick<Material, 'models' | 'base'>,
): Record<string, object> {
  const slugs = routes
    .filter(isDocumented)
    .flatMap(({ hooks }) => Object.values(hooks.response ?? {}).flatMap(slugsOf));
  return { ...toJsonSchemaDefs({ ...models }, conversion(models)), ...problemSchemas(slugs, base) };
}

function isDocumented({ hooks }: DocumentedRoute): boolean {
  return hooks.detail !== undefined && !hooks.detail.hide;
}

interface Material {
  readonly models: Models;
  /** Recorded responses to the first example of each operation, by its id. */
  readonly examples: Readonly<Record<string, unknown>>;
  /** The base of each link in a description. */
  readonly base: string;
  readonly bodyLimitBytes: number;
}

/** The `paths` of the document: each route that has a `detail` and is not hidden. */
export function toPaths(
  routes: readonly DocumentedRoute[],
  material: Material,
): Record<string, Record<string, unknown>> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes.filter(isDocumented)) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route, material) };
  }
  return paths;
}

/** A query parameter is text, so its schema has the documented type as metadata. */
const DocumentedAs = v.object({ description: v.string(), documentedAs: v.looseObject({ type: v.string() }) });

const RequestExamples = v.optional(
  v.object({ content: v.object({ 'application/json': v.object({ examples: v.record(v.string(), v.unknown()) }) }) }),
);

/** A route with such a parameter returns an ETag. */
const TagParameter = v.object({ name: v.picklist(['If-Match', 'If-None-Match']) });

function operation({ path, hooks }: DocumentedRoute, material: Material): Record<string, unknown> {
  const { models, examples } = material;
  const { parameters, requestBody, ...detail } = hooks.detail ?? {};
  const isPrivate = path.startsWith('/v2/private/');
  const hasTag = asArray(parameters).some((parameter) => v.is(TagParameter, parameter));
  const failsAfterSave = Object.values(hooks.response ?? {}).some((each) => slugsOf(each).includes('carrier-declined'));
  const example = examples[String(detail.operationId)];
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
        {
          headers: headerDocs(Number(status), { isLimited: isPrivate, hasTag, failsAfterSave }),
          ...(Number(status) < 400
            ? success(status, schema, { models, example })
            : failure(status, schema, { ...material, path, hooks })),
        },
      ]),
    ),
  };
}

function success(status: string, schema: unknown, { models, example }: { models: Models; example: unknown }) {
  const description = STATUS_CODES[status] ?? status;
  if (!isValibotSchema(schema) || schema.type === 'void') return { description };
  const examples = example === undefined ? {} : { examples: { response: { value: example } } };
  return { description, content: { 'application/json': { schema: jsonSchema(schema, models), ...examples } } };
}

type Failing = Pick<Material, 'models' | 'bodyLimitBytes'> & Pick<DocumentedRoute, 'path' | 'hooks'>;

/** Each problem with an example that equals the response of the service. */
function failure(status: string, schema: unknown, { models, path, ...context }: Failing) {
  const slugs = slugsOf(schema);
  const summary = (slug: ProblemSlug) => `\`${slug}\`: ${problemKinds[slug].title}.`;
  const example = (slug: ProblemSlug) =>
    toProblem(exampleFailure(slug, context), new Request(`http://localhost${path}`), exampleRequestId);
  return {
    description: slugs.length === 0 ? (STATUS_CODES[status] ?? status) : slugs.map(summary).join('\n\n'),
    ...(isValibotSchema(schema) && {
      content: {
        [problemMediaType]: {
          schema: slugs.length === 0 ? jsonSchema(schema, models) : problemSchema(slugs),
          examples: Object.fromEntries(
            slugs.map((slug) => [slug, { summary: problemKinds[slug].title, value: example(slug) }]),
          ),
        },
      },
    }),
  };
}

/** Optional headers: limits may be off, and a failure has a tag only if a record exists. */
const optionalHeaders = ['RateLimit-Policy', 'RateLimit', 'ETag'];

interface HeaderUse {
  readonly isLimited: boolean;
  readonly hasTag: boolean;
  /** Whether a failed request may have stored something. */
  readonly failsAfterSave: boolean;
}

const headerMeanings: Readonly<Record<string, string>> = {
  'Cache-Control': 'Whether and how long the response may be cached',
  ETag: 'The stored version, to send as `If-Match` or `If-None-Match`',
  RateLimit: 'The remaining requests of each policy and the seconds until its reset: `"default";r=599;t=42`',
  'RateLimit-Policy': 'The requests that a client may send in a window of seconds: `"default";q=600;w=60`',
  'Retry-After': 'Seconds after which a retry may succeed',
  'WWW-Authenticate': 'The authentication scheme and the error of the token',
  'X-Request-Id': 'The id of this request, which is also in the log',
};

function headerDocs(status: number, has: HeaderUse): Record<string, object> {
  return Object.fromEntries(
    headersOf(status, has).map((name) => [
      name,
      {
        description: headerMeanings[name],
        ...(!optionalHeaders.includes(name) && { required: true }),
        schema: { type: 'string' },
      },
    ]),
  );
}

function headersOf(status: number, { isLimited, hasTag, failsAfterSave }: HeaderUse): string[] {
  return [
    'X-Request-Id',
    'Cache-Control',
    ...(hasTag && (status < 400 || status === 412 || (failsAfterSave && status >= 409)) ? ['ETag'] : []),
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
    ...documentedForm(property),
  }));
}

function documentedForm(property: unknown): object {
  const { success, output } = v.safeParse(DocumentedAs, property);
  const examples = v.is(WithExamples, property) ? { example: property.examples[0] } : {};
  return { schema: success ? { description: output.description, ...output.documentedAs } : property, ...examples };
}

const WithExamples = v.looseObject({ examples: v.array(v.string()) });

/** Without definitions and dialect, which the document has. */
function jsonSchema(schema: v.GenericSchema, models: Models): object {
  const { $schema: _, $defs: __, ...own } = toJsonSchema(documented(schema), conversion(models));
  return own;
}

/** A request schema is a copy that throws; `definitions` finds models by identity. */
function documented(schema: v.GenericSchema): v.GenericSchema {
  return 'documents' in schema && isValibotSchema(schema.documents) ? schema.documents : schema;
}

function asArray(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Generators read a constant without a type as text. */
const ConstantType = v.picklist(['string', 'number', 'boolean']);

/** Documents requests as they are sent, before defaults and transforms. Custom checks have no JSON form. */
function conversion(models: Models) {
  return {
    target: 'draft-2020-12',
    typeMode: 'input',
    errorMode: 'ignore',
    overrideSchema({ jsonSchema, valibotSchema }: { jsonSchema: JsonSchema; valibotSchema: object }) {
      if ('entries' in valibotSchema) requireMetadata(Object(valibotSchema.entries), jsonSchema.properties ?? {});
      return jsonSchema.const === undefined
        ? undefined
        : { ...jsonSchema, type: v.parse(ConstantType, typeof jsonSchema.const) };
    },
    definitions: { ...models },
    overrideRef: ({ referenceId }: { referenceId: string }) => `#/components/schemas/${referenceId}`,
  } as const;
}

/** Throws for a field with metadata behind a transform, which the converter drops silently. */
function requireMetadata(
  entries: Readonly<Record<string, unknown>>,
  properties: Readonly<Record<string, unknown>>,
): void {
  for (const [name, entry] of Object.entries(entries)) {
    const schema = withoutWrappers(entry);
    const converted = JSON.stringify(properties[name] ?? {});
    if (schema === undefined || converted.includes('"$ref"')) continue;
    const metadata = [v.getDescription(schema), ...v.getExamples(schema), ...Object.values(v.getMetadata(schema))];
    if (!metadata.every((each) => each === undefined || converted.includes(JSON.stringify(each)))) {
      throw new Error(
        `The field ${name} has a description, example or other metadata behind a transform: move it before.`,
      );
    }
  }
}

function withoutWrappers(schema: unknown): v.GenericSchema | undefined {
  if (!isValibotSchema(schema)) return undefined;
  return 'wrapped' in schema ? withoutWrappers(schema.wrapped) : schema;
}

/**
 * A component for each problem, so that generated types can distinguish them. Each is one flat object, and every constant
 * has a type, because generators differ in their support of `allOf`, of `required` next to it, and of `const` without a type.
 */
function problemSchemas(slugs: readonly ProblemSlug[], base: string): Record<string, object> {
  const { properties = {}, required = [] } = toJsonSchema(Problem, { target: 'draft-2020-12', typeMode: 'output' });
  const { errors, ...common } = properties;
  return Object.fromEntries(
    slugs.map((slug) => {
      const { code, status, meaning } = problemKinds[slug];
      const hasErrors = slug === 'invalid-input';
      const constants = Object.entries({ type: `/problems/${slug}`, status, code, http_code: status }).map(
        ([name, value]) => [name, { ...Object(common[name]), const: value }],
      );
      return [
        nameOf(slug),
        {
          description: `${meaning} [How to fix it](${base}/problems/${slug})`,
          type: 'object',
          properties: { ...common, ...Object.fromEntries(constants), ...(hasErrors && { errors }) },
          required: [...required, ...(hasErrors ? ['errors'] : [])],
        },
      ];
    }),
  );
}

/** The schema of a response that may be any of the problems. */
function problemSchema(slugs: readonly ProblemSlug[]): object {
  const mapping = Object.fromEntries(
    slugs.map((slug) => [`/problems/${slug}`, `#/components/schemas/${nameOf(slug)}`]),
  );
  const references = Object.values(mapping).map(($ref) => ({ $ref }));
  return references.length === 1
    ? { ...references[0] }
    : { oneOf: references, discriminator: { propertyName: 'type', mapping } };
}

function nameOf(slug: ProblemSlug): string {
  return slug.replace(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
