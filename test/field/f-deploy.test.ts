import { describe, expect, test } from 'bun:test';
import { chmodSync, existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { serveOptions } from '../../src/app';
import { readConfig } from '../../src/config/settings';
import { openDatabase } from '../../src/db/client';
import { clientNetwork } from '../../src/http/rate-limits';
import { createLog } from '../../src/log';
import { applicant } from '../support/app';
import { programOf } from '../support/artifacts';
import { excludeFromChecks } from '../support/conformance';
import { createProduction, type Production, productionSettings, productionToken } from '../support/processes';
import { amount, atEnd, freePort, isLong, runToEnd, temporaryFolder, until } from '../support/resources';
import {
  hasSqld,
  missingProxies,
  type ProxyName,
  proxyNames,
  startDocumentedProxy,
  startSqld,
} from '../support/servers';

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
const application = '/v2/private/ltc/totalCoverage';

const deployFolder = join(import.meta.dirname, '../../docs/deploy');
const documented = (name: string) => Bun.file(join(deployFolder, name)).text();

const proxies = proxyNames.filter((name) => !missingProxies.includes(name));

type Deployment = Awaited<ReturnType<typeof createProduction>>;

/** The long run uses the documented configurations; the short run checks health more often and drains for less time. */
const rolls = amount({ long: 20, short: 2 });
const drainMs = amount({ long: 8000, short: 1200 });
const shorter: Readonly<Record<ProxyName, Record<string, string>>> = isLong
  ? { nginx: {}, haproxy: {}, caddy: {} }
  : {
      nginx: { 'keepalive_timeout 5s': 'keepalive_timeout 500ms' },
      haproxy: { 'inter 2s': 'inter 200ms' },
      caddy: { 'health_interval 2s': 'health_interval 200ms', 'keepalive 5s': 'keepalive 500ms' },
    };

/** Sends saves, applications and reads through each proxy, on persistent connections, until `stop`. */
async function startLoad(instances: readonly [number, number]) {
  const failures: string[] = [];
  const counts = { saves: 0, applications: 0 };
  let isStopped = false;
  const published = await Promise.all(
    proxies.map(async (name) => ({ name, ...(await startDocumentedProxy(name, instances, shorter[name])) })),
  );
  const callers = published.flatMap(({ name, https, ca }) => {
    // A proxy adds response headers.
    excludeFromChecks(https);
    const send = async (token: string, path: string, body?: object, headers: Record<string, string> = {}) => {
      try {
        const response = await fetch(`${https}${path}`, {
          method: body === undefined ? 'GET' : 'POST',
          headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
          tls: { ca },
        });
        const text = await response.text();
        if (response.status !== 200) failures.push(`${name} ${path} ${response.status} ${text.slice(0, 100)}`);
        return response.headers.get('etag') ?? '*';
      } catch (error) {
        failures.push(`${name} ${path} ${error}`);
        return '*';
      }
    };
    const repeat = async (work: () => Promise<unknown>) => {
      for (; !isStopped; await Bun.sleep(20)) await work();
    };
    const saver = async (id: string, isGuarded: boolean) => {
      const token = await productionToken(`${name}-${id}`);
      let tag = '*';
      let careCosts = 0;
      await repeat(async () => {
        careCosts += 1;
        tag = await send(token, ltc, { careCosts }, isGuarded && careCosts > 1 ? { 'if-match': tag } : {});
        counts.saves += 1;
        await send(token, user);
      });
    };
    const applicants = () =>
      repeat(async () => {
        counts.applications += 1;
        const token = await productionToken(`applicant-${counts.applications}`);
        await send(token, application, applicant, { 'idempotency-key': crypto.randomUUID() });
      });
    return [saver('one', false), saver('two', false), saver('three', true), saver('four', true), applicants()];
  });
  await until(() => counts.saves > 20 * proxies.length);
  return {
    report() {
      if (isLong) process.stderr.write(`${JSON.stringify({ ...counts, failures })}\n`);
    },
    async stop() {
      isStopped = true;
      await Promise.all(callers);
      return { failures, counts };
    },
  };
}

/** The events of saves and the applications that a database holds. */
async function stored(url: string) {
  const db = await openDatabase({ url, timeoutMs: 5000 });
  try {
    const count = async (sql: string) => Number((await db.$client.execute(sql)).rows[0]?.count);
    return {
      saves: await count(`SELECT count(*) AS count FROM audit_events WHERE section = 'ltc.lifetimeCare'`),
      applications: await count('SELECT count(*) AS count FROM applications'),
    };
  } finally {
    db.$client.close();
  }
}

const startOn = (deployment: Deployment, port: number) =>
  deployment.start({ environment: { PORT: String(port), DRAIN_MS: String(drainMs) } });

/** Waits until the proxies with health checks know an instance, as an operator does before the other one is stopped. */
async function waitForProxies(instance: Production): Promise<void> {
  const passed = () => instance.output().match(/"route":"\/health\/ready","status":200/g)?.length ?? 0;
  const checking = proxies.filter((name) => name !== 'nginx').length;
  await until(() => passed() >= 3 * checking);
}

async function stop({ process: child }: Production): Promise<void> {
  child.kill('SIGTERM');
  expect(await child.exited).toBe(0);
}

const ports = async () => [await freePort(), await freePort()] as const;
const settings = { RATE_LIMIT_PER_MINUTE: '0', CARRIER_APPLICATIONS_PER_DAY: '0' };
const testTimeoutMs = amount({ long: 3_600_000, short: 60_000 });

describe.skipIf(proxies.length === 0)('F13 behind the documented proxies', () => {
  test.skipIf(!hasSqld)(
    'F13 two instances on a libSQL server lose and repeat no request when they are replaced in turn',
    async () => {
      const sqld = await startSqld();
      const deployment = await createProduction({ ...settings, DATABASE_URL: sqld.url }, { isEmpty: true });
      expect(await deployment.planning('migrate')).toMatchObject({ exitCode: 0 });
      const both = await ports();
      const instances = await Promise.all(
        both.map(async (port) => ({ port, service: await startOn(deployment, port) })),
      );
      const load = await startLoad(both);
      for (let roll = 0; roll < rolls; roll += 1) {
        for (const instance of instances) {
          await stop(instance.service);
          instance.service = await startOn(deployment, instance.port);
          await waitForProxies(instance.service);
        }
        load.report();
      }
      const sent = await load.stop();
      expect(sent.failures).toEqual([]);
      expect(await stored(sqld.url)).toEqual(sent.counts);
    },
    testTimeoutMs,
  );

  test(
    'F13 a file loses and repeats no request when another instance takes over',
    async () => {
      const deployment = await createProduction(settings);
      const both = await ports();
      let service = await startOn(deployment, both[0]);
      const load = await startLoad(both);
      for (let roll = 0; roll < rolls; roll += 1) {
        const next = await startOn(deployment, both[(roll + 1) % 2 === 0 ? 0 : 1]);
        await waitForProxies(next);
        await stop(service);
        service = next;
        load.report();
      }
      const sent = await load.stop();
      expect(sent.failures).toEqual([]);
      expect(await stored(deployment.databaseUrl)).toEqual(sent.counts);
    },
    testTimeoutMs,
  );
});

/** An instance that dies after each save: it forwards a request to a service, and closes instead of responding. */
function startDyingInstance(target: string) {
  const { hostname, port } = new URL(target);
  let deaths = 0;
  const server = Bun.listen<{ upstream?: Promise<Bun.Socket> }>({
    hostname: '127.0.0.1',
    port: 0,
    socket: {
      open(client) {
        client.data = {};
      },
      async data(client, chunk) {
        client.data.upstream ??= Bun.connect({
          hostname,
          port: Number(port),
          socket: {
            data(upstream) {
              deaths += 1;
              upstream.end();
              client.end();
            },
          },
        });
        (await client.data.upstream).write(chunk);
      },
    },
  });
  atEnd(() => server.stop(true));
  return { port: server.port, deaths: () => deaths };
}

describe.skipIf(missingProxies.includes('nginx'))('F13 a POST that nginx retries', () => {
  test('F13 has one effect, with If-Match, with Idempotency-Key, and without either', async () => {
    const deployment = await createProduction(settings);
    const service = await deployment.start();
    const dying = startDyingInstance(service.address);
    const { https, ca } = await startDocumentedProxy('nginx', [dying.port, Number(new URL(service.address).port)]);
    excludeFromChecks(https);
    const post = async (as: string, path: string, body: object, headers: Record<string, string>) =>
      fetch(`${https}${path}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${await productionToken(as)}`,
          'content-type': 'application/json',
          ...headers,
        },
        body: JSON.stringify(body),
        tls: { ca },
      });
    const statuses = new Set<string>();
    for (let count = 1; count <= 4; count += 1) {
      const first = await service.call('POST', ltc, { as: `guarded-${count}`, body: { careCosts: 1 } });
      const sent = {
        guarded: await post(`guarded-${count}`, ltc, { careCosts: 2 }, { 'if-match': first.headers.get('etag') ?? '' }),
        plain: await post(`plain-${count}`, ltc, { careCosts: 1 }, {}),
        keyed: await post(`keyed-${count}`, application, applicant, { 'idempotency-key': crypto.randomUUID() }),
      };
      for (const [name, { status }] of Object.entries(sent)) statuses.add(`${name} ${status}`);
      expect(await stored(deployment.databaseUrl)).toEqual({ saves: 3 * count, applications: count });
    }
    expect(dying.deaths()).toBeGreaterThan(3);
    expect([...statuses].sort()).toEqual(['guarded 200', 'guarded 412', 'keyed 200', 'plain 200']);
  });
});

