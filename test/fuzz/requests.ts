import fc from 'fast-check';
import type { DocumentedOperation, ServiceDocument } from '../support/conformance';
import { keyMark, type Sent, valueMark } from './checks';
import { knownValues, mutated, nastyText, nastyValue, printJson, valuesOf } from './values';

/** Tokens that must be accepted and tokens that must be refused. */
export interface Tokens {
  readonly good: readonly { readonly id: string; readonly isManager: boolean; readonly token: string }[];
  readonly bad: readonly string[];
}

type Header = readonly [name: string, value: string];

/** Any byte that a header may contain: printable ASCII and everything above. */
const headerText = fc.oneof(
  fc
    .array(fc.oneof(fc.integer({ min: 0x21, max: 0x7e }), fc.integer({ min: 0x80, max: 0xff })), { maxLength: 30 })
    .map((bytes) => valueMark + String.fromCharCode(...bytes)),
  fc.constantFrom('', '"', ',', '*', '"a', 'W/"', `"${valueMark}"`, `"1-1", W/"1-2", *`, '"'.repeat(500), '\t x \t'),
  fc.integer({ min: 1, max: 1_500 }).map((length) => valueMark.padEnd(length, 'z')),
);

const mediaTypes = [
  'application/json; charset=latin1',
  'application/json;charset=utf-16',
  'application/json; charset="utf-8"',
  'application/merge-patch+json',
  'text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'multipart/form-data',
  '*/*',
  '',
  ';',
  `application/${valueMark}`,
];
const commonHeader: fc.Arbitrary<Header> = fc.oneof(
  fc.tuple(
    fc.constantFrom('X-Request-Id', 'Accept', 'If-Match', 'If-None-Match', 'Cookie', 'X-Forwarded-For', 'Referer'),
    headerText,
  ),
  fc.tuple(fc.constantFrom('X-Forwarded-Host', 'X-HTTP-Method-Override', 'Origin', 'traceparent', 'Range'), headerText),
  fc.constantFrom<Header>(
    ['X-Request-Id', `${valueMark}-good_id`],
    ['Accept-Encoding', 'gzip, br'],
    ['Accept', 'text/html'],
    ['Content-Encoding', 'gzip'],
    ['Content-Encoding', 'identity'],
    ['Accept-Language', 'xx'],
    ['X-HTTP-Method-Override', 'DELETE'],
    ['Range', 'bytes=0-0'],
  ),
);

/** The example request of the document, sent by a user who may send it. */
export function documentedRequest({ method, path, parameters, body }: DocumentedOperation, { good }: Tokens): Sent {
  const query = parameters.flatMap(({ name, example }) => (example === undefined ? [] : [[name, example]]));
  const manager = good.find(({ isManager }) => isManager);
  return {
    method,
    target: query.length === 0 ? path : `${path}?${new URLSearchParams(query)}`,
    caller: manager,
    headers: [jsonHeader, ['Authorization', `Bearer ${manager?.token}`], ['Host', 'fuzz.example']],
    body: body === undefined ? undefined : utf8(printJson(body.examples[0] ?? {})),
  };
}

/** Valid, invalid and hostile requests to one operation. */
export function requestsTo(
  operation: DocumentedOperation,
  document: ServiceDocument,
  tokens: Tokens,
): fc.Arbitrary<Sent> {
  const { method, path } = operation;
  return fc
    .record({
      method: method === 'GET' ? often(fc.constant('GET'), fc.constant('HEAD')) : fc.constant(method),
      path: often(fc.constant(path), fc.constant(path.endsWith('/') ? path.slice(0, -1) : `${path}/`)),
      query: queryOf(operation, document),
      identity: identityOf(tokens),
      headers: fc.array(fc.oneof(commonHeader, ...ownHeaders(operation)), { maxLength: 3 }),
      content: contentOf(operation, document),
    })
    .map(({ method, path, query, identity, headers, content }) => ({
      method,
      target: path + query,
      caller: identity.caller,
      headers: [...identity.headers, ...content.headers, ...headers, ['Host', 'fuzz.example']],
      body: content.body,
    }));
}

