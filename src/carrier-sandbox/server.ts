import type { Config } from '../config';
import { closeDatabase, openDatabase } from '../db/client';
import { createCarrierSandbox } from './app';
import { createSandboxStore } from './store';

interface ListenOptions {
  readonly config: Pick<Config, 'sandboxDatabaseUrl' | 'database'>;
  readonly clock: () => Date;
  readonly apiKey: string | undefined;
  /** 0 for any free one. */
  readonly port: number;
}

/** The sandbox carrier on 127.0.0.1 with its own database, until `stop` cuts off whoever still waits for it. */
export async function listenCarrierSandbox({ config, clock, apiKey, port }: ListenOptions) {
  const { timeoutMs, encryptionKey } = config.database;
  const db = await openDatabase({ url: config.sandboxDatabaseUrl, timeoutMs, encryptionKey });
  const sandbox = createCarrierSandbox({ store: await createSandboxStore(db), clock, apiKey });
  sandbox.listen({ hostname: '127.0.0.1', port });
  return {
    url: `http://127.0.0.1:${sandbox.server?.port}`,
    async stop() {
      await sandbox.stop(true);
      await closeDatabase(db);
    },
  };
}
