import { Elysia } from 'elysia';
import * as v from 'valibot';
import { AppError } from '../errors';
import { packageRoot } from '../package-root';
import { requestParameters } from './request-schema';

const iconName = /^[a-z-]{1,40}\.svg$/;

/** The icons of the shipped products: small drawings of our own. */
export const iconRoutes = new Elysia({ name: 'http.icons' }).get(
  '/icons/:name',
  async ({ params: { name } }) => {
    if (!iconName.test(name)) throw new AppError('route-not-found');
    const icon = Bun.file(new URL(`src/icons/${name}`, packageRoot));
    if (!(await icon.exists())) throw new AppError('route-not-found');
    return new Response(icon, {
      headers: {
        'content-type': 'image/svg+xml',
        'cache-control': 'public, max-age=86400',
        // Frontends of other hosts show it.
        'cross-origin-resource-policy': 'cross-origin',
      },
    });
  },
  { params: requestParameters(v.object({ name: v.string() })), detail: { hide: true } },
);
