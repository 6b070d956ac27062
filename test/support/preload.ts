import { afterAll, afterEach } from 'bun:test';
import { cleanUp } from './cleanup';
import { faultsOfTraffic, watchFetch } from './traffic';

watchFetch();

async function requireDocumented(): Promise<void> {
  const faults = await faultsOfTraffic();
  if (faults.length > 0) throw new Error(`The service is not as it is documented:\n${faults.join('\n')}`);
}

afterEach(requireDocumented);
afterAll(cleanUp);
afterAll(requireDocumented);
