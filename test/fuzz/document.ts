import Ajv2020, { type ValidateFunction } from 'ajv/dist/2020';
import * as v from 'valibot';

const Parameter = v.object({
  name: v.string(),
  in: v.picklist(['query', 'path', 'header']),
  required: v.boolean(),
  schema: v.looseObject({}),
});
const Content = v.record(v.string(), v.object({ schema: v.looseObject({}) }));
const Body = v.object({
  content: v.object({
    'application/json': v.object({
      schema: v.looseObject({}),
      examples: v.record(v.string(), v.object({ value: v.unknown() })),
    }),
  }),
});
const Operation = v.object({
  security: v.array(v.unknown()),
  parameters: v.array(Parameter),
  requestBody: v.optional(Body),
  responses: v.record(v.string(), v.object({ content: v.optional(Content) })),
});
const Components = v.looseObject({ schemas: v.record(v.string(), v.looseObject({})) });
const Document = v.object({
  paths: v.record(v.string(), v.record(v.string(), Operation)),
  components: Components,
});

/** What one route promises, as the OpenAPI document says. */
export interface Promised {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly isPrivate: boolean;
  readonly parameters: readonly v.InferOutput<typeof Parameter>[];
  readonly body: { readonly schema: Schema; readonly examples: readonly unknown[] } | undefined;
  /** The one media type of each documented status, and what a body of it must be; undefined where there is none. */
  readonly answers: ReadonlyMap<
    number,
    { readonly mediaType: string; readonly validate: ValidateFunction } | undefined
  >;
}

export type Schema = Readonly<Record<string, unknown>>;

export interface ServiceDocument {
  readonly operations: readonly Promised[];
  readonly schemas: Readonly<Record<string, Schema>>;
}

export function readDocument(json: unknown): ServiceDocument {
  const { paths, components } = v.parse(Document, json);
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  // Most answers are of a few models, and compiling each anew takes seconds.
  const compiled = new Map<string, ValidateFunction>();
  const compile = (schema: Schema): ValidateFunction => {
    const key = JSON.stringify(schema);
    const validate = compiled.get(key) ?? ajv.compile({ ...schema, components });
    compiled.set(key, validate);
    return validate;
  };
  const answersOf = (responses: v.InferOutput<typeof Operation>['responses']) =>
    new Map(
      Object.entries(responses).map(([status, { content = {} }]) => {
        const [entry] = Object.entries(content);
        if (entry === undefined) return [Number(status), undefined];
        const [mediaType, { schema }] = entry;
        return [Number(status), { mediaType, validate: compile(schema) }];
      }),
    );
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => {
      const json = operation.requestBody?.content['application/json'];
      return {
        name: `${method.toUpperCase()} ${path}`,
        method: method.toUpperCase(),
        path,
        isPrivate: operation.security.length > 0,
        parameters: operation.parameters,
        body: json && { schema: json.schema, examples: Object.values(json.examples).map(({ value }) => value) },
        answers: answersOf(operation.responses),
      };
    }),
  );
  return { operations, schemas: components.schemas };
}

/** The path that a target asks for, as every client and proxy resolves it: without `.` and `..`. */
export function pathAt(target: string): string {
  return new URL(`http://localhost${target.split('?')[0]}`).pathname;
}

/** The operations at the path that a target asks for, with or without its last slash. */
export function operationsAt({ operations }: ServiceDocument, target: string): readonly Promised[] {
  const bare = (path: string) => path.replace(/\/$/, '');
  const path = bare(pathAt(target));
  return operations.filter((operation) => bare(operation.path) === path);
}
