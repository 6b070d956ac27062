import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../package-root';
import { buildBundle } from './bundle';
import { removeEarlierBundle } from './earlier-bundle';

const dist = fileURLToPath(new URL('dist', packageRoot));
const folder = resolve(process.argv[2] ?? dist);
// Bun writes down where modules lie, seen from here.
process.chdir(fileURLToPath(packageRoot));
// What an earlier build left; never a folder that somebody names, which may hold anything.
if (folder === dist && existsSync(dist)) await removeEarlierBundle(dist);
await buildBundle(folder);
process.stdout.write(`${folder} runs with \`bun --no-install src/main.js\`\n`);