describe('F13 the documented configuration', () => {
  test.each([
    { file: 'nginx.conf', pattern: /keepalive_timeout (\d+)s/ },
    { file: 'Caddyfile', pattern: /\tkeepalive (\d+)s/ },
  ])('F13 $file closes idle connections before the service does, and during the drain', async ({ file, pattern }) => {
    const seconds = Number(pattern.exec(await documented(file))?.[1]);
    const config = readConfig(productionSettings);
    const { idleTimeout } = serveOptions({ config, log: createLog('silent'), newRequestId: () => '' });
    expect(seconds).toBeGreaterThan(0);
    expect(seconds).toBeLessThan(Math.min(idleTimeout, config.drainMs / 1000));
    expect(await documented('../deploy.md')).toContain(`the service: ${idleTimeout} s by default`);
  });

  for (const name of proxyNames) {
    test.skipIf(missingProxies.includes(name))(
      `F13 redirects to https and forwards the client address: ${name}`,
      async () => {
        const upstream = Bun.serve({
          port: 0,
          hostname: '127.0.0.1',
          fetch: (request, server) => new Response(clientNetwork(request, server, 1)),
        });
        atEnd(() => upstream.stop(true));
        const port = upstream.port ?? 0;
        const { http, https, ca } = await startDocumentedProxy(name, [port, port]);
        excludeFromChecks(http);
        excludeFromChecks(https);
        const redirect = await fetch(`${http}/health/ready`, { redirect: 'manual' });
        expect([redirect.status, redirect.headers.get('location')]).toEqual([308, expect.stringMatching(/^https:/)]);
        const headers = { 'x-forwarded-for': '203.0.113.9' };
        const response = await fetch(`${https}/health/ready`, { headers, tls: { ca } });
        expect([response.status, await response.text()]).toEqual([200, '127.0.0.1']);
      },
    );
  }
});

