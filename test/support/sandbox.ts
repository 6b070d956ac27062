import { join } from 'node:path';
import { createCarrierSandbox, createSandboxStore, type SandboxStore } from '../../src/carrier-sandbox/server';
import { openDatabase } from '../../src/db/client';
import { createHttpCarrier } from '../../src/modules/coverage/http-carrier';
import type { Carrier } from '../../src/shared/carrier';
import { atEnd } from './cleanup';
import { temporaryFolder } from './database';

/** Short timeouts, so that tests are fast. */
export const testCarrier = { attempts: 2, timeoutMs: 800, breakerFailures: 5, breakerMs: 400 };

export interface Sandbox {
  readonly store: SandboxStore;
  readonly url: string;
  carrier(settings?: Partial<typeof testCarrier>): Carrier;
}

/** The sandbox carrier on a free port with a temporary database. */
export async function startSandbox(clock: () => Date = () => new Date('2026-03-10T12:00:00Z')): Promise<Sandbox> {
  const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'sandbox.db')}`, timeoutMs: 20_000 });
  const store = await createSandboxStore(db);
  const app = createCarrierSandbox({ store, clock, apiKey: 'test-key' }).listen({ port: 0, hostname: '127.0.0.1' });
  atEnd(async () => {
    await app.stop(true);
    db.$client.close();
  });
  const url = `http://127.0.0.1:${app.server?.port}`;
  return {
    store,
    url,
    carrier: (settings) => createHttpCarrier({ ...testCarrier, ...settings, url, apiKey: 'test-key' }),
  };
}
