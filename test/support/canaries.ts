import * as v from 'valibot';

/** Part of every canary text. Letters only, so that JSON, URLs and headers do not change it. */
const mark = 'qzkanarix';
/** Canaries for fields without letters, distinctive enough to occur nowhere else. */
const birthDate = '1951-07-19';
const amount = 987_654_321.17;
const count = 987_654_321;
/** Reversed, it must not look like the seconds of a timestamp. */
const measure = 167.86;

export function canary(what = 'text'): string {
  return `${mark} ${what}`;
}

/** A canary without a space, for headers, keys and tokens. */
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
  /** Valid, with a canary in each field that can contain one. */
  readonly body: Readonly<Record<string, unknown>>;
  /** Copies of the body with one field, at any depth, of a wrong type that contains a canary. */
  readonly wrong: readonly { readonly pointer: string; readonly body: unknown }[];
}

/** A request for each operation with a body in the OpenAPI document, so that new fields are included. */
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
    if (!isObject(body)) throw new Error(`The body of ${path} is not an object`);
    return [{ path, body, wrong: [...wrongBodies(body)] }];
  });
}

/** Copies of a body with one value, at any depth, replaced by an invalid one. */
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
/** The encoded forms of a text by encoding. Base64 has three, one for each byte offset. */
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

/** The canaries in `bytes` in any common encoding; request durations are ignored. */
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
