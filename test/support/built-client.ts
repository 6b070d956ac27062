import { join } from 'node:path';
import { cachedFolder } from './cached-folder';
import { temporaryFolder } from './database';
import { runProgram } from './run-to-end';

const build = join(import.meta.dirname, '../../src/build/main.ts');

/** The folder of the client package built by `bun run build:client`. */
export const builtClient = cachedFolder('tested-client', {
  async make(folder) {
    await runProgram(temporaryFolder(), [process.execPath, build, '--client', folder]);
  },
});
