import { describe, expect, test } from 'bun:test';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import * as v from 'valibot';
import { openDatabase } from '../src/db/client';
import { migrateDatabase } from '../src/db/migrate';
import { openService } from '../src/main';
import { UserBody } from '../src/modules/users/model';
import { testSecret, testToken } from './support/app';
import { createCommandLine } from './support/command';
import { earlierMigrations, keys } from './support/database';
import { failToStart, type Service, startService } from './support/processes';
import { amount, temporaryFolder, until } from './support/resources';
import { hasSqld, startSqld } from './support/servers';

const ltc = '/v2/private/ltc/lifetimeCare';
const production = {
  NODE_ENV: 'production',
  AUTH_SECRET: 'a secret of production, 32 bytes long',
  AUTH_ISSUER: 'issuer',
  AUTH_AUDIENCE: 'audience',
  CARRIER_URL: 'http://127.0.0.1:1',
  CARRIER_API_KEY: 'carrier-key',
  CHAT_ID: 'chat',
  CHAT_TOKEN: 'chat-token',
};

function save(service: Service, token: string, body: object, path = ltc): Promise<Response> {
  return fetch(`${service.address}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

async function readUser(service: Service, token: string) {
  const response = await fetch(`${service.address}/v2/private/user`, { headers: { authorization: `Bearer ${token}` } });
  return v.parse(UserBody, await response.json()).user;
}

describe('start without settings', () => {
  test('prints a curl command that returns 200', async () => {
    const cwd = temporaryFolder();
    const service = await startService({ cwd });
    expect(service.output()).toContain(`docs     ${service.address}/swagger`);
    expect(service.output()).toContain(`data     ${join(cwd, 'data/planning.db')}`);
    const printed = /^ +curl (\S+) -H 'Authorization: Bearer (\S+)'$/m.exec(service.output());
    const headers = { authorization: `Bearer ${printed?.[2]}` };
    expect((await fetch(printed?.[1] ?? '', { headers })).status).toBe(200);
    expect((await fetch(`${service.address}/health/ready`)).status).toBe(200);
  });

  test('stores key, tokens and data with owner-only permissions and reuses them', async () => {
    const cwd = temporaryFolder();
    const first = await startService({ cwd });
    const token = await first.token();
    expect((await save(first, token, { careCosts: 7 })).status).toBe(200);
    first.process.kill('SIGTERM');
    expect(await first.process.exited).toBe(0);
    for (const name of ['demo-tokens.json', 'development-auth-secret']) {
      expect((await stat(join(cwd, 'data', name))).mode & 0o777).toBe(0o600);
    }
    expect((await stat(join(cwd, 'data'))).mode & 0o777).toBe(0o700);
    const second = await startService({ cwd });
    expect((await readUser(second, token)).ltc).toEqual({ lifetimeCare: { careCosts: 7 } });
  });

  test('gives two parallel processes in one folder the same key and data', async () => {
    const cwd = temporaryFolder();
    const [first, second] = await Promise.all([startService({ cwd }), startService({ cwd })]);
    const token = await first.token();
    expect((await save(first, token, { careCosts: 1 })).status).toBe(200);
    expect((await save(second, token, { policyValue: 2 })).status).toBe(200);
    expect((await readUser(first, token)).ltc).toEqual({ lifetimeCare: { careCosts: 1, policyValue: 2 } });
  });

  test('accepts tokens of `planning token`', async () => {
    const { cwd, planning } = await createCommandLine({}, { isProcess: true });
    const { stdout } = await planning('token', '--sub', 'ada');
    const service = await startService({ cwd });
    expect((await save(service, stdout.trim(), { careCosts: 1 })).status).toBe(200);
    expect(await readUser(service, stdout.trim())).toMatchObject({ id: 'ada' });
  });

  test('logs only JSON after it listens', async () => {
    const service = await startService();
    await fetch(`${service.address}/health/live`);
    await fetch(`${service.address}/nowhere`);
    service.process.kill('SIGTERM');
    await service.process.exited;
    const [before = '', after = ''] = service.output().split(/Personal planning service[\s\S]*?\n\n.*\n.*\n\n/);
    const messages = [before, after].map((lines) =>
      lines
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line).msg)
        .sort(),
    );
    expect(messages).toEqual([['a new database is created'], ['request', 'request', 'stopping']]);
  });
});

describe('acknowledged save', () => {
  test.each([
    ['in a file', {}],
    ['in an encrypted file', { DATABASE_ENCRYPTION_KEY: keys.right }],
  ])(
    '%s survives kill -9 with 64 concurrent writers',
    async (_, key) => {
      const cwd = temporaryFolder();
      const environment = { LOG_LEVEL: 'error', AUTH_SECRET: testSecret, ...key };
      const service = await startService({ cwd, environment });
      // Two writers for each user increment one field each: at least the last acknowledged value must be stored.
      const savers = await Promise.all(
        Array.from({ length: 64 }, async (_, index) => ({
          token: await testToken({ id: `saver-${index >> 1}`, now: new Date() }),
          field: index % 2 === 0 ? ('careCosts' as const) : ('policyValue' as const),
          acknowledged: 0,
        })),
      );
      const killedAfter = amount({ long: 2000, short: 500 });
      let sent = 0;
      await Promise.all(
        savers.map(async (saver) => {
          for (let value = 1; ; value += 1) {
            const response = await save(service, saver.token, { [saver.field]: value }).catch(() => undefined);
            if (response?.status !== 200) return;
            saver.acknowledged = value;
            sent += 1;
            if (sent === killedAfter) service.process.kill('SIGKILL');
          }
        }),
      );
      await service.process.exited;
      expect(sent).toBeGreaterThanOrEqual(killedAfter);
      const restarted = await startService({ cwd, environment });
      for (const { token, field, acknowledged } of savers) {
        const stored = (await readUser(restarted, token)).ltc.lifetimeCare?.[field];
        expect(stored).toBeGreaterThanOrEqual(acknowledged);
        expect(stored).toBeLessThanOrEqual(acknowledged + 1);
      }
    },
    30_000,
  );
});

describe('SIGTERM', () => {
  test('completes every request in flight under load and exits with 0', async () => {
    const service = await startService({ environment: { LOG_LEVEL: 'error', DRAIN_MS: '500' } });
    const token = await service.token();
    const statuses: number[] = [];
    const refused: unknown[] = [];
    let isStopping = false;
    const callers = Array.from({ length: 16 }, async () => {
      for (let count = 0; count < 5000; count += 1) {
        const wasStopping = isStopping;
        try {
          const response = await save(service, token, { careCosts: count });
          await response.text();
          statuses.push(response.status);
        } catch (error) {
          // New connections fail after the process stops listening; open ones must not break.
          if (!wasStopping) refused.push(error);
          return;
        }
      }
    });
    await until(() => statuses.length > 100);
    const startedAtMs = performance.now();
    isStopping = true;
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
    await Promise.all(callers);
    expect(performance.now() - startedAtMs).toBeLessThan(5000);
    expect(statuses.length).toBeGreaterThan(100);
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
    expect(refused).toEqual([]);
  }, 30_000);

  test('reaches the service when it was started by the package script', async () => {
    const root = join(import.meta.dirname, '..');
    const { scripts } = await Bun.file(join(root, 'package.json')).json();
    const script = scripts.start.replace('src/main.ts', `'${join(root, 'src/main.ts')}'`);
    const env = { PATH: process.env.PATH, PORT: '0' };
    const shell = Bun.spawn(['sh', '-c', script], { cwd: temporaryFolder(), env, stdout: 'pipe' });
    const decoder = new TextDecoder();
    const reader = shell.stdout.getReader();
    let output = '';
    while (!output.includes('Try it')) output += decoder.decode((await reader.read()).value);
    shell.kill('SIGTERM');
    expect(await shell.exited).toBe(0);
  });

  test('stops the service while the log lines of its start wait for a stalled reader', async () => {
    const { promise: written, resolve: write } = Promise.withResolvers<void>();
    const cwd = temporaryFolder();
    const service = await openService({
      args: [],
      environment: {
        NODE_ENV: 'development',
        PORT: '0',
        AUTH_SECRET: testSecret,
        DATABASE_URL: `file:${join(cwd, 'planning.db')}`,
        CARRIER_URL: 'http://127.0.0.1:1',
      },
      output: { write: () => undefined, flush: () => written },
    });
    const listening = service.listen();
    const stopping = service.stop(0, 0);
    write();
    expect(await stopping).toBe(0);
    await listening;
  });

  test('exits after the shutdown timeout when a request never ends', async () => {
    const service = await startService({ environment: { SHUTDOWN_TIMEOUT_MS: '300' } });
    const token = await service.token();
    const { hostname, port } = new URL(service.address);
    const socket = await Bun.connect({ hostname, port: Number(port), socket: { data() {} } });
    socket.write(
      `POST ${ltc} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    );
    await Bun.sleep(100);
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
  }, 20_000);
});

