import { join } from 'node:path';
import { createProgram } from '../../src/cli/main';
import { OperatorError } from '../../src/errors';
import { atEnd } from './cleanup';
import { copyTemplate, temporaryFolder } from './database';
import { programOf } from './program';
import { type EndedProcess, runToEnd } from './run-to-end';

/** Runs the command line in a temporary folder with a migrated and seeded database, or none if `isEmpty`. */
export async function createCommandLine(environment: Record<string, string> = {}, { isEmpty = false } = {}) {
  const cwd = temporaryFolder();
  const program = await programOf('src/cli/main');
  if (!isEmpty) await copyTemplate(join(cwd, 'data/planning.db'), environment.DATABASE_ENCRYPTION_KEY);
  const start = (args: readonly string[]) =>
    Bun.spawn([process.execPath, program, ...args], {
      cwd,
      env: { PATH: process.env.PATH, NODE_ENV: 'development', ...environment },
      stdout: 'pipe',
      stderr: 'pipe',
    });
  return {
    cwd,
    databaseUrl: `file:${join(cwd, 'data/planning.db')}`,
    /** Starts a command and returns the process. */
    start(...args: string[]) {
      const command = start(args);
      atEnd(() => command.kill('SIGKILL'));
      return command;
    },
    planning: (...args: string[]): Promise<EndedProcess> => runToEnd(start(args)),
    async write(name: string, content: string | Uint8Array): Promise<string> {
      await Bun.write(join(cwd, name), content);
      return name;
    },
  };
}

export type CommandLine = Awaited<ReturnType<typeof createCommandLine>>;

/** The error message of a command that fails, run in this process because that is faster. */
export async function refusalOf(environment: Record<string, string>, ...args: string[]): Promise<string> {
  const set = { NODE_ENV: 'development', ...environment };
  const before = Object.keys(set).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, set);
  try {
    await createProgram().parseAsync(['bun', 'planning', ...args]);
  } catch (error) {
    if (error instanceof OperatorError) return error.message;
    throw error;
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
  return 'the command succeeded';
}
