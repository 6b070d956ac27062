import { beforeAll, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { applicant, testSecret, testToken } from '../support/app';
import { createRawClient, type RawResponse } from '../support/http';
import { startService } from '../support/processes';
import { atEnd, until } from '../support/resources';

const service = await startService({ descriptors: 96, environment: { AUTH_SECRET: testSecret } });
const port = Number(new URL(service.address).port);
const client = createRawClient(port);
const authorization = `Bearer ${await testToken({ id: 'ada', now: new Date() })}`;
atEnd(() => client.close());

function ask(method: string, target: string, body?: object): Promise<RawResponse | undefined> {
  return client.send({
    method,
    target,
    headers: [
      ['Host', 'x'],
      ['Authorization', authorization],
      ...(body === undefined ? [] : [['Content-Type', 'application/json'] as const]),
    ],
    body: body === undefined ? undefined : Buffer.from(JSON.stringify(body)),
  });
}

const apply = () => ask('POST', '/v2/private/ltc/totalCoverage', applicant);
const exhausted = '"msg":"no file descriptor is free: new connections wait until one is"';

describe('a process without a free file descriptor', () => {
  let idle: ReturnType<typeof connect>[] = [];

  beforeAll(async () => {
    // The tests use this connection, which stays open.
    expect((await ask('GET', '/health/live'))?.status).toBe(200);
    idle = Array.from({ length: 150 }, () => connect(port, '127.0.0.1').on('error', () => undefined));
    await until(() => service.output().includes(exhausted));
  });

  test.each([
    ['GET', '/health/ready', undefined, 200],
    ['POST', '/v2/private/user/profile', { firstName: 'Ada' }, 200],
    ['GET', '/v2/private/user', undefined, 200],
    ['POST', '/v2/private/engine/matches', {}, 200],
    ['GET', '/v2/private/healthAndCare/', undefined, 200],
    ['GET', '/v2/private/cemetery/all', undefined, 200],
    ['GET', '/v2/private/user/applications', undefined, 200],
    ['GET', '/problems/forbidden', undefined, 200],
    ['GET', '/icons/hybrid.svg', undefined, 200],
    ['GET', '/icons/none.svg', undefined, 404],
  ] as const)('C9 serves %s %s', async (method, target, body, status) => {
    expect((await ask(method, target, body))?.status).toBe(status);
  });

  test('C9 returns 503 for an application, and starts it when descriptors are free again', async () => {
    for (let turn = 0; turn < 2; turn += 1) {
      const response = await apply();
      expect([response?.status, response?.headers.get('retry-after')]).toEqual([503, '5']);
      expect(response?.text).toContain('/problems/carrier-unavailable');
    }
    for (const socket of idle) socket.destroy();
    await until(() => service.output().includes('"msg":"file descriptors are free again"'));
    await until(async () => (await apply())?.status === 200);
    expect(service.output().split(exhausted)).toHaveLength(2);
  });
});
