import * as v from 'valibot';
import { AppError } from '../errors';

/** The tags of a list in their strong form, or 'any' for `*`. */
export type TagList = 'any' | readonly string[];

/** The conditions of a request on what is stored now (RFC 9110 §13.1). Dates are ignored: no response has one. */
export interface Preconditions {
  readonly ifMatch?: TagList | undefined;
  readonly ifNoneMatch?: TagList | undefined;
}

/**
 * One element of a list, which may be empty, and the comma after it (RFC 9110 §5.6.1). White space after the tag belongs to
 * the optional group: two runs of it side by side would take quadratic time for a long run.
 */
const listElement = /[ \t]*(?:((?:W\/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*)?(?:,|$)/y;

/** Suffixes that nginx, HAProxy, Apache, Caddy and Jetty add when they compress a response. */
const codingMark = /(?:--?|;)(?:gzip|br|zstd|deflate)"$/;

/** A tag of ours names a version and not the bytes that carry it, so that all of its forms are equal. */
function strongForm(tag: string): string {
  return tag.replace(/^W\//, '').replace(codingMark, '"');
}

/** @returns undefined for a text that is not a list of entity tags */
function parseList(header: string): TagList | undefined {
  if (/^[ \t]*\*[ \t]*$/.test(header)) return 'any';
  const tags: string[] = [];
  for (listElement.lastIndex = 0; listElement.lastIndex < header.length; ) {
    const element = listElement.exec(header);
    if (element === null) return undefined;
    if (element[1] !== undefined) tags.push(strongForm(element[1]));
  }
  return tags;
}

/** The conditions of a request that stores something. One that cannot be read is never met. */
export function readPreconditions({ headers }: Request): Preconditions {
  const [match, noneMatch] = [headers.get('if-match'), headers.get('if-none-match')];
  const ifNoneMatch = noneMatch === null ? undefined : parseList(noneMatch);
  if (noneMatch !== null && ifNoneMatch === undefined) return { ifMatch: [] };
  return { ifMatch: match === null ? undefined : (parseList(match) ?? []), ifNoneMatch };
}

/** The tags of an `If-None-Match`: versions that the caller has seen. */
export function readIfNoneMatch({ headers }: Request): readonly string[] {
  const tags = parseList(headers.get('if-none-match') ?? '');
  return tags === undefined || tags === 'any' ? [] : tags;
}

/** @param tag of what is stored now; undefined for nothing */
export function isPreconditionMet({ ifMatch, ifNoneMatch }: Preconditions, tag: string | undefined): boolean {
  const isListed = (list: TagList) => tag !== undefined && (list === 'any' || list.includes(tag));
  return (ifMatch === undefined || isListed(ifMatch)) && (ifNoneMatch === undefined || !isListed(ifNoneMatch));
}

/** @param tag of what is stored now; undefined for nothing */
export function preconditionFailed(tag: string | undefined): AppError {
  return new AppError('precondition-failed', tag === undefined ? {} : { headers: { etag: tag } });
}

/**
 * Whether the caller of a GET already has what has this tag.
 *
 * @throws AppError `precondition-failed`
 */
export function isNotModified({ method, headers }: Request, tag: string | undefined): boolean {
  if (tag === undefined || (method !== 'GET' && method !== 'HEAD')) return false;
  const match = headers.get('if-match');
  if (match !== null && !isPreconditionMet({ ifMatch: parseList(match) ?? [] }, tag)) throw preconditionFailed(tag);
  const noneMatch = headers.get('if-none-match');
  return noneMatch !== null && !isPreconditionMet({ ifNoneMatch: parseList(noneMatch) }, tag);
}

/** The `response` entry of a route that honours `If-None-Match`. */
export const notModified = { 304: v.void() } as const;

function tagParameter(name: 'If-Match' | 'If-None-Match', description: string) {
  return { name, in: 'header', required: false, schema: { type: 'string' }, description } as const;
}

/** The documentation of a route that reads what has an ETag. */
export const ifNoneMatchParameter = tagParameter(
  'If-None-Match',
  'ETags that the caller has; the response is 304 without a body while one of them is current',
);

/** The documentation of a route that saves to the record. */
export const saveConditionParameters = [
  tagParameter('If-Match', 'Save only while the record has one of these ETags, or any with `*`; else 412'),
  tagParameter(
    'If-None-Match',
    'Save only while the record has none of these ETags; with `*`, create it only; else 412',
  ),
];
