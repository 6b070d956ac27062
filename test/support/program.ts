import { join } from 'node:path';
import { buildBundle } from './bundle';
import { keptFolder } from './kept';

const bundle = keptFolder('tested-bundle', { make: buildBundle });

/**
 * What Bun is given to run an entry point of the service as a process of its own: that of the bundle, which starts for
 * about six tenths of what the sources take.
 */
export async function programOf(entryPoint: 'src/main' | 'src/cli/main'): Promise<string> {
  return join(await bundle(), `${entryPoint}.js`);
}
