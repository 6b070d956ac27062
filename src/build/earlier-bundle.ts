import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** Leaves the client, which `bun run build:client` has made: a frontend may have this folder as a workspace. */
export async function removeEarlierBundle(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name !== 'client');
  for (const name of names) await rm(join(folder, name), { recursive: true });
}
