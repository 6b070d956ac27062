import fc from 'fast-check';
import type { DocumentedOperation, ServiceDocument } from '../support/conformance';
import type { RawRequest } from '../support/http';

/** Part of every generated value; no error response may contain it, in any case. */
export const valueMark = 'zqvalue';
export const numberMark = 73_918_465_012;
/** Part of the name of every unknown field; an error response may contain it only as a field name. */
export const keyMark = 'zqkey';

/** A user whose token must be accepted. */
export interface Caller {
  readonly id: string;
  readonly isManager: boolean;
  readonly token: string;
}

export interface Sent extends RawRequest {
  /** Undefined when the token must be refused. */
  readonly caller: Caller | undefined;
}

export interface Tokens {
  readonly good: readonly Caller[];
  readonly bad: readonly string[];
}

type Header = readonly [name: string, value: string];

const host: Header = ['Host', 'fuzz.example'];
const json: Header = ['Content-Type', 'application/json'];
export const bearer = (token: string): Header => ['Authorization', `Bearer ${token}`];
const utf8 = (text: string) => new TextEncoder().encode(text);
const usually = <T>(usual: fc.Arbitrary<T>, seldom: fc.Arbitrary<T>, weight = 8) =>
  fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: seldom });

/** Marks raw JSON: text that JSON.stringify cannot produce. */
const raw = (text: string) => `\u0001raw:${text}`;

function printJson(value: unknown): string {
  const raws = /"\\u0001raw:((?:[^"\\]|\\.)*)"/g;
  return JSON.stringify(value).replace(raws, (_, text: string) => JSON.parse(`"${text}"`));
}

const nastyTexts = [
  ...['\u0000', '\ud800', '\udc00x', '\u202eevil', '\ufeff', '👩‍👩‍👧‍👦', 'ﷺ'.repeat(40), 'İıſﬂ', 'e\u0301'.repeat(200)],
  ...['\r\nSet-Cookie: a=b', '\n{"level":"error"}', '\u001b[2J', "' OR 1=1; DROP TABLE users;--", '"; SELECT 1; --'],
  ...['$.a[0]', '%s%n%00', '../../etc/passwd', '<script>alert(1)</script>', '\\'.repeat(200), 'a'.repeat(5_000)],
  ...['@x.org', '2020-13-45T99:99:99Z'],
];
const nastyText = fc
  .oneof(fc.constantFrom(...nastyTexts), fc.string({ unit: 'binary', maxLength: 40 }), fc.string({ maxLength: 20 }))
  .map((text) => valueMark + text);
