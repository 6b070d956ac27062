import { existsSync } from 'node:fs';
import packageJson from '../../package.json' with { type: 'json' };

/** The bundler replaces it by the commit that it builds. */
declare const BUILD_COMMIT: string | undefined;

/** What was built: the version that CHANGELOG.md describes, and the commit, which is `unknown` for the sources. */
export const buildIdentity = {
  version: packageJson.version,
  commit: typeof BUILD_COMMIT === 'undefined' ? 'unknown' : BUILD_COMMIT,
} as const;

/** The build as one text, such as `2.1.0 (0123456789ab)`. */
export const buildName = `${buildIdentity.version} (${buildIdentity.commit})`;

/**
 * The folder of this package, `package.json` in it: here, or in the bundle, which has the same layout. Files that are
 * read at run time are found from it and never from a module's own address, since a bundle gathers modules of several
 * folders in one file.
 */
export const packageRoot = nearestPackage(new URL('.', import.meta.url));

/** Whether this is the bundle. The sources run from their `.ts` files. */
export const isBundle = !import.meta.path.endsWith('.ts');

/** How an operator runs the command line: the bundle is installed as `planning`, and the sources have a script. */
export const commandName = isBundle ? 'planning' : 'bun planning';

function nearestPackage(folder: URL): URL {
  if (existsSync(new URL('package.json', folder))) return folder;
  const parent = new URL('..', folder);
  if (parent.href === folder.href) throw new Error(`No package.json above ${import.meta.url}`);
  return nearestPackage(parent);
}
