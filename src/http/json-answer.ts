import type { Context } from 'elysia';
import { answerHeaders } from './answer-headers';
import { isNotModified } from './entity-tag';

const jsonMediaType = 'application/json;charset=utf-8';
const constant = answerHeaders(undefined);
/** Bun copies these for less than it makes them anew. */
const constantHeaders = new Headers({ ...constant, 'content-type': jsonMediaType });

/**
 * Answers JSON that is printed already, with the headers of every answer and all that are set by now; 304 without a body
 * to a GET whose `If-None-Match` holds the ETag among them.
 *
 * The last step of a handler that answers 200. It leaves no header in `set`: Elysia would make a second response to add
 * it, with the body of this one read as a stream.
 *
 * @throws AppError `precondition-failed` for a GET whose `If-Match` lacks the ETag
 */
export function answerJson(
  json: string | Uint8Array<ArrayBuffer>,
  { request, set }: Pick<Context, 'request' | 'set'>,
): Response {
  const given = set.headers;
  const isCurrent = isNotModified(request, given.etag);
  set.headers = {};
  if (isCurrent) set.status = 304;
  const answer = new Response(isCurrent ? null : json, { status: isCurrent ? 304 : 200, headers: constantHeaders });
  const { headers } = answer;
  for (const name in given) {
    const value = given[name];
    if (value !== constant[name]) headers.set(name, String(value));
  }
  if (isCurrent) headers.delete('content-type');
  return answer;
}
