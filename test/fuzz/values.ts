import fc from 'fast-check';
import type { Schema, ServiceDocument } from '../support/conformance';
import { keyMark, numberMark, valueMark } from './checks';

/** Marks raw JSON: text that JSON.stringify cannot produce. */
const rawStart = '\u0001raw:';
const raw = (json: string) => rawStart + json;

export function printJson(value: unknown): string {
  const raws = /"\\u0001raw:((?:[^"\\]|\\.)*)"/g;
  return JSON.stringify(value).replace(raws, (_, json: string) => JSON.parse(`"${json}"`));
}

const marked = (text: string) => `${valueMark}${text}`;
const nasty = [
  '\u0000',
  '\ud800',
  '\udc00x',
  '\u202eevil',
  '\u2066\u2069',
  '\ufeff',
  '👩‍👩‍👧‍👦',
  'e\u0301'.repeat(200),
  'ﷺ'.repeat(40),
  'İıſﬂ',
  '\r\nSet-Cookie: a=b',
  '\n{"level":"error"}',
  '\u001b[2J',
  "' OR 1=1; DROP TABLE users;--",
  '"; SELECT 1; --',
  '$.a[0]',
  '%s%n%00',
  '../../etc/passwd',
  '<script>alert(1)</script>',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template injection
  '${jndi:ldap://x}',
  'a'.repeat(5_000),
  '\\'.repeat(200),
  '@x.org',
  '2020-13-45T99:99:99Z',
];
export const nastyText = fc.oneof(
  fc.constantFrom(...nasty).map(marked),
  fc.string({ unit: 'binary', maxLength: 40 }).map(marked),
  fc.string({ maxLength: 20 }).map(marked),
);

const numbers = [
  numberMark,
  -numberMark,
  0.1 + 0.2,
  -1,
  0,
  1e12,
  1e12 + 1,
  Number.MAX_SAFE_INTEGER,
  Number.MAX_VALUE,
  5e-324,
  1.005,
  raw('1e400'),
  raw('-1e400'),
  raw('-0'),
  raw('9007199254740993'),
  raw('18446744073709551616'),
  raw(`${numberMark}.${'3'.repeat(60)}`),
  raw('1E+2'),
];
const nest = (depth: number, open: string, close: string) => raw(open.repeat(depth) + close.repeat(depth));
const dangerousKeys = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'then', 'toJSON', ''];
const otherKeys = ['id', 'version', 'createdAt', 'userId', 'sub', 'roles', 'counselorId', 'user', '$ref', 'a/b~c', '0'];
const nastyKey = fc.oneof(
  fc.constantFrom(...dangerousKeys, ...otherKeys),
  fc.string({ unit: 'binary', maxLength: 80 }).map((rest) => `${keyMark}${rest}`),
);

/** A value that is invalid almost everywhere. */
export const nastyValue: fc.Arbitrary<unknown> = fc.oneof(
  nastyText,
  fc.constantFrom<unknown>(null, true, false, ...numbers, [], {}, [[]], [null]),
  fc.double(),
  fc.dictionary(nastyKey, nastyText, { maxKeys: 3 }),
  fc.array(nastyText, { maxLength: 3 }),
  fc.constantFrom(101, 5_000).map((length) => Array(length).fill(valueMark)),
  fc.constantFrom(5, 70, 1_000, 20_000).map((depth) => nest(depth, '[', ']')),
  fc.constantFrom(5, 300, 5_000).map((depth) => nest(depth, '{"a":', '1').replace(/1+$/, `1${'}'.repeat(depth)}`)),
  nastyText.map((text) => ({ toString: text, valueOf: text, length: text })),
);

type Known = ReadonlyMap<string, readonly unknown[]>;

/** Example values of each field by name, for formats that the schema does not express, such as dates. */
export function knownValues(document: ServiceDocument): Known {
  const known = new Map<string, unknown[]>();
  const collect = (value: unknown, key = ''): void => {
    if (typeof value !== 'object' || value === null) known.set(key, [...(known.get(key) ?? []), value]);
    else for (const [name, inner] of Object.entries(value)) collect(inner, Array.isArray(value) ? key : name);
  };
  for (const { body } of document.operations) for (const example of body?.examples ?? []) collect(example);
  return known;
}