describe.concurrent('failing start', () => {
  test.each([
    ['an invalid setting', { PORT: 'x' }, 'PORT must be'],
    ['an empty path', { DATABASE_URL: 'file:' }, 'DATABASE_URL must be'],
    [
      'a file that cannot be opened',
      { DATABASE_URL: 'file:/proc/none/planning.db' },
      'cannot be opened (SQLITE_CANTOPEN)',
    ],
    ['production without settings', { NODE_ENV: 'production' }, 'AUTH_ISSUER must be set in production'],
    ['production with demo data', { ...production, SEED_DEMO: 'true' }, 'SEED_DEMO must not be true'],
  ])('reports %s without a stack trace and exits with 1', async (_, environment, message) => {
    const { exitCode, stderr, stdout } = await failToStart({ environment });
    expect(exitCode).toBe(1);
    expect(stderr).toContain(message);
    expect(stderr).not.toMatch(/^\s+at /m);
    expect(stdout).toBe('');
  });

  test('reports a port that is in use', async () => {
    const service = await startService();
    const { port } = new URL(service.address);
    const { exitCode, stderr } = await failToStart({ environment: { PORT: port } });
    expect(exitCode).toBe(1);
    expect(stderr).toBe(
      `The service cannot listen on 127.0.0.1:${port} (EADDRINUSE). Another program does; set PORT to a free one.\n`,
    );
  });

  test('reports the error of a failing migration', async () => {
    const cwd = temporaryFolder();
    const db = await openDatabase({ url: `file:${join(cwd, 'planning.db')}`, timeoutMs: 1000 });
    await migrateDatabase(db, await earlierMigrations(12));
    await db.$client.execute('CREATE TABLE activity_sums (id text)');
    db.$client.close();
    const { exitCode, stderr } = await failToStart({ cwd, environment: { DATABASE_URL: 'file:planning.db' } });
    expect(exitCode).toBe(1);
    expect(stderr).toContain('cannot be brought up to date');
    expect(stderr).toContain('table `activity_sums` already exists');
  });

  test('reports a rejected database token without a wait', async () => {
    const refusing = Bun.serve({ port: 0, fetch: () => new Response('no', { status: 401 }) });
    const { exitCode, stderr } = await failToStart({ environment: { DATABASE_URL: refusing.url.origin } });
    await refusing.stop(true);
    expect(exitCode).toBe(1);
    expect(stderr).toContain('cannot be used (TOKEN_REFUSED). It does not accept DATABASE_AUTH_TOKEN');
  });

  test('reports DATABASE_REPLICA_PATH when its folder cannot be created', async () => {
    const environment = { DATABASE_URL: 'http://127.0.0.1:1', DATABASE_REPLICA_PATH: '/dev/null/replica.db' };
    const { exitCode, stderr } = await failToStart({ environment });
    expect(exitCode).toBe(1);
    expect(stderr).toStartWith('DATABASE_REPLICA_PATH is in a folder that cannot be created (E');
  });

  test('reports a DATABASE_URL that is not a libSQL server', async () => {
    const other = Bun.serve({ port: 0, fetch: () => new Response('<p>Hello') });
    const { exitCode, stderr } = await failToStart({ environment: { DATABASE_URL: other.url.origin } });
    await other.stop(true);
    expect(exitCode).toBe(1);
    expect(stderr).toContain('is not a libSQL server');
  });

  test.skipIf(!hasSqld)('reports the migrate command when a remote database is not migrated', async () => {
    const { url } = await startSqld();
    const { exitCode, stderr } = await failToStart({ environment: { DATABASE_URL: url } });
    expect(exitCode).toBe(1);
    expect(stderr).toContain('Run `planning migrate`');
  });
});

