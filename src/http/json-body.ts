import { AppError } from '../errors';

const jsonMediaType = /^application\/json\s*(?:;|$)/i;
const otherCharset = /;\s*charset\s*=\s*(?!"?utf-8"?\s*(?:;|$))/i;
const utf8 = new TextDecoder('utf-8', { fatal: true });

export interface BodyLimits {
  readonly limitBytes: number;
  /** From now until all of it has arrived. */
  readonly timeoutMs: number;
}

/**
 * Reads the request body as JSON; null when there is none, whatever its Content-Type.
 *
 * @throws AppError `payload-too-large`, `request-timeout`, `unsupported-media-type`, `malformed-json` or `malformed-request`
 */
export async function readJsonBody(request: Request, limits: BodyLimits): Promise<unknown> {
  const bytes = await readBytes(request, limits);
  if (bytes.byteLength === 0) return null;
  const type = request.headers.get('content-type') ?? '';
  if (!jsonMediaType.test(type) || otherCharset.test(type)) throw new AppError('unsupported-media-type');
  if ((request.headers.get('content-encoding') ?? 'identity') !== 'identity') {
    throw new AppError('unsupported-media-type', { detail: 'The body must not have a Content-Encoding.' });
  }
  return parseJson(bytes);
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(utf8.decode(bytes));
  } catch (error) {
    throw new AppError('malformed-json', { cause: error });
  }
}

async function readBytes(request: Request, { limitBytes, timeoutMs }: BodyLimits): Promise<Uint8Array> {
  const announced = request.headers.get('content-length');
  if (announced !== null && Number(announced) > limitBytes) throw tooLarge(limitBytes);
  try {
    const bytes = announced === null ? readStream(request.body, limitBytes) : request.bytes();
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

/** A chunked body announces no length, so it is counted while it arrives. */
async function readStream(body: ReadableStream<Uint8Array> | null, limitBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    length += chunk.byteLength;
    if (length > limitBytes) throw tooLarge(limitBytes);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

export function tooLarge(limitBytes: number): AppError {
  return new AppError('payload-too-large', { detail: `The body may have at most ${limitBytes} bytes.` });
}

export function tooLate(): AppError {
  // What is still to come of the body would be taken for the next request.
  return new AppError('request-timeout', { headers: { connection: 'close' } });
}
