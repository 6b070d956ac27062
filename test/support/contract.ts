import { describe, expect, test } from 'bun:test';
import { icons } from '../../src/modules/matching/routes';
import { problemKinds } from '../../src/shared/problems';

import type { Call } from './app';
import { documentOfSources } from './conformance';

/** The routes that save answers; each returns the whole user. */
export const saveRoutes = [
  { method: 'POST', path: '/v2/private/ltc/lifetimeCare' },
  { method: 'POST', path: '/v2/private/deepDives/lifeInsurance' },
  { method: 'POST', path: '/v2/private/deepDives/lifetimeCare' },
  { method: 'POST', path: '/v2/private/user/profile' },
] as const;

/** The private routes that frontends rely on. A route that is added later need not be listed. */
export const contractRoutes = [
  ...saveRoutes,
  { method: 'GET', path: '/v2/private/user' },
  { method: 'POST', path: '/v2/private/engine/matches' },
  { method: 'POST', path: '/v2/private/engine/preview' },
  { method: 'POST', path: '/v2/private/ltc/totalCoverage' },
  { method: 'POST', path: '/v2/private/life/totalCoverage' },
  { method: 'GET', path: '/v2/private/user/applications' },
  { method: 'GET', path: '/v2/private/cemetery/all' },
  { method: 'GET', path: '/v2/private/user/salesManager/monthly-glance' },
  { method: 'GET', path: '/v2/private/healthAndCare/' },
] as const;

/** Every private operation of the OpenAPI document. */
export const privateRoutes = (await documentOfSources()).operations.filter(({ isPrivate }) => isPrivate);

const profile = '/v2/private/user/profile';
const routesWithBody = privateRoutes.filter(({ body }) => body !== undefined);

/**
 * Tests of the whole contract against the app in this process or a service at an address.
 *
 * @param call sends to a service with the demo data and the sandbox carrier
 */
export function walkContract(call: Call): void {
  describe('contract', () => {
    test.each(privateRoutes)('$method $path returns 401 without a token for every body', async (route) => {
      const bodies = route.method === 'POST' ? [undefined, '{}', '{', '[]', '{"unknown":1}', '\u0000'] : [undefined];
      for (const body of bodies) {
        const response = await call(route.method, route.path, { body });
        expect(response.status).toBe(401);
        expect(response.body).toMatchObject({ type: '/problems/unauthenticated', code: 210, http_code: 401 });
        expect(response.headers.get('www-authenticate')).toStartWith('Bearer');
      }
    });

    test.each(routesWithBody)('POST $path returns 422 for an unknown field', async ({ path }) => {
      const response = await call('POST', path, { as: 'walker', body: { unknownField: 1 } });
      expect(response.status).toBe(422);
      expect(response.body).toMatchObject({
        type: '/problems/invalid-input',
        errors: expect.arrayContaining([expect.objectContaining({ pointer: '/unknownField', rule: 'unknown_field' })]),
      });
    });

    test.each(privateRoutes)(
      '$path returns 405 with Allow for methods other than $method',
      async ({ path, method }) => {
        for (const wrong of ['PUT', 'PATCH', 'DELETE', method === 'GET' ? 'POST' : 'GET']) {
          const response = await call(wrong, path, { as: 'walker' });
          expect(response.status).toBe(405);
          expect(response.body).toMatchObject({ type: '/problems/method-not-allowed' });
          expect(response.headers.get('allow')).toBe(method === 'GET' ? 'GET, HEAD' : 'POST');
        }
      },
    );

    test.each(privateRoutes)(
      '$method $path accepts a missing and an extra trailing slash',
      async ({ method, path, target }) => {
        const bare = path.replace(/\/$/, '');
        const query = target.slice(path.length);
        const options = { as: 'slashes', ...(method === 'POST' ? { body: {} } : {}) };
        if (method === 'GET') await call('POST', profile, { as: 'slashes', body: {} });
        const [first, second] = [
          await call(method, `${bare}${query}`, options),
          await call(method, `${bare}/${query}`, options),
        ];
        // 403 without the role, 422 without a required field.
        expect([200, 403, 422]).toContain(first.status);
        expect(second.status).toBe(first.status);
        expect((await call(method, bare.toUpperCase(), options)).status).toBe(404);
      },
    );

    test.each(privateRoutes)('$method $path returns 200 for its documented example', async (route) => {
      const { method, target, body } = route;
      await call('POST', profile, { as: 'demo-manager', body: {} });
      const caller = { as: 'demo-manager', roles: ['salesManager'] };
      expect((await call(method, target, { ...caller, body: body?.examples[0] })).status).toBe(200);
    });
  });

  describe('public pages', () => {
    test('/swagger loads its script from this service and refers to no other host', async () => {
      const page = await call('GET', '/swagger');
      expect(page.status).toBe(200);
      expect(page.text.match(/https?:\/\/[^"' ]+/g)).toBeNull();
      expect(page.text).toContain('/swagger/scalar.js');
      const script = await call('GET', '/swagger/scalar.js');
      expect(script.headers.get('content-type')).toStartWith('text/javascript');
      expect(script.text.length).toBeGreaterThan(1_000_000);
    });

    test.each([...icons.keys()])('/icons/%s returns an SVG', async (icon) => {
      const response = await call('GET', `/icons/${icon}`);
      expect(response.status).toBe(200);
      expect(response.headers.get('content-type')).toStartWith('image/svg+xml');
      expect(response.text).toStartWith('<svg');
    });

    test('/problems has a page for every problem type and returns 404 for others', async () => {
      for (const [slug, kind] of Object.entries(problemKinds)) {
        const page = await call('GET', `/problems/${slug}`);
        expect(page.status).toBe(200);
        expect(page.headers.get('content-type')).toStartWith('text/html');
        expect(page.text).toContain(kind.title);
      }
      expect((await call('GET', '/problems/constructor')).status).toBe(404);
    });

    test.each(['live', 'ready'])('/health/%s returns 200 with its status', async (status) => {
      expect(await call('GET', `/health/${status}`)).toMatchObject({ status: 200, body: { status } });
    });
  });
}
