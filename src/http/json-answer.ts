import type { Context } from 'elysia';
import { isNotModified } from './entity-tag';

/**
 * Answers JSON that is printed already, with all headers that are set by now; 304 without a body to a GET whose
 * `If-None-Match` holds the ETag among them.
 *
 * The last step of a handler that answers 200. It leaves no header in `set`: Elysia would make a second response to add
 * it, with the body of this one read as a stream.
 */
export function answerJson(
  json: string | Uint8Array<ArrayBuffer>,
  { request, set }: Pick<Context, 'request' | 'set'>,
): Response {
  const headers: Record<string, string> = {};
  for (const name in set.headers) headers[name] = String(set.headers[name]);
  set.headers = {};
  if (isNotModified(request, headers.etag)) {
    set.status = 304;
    return new Response(null, { status: 304, headers });
  }
  headers['content-type'] = 'application/json;charset=utf-8';
  return new Response(json, { headers });
}
