import { beforeAll, describe, expect, test } from 'bun:test';
import { chmodSync, existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { clientNetwork } from '../../src/http/rate-limits';
import { applicant, startSandbox } from '../support/app';
import { programOf } from '../support/artifacts';
import { excludeFromChecks } from '../support/conformance';
import {
  createDeployment,
  createProduction,
  type Production,
  productionSettings,
  productionToken,
  startService,
} from '../support/processes';
import { amount, atEnd, freePort, isLong, never, runToEnd, temporaryFolder, until } from '../support/resources';
import {
  hasSqld,
  missingProxies,
  type ProxyName,
  proxyNames,
  startDocumentedProxy,
  startSqld,
} from '../support/servers';

const root = join(import.meta.dirname, '../..');
const read = (name: string) => Bun.file(join(root, name)).text();
const bundle = join(await programOf('src/main'), '../..');

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
const application = '/v2/private/ltc/totalCoverage';
const proxies = proxyNames.filter((name) => !missingProxies.includes(name));
const settings = { RATE_LIMIT_PER_MINUTE: '0', CARRIER_APPLICATIONS_PER_DAY: '0' };

/** The events of saves and the applications that a database holds. */
async function stored(url: string) {
  const db = await openDatabase({ url, timeoutMs: 5000 });
  const count = async (sql: string) => Number((await db.$client.execute(sql)).rows[0]?.count);
  const saves = await count(`SELECT count(*) AS count FROM audit_events WHERE section = 'ltc.lifetimeCare'`);
  const applications = await count('SELECT count(*) AS count FROM applications');
  db.$client.close();
  return { saves, applications };
}

/** A client of a proxy, with a token for each subject. */
function clientOf({ https, ca }: { readonly https: string; readonly ca: string }) {
  // A proxy adds response headers.
  excludeFromChecks(https);
  const tokens = new Map<string, Promise<string>>();
  return async (as: string, path: string, body?: object, headers: Record<string, string> = {}) => {
    const token = await tokens.getOrInsertComputed(as, () => productionToken(as));
    return fetch(`${https}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      tls: { ca },
    });
  };
}

/** The values of a key of a systemd unit, for the instance on a port. */
async function unitValues(file: string, key: string, port = 0): Promise<string[]> {
  const lines = (await read(`docs/deploy/${file}`)).replaceAll('%i', String(port)).split('\n');
  return lines.flatMap((line) => (line.startsWith(`${key}=`) ? [line.slice(key.length + 1)] : []));
}

/** The arguments of a documented Bun command, with the bundle of the tests. */
function argumentsFor(command: string): string[] {
  const [bun, ...args] = command.split(' ');
  expect(bun).toBe('/usr/local/bin/bun');
  return args.map((argument) => argument.replace('/opt/planning/current', bundle));
}

const run = (cwd: string, command: readonly string[], environment: Record<string, string> = {}) => {
  const env = { PATH: process.env.PATH, ...environment };
  return runToEnd(Bun.spawn([...command], { cwd, env, stdout: 'pipe', stderr: 'pipe' }));
};

describe.skipIf(proxies.length === 0)('instances behind the documented proxies', () => {
  /** The long run uses the documented configurations; the short run checks health more often and drains for less time. */
  const replacements = amount({ long: 20, short: 2 });
  const drainMs = amount({ long: 8000, short: 1000 });
  const pauseMs = amount({ long: 20, short: 200 });
  const shorter: Readonly<Record<ProxyName, Record<string, string>>> = isLong
    ? { nginx: {}, haproxy: {}, caddy: {} }
    : {
        nginx: { 'keepalive_timeout 5s': 'keepalive_timeout 400ms' },
        haproxy: { 'inter 2s': 'inter 200ms' },
        caddy: { 'health_interval 2s': 'health_interval 200ms', 'keepalive 5s': 'keepalive 400ms' },
      };
  let ports: readonly [number, number];
  let published: (Awaited<ReturnType<typeof startDocumentedProxy>> & { readonly name: ProxyName })[];
  beforeAll(async () => {
    ports = [await freePort(), await freePort()];
    published = await Promise.all(
      proxies.map(async (name) => ({ name, ...(await startDocumentedProxy(name, ports, shorter[name])) })),
    );
  });

  /** Sends saves, applications and reads through each proxy, on persistent connections, until it is ended. */
  async function startLoad() {
    const failures: string[] = [];
    const counts = { saves: 0, applications: 0 };
    let isStopped = false;
    const callers = published.flatMap(({ name, ...address }) => {
      const client = clientOf(address);
      const send = async (...[as, path, ...request]: Parameters<typeof client>) => {
        try {
          const response = await client(as, path, ...request);
          const text = await response.text();
          if (response.status !== 200) failures.push(`${name} ${path} ${response.status} ${text.slice(0, 100)}`);
          return response.headers.get('etag') ?? '*';
        } catch (error) {
          failures.push(`${name} ${path} ${error}`);
          return '*';
        }
      };
      const repeat = async (work: (count: number) => Promise<unknown>) => {
        for (let count = 1; !isStopped; count += 1) {
          await work(count);
          await Bun.sleep(pauseMs);
        }
      };
      const saver = (as: string, isGuarded: boolean) => {
        let tag = '*';
        return repeat(async (careCosts) => {
          tag = await send(as, ltc, { careCosts }, isGuarded && careCosts > 1 ? { 'if-match': tag } : {});
          counts.saves += 1;
          await send(as, user);
        });
      };
      const applicants = repeat(async (count) => {
        counts.applications += 1;
        await send(`${name}-${count}`, application, applicant, { 'idempotency-key': crypto.randomUUID() });
      });
      return [saver(`${name}-plain`, false), saver(`${name}-guarded`, true), applicants];
    });
    await until(() => counts.saves > 5 * proxies.length);
    return async () => {
      isStopped = true;
      await Promise.all(callers);
      return { failures, counts };
    };
  }

  /** Waits until the proxies with health checks know an instance, as an operator does before the other one is stopped. */
  async function waitForProxies(instance: Production): Promise<void> {
    const passed = () => instance.output().match(/"route":"\/health\/ready","status":200/g)?.length ?? 0;
    const checking = proxies.filter((name) => name !== 'nginx').length;
    await until(() => passed() >= 3 * checking);
  }

  test.each(['take over a file from each other', ...(hasSqld ? ['on a libSQL server restart in turn'] : [])])(
    'lose and repeat no request when units %s under load',
    async (how) => {
      const isFile = how.includes('file');
      const database = isFile ? {} : { DATABASE_URL: (await startSqld()).url };
      const deployment = await createProduction({ ...settings, ...database }, { isEmpty: true });
      expect(await deployment.planning('migrate')).toMatchObject({ exitCode: 0 });
      /** Starts an instance as its unit does. */
      const startOn = async (port: number) => {
        const [command = '', ...others] = await unitValues('planning@.service', 'ExecStart', port);
        const [assignments = ''] = await unitValues('planning@.service', 'Environment', port);
        const [waiting = ''] = await unitValues('planning@.service', 'ExecStartPost', port);
        const environment = Object.fromEntries(assignments.split(' ').map((each) => each.split('=')));
        expect([others, environment]).toEqual([[], { NODE_ENV: 'production', HOST: '127.0.0.1', PORT: String(port) }]);
        const listens = run(temporaryFolder(), waiting.split(' '));
        const service = await deployment.start({
          program: argumentsFor(command),
          environment: { ...environment, DRAIN_MS: String(drainMs) },
        });
        expect([(await listens).exitCode, service.address]).toEqual([0, `http://127.0.0.1:${port}`]);
        await waitForProxies(service);
        return service;
      };
      const stop = async ({ process: child }: Production) => {
        child.kill('SIGTERM');
        expect(await child.exited).toBe(0);
      };
      const instances = await Promise.all((isFile ? [ports[0]] : ports).map(startOn));
      const endLoad = await startLoad();
      for (let count = 1; count <= replacements; count += 1) {
        const old = instances.shift() ?? never();
        const port = Number(new URL(old.address).port);
        if (!isFile) await stop(old);
        instances.push(await startOn(isFile ? (ports.find((each) => each !== port) ?? never()) : port));
        if (isFile) await stop(old);
      }
      const sent = await endLoad();
      for (const { process: child } of instances) {
        child.kill('SIGKILL');
        await child.exited;
      }
      expect(sent.failures).toEqual([]);
      expect(await stored(database.DATABASE_URL ?? deployment.databaseUrl)).toEqual(sent.counts);
    },
    amount({ long: 3_600_000, short: 60_000 }),
  );

  test('get the address of the client from each proxy, which redirects to https', async () => {
    const upstream = Bun.serve({
      port: ports[0],
      hostname: '127.0.0.1',
      fetch: (request, server) => new Response(clientNetwork(request, server, 1)),
    });
    for (const { name, http, ...address } of published) {
      excludeFromChecks(http);
      const { status, headers } = await fetch(`${http}/health/ready`, { redirect: 'manual' });
      expect({ name, status, location: headers.get('location') }).toEqual({
        ...{ name, status: 308, location: expect.stringMatching(/^https:/) },
      });
      const forged = { 'x-forwarded-for': '203.0.113.9' };
      const ask = () => clientOf(address)('ada', '/health/ready', undefined, forged);
      // A proxy with health checks returns an error until it knows the instance.
      await until(async () => (await ask()).ok);
      expect([name, await (await ask()).text()]).toEqual([name, '127.0.0.1']);
    }
    await upstream.stop(true);
  });
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
        const data = (upstream: Bun.Socket) => {
          deaths += 1;
          upstream.end();
          client.end();
        };
        client.data.upstream ??= Bun.connect({ hostname, port: Number(port), socket: { data } });
        (await client.data.upstream).write(chunk);
      },
    },
  });
  atEnd(() => server.stop(true));
  return { port: server.port, deaths: () => deaths };
}

