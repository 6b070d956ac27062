import { afterAll, afterEach } from 'bun:test';
import { networkInterfaces } from 'node:os';
import { excludeLoopback } from '../../src/start/services';
import { cleanUp } from './cleanup';
import { faultsOfTraffic, watchFetch } from './traffic';

// Tests call services on this machine, also by its address in a network.
const ownAddresses = Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
process.env.NO_PROXY = [process.env.no_proxy ?? process.env.NO_PROXY ?? '', ...ownAddresses].join(',');
delete process.env.no_proxy;
excludeLoopback(process.env);
watchFetch();

async function requireDocumented(): Promise<void> {
  const faults = await faultsOfTraffic();
  if (faults.length > 0) throw new Error(`The service is not as it is documented:\n${faults.join('\n')}`);
}

afterEach(requireDocumented);
afterAll(cleanUp);
afterAll(requireDocumented);
