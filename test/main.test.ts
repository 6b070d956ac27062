import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { signToken } from '../src/auth/signing';
import { openDatabase } from '../src/db/client';
import { migrateDatabase } from '../src/db/migrate';
import { openService } from '../src/main';
import { applicant, testSecret } from './support/app';
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
    ['a file that cannot be opened', { DATABASE_URL: 'file:/proc/none/a.db' }, 'cannot be opened (SQLITE_CANTOPEN)'],
    [
      'a replica whose folder cannot be created',
      { DATABASE_URL: 'http://127.0.0.1:1', DATABASE_REPLICA_PATH: '/dev/null/replica.db' },
      'DATABASE_REPLICA_PATH is in a folder that cannot be created (E',
    ],
  ])('reports %s', async (_, environment, message) => {
    expect(await inDevelopment(environment)).toContain(message);
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
  test('logs the settings with warnings and the address without secrets, and applies its limit', async () => {
    const { databaseUrl } = await createCommandLine();
    const service = await startInProcess({ DATABASE_URL: databaseUrl, RATE_LIMIT_PER_MINUTE: '2' });
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
    expect((await service.call('GET', '/v2/private/user')).status).toBe(401);
    const read = async () => (await service.call('GET', '/v2/private/healthAndCare/', { as: 'ada' })).status;
    expect([await read(), await read(), await read()]).toEqual([200, 200, 429]);
    expect((await service.call('GET', '/health/ready')).status).toBe(200);
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
    // A scrape before the first retention would be repeated for five seconds.
    const file = new SqliteDatabase(path, { readonly: true });
    const retention = file.query("SELECT * FROM completed_tasks WHERE task = 'audit-retention'");
    await until(() => retention.get() !== null);
    file.close();
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
    // A write notices the loss at once.
    expect((await service.call('POST', '/v2/private/user/profile', { as: 'ada', body: {} })).status).toBe(503);
    await until(async () => (await sampleOf('database_lost')) === 1);
    expect(await sampleOf('writes_available')).toBe(0);
  });
});

test('a reload applies new secrets in files, and names each setting that needs a restart or cannot be used', async () => {
  const carrierKeys: (string | null)[] = [];
  const carrier = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch({ headers }) {
      carrierKeys.push(headers.get('authorization'));
      return new Response('not found', { status: 404 });
    },
  });
  atEnd(() => carrier.stop(true));
  const first = {
    AUTH_SECRET: productionSettings.AUTH_SECRET,
    CARRIER_API_KEY: 'carrier-key-of-the-first-month',
    CHAT_TOKEN: 'chat-token-of-the-first-month',
    METRICS_TOKEN: 'u5Gk9Wz2Qb7Xn4Td8Rm1Vc6Lj3Hs0PfYe',
  };
  const second = {
    AUTH_SECRET: 'Zx3Vb7Nm1Qw5Er9Ty2Ui6Op0As4Df8Gh',
    CARRIER_API_KEY: 'carrier-key-of-the-second-month',
    CHAT_TOKEN: 'chat-token-of-the-second-month',
    METRICS_TOKEN: 'c7Vb3Nm9Kq1Ws5Ed0Rf8Tg2Yh6Uj4IkOl',
  };
  const folder = temporaryFolder();
  const write = (secrets: Readonly<Record<string, string>>) => {
    for (const [key, text] of Object.entries(secrets)) writeFileSync(join(folder, key), text, { mode: 0o600 });
  };
  write(first);
  const { databaseUrl } = await createCommandLine();
  const files = Object.keys(first).flatMap((key) => [
    [key, undefined],
    [`${key}_FILE`, join(folder, key)],
  ]);
  const environment = { DATABASE_URL: databaseUrl, CARRIER_URL: carrier.url.origin, ...Object.fromEntries(files) };
  const { call, logLines, reloadSecrets } = await startInProcess(environment);
  const linesOf = (start: string) => logLines().filter(({ msg }) => msg.startsWith(start));
  const { AUTH_ISSUER: issuer, AUTH_AUDIENCE: audience } = productionSettings;
  const apply = async (secret: string) => {
    const claims = { issuer, audience, rolesClaim: 'roles', roles: [], id: 'ada', ttlSeconds: 3600, now: new Date() };
    const headers = { authorization: `Bearer ${await signToken({ secret, ...claims })}` };
    return (await call('POST', '/v2/private/ltc/totalCoverage', { headers, body: applicant })).status;
  };
  const scrape = async (token: string) =>
    (await call('GET', '/metrics', { headers: { authorization: `Bearer ${token}` } })).status;
  expect(await apply(first.AUTH_SECRET)).not.toBe(401);
  expect(new Set(carrierKeys)).toEqual(new Set([`Bearer ${first.CARRIER_API_KEY}`]));
  expect(await scrape(first.METRICS_TOKEN)).toBe(200);

  for (let count = 0; count < 20; count += 1) reloadSecrets();
  await until(() => linesOf('the secrets were read again: none has changed').length > 0);

  write({ AUTH_SECRET: '' });
  reloadSecrets();
  await until(() => linesOf('the secrets are not read again').length === 1);
  expect(linesOf('the secrets are not read again')).toMatchObject([
    { level: 'error', setting: 'AUTH_SECRET_FILE', rule: 'names an empty file' },
  ]);
  expect(await apply(first.AUTH_SECRET)).not.toBe(401);

  write(second);
  reloadSecrets();
  await until(() => linesOf('the new value').length === 4);
  const live = linesOf('the new value is in use').map(({ setting }) => setting);
  expect(live).toEqual(['CARRIER_API_KEY', 'AUTH_SECRET', 'METRICS_TOKEN']);
  expect(linesOf('the new value takes effect after a restart')).toMatchObject([
    { level: 'warn', setting: 'CHAT_TOKEN' },
  ]);
  carrierKeys.length = 0;
  expect(await apply(first.AUTH_SECRET)).toBe(401);
  expect(await apply(second.AUTH_SECRET)).not.toBe(401);
  expect(new Set(carrierKeys)).toEqual(new Set([`Bearer ${second.CARRIER_API_KEY}`]));
  expect([await scrape(first.METRICS_TOKEN), await scrape(second.METRICS_TOKEN)]).toEqual([401, 200]);
  const log = JSON.stringify(logLines());
  expect([...Object.values(first), ...Object.values(second)].filter((secret) => log.includes(secret))).toEqual([]);
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
