import { describe, expect, test } from 'bun:test';
import { createTestApp } from '../support/app';
import { until } from '../support/resources';

describe('/health/live', () => {
  test('returns 200 while the database is unavailable', async () => {
    const testApp = await createTestApp();
    testApp.db.$client.close();
    const response = await testApp.call('GET', '/health/live');
    expect(response).toMatchObject({ status: 200, body: { status: 'live' } });
  });
});

describe('/health/ready', () => {
  test('returns 200 on a migrated database', async () => {
    const testApp = await createTestApp();
    expect(await testApp.call('GET', '/health/ready')).toMatchObject({ status: 200, body: { status: 'ready' } });
  });

  test('returns 503 while the database is unavailable', async () => {
    const testApp = await createTestApp();
    testApp.db.$client.close();
    const response = await testApp.call('GET', '/health/ready');
    expect(response).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
  });

  test.each(['DELETE FROM __drizzle_migrations', 'DROP TABLE __drizzle_migrations'])(
    'returns 503 on an outdated schema: %s',
    async (statement) => {
      const testApp = await createTestApp();
      await testApp.db.$client.execute(statement);
      expect((await testApp.call('GET', '/health/ready')).status).toBe(503);
    },
  );

  test('returns 503 after the disk has failed', async () => {
    const testApp = await createTestApp();
    Object.assign(testApp.lifecycle, { hasLostDisk: true, lossReason: 'a fault', lossRemedy: 'Restart the service.' });
    expect(await testApp.call('GET', '/health/ready')).toMatchObject({
      status: 503,
      body: { type: '/problems/database-unavailable', detail: 'The database is lost: a fault. Restart the service.' },
    });
    expect((await testApp.call('GET', '/health/live')).status).toBe(200);
  });

  test('returns 503 with Connection: close during a stop and logs no error', async () => {
    const testApp = await createTestApp();
    testApp.lifecycle.isDraining = true;
    const response = await testApp.call('GET', '/health/ready');
    expect(response).toMatchObject({ status: 503, body: { type: '/problems/shutting-down' } });
    expect(response.headers.get('connection')).toBe('close');
    await until(() => testApp.logLines.some((line) => line.includes('shutting-down')));
    expect(testApp.logLines.filter((line) => /"level":"(?:warn|error|fatal)"/.test(line))).toEqual([]);
  });
});
