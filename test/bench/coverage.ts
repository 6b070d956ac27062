import type { Figure } from './figure';
import { authorizationOf } from './servers';
import { measure } from './wrk';

const applicants = 64;
const body = JSON.stringify({
  firstName: 'Ada',
  lastName: 'Byron',
  dateOfBirth: '1981-03-10',
  gender: 'Female',
  state: 'VA',
  email: 'ada%d@example.com',
});

/** New applications at the sandbox carrier over HTTP, each with a distinct identity. */
export async function measureCoverage(address: string, seconds: number): Promise<Figure> {
  const requests = await Promise.all(
    Array.from({ length: applicants }, async (_, index) => ({
      path: '/v2/private/ltc/totalCoverage',
      method: 'POST' as const,
      headers: { authorization: await authorizationOf(`applicant-${index}`), 'content-type': 'application/json' },
      body,
    })),
  );
  const { requestsPerSecond, p50Ms, p99Ms, errors } = await measure({ address, requests, connections: 16, seconds });
  return {
    name: 'coverage, new applications, 16 connections',
    requestsPerSecond,
    p50Ms,
    p99Ms,
    errors,
    value: requestsPerSecond,
    unit: '/s',
  };
}
