export interface EndedProcess {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a process wrote until it ended by itself, and how it ended. */
export async function runToEnd(child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>): Promise<EndedProcess> {
  const [stdout, stderr, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { exitCode, stdout, stderr };
}

/**
 * Runs a program to its end, and gives what it wrote to standard output.
 *
 * @throws Error that tells all that it wrote, if it fails
 */
export async function runProgram(cwd: string, command: readonly string[], env = process.env): Promise<string> {
  const child = Bun.spawn([...command], { cwd, env, stdout: 'pipe', stderr: 'pipe' });
  const { exitCode, stdout, stderr } = await runToEnd(child);
  if (exitCode !== 0) throw new Error(`${command.join(' ')} ended with ${exitCode}:\n${stdout}${stderr}`);
  return stdout;
}
