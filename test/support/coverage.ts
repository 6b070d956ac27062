import { createLog } from '../../src/log';
import { type CoverageDeps, createCoverageService } from '../../src/modules/coverage/service';
import { createUserStore } from '../../src/modules/users/store';
import type { Carrier } from '../../src/shared/carrier';
import { type TestApp, testConfig } from './app';

/** The coverage service of a test app with the given carrier. */
export function coverageServiceOf(testApp: TestApp, carrier: Carrier, systemClock = () => testApp.now) {
  return createCoverageService(coverageDepsOf(testApp, carrier, systemClock), createUserStore(testApp.db));
}

export function coverageDepsOf(testApp: TestApp, carrier: Carrier, systemClock = () => testApp.now): CoverageDeps {
  return {
    db: testApp.db,
    clock: () => testApp.now,
    systemClock,
    config: { ...testConfig, carrier: { ...testConfig.carrier, timeoutMs: 300 } },
    carrier,
    newId: () => Bun.randomUUIDv7(),
    log: createLog('debug', { write: (line) => testApp.logLines.push(line) }),
  };
}
