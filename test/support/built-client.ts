import { join } from 'node:path';
import { temporaryFolder } from './database';
import { keptFolder } from './kept';
import { runProgram } from './run-to-end';

const build = join(import.meta.dirname, '../../src/build/client.ts');

/** The folder of the client's package, as `bun run build:client` makes it. */
export const builtClient = keptFolder('tested-client', {
  async make(folder) {
    await runProgram(temporaryFolder(), [process.execPath, build, folder]);
  },
});
