import { Elysia } from 'elysia';

/**
 * Query values exactly as sent, before they are validated: with a Standard Schema, Elysia splits values at commas
 * and parses those that look like JSON (elysia#1800). A repeated parameter becomes an array, which no schema takes.
 */
export const rawQuery = new Elysia({ name: 'http.raw-query' }).onTransform(
  { as: 'global' },
  function readQuery(context) {
    const start = context.request.url.indexOf('?');
    if (start === -1) return;
    const query: Record<string, string | string[]> = Object.create(null);
    for (const [name, value] of new URLSearchParams(context.request.url.slice(start + 1))) {
      const earlier = query[name];
      query[name] = earlier === undefined ? value : [earlier, value].flat();
    }
    // Elysia reads this function: a context that is passed on would have it parse cookies and headers every time.
    const wider: { query: Record<string, string | string[] | undefined> } = context;
    wider.query = query;
  },
);
