/** Runs one task of process-worker.ts in a process of its own and gives what it printed. */
export async function runWorker(url: string, task: string, argument: string): Promise<string> {
  const path = new URL('./process-worker.ts', import.meta.url).pathname;
  const worker = Bun.spawn([process.execPath, path, url, task, argument], { stdout: 'pipe', stderr: 'inherit' });
  return (await new Response(worker.stdout).text()).trim();
}
