import { afterAll, afterEach, setDefaultTimeout } from 'bun:test';
import { networkInterfaces } from 'node:os';
import { excludeLoopback } from '../../src/start/services';
import { trafficMismatches, watchFetch } from './conformance';
import { cleanUp } from './resources';

// Tests call services on this machine, also by its address in a network.
const ownAddresses = Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
process.env.NO_PROXY = [process.env.no_proxy ?? process.env.NO_PROXY ?? '', ...ownAddresses].join(',');
delete process.env.no_proxy;
excludeLoopback(process.env);
watchFetch();

// `bun test FILE` has the limit of the scripts. Bun 1.4.5 applies it to the first file only (oven-sh/bun#43787), so the
// scripts pass it too.
setDefaultTimeout(30_000);

async function requireDocumented(): Promise<void> {
  const mismatches = await trafficMismatches();
  if (mismatches.length > 0)
    throw new Error(`The service does not match its OpenAPI document:\n${mismatches.join('\n')}`);
}

afterEach(requireDocumented);
afterAll(cleanUp);
afterAll(requireDocumented);
