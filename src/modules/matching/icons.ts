import { Elysia } from 'elysia';
import * as v from 'valibot';
import { AppError } from '../../errors';
import { requestParameters } from '../../http/request-body';

/** The icons of the shipped products, by file name. */
export const icons: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'care-annuity.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Care annuity</title><circle cx="24" cy="24" r="16"/><path d="M24 32s-7-4-7-9a4 4 0 0 1 7-2.5 4 4 0 0 1 7 2.5c0 5-7 9-7 9z"/></svg>',
    'final-expense.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Final expense</title><path d="M24 42V20M24 28c-7 0-10-4-10-9 6 0 10 3 10 9zM24 24c6 0 9-4 9-8-5 0-9 3-9 8z"/><circle cx="24" cy="11" r="4"/></svg>',
    'guaranteed-issue.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Guaranteed issue</title><path d="M10 8h20l8 8v24H10z"/><path d="M30 8v8h8M17 28l5 5 9-10"/></svg>',
    'home-care.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Home care</title><path d="M8 24 24 10l16 14M12 21v18h24V21"/><path d="M24 34s-5-3-5-6.5a2.8 2.8 0 0 1 5-1.7 2.8 2.8 0 0 1 5 1.7c0 3.5-5 6.5-5 6.5z"/></svg>',
    'hybrid.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Hybrid</title><path d="M24 40s-14-8.5-14-18a8 8 0 0 1 14-5 8 8 0 0 1 14 5c0 9.5-14 18-14 18z"/><path d="M18 24h12M24 18v12"/></svg>',
    'indexed-annuity.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Indexed annuity</title><path d="M8 8v32h32"/><path d="m13 32 8-8 6 5 11-14M31 15h7v7"/></svg>',
    'legacy.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Legacy</title><rect x="10" y="20" width="28" height="20"/><path d="M8 14h32v6H8zM24 14v26M24 14c-8 0-8-8-3-8 3 0 3 5 3 8zM24 14c8 0 8-8 3-8-3 0-3 5-3 8z"/></svg>',
    'long-term-care.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Long term care</title><circle cx="24" cy="14" r="5"/><path d="M14 38c0-8 4-14 10-14s10 6 10 14M34 22v16"/></svg>',
    'medical-annuity.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Medical annuity</title><path d="M6 26h9l4-10 7 20 5-14 3 4h8"/></svg>',
    'term-life.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Term life</title><circle cx="24" cy="26" r="14"/><path d="M24 18v8l6 4M19 6h10"/></svg>',
    'whole-life.svg':
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48" width="48" height="48" fill="none" stroke="#1f5f6b" stroke-width="2.5" stroke-linecap="round" stroke-linejoin="round"><title>Whole life</title><path d="M24 6 38 12v10c0 10-6 17-14 20-8-3-14-10-14-20V12z"/><path d="m17 24 5 5 9-10"/></svg>',
  }),
);

/** Serves the icons of the shipped products. */
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
