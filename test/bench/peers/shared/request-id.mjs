import { randomUUID } from 'node:crypto';

/** Anything else would go into logs and headers as it was sent. */
const shape = /^[\w-]{8,64}$/;

/**
 * The id of a request: the one that was sent, if it is fit to be repeated, else a new one.
 *
 * @param {string | string[] | undefined} sent
 */
export function requestIdOf(sent) {
  return typeof sent === 'string' && shape.test(sent) ? sent : randomUUID();
}
