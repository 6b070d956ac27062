import { createLog } from '../../src/log';
import { type CoverageDeps, createCoverageService } from '../../src/modules/coverage/service';
import { createApplicationStore } from '../../src/modules/coverage/store';
import { createSubmissions, type SubmissionDeps } from '../../src/modules/coverage/submissions';
import { createUserStore } from '../../src/modules/users/store';
import type { Carrier } from '../../src/shared/carrier';
import { type TestApp, testConfig } from './app';

/** The coverage service and the reconciler of a test app with the given carrier. */
export function coverageServiceOf(testApp: TestApp, carrier: Carrier, systemClock = () => testApp.now) {
  const deps = coverageDepsOf(testApp, carrier, systemClock);
  const applications = createApplicationStore(testApp.db);
  const submissions = createSubmissions(deps, applications);
  const users = createUserStore(testApp.db);
  return { ...submissions, ...createCoverageService(deps, { users, applications, submissions }) };
}

export function coverageDepsOf(
  testApp: TestApp,
  carrier: Carrier,
  systemClock = () => testApp.now,
): CoverageDeps & SubmissionDeps {
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
