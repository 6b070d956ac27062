import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { onceLoaded } from '../once-loaded';

/** Answers with a body, compressed for whoever takes gzip: once, for the first of them. */
export function createGzipAnswer(body: Blob) {
  const compressed = onceLoaded(async () => promisify(gzip)(await body.bytes()));
  return async ({ headers: sent }: Request, headers: Readonly<Record<string, string>>): Promise<Response> =>
    takesGzip(sent.get('accept-encoding') ?? '')
      ? new Response(await compressed(), { headers: { ...headers, 'content-encoding': 'gzip' } })
      : new Response(body, { headers });
}

function takesGzip(accepted: string): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:\s*[,;]|\s*$))/i.test(accepted);
}
