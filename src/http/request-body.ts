import { MIMEType } from 'node:util';
import * as v from 'valibot';
import { AppError } from '../errors';
import { withTimeout } from '../shared/async';
import { findFieldErrors, type Naming } from '../shared/field-errors';

/** No valid body comes near these limits. */
const maxDepth = 32;
const maxFields = 200;
const maxValues = 10_000;

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];
const isStructure = new Uint8Array(256);
for (const byte of [quote, comma, openList, closeList, openObject, closeObject]) isStructure[byte] = 1;

/**
 * Checks the structure of a JSON text before it is parsed. Compared with other texts of the same size, the parser takes a
 * hundred times as long for deep values, for objects with many fields and for integer field names.
 *
 * @throws AppError `invalid-input`
 */
function requireLimits(bytes: Uint8Array): void {
  const fields = new Uint16Array(maxDepth + 1);
  const isObject = new Uint8Array(maxDepth + 1);
  let depth = 0;
  let values = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    if (isStructure[byte] === 0) continue;
    if (byte === quote) {
      at += 1;
      while (at < bytes.length && bytes[at] !== quote) at += bytes[at] === backslash ? 2 : 1;
    } else if (byte === openList || byte === openObject) {
      depth += 1;
      values += 1;
      if (depth > maxDepth) throw limitExceeded('max_depth', `must not be nested deeper than ${maxDepth} levels`);
      fields[depth] = 1;
      isObject[depth] = byte === openObject ? 1 : 0;
    } else if (byte === closeList || byte === closeObject) {
      if (depth > 0) depth -= 1;
    } else if (byte === comma) {
      values += 1;
      const count = (fields[depth] ?? 0) + 1;
      fields[depth] = count;
      if (isObject[depth] === 1 && count > maxFields) {
        throw limitExceeded('max_fields', `must have at most ${maxFields} fields in one object`);
      }
    }
    if (values > maxValues) throw limitExceeded('max_values', `must have at most ${maxValues} values`);
  }
}

function limitExceeded(rule: string, message: string): AppError {
  return new AppError('invalid-input', { errors: [{ pointer: '', rule, message }] });
}

const utf8 = new TextDecoder('utf-8', { fatal: true });
/** Enough for a small body sent word by word, and for a large body in network packets. */
const chunksOf = (limitBytes: number) => 256 + Math.ceil(limitBytes / 1_024);

interface BodyLimits {
  readonly limitBytes: number;
  /** For the whole body, from now on. */
  readonly timeoutMs: number;
}

/**
 * Reads the request body as JSON; null if there is none, with any Content-Type.
 *
 * @throws AppError `payload-too-large`, `request-timeout`, `unsupported-media-type`, `malformed-json`, `invalid-input` or
 * `malformed-request`
 */
export async function readJsonBody(request: Request, limits: BodyLimits): Promise<unknown> {
  const bytes = await readBytes(request, limits);
  return bytes.byteLength === 0 ? null : parseJson(bytes);
}

function parseJson(bytes: Uint8Array): unknown {
  requireLimits(bytes);
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (error) {
    throw new AppError('malformed-json', { cause: error });
  }
}

async function readBytes(request: Request, { limitBytes, timeoutMs }: BodyLimits): Promise<Uint8Array> {
  const announced = request.headers.get('content-length');
  if (announced !== null && Number(announced) > limitBytes) throw tooLarge(limitBytes);
  const unsupported = unsupportedMediaType(request);
  if (announced !== null && Number(announced) > 0 && unsupported !== undefined) throw unsupported;
  try {
    const bytes = announced === null ? readStream(request.body, limitBytes, unsupported) : request.bytes();
    return await inTime(bytes, timeoutMs);
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('malformed-request', { cause: error });
  }
}

