import { Elysia } from 'elysia';
import { AppError } from '../errors';

/** Routes have few parameters. Each one costs time before the token is checked. */
const maxParameters = 64;

/**
 * Query values exactly as sent, before they are validated: with a Standard Schema, Elysia splits values at commas
 * and parses those that look like JSON (elysia#1800). A repeated parameter becomes an array, which no schema takes.
 */
export const rawQuery = new Elysia({ name: 'http.raw-query' })
  .onRequest(function boundQuery({ request }) {
    let separator = request.url.indexOf('?');
    for (let count = 0; separator !== -1; count += 1) {
      if (count === maxParameters) throw withTooManyParameters();
      separator = request.url.indexOf('&', separator + 1);
    }
  })
  .onTransform({ as: 'global' }, function readQuery(context) {
    const start = context.request.url.indexOf('?');
    if (start === -1) return;
    const query: Record<string, string | string[]> = Object.create(null);
    for (const [name, value] of new URLSearchParams(context.request.url.slice(start + 1))) {
      const earlier = query[name];
      if (earlier === undefined) query[name] = value;
      else if (typeof earlier === 'string') query[name] = [earlier, value];
      else earlier.push(value);
    }
    // Elysia reads this function: a context that is passed on would have it parse cookies and headers every time.
    const wider: { query: Record<string, string | string[] | undefined> } = context;
    wider.query = query;
  });

export function withTooManyParameters(): AppError {
  return new AppError('malformed-request', { detail: `The query has more than ${maxParameters} parameters.` });
}
