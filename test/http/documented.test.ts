import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import * as v from 'valibot';
import { createTestApp } from '../support/app';
import { documentOfSources, type Exchange, mismatchesWith, trafficMismatches } from '../support/conformance';
import { atEnd, runToEnd, temporaryFolder } from '../support/resources';

const document = await documentOfSources();
const { call } = await createTestApp();
const headersOf = (headers: Record<string, string>) =>
  new Headers({
    'content-type': 'application/json',
    'x-request-id': 'request-1',
    'cache-control': 'no-store',
    ...headers,
  });
const user = {
  id: 'one',
  createdAt: '2026-03-10T12:00:00.000Z',
  updatedAt: '2026-03-10T12:00:00.000Z',
  profile: { firstName: 'Ada' },
  insurance: {},
  ltc: {},
  purchase: {},
  lifeInsurance: {},
  lifetimeCare: {},
};
const saved = { method: 'POST', sentText: '{"firstName":"Ada"}', status: 200, headers: headersOf({}) };
const valid: Exchange = { ...saved, text: JSON.stringify({ user }) };
const problemBody = {
  type: '/problems/invalid-input',
  title: 'Invalid input',
  status: 422,
  detail: 'Some',
  instance: '/v2/private/user/profile',
  code: 201,
  http_code: 422,
  requestId: 'request-1',
};
/** A problem that this operation does not document. */
const otherProblem = { ...problemBody, type: '/problems/carrier-declined', code: 313, errors: [] };
const problem = { 'content-type': 'application/problem+json' };

function mismatchesOf(change: Partial<Exchange>, name = 'POST /v2/private/user/profile'): string {
  const operation = document.operations.find((each) => each.name === name);
  if (operation === undefined) throw new Error(`${name} is not documented`);
  return mismatchesWith(operation, { ...valid, ...change }).join();
}

describe('conformance check', () => {
  test('uses the operations of the served OpenAPI document', async () => {
    const { body } = await call('GET', '/swagger/json');
    const { paths } = v.parse(v.object({ paths: v.record(v.string(), v.looseObject({})) }), body);
    const names = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(document.operations.map(({ name }) => name)).toEqual(names);
  });

  test('reports nothing for a conforming exchange', () => {
    expect(mismatchesOf({})).toBe('');
    expect(mismatchesOf({ sentText: '\ufeff{"state":" va ","firstName":null}' })).toBe('');
    expect(mismatchesOf({ method: 'HEAD', text: '', sentText: undefined }, 'GET /v2/private/user')).toBe('');
  });

  test.each<[string, Partial<Exchange>]>([
    ['418 is not documented', { status: 418 }],
    ['the header x-request-id is missing', { headers: new Headers({ 'content-type': 'application/json' }) }],
    ['the header retry-after is missing', { status: 503, headers: headersOf(problem), text: '{}' }],
    ['the header x-powered-by is not documented', { headers: headersOf({ 'x-powered-by': 'us' }) }],
    ['the type is text/plain, not application/json', { headers: headersOf({ 'content-type': 'text/plain' }) }],
    ['the type is application/json, not application/problem+json', { status: 422, text: '{}' }],
    ['must be equal to constant', { status: 422, headers: headersOf(problem), text: JSON.stringify(otherProblem) }],
    [
      "must have required property 'errors'",
      { status: 422, headers: headersOf(problem), text: JSON.stringify(problemBody) },
    ],
    ["must have required property 'type'", { status: 422, headers: headersOf(problem), text: '{"status":422}' }],
    [
      'must be equal to one of the allowed values',
      { text: JSON.stringify({ user: { ...user, profile: { gender: 'X' } } }) },
    ],
    ['"additionalProperty":"nickName"', { text: JSON.stringify({ user: { ...user, profile: { nickName: 'Ada' } } }) }],
    ["must have required property 'insurance'", { text: JSON.stringify({ user: { ...user, insurance: undefined } }) }],
    ['a body was taken that is not as documented', { sentText: '{"nickName":"Ada"}' }],
    ['a body was taken that is not as documented', { sentText: '{"heightCm":1}' }],
    ['no body was taken, but one is documented', { sentText: '' }],
  ])('reports: %s', (mismatch, change) => {
    expect(mismatchesOf(change)).toContain(mismatch);
  });
});

test('test run fails when a test receives an undocumented response', async () => {
  const folder = temporaryFolder();
  const support = join(import.meta.dirname, '../support');
  const program = `
    import { test } from 'bun:test';
    import { excludeFromChecks, watchedHandle } from '${support}/traffic.ts';
    const wrong = () => new Response('{}', { status: 418 });
    const [service, other] = [1, 2].map(() => Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: wrong }));
    excludeFromChecks(other.url);
    test('by an address', async () => void (await fetch(service.url + 'v2/private/user').catch(() => undefined)));
    test('by a request', () => fetch(new Request(service.url + 'health/live', { method: 'GET' })));
    test('in the process', () => watchedHandle(async () => wrong())(new Request('http://localhost/v2/private/user/')));
    test('nowhere', () => Promise.all([fetch(other.url + 'v2/private/user'), fetch(service.url + 'v2/other')]));
  `;
  await Bun.write(join(folder, 'wrong.test.ts'), program);
  const command = [process.execPath, 'test', '--preload', join(support, 'preload.ts'), './wrong.test.ts'];
  const { exitCode, stderr } = await runToEnd(Bun.spawn(command, { cwd: folder, stdout: 'pipe', stderr: 'pipe' }));
  expect(stderr.match(/^\((?:pass|fail)\) [a-z ]+(?= \[)/gm)?.slice(0, 4)).toEqual([
    '(fail) by an address',
    '(fail) by a request',
    '(fail) in the process',
    '(pass) nowhere',
  ]);
  expect(stderr).toContain('GET /health/live: 418 is not documented');
  expect(exitCode).toBe(1);
});

test('response that never ends is reported by its request instead of hanging the run', async () => {
  const fetch = () => new Response(new ReadableStream({ start: (controller) => controller.enqueue('{') }));
  const service = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch });
  atEnd(() => service.stop(true));
  await globalThis.fetch(`${service.url}v2/private/user`);
  expect(await trafficMismatches(50)).toEqual(['GET /v2/private/user: the response or the request body never ends']);
  expect(await trafficMismatches()).toEqual([]);
});
