import * as v from 'valibot';
import { createGzipAnswer } from './gzip-answer';

const PackageFile = v.object({ version: v.string() });

/** The page's own program, from the package that makes it, so that the page loads nothing from another host. */
export async function loadPageProgram() {
  const packageFile = import.meta.resolve('@scalar/api-reference/package.json');
  const { version } = v.parse(PackageFile, await Bun.file(new URL(packageFile)).json());
  const answer = createGzipAnswer(Bun.file(new URL('./dist/browser/standalone.js', packageFile)));

  return {
    version,
    /** Five megabytes, or for whoever takes gzip 1.4. */
    answer: (request: Request): Promise<Response> =>
      answer(request, {
        'content-type': 'text/javascript; charset=utf-8',
        // The page asks for it with its version.
        'cache-control': request.url.endsWith(`?v=${version}`)
          ? 'public, max-age=31536000, immutable'
          : 'public, max-age=3600',
      }),
  };
}
