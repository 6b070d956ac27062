import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import * as v from 'valibot';
import { onceLoaded } from '../once-loaded';

const PackageFile = v.object({ version: v.string() });

/** The page's own program, from the package that makes it, so that the page loads nothing from another host. */
export async function loadPageProgram() {
  const packageFile = import.meta.resolve('@scalar/api-reference/package.json');
  const { version } = v.parse(PackageFile, await Bun.file(new URL(packageFile)).json());
  const file = Bun.file(new URL('./dist/browser/standalone.js', packageFile));
  const compressed = onceLoaded(async () => promisify(gzip)(await file.bytes()));

  return {
    version,
    /** Five megabytes, or for whoever takes gzip 1.4, made for the first of them. */
    async answer(request: Request): Promise<Response> {
      const takesGzip = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:\s*[,;]|\s*$))/i.test(
        request.headers.get('accept-encoding') ?? '',
      );
      const headers = {
        'content-type': 'text/javascript; charset=utf-8',
        // The page asks for it with its version.
        'cache-control': request.url.endsWith(`?v=${version}`)
          ? 'public, max-age=31536000, immutable'
          : 'public, max-age=3600',
      };
      return takesGzip
        ? new Response(await compressed(), { headers: { ...headers, 'content-encoding': 'gzip' } })
        : new Response(file, { headers });
    },
  };
}
