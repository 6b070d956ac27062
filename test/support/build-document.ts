import { join } from 'node:path';
import Ajv2020 from 'ajv/dist/2020';
import standaloneCode from 'ajv/dist/standalone';
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
const schemas = namedSchemas(JSON.parse(text.replaceAll('"#/components/schemas/', '"')));
for (const [name, schema] of schemas) ajv.addSchema({ ...schema, $id: name });
await Bun.write(join(folder, 'document.json'), text);
await Bun.write(
  join(folder, 'validators.js'),
  standaloneCode(ajv, Object.fromEntries([...schemas.keys()].map((name) => [name, name]))),
);
await cleanUp();