test.skipIf(missingProxies.includes('nginx'))(
  'a POST that nginx retries has one effect, with If-Match, with Idempotency-Key, and without either',
  async () => {
    const sandbox = await startSandbox(() => new Date());
    const deployment = await createDeployment({ ...settings, CARRIER_URL: sandbox.url });
    const service = await deployment.start();
    const dying = startDyingInstance(service.address);
    const ports = [dying.port, Number(new URL(service.address).port)] as const;
    const post = clientOf(await startDocumentedProxy('nginx', ports));
    const statuses = new Set<string>();
    for (let count = 1; count <= 4; count += 1) {
      const first = await service.call('POST', ltc, { as: `guarded-${count}`, body: { careCosts: 1 } });
      const match = { 'if-match': first.headers.get('etag') ?? '' };
      const key = { 'idempotency-key': crypto.randomUUID() };
      const sent = {
        guarded: await post(`guarded-${count}`, ltc, { careCosts: 2 }, match),
        plain: await post(`plain-${count}`, ltc, { careCosts: 1 }),
        keyed: await post(`keyed-${count}`, application, applicant, key),
      };
      for (const [name, { status }] of Object.entries(sent)) statuses.add(`${name} ${status}`);
      expect(await stored(deployment.databaseUrl)).toEqual({ saves: 3 * count, applications: count });
    }
    expect(dying.deaths()).toBeGreaterThan(3);
    expect([...statuses].sort()).toEqual(['guarded 200', 'guarded 412', 'keyed 200', 'plain 200']);
  },
);

