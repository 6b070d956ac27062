import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/**
 * The response of the reference lists, prepared once.
 *
 * @param {string} path
 */
export function prepareLists(path) {
  const bytes = readFileSync(path);
  const hash = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  const headers = {
    'content-type': 'application/json;charset=utf-8',
    'cache-control': 'private, max-age=300',
    etag: `"${hash}"`,
    vary: 'Authorization',
  };
  return { bytes, headers };
}