const numbers = [
  ...[numberMark, -numberMark, 0.1 + 0.2, -1, 0, 1e12 + 1, Number.MAX_SAFE_INTEGER, Number.MAX_VALUE, 5e-324, 1.005],
  ...['1e400', '-1e400', '-0', '9007199254740993', `${numberMark}.${'3'.repeat(60)}`, '1E+2'].map(raw),
];
const nastyKey = fc.oneof(
  fc.constantFrom('__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'then', 'toJSON', ''),
  fc.constantFrom('id', 'version', 'createdAt', 'userId', 'sub', 'roles', 'user', '$ref', 'a/b~c', '0'),
  fc.string({ unit: 'binary', maxLength: 80 }).map((rest) => keyMark + rest),
);
const nested = (depth: number) => [
  raw('['.repeat(depth) + ']'.repeat(depth)),
  raw(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`),
];

/** A value that is invalid almost everywhere. */
const nastyValue: fc.Arbitrary<unknown> = fc.oneof(
  nastyText,
  fc.constantFrom<unknown>(null, true, false, ...numbers, [], {}, [[]], [null]),
  fc.double(),
  fc.dictionary(nastyKey, nastyText, { maxKeys: 3 }),
  fc.array(nastyText, { maxLength: 3 }),
  fc.constantFrom(101, 5_000).map((length) => Array(length).fill(valueMark)),
  fc.constantFrom(...[5, 70, 1_000, 20_000].flatMap(nested)),
  nastyText.map((text) => ({ toString: text, valueOf: text, length: text })),
);

const aChange = fc.record({
  at: fc.nat(),
  kind: fc.constantFrom('replace', 'add', 'drop', 'wrap', 'rename'),
  key: nastyKey,
  value: nastyValue,
});

function applyChange(
  root: unknown,
  { at, kind, key, value }: typeof aChange extends fc.Arbitrary<infer T> ? T : never,
) {
  const holder = { root };
  const places = placesIn(holder);
  const [parent, name] = places[at % places.length] ?? [holder, 'root'];
  const present = Reflect.get(parent, name);
  // As JSON.parse does, also for `__proto__`.
  const define = (target: object, field: unknown) =>
    Object.defineProperty(target, key, { value: field, enumerable: true, configurable: true, writable: true });
  if (kind === 'replace') Reflect.set(parent, name, value);
  if (kind === 'wrap') Reflect.set(parent, name, [present]);
  if (kind === 'drop' || (kind === 'rename' && !Array.isArray(parent))) Reflect.deleteProperty(parent, name);
  if (kind === 'rename' && !Array.isArray(parent)) define(parent, present);
  if (kind === 'add' && typeof present === 'object' && present !== null) define(present, value);
  return holder.root;
}

function placesIn(value: object): [parent: object, name: string][] {
  return Object.entries(value).flatMap(([name, inner]) => [
    [value, name],
    ...(typeof inner === 'object' && inner !== null ? placesIn(inner) : []),
  ]);
}

interface Content {
  readonly headers: readonly Header[];
  readonly body?: Uint8Array;
}

/** Any byte that a header may contain: printable ASCII and everything above. */
const headerByte = fc.oneof(fc.integer({ min: 0x21, max: 0x7e }), fc.integer({ min: 0x80, max: 0xff }));
const headerText = fc.oneof(
  fc.array(headerByte, { maxLength: 30 }).map((bytes) => valueMark + String.fromCharCode(...bytes)),
  fc.constantFrom('', '"', ',', '*', '"a', 'W/"', `"${valueMark}"`, '"1-1", W/"1-2", *', '"'.repeat(500), '\t x \t'),
  fc.integer({ min: 1, max: 1_500 }).map((length) => valueMark.padEnd(length, 'z')),
);
const mediaTypes = [
  ...['application/json; charset=latin1', 'application/json;charset=utf-16', 'application/json; charset="utf-8"'],
  ...['application/merge-patch+json', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'],
  ...['multipart/form-data', 'text/plain', '*/*', '', ';', `application/${valueMark}`],
];

/** Documented examples, with and without changes, broken texts, other media types, and bodies that are too large. */
function contentOf({ body }: DocumentedOperation): fc.Arbitrary<Content> {
  const none = fc.constant<Content>({ headers: [] });
  const toContent = (value: unknown) => ({ headers: [json], body: utf8(printJson(value ?? null)) });
  if (body === undefined) return usually(none, nastyValue.map(toContent), 20);
  const examples = fc.constantFrom<unknown>(...body.examples, {});
  const changed = fc
    .tuple(examples, fc.array(aChange, { minLength: 1, maxLength: 3 }))
    .map(([value, changes]) => changes.reduce<unknown>(applyChange, structuredClone(value)));
  const kinds = fc.constantFrom('cut', 'end', 'inside', 'twice', 'bom');
  const broken = fc
    .tuple(examples, fc.uint8Array({ maxLength: 30 }), fc.nat(), kinds)
    .map(([value, noise, at, kind]) => {
      const whole = utf8(printJson(value));
      const cut = at % (whole.length + 1);
      const parts = {
        cut: [whole.subarray(0, cut)],
        end: [whole, noise],
        inside: [whole.subarray(0, cut), noise, whole.subarray(cut)],
        twice: [utf8(`{"careCosts":"${valueMark}","firstName":"${valueMark}",`), whole.subarray(1)],
        bom: [utf8('\ufeff'), whole],
      }[kind];
      return { headers: [json], body: Buffer.concat(parts) };
    });
  const types = fc.oneof(fc.constantFrom(...mediaTypes), headerText);
  const mistyped = fc.tuple(examples, types).map(([value, type]) => ({
    headers: [['Content-Type', type] as const],
    body: utf8(printJson(value)),
  }));
  const large = fc.constantFrom(262_144, 262_145, 300_000).map((length) => valueMark.padEnd(length - 16, 'x'));
  return fc.oneof(
    { weight: 40, arbitrary: examples.map(toContent) },
    { weight: 60, arbitrary: fc.oneof(changed, changed, nastyValue).map(toContent) },
    { weight: 12, arbitrary: broken },
    { weight: 8, arbitrary: mistyped },
    { weight: 3, arbitrary: none },
    { weight: 1, arbitrary: large.map((firstName) => toContent({ firstName })) },
  );
}

const queryText = fc.oneof(
  nastyText.map((text) => encodeURIComponent(text.toWellFormed())),
  fc.constantFrom(...'% %zz %ff%fe + [] [1] 1,2 %7B%7D -0 1e400 01 1.5 %00 \x80\xff'.split(' ')),
  fc.constantFrom('9007199254740993', '0', '-1', '1001', valueMark),
);
const manyParameters = `?${Array.from({ length: 500 }, (_, index) => `a${index}=1`).join('&')}`;
const oddQuery = fc.oneof(
  // Without a value it is a name, which a response may repeat.
  queryText.map((text) => `?${text.replaceAll(valueMark, keyMark)}`),
  fc.constantFrom('?', '??', '?&&&=', '?=', `?${keyMark}=${valueMark}`, '?__proto__=1', '?constructor[prototype][a]=1'),
  fc.constant(manyParameters),
);

function queryOf({ parameters }: DocumentedOperation): fc.Arbitrary<string> {
  const entries = parameters.flatMap(({ in: place, name, example = '1' }) => {
    if (place !== 'query') return [];
    const value = usually(fc.constantFrom(example, '1', 'may', '2024', 'desc'), queryText, 3);
    const entry = value.map((text) => `${name}=${text}`);
    return [fc.array(entry, { maxLength: 2 })];
  });
  const query = fc.tuple(...entries).map((all) => `?${all.flat().join('&')}`);
  return usually(entries.length === 0 ? fc.constant('') : query, oddQuery);
}

const headerNames = [
  ...['X-Request-Id', 'Accept', 'If-Match', 'If-None-Match', 'Cookie', 'X-Forwarded-For', 'Referer', 'Origin', 'Range'],
  ...['X-Forwarded-Host', 'X-HTTP-Method-Override', 'traceparent'],
];
const commonHeader: fc.Arbitrary<Header> = fc.oneof(
  fc.tuple(fc.constantFrom(...headerNames), headerText),
  fc.constantFrom<Header>(
    ['X-Request-Id', `${valueMark}-good_id`],
    ['Accept-Encoding', 'gzip, br'],
    ['Content-Encoding', 'gzip'],
    ['Content-Encoding', 'identity'],
    ['X-HTTP-Method-Override', 'DELETE'],
    ['Range', 'bytes=0-0'],
  ),
);

function identityOf({ good, bad }: Tokens): fc.Arbitrary<Pick<Sent, 'caller' | 'headers'>> {
  const accepted = (isManager: boolean) => fc.constantFrom(...good.filter((each) => each.isManager === isManager));
  const known = usually(accepted(false), accepted(true), 2);
  const refused = fc.oneof(fc.constantFrom(...bad.map((token) => bearer(token)[1])), headerText);
  return usually<Pick<Sent, 'caller' | 'headers'>>(
    known.map((caller) => ({ caller, headers: [bearer(caller.token)] })),
    fc
      .option(refused)
      .map((value) => ({ caller: undefined, headers: value === null ? [] : [['Authorization', value]] })),
    6,
  );
}

/** The example request of the document, sent by a user who may send it. */
export function documentedRequest({ method, target, body }: DocumentedOperation, caller: Caller): Sent {
  const headers = [json, bearer(caller.token), host];
  return { method, target, caller, headers, body: body && utf8(printJson(body.examples[0] ?? {})) };
}

/** Valid, invalid and hostile requests to one operation. */
export function requestsTo(operation: DocumentedOperation, tokens: Tokens): fc.Arbitrary<Sent> {
  const { method, path, parameters } = operation;
  const own = parameters
    .filter((parameter) => parameter.in === 'header')
    .map(({ name }) => fc.tuple(fc.constant(name), fc.oneof(headerText, fc.constantFrom('*', 'a-key', '"1-1"'))));
  return fc
    .record({
      method: usually(fc.constant(method), fc.constant(method === 'GET' ? 'HEAD' : method)),
      path: usually(fc.constant(path), fc.constant(path.endsWith('/') ? path.slice(0, -1) : `${path}/`)),
      query: queryOf(operation),
      identity: identityOf(tokens),
      headers: fc.array(fc.oneof(commonHeader, ...own), { maxLength: 3 }),
      content: contentOf(operation),
    })
    .map(({ method, path, query, identity, headers, content }) => ({
      method,
      target: path + query,
      caller: identity.caller,
      headers: [...identity.headers, ...content.headers, ...headers, host],
      body: content.body,
    }));
}

/** Requests with unknown paths or methods, and to pages outside the API. */
export function straysFrom({ operations }: ServiceDocument, tokens: Tokens): fc.Arbitrary<Sent> {
  const pages = ['/swagger', '/swagger/json', '/icons/hybrid.svg', '/problems/invalid-input', '/favicon.ico', '/'];
  const known = fc.constantFrom(...operations.map(({ path }) => path), ...pages);
  const characters = fc.constantFrom(...'abz019-._~!$&\'()*+,;=:@%"<>`{}|^\\/\x80\xff');
  const part = fc.oneof(
    fc.constantFrom('..', '.', '%2e%2e', '%2f', '%00', '%', '%zz', '%c0%af', '%ed%a0%80', ';a=b', '//', '__proto__'),
    fc.array(characters, { maxLength: 12 }).map((all) => all.join('')),
    fc.integer({ min: 1, max: 1_000 }).map((length) => 'a'.repeat(length)),
  );
  const inserted = fc.tuple(known, fc.nat({ max: 20 }), part);
  const path = fc.oneof(
    known,
    fc.tuple(known, part).map(([start, end]) => `${start}/${end}`),
    inserted.map(([text, at, inner]) => `/${text.slice(1, at + 1)}${inner}${text.slice(at + 1)}`),
    fc.array(part, { maxLength: 5 }).map((parts) => `/${parts.join('/')}`),
  );
  const method = fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND');
  const query = fc.oneof(fc.constant(''), oddQuery);
  const others = fc.array(commonHeader, { maxLength: 2 });
  return fc
    .record({ method, path, query, identity: identityOf(tokens), others })
    .map(({ method, path, query, identity: { caller, headers }, others }) => ({
      ...{ method, target: path + query, caller, headers: [...headers, ...others, host] },
    }));
}