test('the image starts the bundle, and its health check is the liveness, without a database and during the drain', async () => {
  const dockerfile = await read('Dockerfile');
  const Command = v.tupleWithRest([v.literal('bun')], v.string());
  const argumentsOf = (name: string) => {
    const [, command = ''] = new RegExp(`^${name}.* (\\[.*\\])$`, 'm').exec(dockerfile) ?? [];
    return v.parse(Command, JSON.parse(command)).slice(1);
  };
  const PORT = String(await freePort());
  const isHealthy = async () => {
    const env = { PORT, HTTP_PROXY: 'http://127.0.0.1:9', NO_PROXY: 'internal.example' };
    return (await Bun.spawn([process.execPath, ...argumentsOf('HEALTHCHECK')], { env, stderr: 'ignore' }).exited) === 0;
  };
  expect(await isHealthy()).toBeFalse();
  // Nothing listens at this address, so the database is unavailable.
  const unavailable = { DATABASE_URL: 'http://sesame-user:sesame-password@127.0.0.1:1', DRAIN_MS: '1500' };
  const image = (/^ENV +(.+)$/m.exec(dockerfile)?.[1] ?? '').split(' ').map((each) => each.split('=', 2));
  const { NODE_ENV: _, ...dotEnv } = productionSettings;
  const environment = { ...Object.fromEntries(image), ...dotEnv, ...unavailable, PORT };
  const start = { program: argumentsOf('CMD'), cwd: bundle, environment, hasErrorsInOutput: true };
  const service = await startService(start);
  const readiness = () => fetch(`http://127.0.0.1:${PORT}/health/ready`);
  expect([await isHealthy(), (await readiness()).status]).toEqual([true, 503]);
  const headers = { authorization: `Bearer ${await productionToken('ada')}` };
  const refused = await fetch(`http://127.0.0.1:${PORT}${user}`, { headers });
  const shown = [JSON.stringify([...refused.headers]), await refused.text()];
  expect(refused.status).toBe(503);
  service.process.kill('SIGTERM');
  await until(async () => (await readiness()).headers.get('connection') === 'close');
  expect(await isHealthy()).toBeTrue();
  expect(await service.process.exited).toBe(0);
  expect(service.output()).toContain('"status":503');
  const { AUTH_SECRET, CARRIER_API_KEY, CHAT_TOKEN } = productionSettings;
  const seen = [...shown, service.output()].join('\n');
  expect(['sesame', AUTH_SECRET, CARRIER_API_KEY, CHAT_TOKEN].filter((text) => seen.includes(text))).toEqual([]);
});

