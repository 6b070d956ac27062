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
