import { existsSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import packageJson from '../../package.json' with { type: 'json' };

/** The bundler replaces it with the commit. */
declare const BUILD_COMMIT: string | undefined;

/** The version, as in CHANGELOG.md, and the commit, which is `unknown` for the sources. */
export const buildIdentity = {
  version: packageJson.version,
  commit: typeof BUILD_COMMIT === 'undefined' ? 'unknown' : BUILD_COMMIT,
} as const;

/** The build as one text, such as `2.1.0 (0123456789ab)`. */
export const buildName = `${buildIdentity.version} (${buildIdentity.commit})`;

/**
 * The folder with `package.json`, in the sources or in the bundle. Resolve the paths of files that are read at run time
 * from it, not from `import.meta.url`: the bundle has modules of several folders in one file.
 */
export const packageRoot = nearestPackage(new URL('.', pathToFileURL(import.meta.path)));

/** Whether this is the bundle. The sources run from their `.ts` files. */
export const isBundle = !import.meta.path.endsWith('.ts');

/** The command that runs the CLI: the bundle is installed as `planning`, and the sources have a script. */
export const commandName = isBundle ? 'planning' : 'bun planning';

function nearestPackage(folder: URL): URL {
  if (existsSync(new URL('package.json', folder))) return folder;
  const parent = new URL('..', folder);
  if (parent.href === folder.href) throw new Error(`No package.json above ${import.meta.path}`);
  return nearestPackage(parent);
}
