import { describe, expect, test } from 'bun:test';
import { createTestApp } from '../support/app';
import { until } from '../support/until';

describe('/health/live', () => {
  test('answers although the database is away', async () => {
    const testApp = await createTestApp();
    testApp.db.$client.close();
    const answer = await testApp.call('GET', '/health/live');
    expect(answer).toMatchObject({ status: 200, body: { status: 'live' } });
  });
});

describe('/health/ready', () => {
  test('answers 200 on a migrated database', async () => {
    const testApp = await createTestApp();
    expect(await testApp.call('GET', '/health/ready')).toMatchObject({ status: 200, body: { status: 'ready' } });
  });

  test('answers 503 while the database is away', async () => {
    const testApp = await createTestApp();
    testApp.db.$client.close();
    const answer = await testApp.call('GET', '/health/ready');
    expect(answer).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
  });

  test.each(['DELETE FROM __drizzle_migrations', 'DROP TABLE __drizzle_migrations'])(
    'answers 503 on a schema that is too old: %s',
    async (statement) => {
      const testApp = await createTestApp();
      await testApp.db.$client.execute(statement);
      expect((await testApp.call('GET', '/health/ready')).status).toBe(503);
    },
  );

  test('responds with 503 after the disk has failed', async () => {
    const testApp = await createTestApp();
    Object.assign(testApp.lifecycle, { hasLostDisk: true, lossReason: 'a fault', lossRemedy: 'Restart the service.' });
    expect(await testApp.call('GET', '/health/ready')).toMatchObject({
      status: 503,
      body: { type: '/problems/database-unavailable', detail: 'The database is lost: a fault. Restart the service.' },
    });
    expect((await testApp.call('GET', '/health/live')).status).toBe(200);
  });

  test('responds with 503 during a stop, asks callers to close and logs no error', async () => {
    const testApp = await createTestApp();
    testApp.lifecycle.isDraining = true;
    const answer = await testApp.call('GET', '/health/ready');
    expect(answer).toMatchObject({ status: 503, body: { type: '/problems/shutting-down' } });
    expect(answer.headers.get('connection')).toBe('close');
    await until(() => testApp.logLines.some((line) => line.includes('shutting-down')));
    expect(testApp.logLines.filter((line) => /"level":"(?:warn|error|fatal)"/.test(line))).toEqual([]);
  });
});
