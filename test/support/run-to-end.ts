export interface EndedProcess {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Waits for a process to exit and returns its output and exit code. */
export async function runToEnd(child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>): Promise<EndedProcess> {
  const [stdout, stderr, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { exitCode, stdout, stderr };
}

/**
 * Runs a program to its end and returns its standard output.
 *
 * @throws Error with all output if it fails
 */
export async function runProgram(cwd: string, command: readonly string[], env = process.env): Promise<string> {
  const child = Bun.spawn([...command], { cwd, env, stdout: 'pipe', stderr: 'pipe' });
  const { exitCode, stdout, stderr } = await runToEnd(child);
  if (exitCode !== 0) throw new Error(`${command.join(' ')} ended with ${exitCode}:\n${stdout}${stderr}`);
  return stdout;
}
