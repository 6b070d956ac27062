import { join } from 'node:path';
import { pagePaths, recordResponses, withTables } from './pages';
import { cleanUp } from './resources';

/** Writes the parts of the documentation that are derived from the sources: response examples and tables of the pages. */
const root = join(import.meta.dirname, '../..');
const examples = join(root, 'src/http/docs/examples.json');

async function writeIfChanged(path: string, text: string): Promise<void> {
  if ((await Bun.file(path).text()) === text) return;
  await Bun.write(path, text);
  console.log(`wrote ${path.slice(root.length + 1)}`);
}

/** Formats a file as `bun run check` requires it. */
async function formatted(path: string, text: string): Promise<string> {
  const biome = ['x', 'biome', 'format', `--stdin-file-path=${path}`];
  const child = Bun.spawn([process.execPath, ...biome], { cwd: root, stdin: new Blob([text]), stderr: 'inherit' });
  const output = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error(`Biome cannot format ${path}`);
  return output;
}

await writeIfChanged(examples, await formatted(examples, JSON.stringify(await recordResponses())));
for (const path of pagePaths.map((page) => join(root, page))) {
  await writeIfChanged(path, await withTables(await Bun.file(path).text()));
}
await cleanUp();
process.exit();
