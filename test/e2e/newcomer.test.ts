import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import packageJson from '../../package.json';
import { atEnd, runProgram, runToEnd, temporaryFolder } from '../support/resources';

const root = join(import.meta.dirname, '../..');
const home = temporaryFolder();
const clone = join(home, packageJson.name);
const needed = ['git', 'node', 'npm', 'npx', 'sh', 'curl'];

/** Variables for package caches. Others are dropped, because npm sets many for its children. */
const inherited = ['HOME', 'TMPDIR', 'npm_config_cache', 'BUN_INSTALL', 'BUN_INSTALL_CACHE_DIR', 'XDG_CACHE_HOME'];
const environment = {
  ...Object.fromEntries(
    inherited.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  ),
  npm_config_offline: 'true',
  PORT: '0',
};

const skipReason = await findSkipReason();
if (skipReason !== undefined) console.warn(`The newcomer test was skipped: ${skipReason}.`);

async function findSkipReason(): Promise<string | undefined> {
  const missing = needed.filter((name) => Bun.which(name) === null);
  if (missing.length > 0) return `no ${missing.join(' and no ')} is installed`;
  const head = Bun.spawn(['git', 'rev-parse', 'HEAD'], { cwd: root, stdout: 'pipe', stderr: 'pipe' });
  const isClone = existsSync(join(root, '.git')) && (await runToEnd(head)).exitCode === 0;
  return isClone ? undefined : 'this folder is not a clone of a repository';
}

/** The PATH without and with Bun. Links to the other programs replace a folder that contains Bun. */
function paths() {
  const [links, bun] = [join(home, 'bin'), join(home, 'bin-of-bun')];
  for (const folder of [links, bun]) mkdirSync(folder);
  symlinkSync(process.execPath, join(bun, 'bun'));
  const folders = (process.env.PATH ?? '').split(delimiter).filter((folder) => !folder.includes('node_modules'));
  const hasBun = (folder: string) => Bun.which('bun', { PATH: folder }) !== null;
  for (const folder of folders.filter(hasBun)) {
    for (const name of readdirSync(folder)) {
      if (!/^bunx?$/.test(name) && !existsSync(join(links, name))) symlinkSync(join(folder, name), join(links, name));
    }
  }
  for (const name of needed) if (!existsSync(join(links, name))) symlinkSync(Bun.which(name) ?? '', join(links, name));
  const withoutBun = [links, ...folders.filter((folder) => !hasBun(folder))].join(delimiter);
  return { withoutBun, withBun: `${withoutBun}${delimiter}${bun}` };
}

/** Returns the blocks of commands of the README, and its first program. */
function stepsOf(readme: string) {
  const blocks = (kind: string) =>
    [...readme.matchAll(new RegExp(`\`\`\`${kind}\\n([\\s\\S]*?)\`\`\``, 'g'))].map(([, block = '']) => block);
  return { commands: blocks('console').map((block) => block.trim().split('\n')), program: blocks('ts')[0] ?? '' };
}

test.skipIf(skipReason !== undefined)(
  `README commands lead a newcomer from a clone to the first typed response${skipReason ? ` (${skipReason})` : ''}`,
  async () => {
    const { commands, program } = stepsOf(await runProgram(root, ['git', 'show', 'HEAD:README.md']));
    const [[cloneIt = '', enter = '', startIt = ''] = [], pack = [], compile = []] = commands;
    const { withoutBun, withBun } = paths();
    const env = { ...environment, PATH: withoutBun };
    const run = (cwd: string, command: string) => runProgram(cwd, ['sh', '-c', command], env);

    await run(home, cloneIt.replace('REPOSITORY', `'${root}'`));
    expect([enter, startIt]).toEqual([`cd ${packageJson.name}`, 'npm start']);
    const { address, token, curl } = await start(startIt, env).catch((error: Error) => {
      console.warn(`Bun is added to PATH, because npx has no cached Bun. ${error.message}`);
      env.PATH = withBun;
      return start(startIt, env);
    });
    expect(JSON.parse(await run(home, curl))).toMatchObject({ data: {} });

    let cwd = clone;
    for (const command of pack) {
      await run(cwd, command);
      const [, folder] = /^cd (.*)/.exec(command) ?? [];
      if (folder !== undefined) cwd = resolve(cwd, folder);
    }
    expect(cwd).toBe(join(home, 'frontend'));
    await Bun.write(join(cwd, 'first.mts'), program.replace('http://127.0.0.1:3000', address).replace('TOKEN', token));
    expect(compile.length).toBe(2);
    const outputs = [];
    for (const command of compile) outputs.push(await run(cwd, command));
    expect(outputs.at(-1)).toBe('Ada\n');
  },
  120_000,
);

/** Starts the service by the README and parses its output. */
async function start(command: string, env: Record<string, string | undefined>) {
  const options = { cwd: clone, env, stdout: 'pipe', stderr: 'pipe', detached: true } as const;
  const child = Bun.spawn(['sh', '-c', command], options);
  atEnd(async () => {
    if (child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
    await child.exited;
  });
  const errors = new Response(child.stderr).text();
  let output = '';
  for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
    output += chunk;
    const [, curl, address = '', token = ''] =
      /^ *(curl (http:\/\/[^/]+)\S* -H 'Authorization: Bearer ([^']+)')\n/m.exec(output) ?? [];
    if (curl !== undefined) return { curl, address, token };
  }
  throw new Error(`The service ended before it printed a curl:\n${output}${await errors}`);
}
