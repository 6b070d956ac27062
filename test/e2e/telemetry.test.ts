import { beforeAll, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import packageJson from '../../package.json';
import { callerOf, testSecret } from '../support/app';
import { startInProcess, startService } from '../support/processes';
import { temporaryFolder, until } from '../support/resources';
import { hasSqld, type Sqld, startPrimary } from '../support/servers';
import { metricsToken, readSamples, startReceiver } from '../support/telemetry';

const profile = '/v2/private/user/profile';

describe.skipIf(!hasSqld)('service with a libSQL server', () => {
  let primary: Sqld;
  beforeAll(async () => {
    primary = await startPrimary();
  });

  async function start(environment: Record<string, string> = {}) {
    const settings = { DATABASE_URL: primary.url, METRICS_TOKEN: metricsToken, ...environment };
    const service = await startInProcess(settings);
    const headers = { authorization: `Bearer ${metricsToken}` };
    const sample = async (name: string, labels: Readonly<Record<string, string>> = {}) =>
      readSamples((await service.call('GET', '/metrics', { headers })).text).find(
        (each) => each.name === name && Object.entries(labels).every(([label, value]) => each.labels[label] === value),
      )?.value;
    return { service, sample };
  }

  test('reports reads from the replica and its sync state to a scrape', async () => {
    const { service, sample } = await start({ DATABASE_REPLICA_PATH: join(temporaryFolder(), 'replica.db') });
    await until(async () => (await sample('planning_replica_in_sync')) === 1);
    const syncedAt = (await sample('planning_replica_last_sync_timestamp_seconds')) ?? 0;
    expect(Math.abs(Date.now() / 1000 - syncedAt)).toBeLessThan(30);
    expect((await service.call('GET', '/v2/private/cemetery/all', { as: 'ada' })).status).toBe(200);
    const read = { database: 'replica', kind: 'read', outcome: 'ok' };
    expect(await sample('planning_database_calls_total', read)).toBeGreaterThan(0);
    expect(await sample('http_requests_in_flight')).toBe(1);
    await primary.kill();
    await until(async () => (await sample('planning_replica_in_sync')) === 0);
    await service.stop();
    await primary.start();
  });

  test('responds to a scrape while the server hangs, before a save reaches its time limit', async () => {
    const { service, sample } = await start({ DATABASE_TIMEOUT_MS: '1500' });
    primary.pause();
    const ended: string[] = [];
    const saving = service
      .call('POST', profile, { as: 'ada', body: {} })
      .then(({ status }) => ended.push(`save ${status}`));
    expect(await sample('process_open_fds')).toBeGreaterThan(0);
    ended.push('scrape');
    await saving;
    expect(ended).toEqual(['scrape', 'save 503']);
    await until(async () => (await sample('planning_writes_available')) === 0);
    primary.resume();
    await until(async () => (await sample('planning_writes_available')) === 1);
  });

  test('logs one line and one summary for the refused requests of an outage', async () => {
    const { service } = await start();
    await primary.kill();
    const refused = 100;
    const save = (index: number) =>
      service.call('POST', profile, { as: `person-${index}`, body: { firstName: 'Ada' } });
    const statuses = await Promise.all(Array.from({ length: refused }, async (_, index) => (await save(index)).status));
    expect(new Set(statuses)).toEqual(new Set([503]));
    expect(await service.stop()).toBe(0);
    await primary.start();
    const failures = service.logLines().filter(({ msg }) => msg.startsWith('request failed'));
    const kinds = new Set(failures.map(({ errors }) => JSON.stringify(errors)));
    const counts = failures.map(({ count }) => (typeof count === 'number' ? count : 1));
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(refused);
    expect(failures.filter(({ count }) => count === undefined)).toHaveLength(kinds.size);
    expect(failures.length).toBeLessThan(refused / 4);
    expect(service.logLines().filter(({ msg, status }) => msg === 'request' && status === 503)).toHaveLength(refused);
  });
});

test('a service exports its spans at a stop by SIGQUIT, which drains, and ignores OTEL variables that are not settings', async () => {
  const receiver = startReceiver();
  const service = await startService({
    environment: {
      AUTH_SECRET: testSecret,
      DRAIN_MS: '50',
      OTEL_EXPORTER_OTLP_ENDPOINT: `${receiver.url}/`,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-api-key=a%20secret%2Ckey,x-other=1',
      OTEL_SERVICE_NAME: 'planning-test',
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://127.0.0.1:1/elsewhere',
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-api-key=another',
      OTEL_RESOURCE_ATTRIBUTES: 'canary=of-the-environment',
      OTEL_SDK_DISABLED: 'true',
      OTEL_TRACES_SAMPLER: 'always_off',
      OTEL_BSP_MAX_QUEUE_SIZE: '1',
      OTEL_BSP_SCHEDULE_DELAY: '3600000',
      OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: '1',
    },
  });
  const body = { firstName: 'Ada' };
  expect((await callerOf(service.address)('POST', profile, { as: 'plain-user', body })).status).toBe(200);
  service.process.kill('SIGQUIT');
  expect(await service.process.exited).toBe(0);
  expect(service.output()).toContain('"drainMs":50,');
  const saved = receiver.spans.find(({ name }) => name === `POST ${profile}`);
  expect(saved?.attributes).toMatchObject({ 'http.route': profile });
  expect(receiver.resources[0]).toEqual({ 'service.name': 'planning-test', 'service.version': packageJson.version });
  const sent = receiver.sent.join('\n');
  expect(sent).toContain('"x-api-key":"a secret,key"');
  expect(sent).not.toContain('of-the-environment');
  expect(service.output()).not.toContain('secret');
});