describe.concurrent('start in production', () => {
  test('logs the settings with warnings and the address without secrets', async () => {
    const { cwd } = await createCommandLine();
    const service = await startService({ cwd, environment: production });
    const lines = service
      .output()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.filter(({ level }) => level === 'warn').map(({ setting }) => setting)).toEqual([
      'DATABASE_ENCRYPTION_KEY',
      'PUBLIC_URL',
      'TRUSTED_PROXY_COUNT',
    ]);
    expect(lines.filter(({ level }) => level === 'info').map(({ msg }) => msg)).toEqual(['starting', 'listening']);
    expect(lines.find(({ msg }) => msg === 'listening')).toMatchObject({
      address: service.address,
      docs: `${service.address}/swagger`,
    });
    for (const secret of [production.AUTH_SECRET, production.CHAT_TOKEN])
      expect(service.output()).not.toContain(secret);
    expect((await fetch(`${service.address}/health/ready`)).status).toBe(200);
    expect((await fetch(`${service.address}/v2/private/user`)).status).toBe(401);
  });

  test('reports every insecure development setting in one error and creates no database', async () => {
    const cwd = temporaryFolder();
    const development = await startService({ cwd });
    development.process.kill('SIGKILL');
    await development.process.exited;
    const AUTH_SECRET = await Bun.file(join(cwd, 'data/development-auth-secret')).text();
    const environment = {
      NODE_ENV: 'production',
      DATABASE_URL: 'file:data/new.db',
      AUTH_SECRET,
      PUBLIC_URL: 'http://planning.example',
      CHAT_ID: 'demo-chat',
      CHAT_TOKEN: 'demo-chat-token',
      SEED_DEMO: 'true',
    };
    const { exitCode, stdout, stderr } = await failToStart({ cwd, environment });
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect([...stderr.matchAll(/^ {2}([A-Z_]+) /gm)].map(([, key]) => key)).toEqual([
      'AUTH_ISSUER',
      'AUTH_AUDIENCE',
      'CARRIER_URL',
      'CARRIER_API_KEY',
      'CHAT_ID',
      'CHAT_TOKEN',
      'AUTH_SECRET',
      'PUBLIC_URL',
      'SEED_DEMO',
    ]);
    expect(stderr).not.toContain(AUTH_SECRET);
    expect(await Bun.file(join(cwd, 'data/new.db')).exists()).toBeFalse();
  });
});

describe.skipIf(!hasSqld)('start with a remote database', () => {
  test('waits for a database that becomes available later', async () => {
    const sqld = await startSqld();
    const db = await openDatabase({ url: sqld.url, timeoutMs: 2000 });
    await migrateDatabase(db);
    db.$client.close();
    await sqld.kill();
    const starting = startService({ environment: { DATABASE_URL: sqld.url } });
    await Bun.sleep(300);
    await sqld.start();
    const service = await starting;
    expect((await save(service, await service.token(), { careCosts: 1 })).status).toBe(200);
  }, 20_000);
});
