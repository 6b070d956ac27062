import { STATUS_CODES } from 'node:http';
import { swagger } from '@elysiajs/swagger';
import { toJsonSchema, toJsonSchemaDefs } from '@valibot/to-json-schema';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import packageJson from '../../package.json' with { type: 'json' };
import { problemMediaType } from './problem';
import { isValibotSchema } from './valibot-schema';

type Models = Readonly<Record<string, v.GenericSchema>>;

interface DocumentedRoute {
  readonly method: string;
  readonly path: string;
  readonly hooks: {
    readonly body?: unknown;
    readonly query?: unknown;
    readonly response?: unknown;
    readonly detail?: { readonly hide?: boolean } & Record<string, unknown>;
  };
}

const bearerScheme = 'bearer';
const scriptPath = '/swagger/scalar.js';
const everyMethod = ['GET', 'PUT', 'POST', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH', 'TRACE', 'ALL', 'WS'];

/**
 * The documentation: a page at /swagger and OpenAPI 3.1 at /swagger/json. The plugin cannot read valibot schemas
 * and fails on some of them, so its own scan is off and `describe` tells it the routes. What it serves is made when
 * somebody asks for it first: a start would take a sixth longer.
 */
export function createDocs({ publicUrl, models }: { publicUrl: string | undefined; models: Models }) {
  let routes: readonly DocumentedRoute[] = [];
  let paths: ReturnType<typeof toPaths> | undefined;
  let schemas: Record<string, object> | undefined;
  const documentation = {
    openapi: '3.1.0',
    info: {
      title: 'Personal planning service',
      version: packageJson.version,
      description:
        'Private API for people who plan their later years. Every answer carries `X-Request-Id`; every failure is ' +
        'a problem body (RFC 9457) whose `type` is a page that explains it.',
    },
    servers: [{ url: publicUrl ?? '/' }],
    tags: [
      'User',
      'Long-term care',
      'Deep dives',
      'Matching',
      'Coverage',
      'Cemeteries',
      'Sales',
      'Reference lists',
      'Operation',
    ].map((name) => ({
      name,
    })),
    components: {
      securitySchemes: { [bearerScheme]: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } as const },
      get schemas() {
        schemas ??= toJsonSchemaDefs({ ...models }, conversion(models));
        return schemas;
      },
    },
    get paths() {
      paths ??= toPaths(routes, models);
      return paths;
    },
  };

  const plugin = new Elysia({ name: 'http.docs' })
    .use(
      swagger({
        path: '/swagger',
        specPath: '/swagger/json',
        excludeMethods: everyMethod,
        scalarCDN: scriptPath,
        scalarConfig: pageConfiguration,
        documentation,
      }),
    )
    .get(scriptPath, serveScript, { detail: { hide: true } })
    // A browser asks for it on every page of this host.
    .get('/favicon.ico', () => new Response(null, { status: 204 }), { detail: { hide: true } });

  return {
    plugin,
    describe(all: readonly DocumentedRoute[]): void {
      routes = all;
      paths = undefined;
    },
  };
}

function toPaths(routes: readonly DocumentedRoute[], models: Models): Record<string, Record<string, unknown>> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    if (route.hooks.detail === undefined || route.hooks.detail.hide) continue;
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route, models) };
  }
  return paths;
}

/** Without the parts of the page that send the document, or what is asked about it, to another host. */
const pageConfiguration = {
  spec: { url: '/swagger/json' },
  withDefaultFonts: false,
  telemetry: false,
  hideClientButton: true,
  showDeveloperTools: 'never',
  agent: { disabled: true },
  mcp: { disabled: true },
  authentication: { preferredSecurityScheme: bearerScheme },
};

/** The page's own program, from the package that makes it, so that the page loads nothing from another host. */
function serveScript(): Response {
  const file = new URL('./dist/browser/standalone.js', import.meta.resolve('@scalar/api-reference/package.json'));
  return new Response(Bun.file(file), {
    headers: { 'content-type': 'text/javascript; charset=utf-8', 'cache-control': 'public, max-age=3600' },
  });
}

/** A parameter is text on the wire; what it is to a caller stands in its model's metadata. */
const DocumentedAs = v.object({ description: v.string(), documentedAs: v.looseObject({ type: v.string() }) });

const RequestExamples = v.optional(
  v.object({ content: v.object({ 'application/json': v.object({ examples: v.record(v.string(), v.unknown()) }) }) }),
);

/** The `detail.requestBody` of a route: bodies to try, by a name that says what they show. */
export function requestExamples(values: Readonly<Record<string, object>>) {
  const examples = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value }]));
  return { content: { 'application/json': { examples } } };
}

function operation({ path, hooks }: DocumentedRoute, models: Models): Record<string, unknown> {
  const { parameters, requestBody, ...detail } = hooks.detail ?? {};
  return {
    ...detail,
    security: path.startsWith('/v2/private/') ? [{ [bearerScheme]: [] }] : [],
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
      Object.entries(hooks.response ?? {}).map(([status, schema]) => [status, response(status, schema, models)]),
    ),
  };
}

function response(status: string, schema: unknown, models: Models): Record<string, unknown> {
  const mediaType = Number(status) < 400 ? 'application/json' : problemMediaType;
  return {
    description: STATUS_CODES[status] ?? status,
    headers: Object.fromEntries(headersOf(Number(status)).map((name) => [name, { schema: { type: 'string' } }])),
    ...(isValibotSchema(schema) &&
      schema.type !== 'void' && { content: { [mediaType]: { schema: jsonSchema(schema, models) } } }),
  };
}

function headersOf(status: number): string[] {
  return [
    'X-Request-Id',
    'Cache-Control',
    ...(status === 401 ? ['WWW-Authenticate'] : []),
    ...(status === 503 ? ['Retry-After'] : []),
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