/** Most bodies have already arrived and need no timer. */
async function inTime(bytes: Promise<Uint8Array>, timeoutMs: number): Promise<Uint8Array> {
  if (Bun.peek.status(bytes) !== 'pending') return bytes;
  return withTimeout(bytes, timeoutMs, () => {
    throw tooLate();
  });
}

/**
 * A chunked body announces no length, so its bytes are counted as they arrive. The first byte shows that a body exists.
 * Each chunk costs a turn of the event loop, however small.
 */
async function readStream(
  body: ReadableStream<Uint8Array> | null,
  limitBytes: number,
  unsupported: AppError | undefined,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    if (unsupported !== undefined) throw unsupported;
    length += chunk.byteLength;
    if (length > limitBytes) throw tooLarge(limitBytes);
    if (chunks.length === chunksOf(limitBytes)) throw inTooManyChunks(limitBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

export function tooLarge(limitBytes: number): AppError {
  return new AppError('payload-too-large', { detail: `The body may have at most ${limitBytes} bytes.` });
}

function inTooManyChunks(limitBytes: number): AppError {
  const detail = `The body may arrive in at most ${chunksOf(limitBytes)} chunks.`;
  return new AppError('payload-too-large', { detail, headers: { connection: 'close' } });
}

export function tooLate(): AppError {
  // The rest of the body would be parsed as the next request.
  return new AppError('request-timeout', { headers: { connection: 'close' } });
}

/** Returns an error unless the body is JSON in UTF-8 without an encoding. */
function unsupportedMediaType({ headers }: Request): AppError | undefined {
  if (!isUtf8Json(headers.get('content-type') ?? '')) return new AppError('unsupported-media-type');
  const encodings = headers.get('content-encoding')?.toLowerCase().split(',') ?? [];
  return encodings.every((encoding) => ['', 'identity'].includes(encoding.trim()))
    ? undefined
    : new AppError('unsupported-media-type', { detail: 'The body must not have a Content-Encoding.' });
}

function isUtf8Json(type: string): boolean {
  if (type === 'application/json') return true;
  try {
    const { essence, params } = new MIMEType(type);
    // TextDecoder accepts every label of the Encoding Standard and throws for others.
    return essence === 'application/json' && new TextDecoder(params.get('charset') ?? 'utf-8').encoding === 'utf-8';
  } catch {
    return false;
  }
}

/** A schema that throws instead of returning issues. The documentation finds the models by identity in `documents`. */
type ThrowingSchema<Schema extends v.GenericSchema> = Omit<Schema, '~standard'> & {
  readonly documents: Schema;
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly types?: { readonly input: v.InferInput<Schema>; readonly output: v.InferOutput<Schema> } | undefined;
    validate(value: unknown): { value: v.InferOutput<Schema> };
  };
};

/** The `body` of a route. Errors have JSON pointers. */
export function requestBody<Schema extends v.GenericSchema>(schema: Schema): ThrowingSchema<Schema> {
  return throwing(schema, 'pointer');
}

/** The `query`, `params` or `headers` of a route. Errors have parameter names. */
export function requestParameters<Schema extends v.GenericSchema>(schema: Schema): ThrowingSchema<Schema> {
  return throwing(schema, 'parameter');
}

/** The `query` of a route without parameters; it refuses unknown ones. */
export const noParameters = requestParameters(v.strictObject({}));

/**
 * Throws `invalid-input`. Elysia's own error has a message with the value and every issue, which blocks the thread for
 * seconds for a small body with many errors.
 */
function throwing<Schema extends v.GenericSchema>(schema: Schema, naming: Naming): ThrowingSchema<Schema> {
  return {
    ...schema,
    documents: schema,
    '~standard': {
      ...schema['~standard'],
      validate(value: unknown) {
        const parsed = v.safeParse(schema, value, { abortPipeEarly: true });
        if (parsed.success) return { value: parsed.output };
        throw new AppError('invalid-input', { errors: findFieldErrors(schema, parsed.issues, naming) });
      },
    },
  };
}
