import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { UserBody } from '../../src/modules/users/model';
import type { Service } from '../support/processes';
import { cleanUp, never } from '../support/resources';
import { hasSqld } from '../support/servers';
import { type Cluster, databaseTimeoutMs, startCluster, type TimedResponse } from './cluster';

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
const recoveryMs = 2_000;

describe.skipIf(!hasSqld)('four instances', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await startCluster();
  }, 60_000);
  afterAll(cleanUp);

  test('lose no acknowledged save, return 503 in time, and recover when the primary is killed under load', async () => {
    const { services, primary, call } = cluster;
    const savers = Array.from({ length: 32 }, (_, index) => ({ id: `saver-${index}`, acknowledged: 0 }));
    const responses: (TimedResponse & { service: Service; endedAtMs: number })[] = [];
    let isDone = false;
    const saving = Promise.all(
      savers.map(async (saver, index) => {
        const service = services[index % services.length];
        if (service === undefined) return;
        for (let value = 1; !isDone; value += 1) {
          const response = await call(service, ltc, saver.id, { body: { careCosts: value } });
          responses.push({ ...response, service, endedAtMs: performance.now() });
          if (response.status === 200) saver.acknowledged = value;
          else await Bun.sleep(20);
        }
      }),
    );
    while (savers.some(({ acknowledged }) => acknowledged < 5)) await Bun.sleep(10);
    await primary.kill();
    await Bun.sleep(1_000);
    await primary.start();
    const backAtMs = performance.now();
    await Bun.sleep(recoveryMs);
    isDone = true;
    await saving;

    expect([...new Set(responses.map(({ status }) => status))].sort()).toEqual([200, 503]);
    const refused = responses.filter(({ status }) => status === 503);
    expect(refused.filter(({ headers }) => headers.get('retry-after') === null)).toEqual([]);
    expect(Math.max(...responses.map(({ tookMs }) => tookMs))).toBeLessThan(databaseTimeoutMs + 1_000);
    for (const service of services) {
      const first = responses.find(
        (response) => response.service === service && response.status === 200 && response.endedAtMs > backAtMs,
      );
      expect((first?.endedAtMs ?? Number.POSITIVE_INFINITY) - backAtMs).toBeLessThan(recoveryMs);
    }
    for (const { id, acknowledged } of savers) {
      const read = await call(services[3] ?? services[0] ?? never(), user, id);
      expect(v.parse(UserBody, read.body).user.ltc.lifetimeCare?.careCosts).toBeGreaterThanOrEqual(acknowledged);
    }
  }, 60_000);

  test('keep reading while a replica server freezes, is killed, and restarts', async () => {
    const { services, replicas, call } = cluster;
    const [service] = services;
    const [replica] = replicas;
    if (service === undefined || replica === undefined) throw new Error('There is no replica');
    expect((await call(service, ltc, 'reader', { body: { careCosts: 1 } })).status).toBe(200);
    const read = async () => {
      const responses = await Promise.all(Array.from({ length: 20 }, () => call(service, user, 'reader')));
      expect(responses.filter(({ status }) => status !== 200)).toEqual([]);
      return Math.max(...responses.map(({ tookMs }) => tookMs));
    };
    await read();
    replica.pause();
    // The first read waits for a quarter of the deadline, then the circuit opens.
    expect(await read()).toBeLessThan(databaseTimeoutMs);
    expect(await read()).toBeLessThan(databaseTimeoutMs / 4);
    await replica.kill();
    await read();
    await replica.start();
    await Bun.sleep(1_100);
    await read();
    expect((await call(service, '/health/ready', 'reader')).body).toEqual({ status: 'ready', writes: 'available' });
  }, 60_000);
});
