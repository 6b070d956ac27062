import { afterAll, afterEach } from 'bun:test';
import { excludeLoopback } from '../../src/start/proxies';
import { cleanUp } from './cleanup';
import { faultsOfTraffic, watchFetch } from './traffic';

// Tests call services on this machine.
excludeLoopback(process.env);
watchFetch();

async function requireDocumented(): Promise<void> {
  const faults = await faultsOfTraffic();
  if (faults.length > 0) throw new Error(`The service is not as it is documented:\n${faults.join('\n')}`);
}

afterEach(requireDocumented);
afterAll(cleanUp);
afterAll(requireDocumented);
