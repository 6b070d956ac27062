import * as v from 'valibot';

/** Nobody holds more versions of one record, and each costs a comparison in SQL. */
const maxTags = 32;

/** The entity tags in an `If-Match` or `If-None-Match` header, each as sent; `*`, alone, matches whatever there is. */
function listTags(header: string): string[] {
  return header.match(/(?:W\/)?"[^"]*"|(?<![^\s,])\*(?![^\s,])/g) ?? [];
}

/** Whether the caller of a GET already has what has this tag (RFC 9110 §13.1.2, weak comparison). */
export function isNotModified({ method, headers }: Request, tag: string | undefined): boolean {
  if (tag === undefined || (method !== 'GET' && method !== 'HEAD')) return false;
  const sent = headers.get('if-none-match');
  return sent !== null && listTags(sent).some((each) => each === '*' || each.replace(/^W\//, '') === tag);
}

/**
 * The strong tags of an `If-Match` (RFC 9110 §13.1.1): 'any' for `*`, an empty list for one that nothing can match,
 * undefined when the header is not there.
 */
export function readIfMatch(request: Request): 'any' | string[] | undefined {
  const header = request.headers.get('if-match');
  if (header === null) return undefined;
  const tags = listTags(header).slice(0, maxTags);
  return tags.includes('*') ? 'any' : tags.filter((tag) => !tag.startsWith('W/'));
}

/** The tags of an `If-None-Match`: states that the caller has seen. Proxies that compress make them weak. */
export function readIfNoneMatch({ headers }: Request): string[] {
  const header = headers.get('if-none-match');
  return header === null ? [] : listTags(header.replaceAll('W/', '')).slice(0, maxTags);
}

/** The `response` entry of a route that honours `If-None-Match`. */
export const notModified = { 304: v.void() } as const;

/** Its documentation. */
export const ifNoneMatchParameter = {
  name: 'If-None-Match',
  in: 'header',
  required: false,
  schema: { type: 'string' },
  description: 'An ETag that the caller has; answered by 304 without a body while it is current',
} as const;

/** The documentation of a route that honours `If-Match`. */
export const ifMatchParameter = {
  name: 'If-Match',
  in: 'header',
  required: false,
  schema: { type: 'string' },
  description: 'Save only while the record has this ETag, else 412',
} as const;
