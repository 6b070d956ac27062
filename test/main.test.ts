import { describe, expect, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { openDatabase } from '../src/db/client';
import { migrateDatabase } from '../src/db/migrate';
import { openService } from '../src/main';
import { testSecret } from './support/app';
import { createCommandLine } from './support/command';
import { earlierMigrations } from './support/database';
import { productionSettings, productionToken, refusedStart, startInProcess } from './support/processes';
import { atEnd, temporaryFolder, until } from './support/resources';
import { metricsToken, readSamples } from './support/telemetry';

const development = {
  NODE_ENV: 'development',
  PORT: '0',
  AUTH_SECRET: testSecret,
  CARRIER_URL: 'http://127.0.0.1:1',
};
const newDatabase = () => `file:${join(temporaryFolder(), 'planning.db')}`;

describe('refused start', () => {
  const inDevelopment = (environment: Record<string, string>) =>
    refusedStart({ ...development, DATABASE_URL: newDatabase(), ...environment });

  /** A server that is no libSQL server. */
  function startServer(response: () => Response): string {
    const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: response });
    atEnd(() => server.stop(true));
    return server.url.origin;
  }

  test.each([
    ['an invalid setting', { PORT: 'x' }, 'PORT must be'],
    ['an empty path', { DATABASE_URL: 'file:' }, 'DATABASE_URL must be'],
    ['a file that cannot be opened', { DATABASE_URL: 'file:/proc/none/a.db' }, 'cannot be opened (SQLITE_CANTOPEN)'],
    [
      'a replica whose folder cannot be created',
      { DATABASE_URL: 'http://127.0.0.1:1', DATABASE_REPLICA_PATH: '/dev/null/replica.db' },
      'DATABASE_REPLICA_PATH is in a folder that cannot be created (E',
    ],
  ])('reports %s', async (_, environment, message) => {
    expect(await inDevelopment(environment)).toContain(message);
  });

  test('reports demo data in production', async () => {
    expect(await refusedStart({ SEED_DEMO: 'true' })).toContain('SEED_DEMO must not be true');
  });

  test('reports a port that is in use', async () => {
    const { port } = new URL(startServer(() => new Response()));
    expect(await inDevelopment({ PORT: port })).toBe(
      `The service cannot listen on 127.0.0.1:${port} (EADDRINUSE). Another program does; set PORT to a free one.`,
    );
  });

  test('reports the error of a failing migration', async () => {
    const DATABASE_URL = newDatabase();
    const db = await openDatabase({ url: DATABASE_URL, timeoutMs: 1000 });
    await migrateDatabase(db, await earlierMigrations(12));
    await db.$client.execute('CREATE TABLE activity_sums (id text)');
    db.$client.close();
    const message = await inDevelopment({ DATABASE_URL });
    expect(message).toContain('cannot be brought up to date');
    expect(message).toContain('table `activity_sums` already exists');
  });

  test('reports a rejected database token without another attempt', async () => {
    let requests = 0;
    const DATABASE_URL = startServer(() => {
      requests += 1;
      return new Response('no', { status: 401 });
    });
    const message = 'cannot be used (TOKEN_REFUSED). It does not accept DATABASE_AUTH_TOKEN';
    expect(await inDevelopment({ DATABASE_URL })).toContain(message);
    expect(requests).toBe(1);
  });

  test('reports a DATABASE_URL that is not a libSQL server', async () => {
    const DATABASE_URL = startServer(() => new Response('<p>Hello'));
    expect(await inDevelopment({ DATABASE_URL })).toContain('is not a libSQL server');
  });
});