/** Requests with unknown paths or methods, and to pages outside the API. */
export function straysFrom(document: ServiceDocument, tokens: Tokens): fc.Arbitrary<Sent> {
  const paths = document.operations.map(({ path }) => path);
  const pages = ['/swagger', '/swagger/json', '/icons/hybrid.svg', '/problems/invalid-input', '/favicon.ico', '/'];
  const pathCharacter = fc.constantFrom(...'abz019-._~!$&\'()*+,;=:@%"<>`{}|^\\/\x80\xff');
  const part = fc.oneof(
    fc.constantFrom('..', '.', '%2e%2e', '%2f', '%00', '%', '%zz', '%c0%af', '%ed%a0%80', ';a=b', '//', '__proto__'),
    fc.array(pathCharacter, { maxLength: 12 }).map((characters) => characters.join('')),
    fc.integer({ min: 1, max: 1_000 }).map((length) => 'a'.repeat(length)),
  );
  const target = fc.oneof(
    fc.constantFrom(...paths, ...pages),
    fc.tuple(fc.constantFrom(...paths, ...pages), part).map(([path, tail]) => `${path}/${tail}`),
    fc.tuple(fc.constantFrom(...paths, ...pages), fc.nat(), part).map(([path, at, inner]) => {
      const cut = at % path.length;
      return `/${path.slice(1, cut + 1)}${inner}${path.slice(cut + 1)}`;
    }),
    fc.array(part, { maxLength: 5 }).map((parts) => `/${parts.join('/')}`),
  );
  return fc
    .record({
      method: fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'),
      target,
      query: fc.oneof(fc.constant(''), oddQuery),
      identity: identityOf(tokens),
      headers: fc.array(commonHeader, { maxLength: 2 }),
    })
    .map(({ method, target, query, identity, headers }) => ({
      method,
      target: target + query,
      caller: identity.caller,
      headers: [...identity.headers, ...headers, ['Host', 'fuzz.example']],
    }));
}

function often<T>(usual: fc.Arbitrary<T>, seldom: fc.Arbitrary<T>): fc.Arbitrary<T> {
  return fc.oneof({ weight: 8, arbitrary: usual }, { weight: 1, arbitrary: seldom });
}

function identityOf({ good, bad }: Tokens): fc.Arbitrary<{ caller: Sent['caller']; headers: readonly Header[] }> {
  const one = (callers: Tokens['good']) =>
    fc.constantFrom(...callers).map(({ token, ...caller }) => ({
      caller,
      headers: [['Authorization', `Bearer ${token}`] as const],
    }));
  const managers = one(good.filter(({ isManager }) => isManager));
  const others = one(good.filter(({ isManager }) => !isManager));
  const refused = fc.oneof(
    fc.constantFrom(...bad).map((token) => `Bearer ${token}`),
    headerText.map((text) => `Bearer ${text}`),
    headerText,
  );
  const anonymous = fc
    .option(refused)
    .map((value) => ({ caller: undefined, headers: value === null ? [] : [['Authorization', value] as const] }));
  return fc.oneof(
    { weight: 4, arbitrary: others },
    { weight: 2, arbitrary: managers },
    { weight: 1, arbitrary: anonymous },
  );
}

function ownHeaders({ parameters }: DocumentedOperation): fc.Arbitrary<Header>[] {
  return parameters
    .filter((parameter) => parameter.in === 'header')
    .map(({ name }) => fc.tuple(fc.constant(name), fc.oneof(headerText, fc.constantFrom('*', 'a-key', '"1-1"'))));
}

const queryText = fc.oneof(
  nastyText.map((text) => encodeURIComponent(text.toWellFormed())),
  fc.constantFrom('%', '%zz', '%ff%fe', '+', '[]', '[1]', '1,2', '{"a":1}'.replaceAll('"', '%22'), '-0', '1e400', '01'),
  fc.constantFrom('9007199254740993', '0', '-1', '1001', '1.5', '%00', '\x80\xff', valueMark),
);
const oddQuery = fc.oneof(
  // Without a value it is a name, which a response may repeat.
  queryText.map((text) => `?${text.replaceAll(valueMark, keyMark)}`),
  fc.constantFrom('?', '??', '?&&&=', '?=', `?${keyMark}=${valueMark}`, '?__proto__=1', '?constructor[prototype][a]=1'),
  fc.constant(500).map((count) => `?${Array.from({ length: count }, (_, index) => `a${index}=1`).join('&')}`),
);

