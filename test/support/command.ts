import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import * as v from 'valibot';
import { type Context, currentOperator } from '../../src/cli/context';
import { importRows, type RowsImport } from '../../src/cli/import';
import { runCommand } from '../../src/cli/main';
import type { Database } from '../../src/db/client';
import { OperatorError } from '../../src/errors';
import { lazy } from '../../src/shared/async';
import { programOf } from './artifacts';
import { copyTemplate } from './database';
import { atEnd, type EndedProcess, runToEnd, temporaryFolder } from './resources';

interface CommandLineOptions {
  /** Without a database, instead of one that is migrated and seeded. */
  readonly isEmpty?: boolean;
  /** Runs each command in a process of its own, for tests of settings files, signals, locks and files of the process. */
  readonly isProcess?: boolean;
}

/** Creates a folder with a database, and runs commands there: in this process unless `isProcess` is set. */
export async function createCommandLine(
  environment: Record<string, string> = {},
  { isEmpty = false, isProcess = false }: CommandLineOptions = {},
) {
  const cwd = temporaryFolder();
  const databaseUrl = `file:${join(cwd, 'data/planning.db')}`;
  if (!isEmpty) await copyTemplate(join(cwd, 'data/planning.db'), environment.DATABASE_ENCRYPTION_KEY);
  const program = isProcess ? await programOf('src/cli/main') : undefined;
  const spawn = (args: readonly string[]) => {
    if (program === undefined) throw new Error('Set isProcess to run a command in a process of its own');
    return Bun.spawn([process.execPath, program, ...args], {
      cwd,
      env: { PATH: process.env.PATH, NODE_ENV: 'development', ...environment },
      stdout: 'pipe',
      stderr: 'pipe',
    });
  };
  return {
    cwd,
    databaseUrl,
    /** Starts a command in a process of its own and does not wait for it. */
    start(...args: string[]) {
      const command = spawn(args);
      atEnd(() => command.kill('SIGKILL'));
      return command;
    },
    planning: async (...args: string[]): Promise<EndedProcess> =>
      isProcess
        ? runToEnd(spawn(args))
        : runInProcess({ env: { DATABASE_URL: databaseUrl, ...environment }, cwd }, args),
    async write(name: string, content: string | Uint8Array): Promise<string> {
      await Bun.write(join(cwd, name), content);
      return name;
    },
  };
}

export type CommandLine = Awaited<ReturnType<typeof createCommandLine>>;

const Finding = v.object({ check: v.string(), result: v.string(), detail: v.string() });

/** Runs `planning doctor` and returns its findings. */
export async function diagnose({ planning }: Pick<CommandLine, 'planning'>, ...options: string[]) {
  const { exitCode, stdout, stderr } = await planning('doctor', '--json', ...options);
  const { findings } = v.parse(v.object({ findings: v.array(Finding) }), JSON.parse(stdout));
  const findingOf = (check: string) => findings.find((each) => each.check === check);
  return { exitCode, stderr, findings, findingOf };
}

/** Creates a context without a terminal, and collects what a command writes. */
function createTestContext({ env = {}, cwd = process.cwd() }: Partial<Pick<Context, 'env' | 'cwd'>> = {}) {
  const [stdout, stderr] = [collectText(), collectText()];
  const context: Context = {
    env: { NODE_ENV: 'development', ...env },
    cwd,
    stdin: Readable.from([]),
    stdout: stdout.stream,
    stderr: stderr.stream,
    operator: lazy(currentOperator),
    exitCode: 0,
    onSignals: () => () => undefined,
    exit: (code) => {
      throw new Error(`The command exits with ${code}`);
    },
  };
  return { context, stdout: stdout.read, stderr: stderr.read };
}

function collectText() {
  let text = '';
  const stream = new Writable({
    write(chunk, _, done) {
      text += String(chunk);
      done();
    },
  });
  return { stream, read: () => text };
}

/** Runs a command in this process. */
export async function runInProcess(surroundings: Pick<Context, 'env' | 'cwd'>, args: string[]): Promise<EndedProcess> {
  const { context, stdout, stderr } = createTestContext(surroundings);
  const exitCode = await runCommand(context, args);
  return { exitCode, stdout: stdout(), stderr: stderr() };
}

/** The message of a command that fails, without its last line break; `the command succeeded` for one that does not. */
export async function refusalOf(environment: Record<string, string>, ...args: string[]): Promise<string> {
  const { exitCode, stderr } = await runInProcess({ env: environment, cwd: process.cwd() }, args);
  return exitCode === 0 ? 'the command succeeded' : stderr.trimEnd();
}

/** Runs an import in this process, because a process for each case is slow. */
export async function importContent<Schema extends v.GenericSchema>(
  rowsImport: RowsImport<Schema>,
  db: Database,
  {
    name = 'list.csv',
    content,
    timeZone = 'UTC',
    dryRun = false,
  }: { name?: string; content: string | Uint8Array; timeZone?: string; dryRun?: boolean },
) {
  const path = join(temporaryFolder(), name);
  await Bun.write(path, content);
  const { context, stderr } = createTestContext();
  const source = { db, path, config: { reportTimeZone: timeZone } };
  const faults = () => stderr().split('\n').slice(0, -1);
  try {
    const { counts, warnings } = await importRows(context, rowsImport, source, { dryRun, as: 'tester' });
    return { counts, warnings, refusal: '', faults: faults() };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { counts: undefined, warnings: [], refusal: error.message, faults: faults() };
  }
}
