import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Context } from 'elysia';
import * as v from 'valibot';
import { AppError } from '../errors';
import { lazy } from '../shared/async';

/**
 * The headers of every answer, a failure or a page as well, unless it says otherwise itself: nothing of an answer is
 * run, framed, guessed at, or kept by whoever passes it on.
 */
export function responseHeaders(publicUrl: string | undefined): Record<string, string> {
  return {
    'cache-control': 'no-store',
    'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    ...(publicUrl?.startsWith('https:') ? { 'strict-transport-security': 'max-age=31536000' } : {}),
  };
}

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

const jsonMediaType = 'application/json;charset=utf-8';
const constant = responseHeaders(undefined);
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
export function jsonResponse(
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

/** Answers with a body, compressed for whoever takes gzip: once, for the first of them. */
export function createGzipResponse(body: Blob) {
  const compressed = lazy(async () => promisify(gzip)(await body.bytes()));
  return async ({ headers: sent }: Request, headers: Readonly<Record<string, string>>): Promise<Response> =>
    takesGzip(sent.get('accept-encoding') ?? '')
      ? new Response(await compressed(), { headers: { ...headers, 'content-encoding': 'gzip' } })
      : new Response(body, { headers });
}

function takesGzip(accepted: string): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:\s*[,;]|\s*$))/i.test(accepted);
}

/** Adds to a header that is a list, after what it holds already. */
export function addToHeader(headers: Record<string, string | number | undefined>, name: string, value: string): void {
  const earlier = headers[name];
  headers[name] = earlier === undefined ? value : `${earlier}, ${value}`;
}

/** The contract's envelope `{code, http_code, data, tokens}`, which the reference options alone are wrapped in. */
export function Envelope<Data extends v.GenericSchema, Tokens extends v.GenericSchema>(data: Data, tokens: Tokens) {
  return v.object({ code: v.number(), http_code: v.number(), data, tokens });
}

/** Wraps a success. 100 is the contract's code for it. */
export function envelope<Data, Tokens>(data: Data, tokens: Tokens) {
  return { code: 100, http_code: 200, data, tokens };
}

/** A whole number in a query. */
export function wholeNumber(meaning: string, min: number, max: number) {
  return v.pipe(
    v.string(),
    v.description(meaning),
    v.metadata({ documentedAs: { type: 'integer', minimum: min, maximum: max } }),
    v.trim(),
    v.regex(/^\d{1,15}$/, `whole_number: must be a whole number from ${min} to ${max}`),
    v.transform(Number),
    v.minValue(min),
    v.maxValue(max),
  );
}

/** Query entries of every paged list. A page past the end is empty, not an error. */
export const pageQuery = {
  page: v.optional(wholeNumber('Page number from 1', 1, 1e15 - 1), '1'),
  limit: v.optional(wholeNumber('Entries a page', 1, 1000), '10'),
};

/** Elysia's own types lose that a route's schemas are valibot's. */
export function isValibotSchema(value: unknown): value is v.GenericSchema {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'schema' && '~run' in value;
}