function queryOf({ parameters }: DocumentedOperation, document: ServiceDocument): fc.Arbitrary<string> {
  const inQuery = parameters.filter((parameter) => parameter.in === 'query');
  if (inQuery.length === 0) return often(fc.constant(''), oddQuery);
  const entries = inQuery.map(({ name, required, schema }) => {
    const good =
      schema.type === 'string' && !('enum' in schema)
        ? fc.constantFrom('1', 'may', '2024')
        : valuesOf(schema, document, new Map());
    const value = fc.oneof({ weight: 3, arbitrary: good.map(String) }, { weight: 1, arbitrary: queryText });
    const one = value.map((text) => [`${name}=${text}`]);
    const two = fc.tuple(value, value).map(([first, second]) => [`${name}=${first}`, `${name}=${second}`]);
    const none = fc.constant<string[]>([]);
    return fc.oneof(
      { weight: 8, arbitrary: one },
      { weight: 1, arbitrary: two },
      { weight: required ? 1 : 4, arbitrary: none },
    );
  });
  const together = fc.tuple(...entries).map((all) => `?${all.flat().join('&')}`);
  return often(together, oddQuery);
}

interface Content {
  readonly headers: readonly Header[];
  readonly body: Uint8Array | undefined;
}

const jsonHeader: Header = ['Content-Type', 'application/json'];
const utf8 = (text: string) => new TextEncoder().encode(text);

function contentOf({ body }: DocumentedOperation, document: ServiceDocument): fc.Arbitrary<Content> {
  const none: Content = { headers: [], body: undefined };
  if (body === undefined) {
    const unexpected = nastyValue.map((value) => ({ headers: [jsonHeader], body: utf8(printJson(value)) }));
    return fc.oneof({ weight: 20, arbitrary: fc.constant(none) }, { weight: 1, arbitrary: unexpected });
  }
  const known = knownValues(document);
  const values = fc.oneof(valuesOf(body.schema, document, known), fc.constantFrom<unknown>(...body.examples));
  const good = values.map(printJson);
  const bad = fc.oneof(mutated(values), mutated(values), nastyValue).map((value) => printJson(value ?? null));
  const json = fc.oneof(good, good, bad, bad, bad).map((text) => ({ headers: [jsonHeader], body: utf8(text) }));
  const bytes = fc.tuple(
    good,
    fc.uint8Array({ maxLength: 30 }),
    fc.nat(),
    fc.constantFrom('cut', 'end', 'inside', 'twice', 'bom'),
  );
  const broken = bytes.map(([text, noise, at, kind]) => {
    const whole = utf8(text);
    const cut = at % (whole.length + 1);
    const parts = {
      cut: [whole.subarray(0, cut)],
      end: [whole, noise],
      inside: [whole.subarray(0, cut), noise, whole.subarray(cut)],
      twice: [utf8(text.replace(/^\{(?=.)/, `{"careCosts":"${valueMark}","firstName":"${valueMark}",`))],
      bom: [utf8('\ufeff'), whole],
    }[kind];
    return { headers: [jsonHeader], body: Buffer.concat(parts) };
  });
  const mistyped = fc
    .tuple(good, fc.oneof(fc.constantFrom(...mediaTypes), headerText))
    .map(([text, type]) => ({ headers: [['Content-Type', type] as const], body: utf8(text) }));
  const huge = fc.constantFrom(262_144, 262_145, 300_000).map((length) => ({
    headers: [jsonHeader],
    body: utf8(`{"firstName":"${valueMark.padEnd(length - 16, 'x')}"}`),
  }));
  return fc.oneof(
    { weight: 100, arbitrary: json },
    { weight: 12, arbitrary: broken },
    { weight: 8, arbitrary: mistyped },
    { weight: 3, arbitrary: fc.constant(none) },
    { weight: 1, arbitrary: huge },
  );
}
