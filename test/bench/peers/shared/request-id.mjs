import { randomUUID } from 'node:crypto';

/** Other ids are replaced, because the log and the response headers contain the id. */
const shape = /^[\w-]{8,64}$/;

/**
 * Returns the id of a request: the id that was sent if it is valid, else a new one.
 *
 * @param {string | string[] | undefined} sent
 */
export function requestIdOf(sent) {
  return typeof sent === 'string' && shape.test(sent) ? sent : randomUUID();
}