/** The values of a key of a systemd unit, for the instance on a port. */
async function unitValues(file: string, key: string, port = 0): Promise<string[]> {
  const lines = (await documented(file)).replaceAll('%i', String(port)).split('\n');
  return lines.flatMap((line) => (line.startsWith(`${key}=`) ? [line.slice(key.length + 1)] : []));
}

const bundleFolder = async () => join(dirname(await programOf('src/main')), '..');

/** The arguments of a documented Bun command, with the bundle of the tests. */
async function argumentsFor(command: string): Promise<string[]> {
  const [bun, ...args] = command.split(' ');
  expect(bun).toBe('/usr/local/bin/bun');
  const bundle = await bundleFolder();
  return args.map((argument) => argument.replace('/opt/planning/current', bundle));
}

const units = ['planning@.service', 'planning-backup.service', 'planning-backup.timer'];

describe('F13 the systemd units', () => {
  test.skipIf(Bun.which('systemd-analyze') === null)(
    'F13 pass systemd-analyze verify, and restrict the processes',
    async () => {
      const folder = temporaryFolder();
      const paths = units.map((unit) => join(folder, unit.replace('@', '@3001')));
      for (const [index, unit] of units.entries()) {
        await Bun.write(paths[index] ?? '', (await documented(unit)).replaceAll(/^(ExecStart=)\S+/gm, '$1/bin/true'));
      }
      const analyze = (...args: string[]) =>
        runToEnd(Bun.spawn(['systemd-analyze', ...args], { cwd: folder, stdout: 'pipe', stderr: 'pipe' }));
      const verified = await analyze('verify', '--man=no', ...paths);
      expect(verified.stderr.split('\n').filter((line) => line.includes('planning'))).toEqual([]);
      for (const path of paths.filter((each) => each.endsWith('.service'))) {
        // The exposure is at most 2.0; a unit without restrictions has 9.6.
        const secured = await analyze('security', '--no-pager', '--offline=true', '--threshold=20', path);
        expect([path, secured.exitCode]).toEqual([path, 0]);
      }
    },
  );

  test('F13 start the service in production on the port of the instance, and wait until it listens', async () => {
    const port = await freePort();
    const [command = '', ...others] = await unitValues('planning@.service', 'ExecStart', port);
    expect(others).toEqual([]);
    const [assignments = ''] = await unitValues('planning@.service', 'Environment', port);
    const own = Object.fromEntries(assignments.split(' ').map((each) => each.split('=')));
    expect(own).toEqual({ NODE_ENV: 'production', HOST: '127.0.0.1', PORT: String(port) });
    const [waiting = ''] = await unitValues('planning@.service', 'ExecStartPost', port);
    const deployment = await createProduction();
    const started = runToEnd(Bun.spawn(waiting.split(' '), { stdout: 'pipe', stderr: 'pipe' }));
    const service = await deployment.start({ program: await argumentsFor(command), environment: own });
    expect(await started).toMatchObject({ exitCode: 0 });
    expect(service.address).toBe(`http://127.0.0.1:${port}`);
    expect(await service.health()).toBe(200);
  });

  test('F13 grant more time to stop than the drain and the shutdown timeout take', async () => {
    const [seconds = ''] = await unitValues('planning@.service', 'TimeoutStopSec');
    const { drainMs, shutdownTimeoutMs } = readConfig(productionSettings);
    expect(Number.parseInt(seconds, 10) * 1000).toBeGreaterThan(drainMs + shutdownTimeoutMs + 2000);
  });

  test('F13 read a settings file that has every setting that production requires', async () => {
    const lines = (await documented('planning.env')).split('\n').filter((line) => /^[A-Z]/.test(line));
    const example: Record<string, string> = Object.fromEntries(lines.map((line) => line.split(/=(.*)/s, 2)));
    const placeholders = Object.keys(example).filter((key) => example[key] === 'changeme');
    expect(placeholders.sort()).toEqual(['AUTH_SECRET', 'CARRIER_API_KEY', 'CHAT_ID', 'CHAT_TOKEN']);
    for (const key of placeholders) expect(() => readConfig({ NODE_ENV: 'production', ...example })).toThrow(key);
    const { AUTH_SECRET, CARRIER_API_KEY, CHAT_ID, CHAT_TOKEN } = productionSettings;
    const filled = { ...example, AUTH_SECRET, CARRIER_API_KEY, CHAT_ID, CHAT_TOKEN };
    expect(readConfig({ NODE_ENV: 'production', ...filled }).isProduction).toBeTrue();
  });
});

