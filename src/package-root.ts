import { existsSync } from 'node:fs';

/**
 * The folder of this package, `package.json` in it: here, or in the bundle, which has the same layout. Files that are
 * read at run time are found from it and never from a module's own address, since a bundle gathers modules of several
 * folders in one file.
 */
export const packageRoot = nearestPackage(new URL('.', import.meta.url));

function nearestPackage(folder: URL): URL {
  if (existsSync(new URL('package.json', folder))) return folder;
  const parent = new URL('..', folder);
  if (parent.href === folder.href) throw new Error(`No package.json above ${import.meta.url}`);
  return nearestPackage(parent);
}
