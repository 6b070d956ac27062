import { expect, test } from 'bun:test';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import * as v from 'valibot';
import { createTestApp } from '../support/app';

test('the OpenAPI document passes the recommended lint rules with three deliberate exceptions', async () => {
  const document = (await (await createTestApp()).call('GET', '/swagger/json')).body;
  const config = await createConfig({ extends: ['recommended-strict'] });
  const lint = async (json: unknown) =>
    (await lintFromString({ source: JSON.stringify(json), absoluteRef: '/openapi.json', config })).map(
      ({ ruleId, location: [at] }) => `${ruleId} ${at?.pointer}`,
    );
  const deliberate = [
    // The service is private and has no licence.
    'info-license #/info',
    // The contract defines this path.
    'no-path-trailing-slash #/paths/~1v2~1private~1healthAndCare~1',
    // Client code refers to the generic problem; each response lists specific ones.
    'no-unused-components #/components/schemas/Problem',
  ];
  expect(await lint(document)).toEqual(deliberate);

  const { tags: _, ...untagged } = v.parse(v.looseObject({ paths: v.looseObject({}) }), document);
  const paths = { ...untagged.paths, '/unkempt': { get: { responses: { 200: { description: 'Yes' } } } } };
  expect(await lint({ ...untagged, paths })).toContain('operation-4xx-response #/paths/~1unkempt/get/responses');
});