describe('F13 the documented scripts', () => {
  const run = (script: string, args: readonly string[], cwd: string, environment: Record<string, string>) =>
    runToEnd(
      Bun.spawn(['sh', join(deployFolder, script), ...args], {
        cwd,
        env: { PATH: process.env.PATH, ...environment },
        stdout: 'pipe',
        stderr: 'pipe',
      }),
    );

  test('F13 planning-backup keeps the newest backups, and removes none when the new one fails', async () => {
    const { cwd, settings } = await createProduction();
    const folder = temporaryFolder();
    const environment = { ...settings, BUN: process.execPath, PLANNING_HOME: await bundleFolder() };
    const old = ['planning-20250101T000000Z.db', 'planning-20250102T000000Z.db', 'planning-20250103T000000Z.db'];
    for (const name of old) {
      await Promise.all([name, `${name}.sha256`].map((each) => Bun.write(join(folder, each), 'old')));
    }
    const databases = () =>
      readdirSync(folder)
        .filter((name) => name.endsWith('.db'))
        .sort();

    const away = { ...environment, DATABASE_URL: 'file:none.db' };
    expect(await run('planning-backup', [folder, '2'], cwd, away)).toMatchObject({ exitCode: 1 });
    expect(databases()).toEqual(old);

    expect(await run('planning-backup', [folder, '2'], cwd, environment)).toMatchObject({ exitCode: 0 });
    const [kept, made = '', ...others] = databases();
    expect([kept, others, readdirSync(folder).length]).toEqual([old[2], [], 4]);
    const checking = Bun.spawn(['sha256sum', '--check', '--quiet', `${made}.sha256`], {
      cwd: folder,
      stdout: 'pipe',
      stderr: 'pipe',
    });
    expect(await runToEnd(checking)).toMatchObject({ exitCode: 0 });
  });

  test('F13 planning runs the command line with the settings of the unit, and passes arguments unchanged', async () => {
    const folder = temporaryFolder();
    // systemd does not run here: a substitute prints its arguments.
    await Bun.write(join(folder, 'systemd-run'), '#!/bin/sh\nprintf "%s\\n" "$@"\n');
    chmodSync(join(folder, 'systemd-run'), 0o755);
    const environment = { PATH: `${folder}:${process.env.PATH}` };
    const { stdout } = await run('planning', ['user', 'export', 'a b'], folder, environment);
    const words = stdout.trimEnd().split('\n');
    const [file] = await unitValues('planning@.service', 'EnvironmentFile');
    expect(words).toContain(`--property=EnvironmentFile=${file}`);
    expect(words.slice(-3)).toEqual(['user', 'export', 'a b']);
    const command = await argumentsFor(words.slice(words.indexOf('--') + 1, -3).join(' '));
    expect(existsSync(command.at(-1) ?? '')).toBeTrue();
  });
});
