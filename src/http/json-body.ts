import { MIMEType } from 'node:util';
import { AppError } from '../errors';
import { requireModestJson } from './json-limits';

const utf8 = new TextDecoder('utf-8', { fatal: true });
/** Enough for a small body sent word by word, and for a large body in network packets. */
const chunksOf = (limitBytes: number) => 256 + Math.ceil(limitBytes / 1_024);

export interface BodyLimits {
  readonly limitBytes: number;
  /** From now until all of it has arrived. */
  readonly timeoutMs: number;
}

/**
 * Reads the request body as JSON; null when there is none, whatever its Content-Type.
 *
 * @throws AppError `payload-too-large`, `request-timeout`, `unsupported-media-type`, `malformed-json`, `invalid-input` or
 * `malformed-request`
 */
export async function readJsonBody(request: Request, limits: BodyLimits): Promise<unknown> {
  const bytes = await readBytes(request, limits);
  return bytes.byteLength === 0 ? null : parseJson(bytes);
}

function parseJson(bytes: Uint8Array): unknown {
  requireModestJson(bytes);
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (error) {
    throw new AppError('malformed-json', { cause: error });
  }
}

async function readBytes(request: Request, { limitBytes, timeoutMs }: BodyLimits): Promise<Uint8Array> {
  const announced = request.headers.get('content-length');
  if (announced !== null && Number(announced) > limitBytes) throw tooLarge(limitBytes);
  const unsupported = mediaTypeFault(request);
  if (announced !== null && Number(announced) > 0 && unsupported !== undefined) throw unsupported;
  try {
    const bytes = announced === null ? readStream(request.body, limitBytes, unsupported) : request.bytes();
    return await inTime(bytes, timeoutMs);
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('malformed-request', { cause: error });
  }
}

/** Most bodies are there already, and need no timer. */
async function inTime(bytes: Promise<Uint8Array>, timeoutMs: number): Promise<Uint8Array> {
  if (Bun.peek.status(bytes) !== 'pending') return bytes;
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(tooLate()), timeoutMs);
  try {
    return await Promise.race([bytes, late]);
  } finally {
    clearTimeout(timer);
  }
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
  // What is still to come of the body would be taken for the next request.
  return new AppError('request-timeout', { headers: { connection: 'close' } });
}

/** Returns an error unless the body is JSON in UTF-8 without an encoding. */
function mediaTypeFault({ headers }: Request): AppError | undefined {
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
