import { expect } from 'bun:test';
import { join } from 'node:path';
import packageJson from '../../package.json';
import { builtClient } from '../support/artifacts';
import { runProgram, temporaryFolder } from '../support/resources';

/** A frontend in an empty folder, created by the documented steps, without access to this folder. */
export async function createFrontend() {
  const [built, frontend] = [await builtClient(), temporaryFolder()];
  await runProgram(built, [process.execPath, 'pm', 'pack', '--destination', frontend, '--quiet']);
  await Bun.write(join(frontend, 'package.json'), '{ "name": "frontend", "private": true, "type": "module" }');
  const tarball = `./${packageJson.name}-${packageJson.version}.tgz`;
  const readme = await Bun.file(join(import.meta.dirname, '../../README.md')).text();
  expect(readme).toContain(`npm install ../${packageJson.name}/${packageJson.name}-${packageJson.version}.tgz\n`);
  const installers = [
    [Bun.which('npm') ?? '', 'install', '--offline', '--no-audit', '--no-fund', tarball],
    [process.execPath, 'add', tarball],
  ];
  await runProgram(frontend, installers.find(([program]) => program !== '') ?? []);
  return frontend;
}
