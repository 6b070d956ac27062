import { Problem } from './problem.mjs';

const jsonMediaType = /^application\/json\s*(?:;|$)/i;
const otherCharset = /;\s*charset\s*=\s*(?!"?utf-8"?\s*(?:;|$))/i;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Reads a body as JSON; null when there is none, with any Content-Type.
 *
 * @param {Uint8Array} bytes
 * @param {{ type: string | undefined, encoding: string | undefined }} headers
 * @returns {unknown}
 */
export function parseJsonBody(bytes, { type = '', encoding = 'identity' }) {
  if (bytes.byteLength === 0) return null;
  if (!jsonMediaType.test(type) || otherCharset.test(type)) throw new Problem('unsupported-media-type');
  if (encoding !== 'identity') {
    throw new Problem('unsupported-media-type', { detail: 'The body must not have a Content-Encoding.' });
  }
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (error) {
    throw new Problem('malformed-json', { cause: error });
  }
}
