import { join } from 'node:path';
import { atEnd } from './cleanup';
import { copyTemplate, temporaryFolder } from './database';

const root = new URL('../..', import.meta.url).pathname;

export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * A working folder of its own, from which the command line is run as an operator would; its database is migrated and
 * seeded as by `planning migrate`, unless it is to be `empty`.
 */
export async function createCommandLine(environment: Record<string, string> = {}, { isEmpty = false } = {}) {
  const cwd = temporaryFolder();
  if (!isEmpty) await copyTemplate(join(cwd, 'data/planning.db'));
  const start = (args: readonly string[]) =>
    Bun.spawn([process.execPath, join(root, 'src/cli/main.ts'), ...args], {
      cwd,
      env: { PATH: process.env.PATH, ...environment },
      stdout: 'pipe',
      stderr: 'pipe',
    });
  return {
    cwd,
    databaseUrl: `file:${join(cwd, 'data/planning.db')}`,
    /** Starts a command and leaves it running. */
    start(...args: string[]) {
      const command = start(args);
      atEnd(() => command.kill('SIGKILL'));
      return command;
    },
    async planning(...args: string[]): Promise<CommandResult> {
      const command = start(args);
      const [stdout, stderr, exitCode] = await Promise.all([
        new Response(command.stdout).text(),
        new Response(command.stderr).text(),
        command.exited,
      ]);
      return { exitCode, stdout, stderr };
    },
    async write(name: string, content: string | Uint8Array): Promise<string> {
      await Bun.write(join(cwd, name), content);
      return name;
    },
  };
}

export type CommandLine = Awaited<ReturnType<typeof createCommandLine>>;
