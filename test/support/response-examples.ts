import * as v from 'valibot';
import { tags } from '../../src/http/docs/routes';
import { seedDemo } from '../../src/seed';
import { createTestApp, testConfig } from './app';
import { exampleTarget } from './documented';
import { startSandbox } from './sandbox';

const Operation = v.object({
  operationId: v.string(),
  tags: v.tuple([v.string()]),
  parameters: v.array(
    v.object({ name: v.string(), in: v.picklist(['query', 'path', 'header']), example: v.optional(v.string()) }),
  ),
  requestBody: v.optional(
    v.object({
      content: v.object({
        'application/json': v.object({ examples: v.record(v.string(), v.object({ value: v.unknown() })) }),
      }),
    }),
  ),
});
const Document = v.object({ paths: v.record(v.string(), v.record(v.string(), Operation)) });

/**
 * The responses to the first example of each operation, in the order of the tags, on the demo data with a fixed clock
 * and fixed ids. Long lists are cut to their first items.
 */
export async function recordResponses(): Promise<Record<string, unknown>> {
  const sandbox = await startSandbox();
  const ids: number[] = [];
  const testApp = await createTestApp({
    carrier: sandbox.carrier(),
    config: { ...testConfig, chat: { id: 'demo-chat', token: 'demo-chat-token' } },
    newId: () => `0198c2f4-6b1e-7d3a-9c54-${String(ids.push(0)).padStart(12, '0')}`,
    publicUrl: () => 'http://127.0.0.1:3000',
  });
  await seedDemo(testApp.db, testApp.now);

  const { paths } = v.parse(Document, (await testApp.call('GET', '/swagger/json')).body);
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })),
  );
  const stepOf = ({ tags: [name] }: (typeof operations)[number]) => tags.findIndex((tag) => tag.name === name);
  const responses: Record<string, unknown> = {};
  for (const operation of operations.toSorted((a, b) => stepOf(a) - stepOf(b))) {
    const { operationId, path, method, parameters, requestBody } = operation;
    const [first] = Object.values(requestBody?.content['application/json'].examples ?? {});
    const caller =
      operationId === 'getMonthlyGlance' ? { as: 'demo-manager', roles: ['salesManager'] } : { as: 'demo-user' };
    const response = await testApp.call(method, exampleTarget(path, parameters), {
      ...caller,
      body: first?.value,
    });
    if (response.status !== 200) throw new Error(`${operationId} returned ${response.status}: ${response.text}`);
    responses[operationId] = shortened(response.body);
  }
  return responses;
}

const longestList = 4;

function shortened(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, value.length > longestList ? 1 : undefined).map(shortened);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shortened(member)]));
}