describe('service in production', () => {
  test('logs the settings with warnings and the address without secrets', async () => {
    const { databaseUrl } = await createCommandLine();
    const service = await startInProcess({ DATABASE_URL: databaseUrl });
    const lines = service.logLines();
    // A demo in the working folder of the tests adds a warning for NODE_ENV.
    const warned = lines.filter(({ level, setting }) => level === 'warn' && setting !== 'NODE_ENV');
    expect(warned.map(({ setting }) => setting)).toEqual([
      'DATABASE_ENCRYPTION_KEY',
      'PUBLIC_URL',
      'AUTH_ISSUER',
      'TRUSTED_PROXY_COUNT',
    ]);
    const { address } = service;
    expect(lines.filter(({ level }) => level === 'info')).toMatchObject([
      { msg: 'starting', mode: 'production' },
      { msg: 'listening', address: expect.stringMatching(/^http:/), docs: `${address}/swagger` },
    ]);
    for (const secret of [productionSettings.AUTH_SECRET, productionSettings.CHAT_TOKEN]) {
      expect(JSON.stringify(lines)).not.toContain(secret);
    }
    expect((await service.call('GET', '/health/ready')).status).toBe(200);
    expect((await service.call('GET', '/v2/private/user')).status).toBe(401);
  });

  test('logs the X-Request-Id of the client when it has 8 to 64 characters, and an id of its own otherwise', async () => {
    const { databaseUrl } = await createCommandLine();
    const service = await startInProcess({ DATABASE_URL: databaseUrl });
    for (const length of [7, 8, 64, 65]) {
      const sent = 'x'.repeat(length);
      const { headers } = await service.call('GET', '/v2/private/user', { headers: { 'x-request-id': sent } });
      const used = headers.get('x-request-id');
      expect([length, used === sent]).toEqual([length, length >= 8 && length <= 64]);
      await until(() => service.logLines().some(({ requestId }) => requestId === used));
    }
  });

  test('reports the disk, the age of the backup and of the retention, and a lost database to a scrape', async () => {
    const { databaseUrl, planning } = await createCommandLine();
    expect((await planning('backup', 'backup.db')).exitCode).toBe(0);
    const service = await startInProcess({ DATABASE_URL: databaseUrl, METRICS_TOKEN: metricsToken });
    const path = databaseUrl.slice('file:'.length);
    const headers = { authorization: `Bearer ${metricsToken}` };
    const scrape = async () => readSamples((await service.call('GET', '/metrics', { headers })).text);
    const sampleOf = async (name: string) =>
      (await scrape()).find((sample) => sample.name === `planning_${name}`)?.value;
    await until(async () => (await scrape()).some(({ labels }) => labels.task === 'audit-retention'));
    expect([await sampleOf('writes_available'), await sampleOf('database_lost')]).toEqual([1, 0]);
    const free = await sampleOf('database_disk_free_bytes');
    expect(free).toBeGreaterThan(0);
    expect(await sampleOf('database_disk_size_bytes')).toBeGreaterThan(free ?? 0);
    expect(await sampleOf('database_size_bytes')).toBe(Bun.file(path).size);
    for (const task of ['audit-retention', 'backup']) {
      const completed = (await scrape()).find(({ labels }) => labels.task === task)?.value ?? 0;
      expect([task, Math.abs(Date.now() / 1000 - completed) < 60]).toEqual([task, true]);
    }
    rmSync(path);
    await until(async () => (await sampleOf('database_lost')) === 1);
    expect(await sampleOf('writes_available')).toBe(0);
  });
});

describe('stop', () => {
  test('ends a service while the log lines of its start wait for a stalled reader', async () => {
    const { promise: written, resolve: write } = Promise.withResolvers<void>();
    const environment = { ...development, DATABASE_URL: newDatabase() };
    const stalled = { write: () => undefined, flush: () => written };
    const service = await openService({ args: [], environment, output: stalled });
    const listening = service.listen();
    const stopping = service.stop(0, 0);
    write();
    expect(await stopping).toBe(0);
    await listening;
  });

  test('cuts off a request that does not end before the shutdown timeout', async () => {
    const { databaseUrl } = await createCommandLine();
    const service = await startInProcess({ DATABASE_URL: databaseUrl, SHUTDOWN_TIMEOUT_MS: '100' });
    const { hostname, port } = new URL(service.address);
    const socket = await Bun.connect({ hostname, port: Number(port), socket: { data() {} } });
    const head = `POST /v2/private/user/profile HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${await productionToken('ada')}`;
    socket.write(`${head}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`);
    expect((await service.call('GET', '/health/live')).status).toBe(200);
    expect(await service.stop()).toBe(0);
    expect(service.logLines().map(({ msg }) => msg)).toContain('requests were cut off');
  });
});
