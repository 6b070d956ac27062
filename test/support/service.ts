import { join } from 'node:path';
import * as v from 'valibot';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';
import { programOf } from './program';
import { runToEnd } from './run-to-end';

const Tokens = v.object({ 'demo-user': v.string(), 'demo-manager': v.string() });

export interface Service {
  readonly address: string;
  readonly process: Bun.Subprocess;
  /** Everything written to standard output so far. */
  output(): string;
  token(): Promise<string>;
}

export interface Start {
  /** The program for Bun with its options first; by default the bundle. */
  readonly program?: readonly string[];
  /** Arguments of the program. */
  readonly args?: readonly string[];
  readonly cwd?: string;
  readonly environment?: Record<string, string>;
  /** Whether `output` includes standard error, which is otherwise inherited. */
  readonly hasErrorsInOutput?: boolean;
  /** A command that wraps the program, such as `strace` with its options. */
  readonly under?: readonly string[];
  /** The limit of file descriptors; by default that of the test process. */
  readonly descriptors?: number;
}

/** Starts the service as a process in a temporary folder on a free port. */
export async function startService({
  program,
  args = [],
  cwd = temporaryFolder(),
  environment = {},
  hasErrorsInOutput = false,
  under = [],
  descriptors,
}: Start = {}): Promise<Service> {
  const command = [...under, process.execPath, ...(program ?? [await programOf('src/main')]), ...args];
  const limited = ['sh', '-c', `ulimit -n ${descriptors}; exec "$0" "$@"`, ...command];
  const child = Bun.spawn(descriptors === undefined ? command : limited, {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'development', PORT: '0', DRAIN_MS: '0', ...environment },
    stdout: 'pipe',
    stderr: hasErrorsInOutput ? 'pipe' : 'inherit',
  });
  atEnd(async () => {
    child.kill('SIGKILL');
    await child.exited;
  });
  let output = '';
  const address = Promise.withResolvers<string>();
  const reading = (async () => {
    for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
      output += chunk;
      const found = /(?:address +|"address":")(http:\/\/[^\s"]+)/.exec(output)?.[1];
      if (found !== undefined && output.includes('\n', output.indexOf(found))) address.resolve(found);
    }
  })();
  const { stderr } = child;
  if (stderr !== undefined) {
    void (async () => {
      for await (const chunk of stderr.pipeThrough(new TextDecoderStream())) output += chunk;
    })();
  }
  void reading.then(() => address.reject(new Error(`The service ended before it listened:\n${output}`)));
  return {
    address: await address.promise,
    process: child,
    output: () => output,
    token: async () => v.parse(Tokens, await Bun.file(join(cwd, 'data/demo-tokens.json')).json())['demo-user'],
  };
}

/** Runs a start that is expected to fail and waits for its exit. */
export async function failToStart({ args = [], cwd = temporaryFolder(), environment = {} }: Start) {
  const child = Bun.spawn([process.execPath, await programOf('src/main'), ...args], {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'development', PORT: '0', ...environment },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  return runToEnd(child);
}
