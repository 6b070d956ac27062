import { describe, expect, test } from 'bun:test';
import { openDatabase } from '../../src/db/client';
import { applicant } from '../support/applicant';
import { freePort } from '../support/free-port';
import { amount, isLong } from '../support/long';
import { createProduction, type Production, productionToken } from '../support/production';
import { missingProxies, type ProxyName, proxyNames, startDocumentedProxy } from '../support/proxies';
import { hasSqld, startSqld } from '../support/sqld';
import { isNoService } from '../support/traffic';
import { until } from '../support/until';

const ltc = '/v2/private/ltc/lifetimeCare';
const user = '/v2/private/user';
const application = '/v2/private/ltc/totalCoverage';

const proxies = proxyNames.filter((name) => !missingProxies.includes(name));

type Deployment = Awaited<ReturnType<typeof createProduction>>;

/** The long form runs the configurations as they are; the short form checks health more often and drains for less time. */
const rolls = amount({ long: 20, short: 2 });
const drainMs = Number(process.env.ROLL_DRAIN_MS ?? (isLong ? 8000 : 1200));
const shorter: Readonly<Record<ProxyName, Record<string, string>>> = isLong
  ? { nginx: {}, haproxy: {}, caddy: {} }
  : {
      nginx: { 'keepalive_timeout 5s': 'keepalive_timeout 500ms' },
      haproxy: { 'inter 2s': 'inter 200ms' },
      caddy: { 'health_interval 2s': 'health_interval 200ms', 'keepalive 5s': 'keepalive 500ms' },
    };

/** Sends saves, applications and reads through each proxy, on kept connections, until it is stopped. */
async function startLoad(instances: readonly [number, number]) {
  const failures: string[] = [];
  const counts = { saves: 0, applications: 0 };
  let isStopped = false;
  const published = await Promise.all(
    proxies.map(async (name) => ({ name, ...(await startDocumentedProxy(name, instances, shorter[name])) })),
  );
  const callers = published.flatMap(({ name, https, ca }) => {
    // A proxy adds headers of its own.
    isNoService(https);
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

/** Waits until a proxy that checks health knows an instance, as an operator does before the other instance is stopped. */
async function becomeKnown(instance: Production): Promise<void> {
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
const patience = amount({ long: 3_600_000, short: 60_000 });

describe.skipIf(proxies.length === 0)('F13 behind the documented proxies', () => {
  test.skipIf(!hasSqld)(
    'F13 two instances on a libSQL server lose no request and repeat none when they are replaced in turn',
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
          await becomeKnown(instance.service);
        }
        load.report();
      }
      const sent = await load.stop();
      expect(sent.failures).toEqual([]);
      expect(await stored(sqld.url)).toEqual(sent.counts);
    },
    patience,
  );

  test(
    'F13 a file loses no request and repeats none when another instance takes it over',
    async () => {
      const deployment = await createProduction(settings);
      const both = await ports();
      let service = await startOn(deployment, both[0]);
      const load = await startLoad(both);
      for (let roll = 0; roll < rolls; roll += 1) {
        const next = await startOn(deployment, both[(roll + 1) % 2 === 0 ? 0 : 1]);
        await becomeKnown(next);
        await stop(service);
        service = next;
        load.report();
      }
      const sent = await load.stop();
      expect(sent.failures).toEqual([]);
      expect(await stored(deployment.databaseUrl)).toEqual(sent.counts);
    },
    patience,
  );
});
