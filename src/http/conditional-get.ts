import { Elysia } from 'elysia';
import * as v from 'valibot';
import { matchesAny } from './entity-tag';

/** Answers 304 without a body to a GET whose `If-None-Match` holds the ETag that the handler has set. */
export const conditionalGet = new Elysia({ name: 'http.conditional-get' }).onAfterHandle(
  { as: 'scoped' },
  function answerNotModified({ request, set }) {
    if (request.method !== 'GET' && request.method !== 'HEAD') return;
    const tag = set.headers.etag;
    if (tag === undefined || !matchesAny(request.headers.get('if-none-match'), String(tag))) return;
    set.status = 304;
    return new Response(null, { status: 304 });
  },
);

/** The `response` entry of a route that uses it. */
export const notModified = { 304: v.void() } as const;

/** The documentation of a route that uses it. */
export const conditionalGetParameter = {
  name: 'If-None-Match',
  in: 'header',
  required: false,
  schema: { type: 'string' },
  description: 'An ETag that the caller has; answered by 304 without a body while it is current',
} as const;
