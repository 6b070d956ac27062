import { existsSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../package-root';
import { buildBundle } from './bundle';

const dist = fileURLToPath(new URL('dist', packageRoot));
const folder = resolve(process.argv[2] ?? dist);
// Bun writes down where modules lie, seen from here.
process.chdir(fileURLToPath(packageRoot));
// What an earlier build left; never a folder that somebody names, which may hold anything.
if (folder === dist && existsSync(dist)) await clear(dist);
await buildBundle(folder);
process.stdout.write(`${folder} runs with \`bun --no-install src/main.js\`\n`);

/** Leaves the client, which `bun run build:client` has made: a frontend may have this folder as a workspace. */
async function clear(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name !== 'client');
  for (const name of names) await rm(join(folder, name), { recursive: true });
}
