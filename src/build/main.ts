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
const commit = commitToBuild(process.env.BUILD_COMMIT);
await buildBundle(folder, commit);
process.stdout.write(`Built ${commit}: ${folder} runs with \`bun --no-install src/main.js\`\n`);

/** The commit that the environment names, or git if it is installed and knows this folder. */
function commitToBuild(named: string | undefined): string {
  if (named !== undefined && named !== '') {
    if (/^[0-9a-f]{7,40}$|^unknown$/.test(named)) return named;
    throw new Error('BUILD_COMMIT must be a commit: 7 to 40 hexadecimal digits');
  }
  if (Bun.which('git') === null) return 'unknown';
  const { exitCode, stdout } = Bun.spawnSync(['git', 'rev-parse', '--short=12', 'HEAD'], { stderr: 'ignore' });
  return exitCode === 0 ? stdout.toString().trim() : 'unknown';
}
