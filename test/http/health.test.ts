import { describe, expect, test } from 'bun:test';
import { createTestApp, listen } from '../support/app';
import { connectRaw } from '../support/http';
import { until } from '../support/resources';

const usual = await createTestApp();
const port = listen(usual);
const draining = await createTestApp();
draining.lifecycle.isDraining = true;
const drainingPort = listen(draining);

async function statusOf(head: string, to = port): Promise<string | undefined> {
  const { socket, received } = await connectRaw(to);
  socket.write(`${head}\r\n\r\n`);
  const response = await received;
  socket.end();
  return response.split(' ')[1];
}

describe('/health/ready', () => {
  test('returns 200 on a migrated database and 503 while it is unavailable, when /health/live returns 200', async () => {
    const { call, db } = await createTestApp();
    expect(await call('GET', '/health/ready')).toMatchObject({ status: 200, body: { status: 'ready' } });
    db.$client.close();
    const unavailable = { status: 503, body: { type: '/problems/database-unavailable' } };
    expect(await call('GET', '/health/ready')).toMatchObject(unavailable);
    expect(await call('GET', '/health/live')).toMatchObject({ status: 200, body: { status: 'live' } });
  });

  test.each(['DELETE FROM __drizzle_migrations', 'DROP TABLE __drizzle_migrations'])(
    'returns 503 on an outdated schema: %s',
    async (statement) => {
      const { call, db } = await createTestApp();
      await db.$client.execute(statement);
      expect((await call('GET', '/health/ready')).status).toBe(503);
    },
  );

  test('returns 503 after the disk has failed', async () => {
    const { call, lifecycle } = await createTestApp();
    Object.assign(lifecycle, { hasLostDisk: true, lossReason: 'a fault', lossRemedy: 'Restart the service.' });
    const detail = 'The database is lost: a fault. Restart the service.';
    const lost = { status: 503, body: { type: '/problems/database-unavailable', detail } };
    expect(await call('GET', '/health/ready')).toMatchObject(lost);
    expect((await call('GET', '/health/live')).status).toBe(200);
  });

  test('returns 503 during a stop and logs no error', async () => {
    const { call, logLines } = draining;
    const stopping = { status: 503, body: { type: '/problems/shutting-down' } };
    expect(await call('GET', '/health/ready')).toMatchObject(stopping);
    await until(() => logLines.some((line) => line.includes('shutting-down')));
    expect(logLines.filter((line) => /"level":"(?:warn|error|fatal)"/.test(line))).toEqual([]);
  });
});

test.each(['/health/live', '/health/ready', '/v2/private/user'])(
  'a response of an instance that stops closes its connection: %s',
  async (path) => {
    expect((await draining.call('GET', path)).headers.get('connection')).toBe('close');
    expect((await usual.call('GET', path)).headers.get('connection')).toBeNull();
  },
);

describe('probe of a load balancer', () => {
  test.each([
    ['GET /health/ready HTTP/1.0', '200'],
    ['GET /health/live HTTP/1.0', '200'],
    ['HEAD /health/ready HTTP/1.0', '200'],
    ['HEAD /health/live/ HTTP/1.0', '200'],
    ['GET /health/ready/ HTTP/1.0', '200'],
    ['GET /health/ready?from=probe HTTP/1.0', '200'],
    ['GET /health/ready HTTP/1.0\r\nUser-Agent: probe', '200'],
    ['GET /health/ready HTTP/1.0\r\nHost:', '200'],
    ['GET /health/ready HTTP/1.1\r\nHost:', '200'],
    ['GET /health/ready HTTP/1.1\r\nHost: a b', '200'],
    ['OPTIONS / HTTP/1.0', '204'],
    ['OPTIONS / HTTP/1.1\r\nHost: x', '204'],
    ['OPTIONS /health/ready HTTP/1.0', '204'],
    ['OPTIONS /health/live HTTP/1.0', '204'],
    ['OPTIONS /health/ready HTTP/1.1\r\nHost: x', '204'],
  ])('needs no Host: %j returns %s', async (head, status) => expect(await statusOf(head)).toBe(status));

  test.each([
    ['GET /v2/private/user HTTP/1.0', '400'],
    ['GET / HTTP/1.0', '400'],
    ['GET /x/../health/ready HTTP/1.0', '400'],
    ['GET /x/../health/ready HTTP/1.1\r\nHost: x', '404'],
    ['POST /health/ready HTTP/1.0', '400'],
    ['OPTIONS /swagger HTTP/1.0', '400'],
    ['GET / HTTP/1.1\r\nHost: x', '404'],
    ['OPTIONS /swagger HTTP/1.1\r\nHost: x', '405'],
  ])('is no other request: %j returns %s', async (head, status) => expect(await statusOf(head)).toBe(status));

  test.each([
    ['GET /health/ready', '503'],
    ['HEAD /health/ready', '503'],
    ['OPTIONS /health/ready', '503'],
    ['OPTIONS /', '503'],
    ['OPTIONS /health/live', '204'],
  ])('shows whether an instance that stops is ready: %s returns %s', async (probe, status) => {
    expect(await statusOf(`${probe} HTTP/1.0`, drainingPort)).toBe(status);
  });
});
