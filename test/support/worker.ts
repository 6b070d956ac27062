import { join } from 'node:path';
import { atEnd } from './cleanup';

const path = join(import.meta.dirname, 'process-worker.ts');

/** Runs one task of process-worker.ts in a process and returns its output. */
export async function runWorker(url: string, task: string, argument: string): Promise<string> {
  const worker = Bun.spawn([process.execPath, path, url, task, argument], { stdout: 'pipe', stderr: 'inherit' });
  return (await new Response(worker.stdout).text()).trim();
}

/** Starts a task that runs until it is stopped and collects its output lines. */
export function startWorker(url: string, task: string, argument: string, environment: Record<string, string> = {}) {
  const worker = Bun.spawn([process.execPath, path, url, task, argument], {
    env: { ...process.env, ...environment },
    stdout: 'pipe',
    stderr: 'inherit',
  });
  atEnd(() => worker.kill('SIGKILL'));
  let output = '';
  const reading = (async () => {
    for await (const chunk of worker.stdout.pipeThrough(new TextDecoderStream())) output += chunk;
  })();
  /** Complete lines only, because the last may be partial. */
  const lines = () => output.split('\n').slice(0, -1);
  return {
    lines,
    async until(count: number): Promise<void> {
      while (lines().length < count && worker.exitCode === null) await Bun.sleep(5);
    },
    async stop(): Promise<string[]> {
      worker.kill('SIGKILL');
      await worker.exited;
      await reading;
      return lines();
    },
  };
}
