import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const works: (() => unknown)[] = [];

/** Runs `work` after the last test, for example to end a process or remove a folder. */
export function atEnd(work: () => unknown): void {
  works.push(work);
}

export async function cleanUp(): Promise<void> {
  for (const work of works.splice(0).reverse()) await work();
}

/** A new folder that is removed after the tests. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'planning-test-'));
  atEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The name, content and time of each file of a folder. */
export const contentsOf = (folder: string) =>
  readdirSync(folder)
    .sort()
    .map((name) => [name, Bun.hash(readFileSync(join(folder, name))), statSync(join(folder, name)).mtimeMs]);

/** Polls until a condition is true; the deadline is generous for a busy machine. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  for (const deadlineMs = performance.now() + 25_000; !(await isSo()); await Bun.sleep(20)) {
    if (performance.now() > deadlineMs) throw new Error('The condition did not become true in time');
  }
}

/** The fallback for a value that must exist. */
export function never(): never {
  throw new Error('The value is missing');
}

/** A free port on loopback. */
export function freePort(): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>();
  const server = createServer().listen(0, '127.0.0.1', () => {
    const address = server.address();
    server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
  });
  return promise;
}

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

/** Whether the suite runs in its long form, `bun run test:long`, in which some tests run more cases. */
export const isLong = process.env.TEST_LONG === '1';

/** All cases in the long form; the first `shortCount` in the short form. */
export function cases<Case>(all: readonly Case[], shortCount: number): readonly Case[] {
  return isLong ? all : all.slice(0, shortCount);
}

/** A size for the long or the short form. */
export function amount({ long, short }: { readonly long: number; readonly short: number }): number {
  return isLong ? long : short;
}
