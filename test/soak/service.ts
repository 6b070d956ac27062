import { join } from 'node:path';
import { signToken } from '../../src/auth/signing';
import { startSandbox } from '../support/app';
import { createCommandLine } from '../support/command';
import { atEnd } from '../support/resources';

const main = join(import.meta.dirname, '../../src/main.ts');
const secret = 'a secret of the soak alone, of 32 bytes';
const claims = { issuer: 'soak', audience: 'soak', rolesClaim: 'roles' };
const tokenTtlSeconds = 24 * 3600;

export interface SoakedService {
  readonly address: string;
  readonly pid: number;
  readonly databasePath: string;
  /** The first log lines at the levels `error` and `fatal`. */
  readonly errorLines: readonly string[];
  readonly hasEnded: () => boolean;
}

/** Starts the service with production settings and the demo rows, and a sandbox carrier in this process. */
export async function startSoakedService(): Promise<SoakedService> {
  const { cwd, planning } = await createCommandLine({ SEED_DEMO: 'true' }, { isEmpty: true, isProcess: true });
  const migrated = await planning('migrate');
  if (migrated.exitCode !== 0) throw new Error(`The database cannot be migrated: ${migrated.stderr}`);
  const sandbox = await startSandbox(() => new Date());
  const child = Bun.spawn([process.execPath, main], {
    cwd,
    env: {
      PATH: process.env.PATH,
      NODE_ENV: 'production',
      PORT: '0',
      AUTH_SECRET: secret,
      AUTH_ISSUER: claims.issuer,
      AUTH_AUDIENCE: claims.audience,
      CARRIER_URL: sandbox.url,
      CARRIER_API_KEY: 'test-key',
      CHAT_ID: 'chat',
      CHAT_TOKEN: 'chat-token',
      METRICS_TOKEN: 'metrics-token-of-the-soak-service',
      // On, as in production, with a limit that no request reaches.
      RATE_LIMIT_PER_MINUTE: '1000000',
      DRAIN_MS: '0',
      CARRIER_APPLICATIONS_PER_DAY: '0',
    },
    // This process handles Ctrl-C and then stops the service.
    detached: true,
    stdout: 'pipe',
    stderr: 'inherit',
  });
  atEnd(async () => {
    child.kill('SIGTERM');
    await child.exited;
  });
  const errorLines: string[] = [];
  const address = Promise.withResolvers<string>();
  void readLog(child.stdout, errorLines, address.resolve).then(() =>
    address.reject(new Error('The service ended before it listened')),
  );
  return {
    address: await address.promise,
    pid: child.pid,
    databasePath: join(cwd, 'data/planning.db'),
    errorLines,
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
  };
}

async function readLog(
  output: ReadableStream<Uint8Array<ArrayBuffer>>,
  errorLines: string[],
  onAddress: (address: string) => void,
): Promise<void> {
  let rest = '';
  for await (const chunk of output.pipeThrough(new TextDecoderStream())) {
    const lines = `${rest}${chunk}`.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const address = /"address":"(http:[^"]+)"/.exec(line)?.[1];
      if (address !== undefined) onAddress(address);
      if (/^{"level":"(?:error|fatal)"/.test(line) && errorLines.length < 20) errorLines.push(line);
    }
  }
}

export function soakToken(id: string, roles: readonly string[] = []): Promise<string> {
  return signToken({ secret, ...claims, id, roles, ttlSeconds: tokenTtlSeconds, now: new Date() });
}