/** Values that are valid for a schema. */
export function valuesOf(schema: unknown, document: ServiceDocument, known: Known, name = ''): fc.Arbitrary<unknown> {
  const of = (inner: unknown, key = name) => valuesOf(inner, document, known, key);
  const at = toSchema(schema);
  if (typeof at.$ref === 'string') return of(document.schemas[at.$ref.replace('#/components/schemas/', '')]);
  if (Array.isArray(at.anyOf)) return fc.oneof(...at.anyOf.map((option) => of(option)));
  if (Array.isArray(at.enum)) return fc.constantFrom<unknown>(...at.enum);
  if ('const' in at) return fc.constant(at.const);
  const min = numberOr(at.minimum, 0);
  const max = numberOr(at.maximum, 1e6);
  switch (at.type) {
    case 'null':
      return fc.constant(null);
    case 'boolean':
      return fc.boolean();
    case 'integer':
      return fc.integer({ min, max: Math.min(max, Number.MAX_SAFE_INTEGER) });
    case 'number':
      return fc.oneof(
        fc.integer({ min: Math.ceil(min), max: Math.min(Math.floor(max), Number.MAX_SAFE_INTEGER) }),
        fc.double({ min, max, noNaN: true }),
      );
    case 'string':
      return stringsOf(at, known.get(name)?.filter((value) => typeof value === 'string') ?? []);
    case 'array':
      return fc.array(of(at.items), { maxLength: 4 });
    default: {
      const fields = Object.entries(toSchema(at.properties)).map(([key, inner]) => [key, of(inner, key)] as const);
      const requiredKeys = Array.isArray(at.required) ? at.required : [];
      return fc.record(Object.fromEntries(fields), { requiredKeys, noNullPrototype: true });
    }
  }
}

function stringsOf({ minLength, maxLength }: Schema, known: readonly unknown[]): fc.Arbitrary<unknown> {
  const min = numberOr(minLength, 0);
  const max = Math.min(numberOr(maxLength, 40), 200);
  const made = fc
    .string({ unit: 'grapheme', minLength: min, maxLength: Math.max(min, max - valueMark.length - 1) })
    .map(marked);
  return known.length === 0 ? made : fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...known) }, made);
}

function toSchema(value: unknown): Schema {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

function numberOr(value: unknown, otherwise: number): number {
  return typeof value === 'number' ? value : otherwise;
}

/** A value with one to three random changes. */
export function mutated(values: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  const change = fc.record({
    at: fc.nat(),
    kind: fc.constantFrom('replace', 'replace', 'add', 'drop', 'wrap', 'rename'),
    key: nastyKey,
    value: nastyValue,
  });
  return fc
    .tuple(values, fc.array(change, { minLength: 1, maxLength: 3 }))
    .map(([value, changes]) => changes.reduce(applyChange, structuredClone(value)));
}

interface Change {
  readonly at: number;
  readonly kind: string;
  readonly key: string;
  readonly value: unknown;
}

function applyChange(root: unknown, { at, kind, key, value }: Change): unknown {
  const holder = { root };
  const places = placesIn(holder);
  const [parent, name] = places[at % places.length] ?? [holder, 'root'];
  const present = Reflect.get(parent, name);
  if (kind === 'replace') Reflect.set(parent, name, value);
  else if (kind === 'wrap') Reflect.set(parent, name, [present]);
  else if (kind === 'add' && typeof present === 'object' && present !== null) define(present, key, value);
  else if (kind === 'drop') Reflect.deleteProperty(parent, name);
  else if (kind === 'rename' && !Array.isArray(parent)) {
    Reflect.deleteProperty(parent, name);
    define(parent, key, present);
  }
  return holder.root;
}

/** Defines `__proto__` as an own field, as JSON.parse does. */
function define(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
}

function placesIn(value: object): [parent: object, name: string][] {
  return Object.entries(value).flatMap(([name, inner]) => [
    [value, name],
    ...(typeof inner === 'object' && inner !== null ? placesIn(inner) : []),
  ]);
}
