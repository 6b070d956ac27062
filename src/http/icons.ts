import { readdirSync, readFileSync } from 'node:fs';
import { Elysia } from 'elysia';
import * as v from 'valibot';
import { AppError } from '../errors';
import { packageRoot } from '../package-root';
import { requestParameters } from './request-schema';

const folder = new URL('src/icons/', packageRoot);
/** Read at the start: opening a file for a request fails when no file descriptor is free. */
const icons = new Map(readdirSync(folder).map((name) => [name, readFileSync(new URL(name, folder), 'utf8')]));

/** The icons of the shipped products: small drawings of our own. */
export const iconRoutes = new Elysia({ name: 'http.icons' }).get(
  '/icons/:name',
  ({ params: { name } }) => {
    const icon = icons.get(name);
    if (icon === undefined) throw new AppError('route-not-found');
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