test.skipIf(Bun.which('systemd-analyze') === null)(
  'the systemd units pass systemd-analyze, and restrict the processes',
  async () => {
    const folder = temporaryFolder();
    const paths = ['planning@3001.service', 'planning-backup.service', 'planning-backup.timer'];
    for (const path of paths) {
      const unit = await read(`docs/deploy/${path.replace('3001', '')}`);
      await Bun.write(join(folder, path), unit.replaceAll(/^(ExecStart=)\S+/gm, '$1/bin/true'));
    }
    const verified = await run(folder, ['systemd-analyze', 'verify', '--man=no', ...paths.map((path) => `./${path}`)]);
    expect(verified.stderr.split('\n').filter((line) => line.includes('planning'))).toEqual([]);
    // The exposure is at most 2.0; a unit without restrictions has 9.6.
    const security = ['systemd-analyze', 'security', '--no-pager', '--offline=true', '--threshold=20'];
    for (const path of paths.slice(0, 2)) {
      expect([path, (await run(folder, [...security, `./${path}`])).exitCode]).toEqual([path, 0]);
    }
  },
);

describe('documented scripts', () => {
  const script = (name: string, ...args: string[]) => ['sh', join(root, 'docs/deploy', name), ...args];

  test('planning-backup keeps the newest backups, and removes none when the new one fails', async () => {
    const { cwd, settings } = await createDeployment();
    const folder = temporaryFolder();
    const environment = { ...settings, BUN: process.execPath, PLANNING_HOME: bundle };
    const old = ['planning-20250101T000000Z.db', 'planning-20250102T000000Z.db', 'planning-20250103T000000Z.db'];
    for (const name of old.flatMap((each) => [each, `${each}.sha256`])) await Bun.write(join(folder, name), 'old');
    const backUp = (changed = {}) =>
      run(cwd, script('planning-backup', folder, '2'), { ...environment, ...changed }).then(({ exitCode }) => exitCode);
    const databases = () => readdirSync(folder).filter((name) => name.endsWith('.db'));

    expect(await backUp({ DATABASE_URL: 'file:none.db' })).toBe(1);
    expect(databases().sort()).toEqual(old);
    expect(await backUp()).toBe(0);
    const [kept, made = '', ...others] = databases().sort();
    expect([kept, others, readdirSync(folder).length]).toEqual([old[2], [], 4]);
    expect((await run(folder, ['sha256sum', '--check', '--quiet', `${made}.sha256`])).exitCode).toBe(0);
  });

  test('planning runs the command line with the settings of the unit, and passes arguments unchanged', async () => {
    const folder = temporaryFolder();
    // systemd does not run here: a substitute prints its arguments.
    await Bun.write(join(folder, 'systemd-run'), '#!/bin/sh\nprintf "%s\\n" "$@"\n');
    chmodSync(join(folder, 'systemd-run'), 0o755);
    const environment = { PATH: `${folder}:${process.env.PATH}` };
    const { stdout } = await run(folder, script('planning', 'user', 'export', 'a b'), environment);
    const words = stdout.trimEnd().split('\n');
    const [file] = await unitValues('planning@.service', 'EnvironmentFile');
    expect(words).toContain(`--property=EnvironmentFile=${file}`);
    expect(words.slice(-3)).toEqual(['user', 'export', 'a b']);
    const command = argumentsFor(words.slice(words.indexOf('--') + 1, -3).join(' '));
    expect(existsSync(command.at(-1) ?? '')).toBeTrue();
  });
});
