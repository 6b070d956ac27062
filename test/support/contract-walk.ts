import { describe, expect, test } from 'bun:test';
import Ajv2020 from 'ajv/dist/2020';
import * as v from 'valibot';
import { icons } from '../../src/modules/matching/icons';
import { problemKinds } from '../../src/shared/problems';
import type { Call } from './app';
import { privateRoutes } from './contract';

const JsonBody = v.object({ 'application/json': v.object({ schema: v.looseObject({}) }) });
const Operation = v.object({
  requestBody: v.optional(
    v.object({
      content: v.object({
        'application/json': v.object({ examples: v.record(v.string(), v.object({ value: v.unknown() })) }),
      }),
    }),
  ),
  responses: v.object({ '200': v.object({ content: JsonBody }) }),
});
const Document = v.object({
  paths: v.record(v.string(), v.record(v.string(), v.unknown())),
  components: v.looseObject({}),
});

const profile = '/v2/private/user/profile';
const queries: Readonly<Record<string, string>> = { '/v2/private/user/salesManager/monthly-glance': '?month=1' };
const bodiless = ['/v2/private/engine/matches'];
const takingBody = privateRoutes.filter(({ method, path }) => method === 'POST' && !bodiless.includes(path));

/**
 * Tests of the whole contract, to be run against a service in any form: the app in this process, or one at an address.
 *
 * @param call reaches a service with the demo data and the sandbox carrier
 */
export function walkContract(call: Call): void {
  describe('the contract', () => {
    test.each(privateRoutes)('refuses a stranger at $method $path before it looks at the body', async (route) => {
      const bodies = route.method === 'POST' ? [undefined, '{}', '{', '[]', '{"unknown":1}', '\u0000'] : [undefined];
      for (const body of bodies) {
        const answer = await call(route.method, route.path, { body });
        expect(answer.status).toBe(401);
        expect(answer.body).toMatchObject({ type: '/problems/unauthenticated', code: 210, http_code: 401 });
        expect(answer.headers.get('www-authenticate')).toStartWith('Bearer');
      }
    });

    test.each(takingBody)('names an unknown field at $path', async ({ path }) => {
      const answer = await call('POST', path, { as: 'walker', body: { nobodyHasThis: 1 } });
      expect(answer.status).toBe(422);
      expect(answer.body).toMatchObject({
        type: '/problems/invalid-input',
        errors: expect.arrayContaining([expect.objectContaining({ pointer: '/nobodyHasThis', rule: 'unknown_field' })]),
      });
    });

    test.each(privateRoutes)('answers 405 with Allow to other methods at $path', async ({ method, path }) => {
      for (const wrong of ['PUT', 'PATCH', 'DELETE', method === 'GET' ? 'POST' : 'GET']) {
        const answer = await call(wrong, path, { as: 'walker' });
        expect(answer.status).toBe(405);
        expect(answer.body).toMatchObject({ type: '/problems/method-not-allowed' });
        expect(answer.headers.get('allow')).toBe(method === 'GET' ? 'GET, HEAD' : 'POST');
      }
    });

    test.each(privateRoutes)('takes $path with and without its last slash', async ({ method, path }) => {
      const bare = path.replace(/\/$/, '');
      const options = { as: 'slashes', ...(method === 'POST' ? { body: {} } : {}) };
      if (method === 'GET') await call('POST', profile, { as: 'slashes', body: {} });
      const [first, second] = [await call(method, bare, options), await call(method, `${bare}/`, options)];
      // Without the role, and without a body.
      const refused = path.endsWith('/monthly-glance') ? 403 : 422;
      const isRefused = path.endsWith('/monthly-glance') || path.endsWith('/totalCoverage');
      expect([first.status, second.status]).toEqual(isRefused ? [refused, refused] : [200, 200]);
      expect((await call(method, bare.toUpperCase(), options)).status).toBe(404);
    });

    test.each(privateRoutes)('answers $method $path with 200, as it is documented', async ({ method, path }) => {
      const { paths, components } = v.parse(Document, (await call('GET', '/swagger/json')).body);
      const { requestBody, responses } = v.parse(Operation, paths[path]?.[method.toLowerCase()]);
      const validate = new Ajv2020({ strict: false, validateFormats: false }).compile({
        ...responses['200'].content['application/json'].schema,
        components,
      });
      await call('POST', profile, { as: 'demo-manager', body: {} });
      const [body] = Object.values(requestBody?.content['application/json'].examples ?? {}).map(({ value }) => value);
      const caller = { as: 'demo-manager', roles: ['salesManager'] };
      const answer = await call(method, `${path}${queries[path] ?? ''}`, { ...caller, body });
      expect(answer.status).toBe(200);
      expect(answer.headers.get('x-request-id')).not.toBeNull();
      expect(validate(answer.body) ? [] : validate.errors).toEqual([]);
      expect(validate({})).toBeFalse();
    });
  });

  describe('beside the contract', () => {
    test('/swagger is a page that loads its program from this service and nothing from elsewhere', async () => {
      const page = await call('GET', '/swagger');
      expect(page.status).toBe(200);
      expect(page.text.match(/https?:\/\/[^"' ]+/g)).toBeNull();
      expect(page.text).toContain('/swagger/scalar.js');
      const script = await call('GET', '/swagger/scalar.js');
      expect(script.headers.get('content-type')).toStartWith('text/javascript');
      expect(script.text.length).toBeGreaterThan(1_000_000);
    });

    test.each([...icons.keys()])('/icons/%s is a drawing', async (icon) => {
      const answer = await call('GET', `/icons/${icon}`);
      expect(answer.status).toBe(200);
      expect(answer.headers.get('content-type')).toStartWith('image/svg+xml');
      expect(answer.text).toStartWith('<svg');
    });

    test('/problems has a page for every type, and none for another', async () => {
      for (const [slug, kind] of Object.entries(problemKinds)) {
        const page = await call('GET', `/problems/${slug}`);
        expect(page.status).toBe(200);
        expect(page.headers.get('content-type')).toStartWith('text/html');
        expect(page.text).toContain(kind.title);
      }
      expect((await call('GET', '/problems/constructor')).status).toBe(404);
    });

    test.each(['live', 'ready'])('/health/%s says so', async (status) => {
      expect(await call('GET', `/health/${status}`)).toMatchObject({ status: 200, body: { status } });
    });
  });
}
