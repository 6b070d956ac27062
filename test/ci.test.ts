import { expect, test } from 'bun:test';
import { chmod, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from './support/database';
import { runToEnd } from './support/run-to-end';

const script = join(import.meta.dirname, '../.ci/install-programs');

/** Runs the script on a machine that has these programs, each a line of shell, and no others. */
async function install(
  programs: Readonly<Record<string, string | undefined>>,
  environment: Readonly<Record<string, string>>,
) {
  const folder = temporaryFolder();
  for (const name of ['bash', 'timeout', 'touch', 'chmod', 'sleep'])
    await symlink(Bun.which(name) ?? '', join(folder, name));
  for (const [name, line] of Object.entries({ ...programs })) {
    if (line === undefined) continue;
    await Bun.write(join(folder, name), `#!${folder}/bash\n${line}\n`);
    await chmod(join(folder, name), 0o755);
  }
  const child = Bun.spawn([join(folder, 'bash'), script, '1'], {
    env: { PATH: folder, ...environment },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  const { exitCode, stdout, stderr } = await runToEnd(child);
  expect({ exitCode, stderr, lines: stdout.split('\n').length }).toEqual({ exitCode: 0, stderr: '', lines: 2 });
  return { said: stdout.trim(), hasAsked: await Bun.file(join(folder, 'asked')).exists() };
}

const asked = 'touch "$PATH/asked"; echo noise; echo noise >&2';
const root = { id: 'echo 0' };
const ci = { CI: 'true' };
/** Installs each package as the program that it holds. */
const works = `${asked}; case "$*" in *" install "*) for name in "$@"; do
  case $name in systemd) name=systemd-analyze ;; prometheus) name=promtool ;; esac
  touch "$PATH/$name"; chmod +x "$PATH/$name"
done;; esac`;
const all = { chromium: '', nginx: '', haproxy: '', caddy: '', 'systemd-analyze': '', promtool: '' };

test.each([
  ['installs nothing where all are there', { ...root, ...all, 'apt-get': works }, ci, false, 'installed before'],
  [
    'installs the one that is missing',
    { ...root, ...all, haproxy: undefined, 'apt-get': works },
    ci,
    true,
    'installed now',
  ],
  ['installs them on a machine of CI', { ...root, 'apt-get': works }, ci, true, 'installed now'],
  [
    'installs nothing on a person’s machine',
    { ...root, 'apt-get': works },
    {},
    false,
    'only installed where CI is set',
  ],
  ['installs nothing for who is not root', { id: 'echo 1000', 'apt-get': works }, ci, false, 'only root with apt-get'],
  ['does without apt-get', root, ci, false, 'only root with apt-get'],
  ['survives lists that cannot be had', { ...root, 'apt-get': `${asked}; exit 100` }, ci, true, 'not to be installed'],
  ['survives an apt-get that installs none', { ...root, 'apt-get': asked }, ci, true, 'not to be installed'],
  ['does not wait for ever', { ...root, 'apt-get': `${asked}; sleep 60` }, ci, true, 'not to be installed within 1 s'],
] as const)(
  'the script that installs the programs of the tests %s',
  async (_, programs, environment, hasAsked, said) => {
    const outcome = await install(programs, environment);
    expect(outcome.said).toContain(said);
    expect(outcome.hasAsked).toBe(hasAsked);
  },
);
