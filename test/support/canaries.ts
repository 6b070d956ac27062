import * as v from 'valibot';

/** Stands in every text that is a canary. Only letters, so that it is the same in JSON, in an address and in a header. */
const mark = 'qzkanarix';
/** What has no room for letters; each is found nowhere by chance. */
const birthDate = '1951-07-19';
const amount = 987_654_321.17;
const count = 987_654_321;
/** Not the seconds of a timestamp when it is reversed. */
const measure = 167.86;

/** A text that no one may find where it does not belong. */
export function canary(what = 'text'): string {
  return `${mark} ${what}`;
}

/** The same without a space, for headers, keys and tokens. */
export function canaryWord(what = 'word'): string {
  return `${mark}-${what}`;
}

const Schema = v.looseObject({
  $ref: v.optional(v.string()),
  anyOf: v.optional(v.array(v.unknown())),
  type: v.optional(v.string()),
  enum: v.optional(v.array(v.unknown())),
  pattern: v.optional(v.string()),
  maximum: v.optional(v.number()),
  properties: v.optional(v.record(v.string(), v.unknown())),
  items: v.optional(v.unknown()),
});
const Document = v.object({
  paths: v.record(v.string(), v.record(v.string(), v.unknown())),
  components: v.object({ schemas: v.record(v.string(), v.unknown()) }),
});
const Operation = v.object({
  requestBody: v.optional(v.object({ content: v.object({ 'application/json': v.object({ schema: v.unknown() }) }) })),
});

export interface CanaryRequest {
  readonly path: string;
  /** Valid, with a canary in each field that has room for one. */
  readonly body: Readonly<Record<string, unknown>>;
  /** The same body with one field, at any depth, of a wrong kind, and a canary in it. */
  readonly wrong: readonly { readonly pointer: string; readonly body: unknown }[];
}

/** A request for each route of the OpenAPI document that takes a body, so that a new field is there by itself. */
export function canaryRequests(openApi: unknown): CanaryRequest[] {
  const { paths, components } = v.parse(Document, openApi);
  const resolve = (schema: unknown): v.InferOutput<typeof Schema> => {
    const parsed = v.parse(Schema, schema);
    const name = parsed.$ref?.split('/').at(-1);
    return name === undefined ? parsed : resolve(components.schemas[name]);
  };
  const fill = (given: unknown, field: string): unknown => {
    const schema = resolve(given);
    if (schema.anyOf !== undefined)
      return fill(
        schema.anyOf.find((one) => resolve(one).type !== 'null'),
        field,
      );
    if (schema.enum !== undefined) return schema.enum[0];
    switch (schema.type) {
      case 'object':
        return Object.fromEntries(
          Object.entries(schema.properties ?? {}).map(([name, property]) => [name, fill(property, name)]),
        );
      case 'array':
        return [fill(schema.items, field)];
      case 'boolean':
        return true;
      case 'integer':
        return count;
      case 'number':
        if ((schema.maximum ?? amount) < amount) return measure;
        return field === 'id' ? count : amount;
      default:
        if (/date/i.test(field)) return birthDate;
        if (field === 'state') return 'VA';
        if (schema.pattern?.includes('@')) return `${mark}@example.com`;
        return canary(field);
    }
  };
  return Object.entries(paths).flatMap(([path, operations]) => {
    const { requestBody } = v.parse(Operation, operations.post ?? {});
    if (requestBody === undefined) return [];
    const body = fill(requestBody.content['application/json'].schema, 'body');
    if (!isObject(body)) throw new Error(`The body of ${path} is no object`);
    return [{ path, body, wrong: [...wrongBodies(body)] }];
  });
}

/** Each place of a body, filled with what cannot stand there. */
function* wrongBodies(body: unknown, pointer = ''): Generator<{ pointer: string; body: unknown }> {
  const places = Array.isArray(body) ? body.entries() : isObject(body) ? Object.entries(body) : [];
  for (const [key, value] of places) {
    const place = `${pointer}/${key}`;
    const put = (inner: unknown): unknown =>
      Array.isArray(body) ? body.with(Number(key), inner) : { ...(isObject(body) ? body : {}), [key]: inner };
    for (const wrong of [
      canary('wrong'),
      [[canary('in a list')]],
      { [canaryWord('key')]: canary() },
      `${canary()}\0`,
      'x'.repeat(300) + canary(),
    ]) {
      yield { pointer: place, body: put(wrong) };
    }
    for (const deeper of wrongBodies(value, place)) yield { pointer: deeper.pointer, body: put(deeper.body) };
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const texts = [mark, birthDate, String(amount), String(count), String(measure)];
/** A text as it may be found, by the name of its encoding. Base64 has three forms of it, by where it begins. */
const encodings: Readonly<Record<string, (text: string) => string[]>> = {
  plain: (text) => [text],
  reversed: (text) => [[...text].toReversed().join('')],
  hex: (text) => [Buffer.from(text).toString('hex')],
  'wide characters': (text) => [[...text].join('\0')],
  'percent signs': (text) => [[...text].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join('')],
  'JSON escapes': (text) => [
    [...text].map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''),
  ],
  base64: (text) =>
    ['', 'x', 'xx'].map((before) => {
      const encoded = Buffer.from(before + text).toString('base64');
      return encoded.slice(Math.ceil((before.length * 8) / 6), Math.trunc(((before.length + text.length) * 8) / 6));
    }),
};
const forms = texts.flatMap((text) =>
  Object.entries(encodings).flatMap(([encoding, encode]) =>
    encode(text).map((form) => ({ what: `${text} as ${encoding}`, form, isCased: encoding === 'base64' })),
  ),
);

/** Which canaries are found in something, in any of the usual encodings; how long a request took is left out. */
export function findCanaries(bytes: Uint8Array | string): string[] {
  const text = (typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString('latin1')).replace(
    /"durationMs":[\d.]+/g,
    '',
  );
  const lower = text.toLowerCase();
  return forms
    .filter(({ form, isCased }) => (isCased ? text.includes(form) : lower.includes(form)))
    .map(({ what }) => what);
}
