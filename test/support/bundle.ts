import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './database';

const build = join(import.meta.dirname, '../../src/build/main.ts');

/** Builds the bundle and moves it, so that nothing can depend on the build folder. */
export async function buildMovedBundle() {
  const [built, bundle] = [join(temporaryFolder(), 'built'), join(temporaryFolder(), 'moved')];
  await buildBundle(built);
  renameSync(built, bundle);
  return { built, bundle };
}

export async function buildBundle(folder: string): Promise<void> {
  const child = Bun.spawn([process.execPath, build, folder], {
    cwd: temporaryFolder(),
    stdout: 'ignore',
    stderr: 'pipe',
  });
  const stderr = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`The build failed:\n${stderr}`);
}
