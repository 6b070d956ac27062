import { MIMEType } from 'node:util';
import { AppError } from '../errors';

/** Returns an error unless the body is JSON in UTF-8 without an encoding. */
export function mediaTypeFault({ headers }: Request): AppError | undefined {
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
