import { join } from 'node:path';
import { copyTemplate } from '../support/database';
import { freePort, temporaryFolder } from '../support/resources';
import { type Figure, median } from './figure';
import { serviceEnvironment } from './servers';

const starts = 7;
const giveUpMs = 20_000;
const at = (path: string) => join(import.meta.dirname, path);

/** Milliseconds from the start of the process to its first response with 200. */
async function timeStart(program: string, environment: Record<string, string>, cwd: string): Promise<number> {
  const port = await freePort();
  const startedAtMs = performance.now();
  const child = Bun.spawn([process.execPath, program], {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'development', ...environment, PORT: String(port) },
    stdout: 'ignore',
    stderr: 'inherit',
  });
  try {
    while (performance.now() - startedAtMs < giveUpMs) {
      const response = await fetch(`http://127.0.0.1:${port}/health/ready`).catch(() => undefined);
      if (response?.status === 200) return performance.now() - startedAtMs;
      await Bun.sleep(1);
    }
    throw new Error(`${program} did not respond`);
  } finally {
    child.kill();
    await child.exited;
  }
}

/** Compares a start on a migrated file with the start of a bare Elysia app, alternately. */
export async function compareStarts(report: (name: string) => void): Promise<Figure> {
  const cwd = temporaryFolder();
  const path = join(cwd, 'planning.db');
  await copyTemplate(path);
  const own: number[] = [];
  const bare: number[] = [];
  for (let start = 0; start < starts; start += 1) {
    report(`cold, start ${start + 1} of ${starts}`);
    own.push(await timeStart(at('../../src/main.ts'), serviceEnvironment(path), cwd));
    bare.push(await timeStart(at('hello-server.ts'), {}, cwd));
  }
  return {
    name: 'cold, start to the first 200',
    p50Ms: median(own),
    beside: `bare Elysia, ${median(bare).toFixed(0)} ms`,
    value: median(own.map((time, start) => time / (bare[start] ?? Number.NaN))),
    unit: '×',
    atMost: 3,
  };
}
