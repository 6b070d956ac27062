/**
 * Whether `If-None-Match` lists `tag` (RFC 9110 §13.1.2, weak comparison).
 *
 * @param {string | undefined} header
 * @param {string} tag
 */
export function matchesAny(header, tag) {
  if (header === undefined) return false;
  const tags = header.match(/(?:W\/)?"[^"]*"|\*/g) ?? [];
  return tags.some((sent) => sent === '*' || sent.replace(/^W\//, '') === tag);
}
