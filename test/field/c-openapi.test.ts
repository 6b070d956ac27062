import { describe, expect, test } from 'bun:test';
import Ajv2020 from 'ajv/dist/2020';
import * as v from 'valibot';
import { problemKinds } from '../../src/shared/problems';
import { createTestApp } from '../support/app';

const Schema = v.looseObject({
  type: v.optional(v.unknown()),
  const: v.optional(v.unknown()),
  enum: v.optional(v.array(v.unknown())),
  properties: v.optional(v.record(v.string(), v.unknown())),
  required: v.optional(v.union([v.array(v.string()), v.boolean()])),
  items: v.optional(v.unknown()),
  allOf: v.optional(v.array(v.unknown())),
  oneOf: v.optional(v.array(v.object({ $ref: v.optional(v.string()) }))),
  discriminator: v.optional(v.object({ propertyName: v.string(), mapping: v.record(v.string(), v.string()) })),
});
type Schema = v.InferOutput<typeof Schema>;
const Document = v.looseObject({
  paths: v.looseObject({}),
  components: v.looseObject({ schemas: v.record(v.string(), Schema) }),
});

const { call } = await createTestApp();
const document = v.parse(Document, (await call('GET', '/swagger/json')).body);
const { schemas } = document.components;

/** Every schema of the document by its JSON pointer; examples are values and no schemas. */
function* schemasIn(node: unknown, pointer: string, isSchema = false): Generator<[string, Schema]> {
  if (typeof node !== 'object' || node === null) return;
  if (isSchema && !Array.isArray(node)) yield [pointer, v.parse(Schema, node)];
  const holdsSchemas = /\/(?:properties|schemas|anyOf|oneOf|allOf)$/.test(pointer);
  for (const [key, inner] of Object.entries(node)) {
    if (holdsSchemas || (key !== 'examples' && key !== 'example'))
      yield* schemasIn(inner, `${pointer}/${key}`, holdsSchemas || ['schema', 'items'].includes(key));
  }
}
const all = [...schemasIn(document, '#')];
const names = Object.keys(schemas).filter((name) => schemas[name]?.properties?.http_code !== undefined);

/** Constructs that break code generators. */
const faults: Record<string, (schema: Schema) => boolean> = {
  'constant without a type': (schema) => 'const' in schema && schema.type === undefined,
  'enum without a type': (schema) => schema.enum !== undefined && schema.type === undefined,
  'list of types in one schema': ({ type }) => Array.isArray(type),
  'required name that the same schema does not declare': ({ required, properties }) =>
    Array.isArray(required) && required.some((name) => properties?.[name] === undefined),
  'empty schema': (schema) => Object.keys(schema).filter((key) => key !== 'description').length === 0,
  'list without items': ({ type, items }) => type === 'array' && items === undefined,
  'object without members': ({ type, properties, additionalProperties }) =>
    type === 'object' && properties === undefined && additionalProperties === undefined,
  intersection: ({ allOf }) => allOf !== undefined,
  'union of components without a discriminator': ({ oneOf, discriminator }) =>
    oneOf?.some(({ $ref }) => $ref !== undefined) === true && discriminator === undefined,
  'nullable of OpenAPI 3.0': (schema) => 'nullable' in schema,
};

describe('the schemas of /swagger/json', () => {
  test('C12 include parameters, bodies, responses and components', () => {
    const pointers = all.map(([pointer]) => pointer);
    expect(pointers.length).toBeGreaterThan(400);
    for (const part of ['/parameters/', '/requestBody/', '/responses/200/', '/components/schemas/InvalidInput'])
      expect(pointers.filter((pointer) => pointer.includes(part))).not.toBeEmpty();
  });

  test.each(Object.keys(faults))('C12 have no %s', (name) => {
    const hasFault = faults[name];
    expect(all.filter(([, schema]) => hasFault?.(schema)).map(([pointer]) => pointer)).toEqual([]);
  });

  test('C12 have discriminators that name exactly the members of their unions, by the constant that each declares', () => {
    const unions = all.filter(([, { discriminator }]) => discriminator !== undefined);
    expect(unions).not.toBeEmpty();
    for (const [pointer, { oneOf, discriminator }] of unions) {
      const declared = (oneOf ?? []).map(({ $ref = '' }) => {
        const member =
          schemas[$ref.replace('#/components/schemas/', '')]?.properties?.[discriminator?.propertyName ?? ''];
        return [Object(member).const, $ref];
      });
      expect({ pointer, mapping: discriminator?.mapping }).toEqual({ pointer, mapping: Object.fromEntries(declared) });
    }
  });
});

describe('the component of a problem', () => {
  const cases = Object.entries(problemKinds)
    .map(([slug, { code, status }]) => ({
      slug,
      code,
      status,
      name: slug.replace(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    }))
    .filter(({ name }) => names.includes(name));

  test('C12 exists for every kind except those of unknown paths', () => {
    const missing = Object.keys(problemKinds).filter((slug) => !cases.some((each) => each.slug === slug));
    expect(missing).toEqual(['route-not-found', 'method-not-allowed']);
  });

  test.each(cases)('C12 declares the constants of $slug and requires them', ({ slug, code, status, name }) => {
    const { type, properties, required } = schemas[name] ?? {};
    expect({ type, properties }).toMatchObject({
      type: 'object',
      properties: {
        type: { const: `/problems/${slug}` },
        status: { const: status },
        code: { const: code },
        http_code: { const: status },
      },
    });
    expect(required).toEqual(
      expect.arrayContaining(['type', 'title', 'status', 'detail', 'instance', 'code', 'http_code', 'requestId']),
    );
    expect([slug, Array.isArray(required) && required.includes('errors')]).toEqual([slug, slug === 'invalid-input']);
  });

  test('C12 accepts a real 422, and no component of another problem does', async () => {
    const { status, body } = await call('POST', '/v2/private/user/profile', { as: 'one', body: { heightCm: -1 } });
    expect({ status, body }).toMatchObject({ status: 422, body: { errors: [{ pointer: '/heightCm' }] } });
    const ajv = new Ajv2020({ strict: false, validateFormats: false, validateSchema: false });
    ajv.addSchema(document, 'document');
    const fitting = names.filter((name) => ajv.validate({ $ref: `document#/components/schemas/${name}` }, body));
    expect(fitting.filter((name) => name !== 'Problem')).toEqual(['InvalidInput']);
    const { errors: _, ...withoutErrors } = Object(body);
    expect(ajv.validate({ $ref: 'document#/components/schemas/InvalidInput' }, withoutErrors)).toBeFalse();
  });
});
