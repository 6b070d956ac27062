import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import * as v from 'valibot';

const LicensedPackage = v.object({
  name: v.string(),
  version: v.string(),
  license: v.optional(v.string(), 'not stated'),
});

/** The licences of all packages that these files come from, each with its text where the package carries one. */
export async function thirdPartyLicenses(paths: readonly string[]): Promise<string> {
  const folders = new Set(paths.map(packageFolder).filter((folder) => folder !== undefined));
  const entries = await Promise.all([...folders].map(entryOf));
  return `${[...new Set(entries)].sort().join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

/** Undefined for a file of this package itself. */
function packageFolder(path: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0];
}

async function entryOf(folder: string): Promise<string> {
  const { name, version, license } = v.parse(LicensedPackage, await Bun.file(join(folder, 'package.json')).json());
  const names = (await readdir(folder)).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file)).sort();
  const texts = await Promise.all(names.map((file) => Bun.file(join(folder, file)).text()));
  return [`${name} ${version} (${license})`, ...texts.map((text) => text.trim())].join('\n\n');
}
