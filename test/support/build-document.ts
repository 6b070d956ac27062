import { join } from 'node:path';
import Ajv2020 from 'ajv/dist/2020';
import standaloneCode from 'ajv/dist/standalone';
import * as v from 'valibot';
import { createTestApp } from './app';
import { cleanUp } from './cleanup';
import { namedSchemas } from './documented';

/**
 * Writes the OpenAPI document and a module with its compiled validators into a folder, because compilation takes each
 * test process half a second.
 */
const [folder = ''] = process.argv.slice(2);
const { text } = await (await createTestApp()).call('GET', '/swagger/json');
const ajv = new Ajv2020({
  strict: false,
  validateFormats: false,
  validateSchema: false,
  inlineRefs: false,
  code: { source: true, esm: true },
});
const schemas = namedSchemas(JSON.parse(text.replaceAll('"#/components/schemas/', '"'), closed));
for (const [name, schema] of schemas) ajv.addSchema({ ...schema, $id: name });
/** Rejects undocumented fields, so that a field that a response schema lacks fails by its name. */
function closed(_: string, value: unknown): unknown {
  const isObjectSchema = v.is(v.object({ type: v.literal('object'), properties: v.looseObject({}) }), value);
  return isObjectSchema ? { additionalProperties: false, ...Object(value) } : value;
}

await Bun.write(join(folder, 'document.json'), text);
await Bun.write(
  join(folder, 'validators.js'),
  standaloneCode(ajv, Object.fromEntries([...schemas.keys()].map((name) => [name, name]))),
);
await cleanUp();
