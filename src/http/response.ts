import { promisify } from 'node:util';
import type { Context } from 'elysia';
import * as v from 'valibot';
import { AppError } from '../errors';
import { lazy } from '../shared/async';

/** The default headers of every response: no scripts, framing, MIME sniffing or caching. */
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

/** A tag identifies a version and not its bytes, so a weak tag and a tag with a coding suffix are equal to it. */
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

/** The conditions of a save. A malformed condition is never met. */
export function readPreconditions({ headers }: Request): Preconditions {
  const [match, noneMatch] = [headers.get('if-match'), headers.get('if-none-match')];
  const ifNoneMatch = noneMatch === null ? undefined : parseList(noneMatch);
  if (noneMatch !== null && ifNoneMatch === undefined) return { ifMatch: [] };
  return { ifMatch: match === null ? undefined : (parseList(match) ?? []), ifNoneMatch };
}

/** The tags of `If-None-Match`: versions that the client has seen. */
export function readIfNoneMatch({ headers }: Request): readonly string[] {
  const tags = parseList(headers.get('if-none-match') ?? '');
  return tags === undefined || tags === 'any' ? [] : tags;
}

/** @param tag of the stored record; undefined if there is none */
export function isPreconditionMet({ ifMatch, ifNoneMatch }: Preconditions, tag: string | undefined): boolean {
  const isListed = (list: TagList) => tag !== undefined && (list === 'any' || list.includes(tag));
  return (ifMatch === undefined || isListed(ifMatch)) && (ifNoneMatch === undefined || !isListed(ifNoneMatch));
}

/** @param tag of the stored record; undefined if there is none */
export function preconditionFailed(tag: string | undefined): AppError {
  return new AppError('precondition-failed', tag === undefined ? {} : { headers: { etag: tag } });
}

/**
 * Whether a GET or HEAD request already has the version with this tag.
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

/** The `parameters` of a route whose response has an ETag. */
export const ifNoneMatchParameter = tagParameter(
  'If-None-Match',
  'ETags of cached versions; if one of them is current, the response is 304 without a body',
);

/** The `parameters` of a route that saves to the record. */
export const saveConditionParameters = [
  tagParameter('If-Match', 'Save only if the record has one of these ETags, or exists with `*`; otherwise 412'),
  tagParameter(
    'If-None-Match',
    'Save only if the record has none of these ETags; with `*`, only create it; otherwise 412',
  ),
];

const jsonMediaType = 'application/json;charset=utf-8';
/** The headers of the last response. Bun copies a Headers object faster than it creates one. */
const headers = new Headers();
const values: Record<string, unknown> = {};

/** Returns Headers with the given values, and changes only those that differ. The next call changes them again. */
function headersOf(given: Context['set']['headers']): Headers {
  for (const name in values) {
    if (given[name] !== undefined || values[name] === undefined) continue;
    headers.delete(name);
    values[name] = undefined;
  }
  for (const name in given) {
    const value = given[name];
    if (value === undefined || value === values[name]) continue;
    headers.set(name, String(value));
    values[name] = value;
  }
  return headers;
}

/**
 * A response of serialized JSON with the headers in `set`; 304 without a body if `If-None-Match` holds its ETag. It empties
 * `set.headers`, because Elysia would otherwise copy the response and read its body as a stream.
 *
 * @throws AppError `precondition-failed` for a GET whose `If-Match` lacks the ETag
 */
export function jsonResponse(json: string | Blob, { request, set }: Pick<Context, 'request' | 'set'>): Response {
  const given = set.headers;
  const isCurrent = isNotModified(request, given.etag);
  set.headers = {};
  if (isCurrent) {
    set.status = 304;
    return new Response(null, { status: 304, headers: headersOf(given) });
  }
  given['content-type'] = jsonMediaType;
  return new Response(bodyOf(json), { headers: headersOf(given) });
}

/** Bun sends the head and the body of a response together if the body is a text of at most this length, or a stream. */
const maxTextBody = 15_000;
const utf8 = new TextEncoder();

/**
 * A response that is made after the turn of its request, as after a query, leaves Bun 1.4.5 in a system call for each part
 * of each header if its text is longer: fifty calls, which take as long as a save.
 */
function bodyOf(json: string | Blob): BodyInit {
  if (typeof json !== 'string' || json.length <= maxTextBody) return json;
  return new ReadableStream({
    start(controller) {
      controller.enqueue(utf8.encode(json));
      controller.close();
    },
  });
}

/** Responses with a fixed body, which is compressed once, for the first client that accepts gzip. */
export function createGzipResponse(body: Blob) {
  const compressed = lazy(async () => {
    const { gzip } = await import('node:zlib');
    return promisify(gzip)(await body.bytes());
  });
  return async ({ headers: sent }: Request, headers: Readonly<Record<string, string>>): Promise<Response> =>
    acceptsGzip(sent.get('accept-encoding') ?? '')
      ? new Response(await compressed(), { headers: { ...headers, 'content-encoding': 'gzip' } })
      : new Response(body, { headers });
}

function acceptsGzip(accepted: string): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:\s*[,;]|\s*$))/i.test(accepted);
}

/** Appends to a header whose value is a list. */
export function addToHeader(headers: Record<string, string | number | undefined>, name: string, value: string): void {
  const earlier = headers[name];
  headers[name] = earlier === undefined ? value : `${earlier}, ${value}`;
}

/** The schema of the contract's envelope. Only the reference lists use it. */
export function Envelope<Data extends v.GenericSchema, Tokens extends v.GenericSchema>(data: Data, tokens: Tokens) {
  return v.object({ code: v.number(), http_code: v.number(), data, tokens });
}

/** 100 is the contract's code for success. */
export function envelope<Data, Tokens>(data: Data, tokens: Tokens) {
  return { code: 100, http_code: 200, data, tokens };
}

/** A query parameter that is a whole number. */
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

/** The query parameters of paged lists. A page past the end is empty, not an error. */
export const pageQuery = {
  page: v.optional(wholeNumber('Page number from 1', 1, 1e15 - 1), '1'),
  limit: v.optional(wholeNumber('Entries per page', 1, 1000), '10'),
};

export function isValibotSchema(value: unknown): value is v.GenericSchema {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'schema' && '~run' in value;
}
