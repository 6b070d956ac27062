import { rm } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../package-root';
import { buildBundle } from './bundle';

const dist = fileURLToPath(new URL('dist', packageRoot));
const [folder = dist] = process.argv.slice(2);
// What an earlier build left; never a folder that somebody names, which may hold anything.
if (folder === dist) await rm(dist, { recursive: true, force: true });
await buildBundle(resolve(folder));
process.stdout.write(`${resolve(folder)} runs with \`bun --no-install src/main.js\`\n`);
