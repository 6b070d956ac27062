import { expect, test } from 'bun:test';
import { chmod, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { runToEnd, temporaryFolder } from './support/resources';

const script = join(import.meta.dirname, '../.ci/install-programs');

/** Runs the script with only these programs in PATH, each a line of shell. */
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
  return { output: stdout.trim(), hasCalledApt: await Bun.file(join(folder, 'called')).exists() };
}

const called = 'touch "$PATH/called"; echo noise; echo noise >&2';
const root = { id: 'echo 0' };
const ci = { CI: 'true' };
/** An apt-get that installs the program of each package. */
const works = `${called}; case "$*" in *" install "*) for name in "$@"; do
  case $name in systemd) name=systemd-analyze ;; prometheus) name=promtool ;; esac
  touch "$PATH/$name"; chmod +x "$PATH/$name"
done;; esac`;
const all = { chromium: '', nginx: '', haproxy: '', caddy: '', 'systemd-analyze': '', promtool: '' };

test.each([
  ['installs nothing when all programs exist', { ...root, ...all, 'apt-get': works }, ci, false, 'installed before'],
  ['installs a missing program', { ...root, ...all, haproxy: undefined, 'apt-get': works }, ci, true, 'installed now'],
  ['installs all programs on a CI machine', { ...root, 'apt-get': works }, ci, true, 'installed now'],
  ['installs nothing outside CI', { ...root, 'apt-get': works }, {}, false, 'only installed where CI is set'],
  ['installs nothing without root', { id: 'echo 1000', 'apt-get': works }, ci, false, 'only root with apt-get'],
  ['succeeds without apt-get', root, ci, false, 'only root with apt-get'],
  [
    'succeeds when the package lists are unavailable',
    { ...root, 'apt-get': `${called}; exit 100` },
    ci,
    true,
    'not to be installed',
  ],
  ['succeeds when apt-get installs nothing', { ...root, 'apt-get': called }, ci, true, 'not to be installed'],
  [
    'stops after the timeout',
    { ...root, 'apt-get': `${called}; sleep 60` },
    ci,
    true,
    'not to be installed within 1 s',
  ],
] as const)('.ci/install-programs %s', async (_, programs, environment, hasCalledApt, message) => {
  const outcome = await install(programs, environment);
  expect(outcome.output).toContain(message);
  expect(outcome.hasCalledApt).toBe(hasCalledApt);
});
