import { describe, expect, test } from 'bun:test';
import { mkdirSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { createRepeatableIds } from '../../src/demo/demo';
import { ApplicationsBody } from '../../src/modules/coverage/service';
import { MonthlyGlanceBody } from '../../src/modules/sales/model';
import { UserBody } from '../../src/modules/users/model';
import { lazy } from '../../src/shared/async';
import { applicant } from '../support/app';
import { createCommandLine } from '../support/command';
import { privateRoutes } from '../support/contract';
import { failToStart, type Service, startService } from '../support/processes';
import { freePort, temporaryFolder } from '../support/resources';

/** Another loopback address on which the same port is free, if this machine has one. */
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
const otherLoopback = hasIpv6 ? '::1' : '127.0.0.1';

const now = ['--demo', '--now', '2026-01-15'];
const cwd = temporaryFolder();
const environment = { PORT: String(await freePort()) };
const own = ['planning.db', 'carrier-sandbox.db', 'demo-tokens.json'].map((name) => join(cwd, 'data', name));
mkdirSync(join(cwd, 'data'), { mode: 0o700 });
for (const path of own) await Bun.write(path, 'mine');

const tokensOf = (folder: string, { address }: Service) =>
  Bun.file(join(folder, `data/demo-${new URL(address).port}-tokens.json`)).json();

/** Collects the ETags of records into `recordTags`, because each start generates new ones. */
function callerOf({ address }: Service, token: string, recordTags: string[] = []) {
  return async (method: string, path: string, body?: object) => {
    const response = await fetch(`${address}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const [tag] = /^"\d+-\d+-[0-9a-f]{16}"$/.exec(response.headers.get('etag') ?? '') ?? [];
    if (tag !== undefined) recordTags.push(tag);
    const headers = [...response.headers].filter(
      ([name]) => name !== 'date' && !(tag !== undefined && name === 'etag'),
    );
    return { status: response.status, headers: Object.fromEntries(headers), text: await response.text() };
  };
}

/** All readable responses before and after a series of writes. */
async function recordResponses(service: Service) {
  const tokens = await tokensOf(cwd, service);
  const tags: string[] = [];
  const [user, manager] = [tokens['demo-user'], tokens['demo-manager']].map((token) => callerOf(service, token, tags));
  if (user === undefined || manager === undefined) throw new Error('There are two demo tokens');
  const paths = privateRoutes.filter(({ method }) => method === 'GET').map(({ path }) => path);
  const responses: unknown[] = [tokens];
  const read = async () => {
    for (const path of [...paths.map((path) => `${path}?month=2026-01`), '/swagger/json', '/nowhere']) {
      responses.push(path, await user('GET', path), await manager('GET', path));
    }
  };
  await read();
  for (const lastName of ['Byron', 'Declined', 'King']) {
    responses.push(await manager('POST', '/v2/private/life/totalCoverage', { ...applicant, lastName }));
  }
  responses.push(await user('POST', '/v2/private/ltc/lifetimeCare', { careCosts: 9000, nothing: 1 }));
  responses.push(await user('POST', '/v2/private/ltc/lifetimeCare', { careCosts: 9000 }));
  responses.push(await user('POST', '/v2/private/engine/matches?explain=true', {}));
  await read();
  return { responses, tags };
}

async function stop({ process }: Service): Promise<void> {
  process.kill('SIGTERM');
  expect(await process.exited).toBe(0);
}

const recordTwice = lazy(async () => {
  const first = await startService({ args: now, cwd, environment });
  expect(first.output()).toContain('The clock is frozen at 2026-01-15T00:00:00.000Z.');
  const before = await recordResponses(first);
  await stop(first);
  const second = await startService({ args: now, cwd, environment });
  const after = await recordResponses(second);
  await stop(second);
  return { before, after };
});

describe('demo with a frozen clock', () => {
  test('returns identical responses to the same requests after each start', async () => {
    const { before, after } = await recordTwice();
    expect(before.responses.length).toBeGreaterThan(40);
    expect(after.responses).toEqual(before.responses);
  });

  test('returns different ETags of records after each start', async () => {
    const { before, after } = await recordTwice();
    expect(before.tags.length).toBeGreaterThan(4);
    expect(after.tags.filter((tag) => before.tags.includes(tag))).toEqual([]);
  });

  test('does not change the files of the regular service', async () => {
    await recordTwice();
    for (const path of own) expect(await Bun.file(path).text()).toBe('mine');
    const names = await readdir(join(cwd, 'data'));
    expect(names.filter((name) => !name.startsWith(`demo-${environment.PORT}`)).sort()).toEqual([
      'carrier-sandbox.db',
      'demo-tokens.json',
      'development-auth-secret',
      'planning.db',
    ]);
  });

  test('accepts tokens of `planning token --now` and rejects tokens of today as expired', async () => {
    const { cwd: folder, planning } = await createCommandLine({}, { isEmpty: true, isProcess: true });
    const service = await startService({ args: ['--demo', '--now', '2044-05-06T07:08:09Z'], cwd: folder });
    const sign = async (...args: string[]) => {
      const { stdout } = await planning('token', '--sub', 'fresh', ...args);
      return callerOf(service, stdout.trim());
    };
    const saved = await (await sign('--now', '2044-05-06T07:08:09Z'))('POST', '/v2/private/ltc/lifetimeCare', {
      careCosts: 1,
    });
    expect(JSON.parse(saved.text).user).toMatchObject({ id: 'fresh', updatedAt: '2044-05-06T07:08:09.000Z' });
    expect((await (await sign())('GET', '/v2/private/user')).status).toBe(401);
  });
});

describe('demo', () => {
  test('has a complete user, a team with sales, and an exclusive lock on its port', async () => {
    const folder = temporaryFolder();
    const port = String(await freePort());
    const service = await startService({
      args: ['--demo'],
      cwd: folder,
      environment: { PORT: port, RATE_LIMIT_PER_MINUTE: '20' },
    });
    const tokens = await tokensOf(folder, service);
    const user = callerOf(service, tokens['demo-user']);
    const read = async () => v.parse(UserBody, JSON.parse((await user('GET', '/v2/private/user')).text)).user;
    const record = await read();
    expect(record.insurance.matches?.bestMatch).toBeObject();
    expect(record.insurance.matches?.bestMatch?.productIcon).toStartWith(`${service.address}/icons/`);
    for (const section of [record.lifeInsurance, record.lifetimeCare, record.ltc.lifetimeCare]) {
      expect(section).toBeObject();
    }
    expect(record.purchase.partner?.appNumber).toBe(100_001);
    const { text } = await user('GET', '/v2/private/user/applications');
    expect(v.parse(ApplicationsBody, JSON.parse(text)).data.applications).toMatchObject([
      { id: '019b76da-a800-7001-8000-000000000001', state: 'submitted', appNumber: 100_001 },
    ]);
    const lastMonth = new Date(Date.now() - 31 * 86_400_000).toISOString().slice(0, 7);
    const glance = '/v2/private/user/salesManager/monthly-glance';
    const report = await callerOf(service, tokens['demo-manager'])('GET', `${glance}?month=${lastMonth}`);
    const { data } = v.parse(MonthlyGlanceBody, JSON.parse(report.text));
    expect(data.counselorsReport).toHaveLength(4);
    expect(data.teamGlance.totalMonthlyEarnings).toBeGreaterThan(0);

    // A second start on the port must not replace the data of the running demo.
    const again = await failToStart({ args: ['--demo'], cwd: folder, environment: { PORT: port } });
    expect(again).toMatchObject({
      exitCode: 1,
      stderr: `Another demo in this folder has port ${port}: set PORT.\n`,
    });
    // The same applies to a start on another address.
    const beside = await failToStart({
      args: ['--demo'],
      cwd: folder,
      environment: { PORT: port, HOST: otherLoopback },
    });
    expect(beside).toMatchObject({ exitCode: 1, stderr: again.stderr });
    expect(await read()).toEqual(record);
    service.process.kill('SIGKILL');
    await service.process.exited;
    await stop(await startService({ args: ['--demo'], cwd: folder, environment: { PORT: port } }));
  });

  test('starts once when several start in parallel on one port', async () => {
    const folder = temporaryFolder();
    const port = String(await freePort());
    const starts = await Promise.allSettled(
      ['127.0.0.1', '127.0.0.1', otherLoopback].map((HOST) =>
        startService({ args: ['--demo'], cwd: folder, environment: { PORT: port, HOST }, hasErrorsInOutput: true }),
      ),
    );
    const started = starts.flatMap((start) => (start.status === 'fulfilled' ? [start.value] : []));
    expect(started).toHaveLength(1);
    for (const service of started) {
      const user = callerOf(service, (await tokensOf(folder, service))['demo-user']);
      expect((await user('GET', '/v2/private/user')).status).toBe(200);
      await stop(service);
    }
  });

  test('removes its files after a stop on a random port, and fails to start on a port in use', async () => {
    const folder = temporaryFolder();
    const service = await startService({ args: ['--demo'], cwd: folder });
    const { port } = new URL(service.address);
    expect(await readdir(join(folder, 'data'))).toContain(`demo-${port}-tokens.json`);
    expect(service.output()).toContain(join(folder, `data/demo-${port}-tokens.json\n`));
    const refused = await failToStart({ args: ['--demo'], environment: { PORT: port } });
    expect(refused).toMatchObject({
      exitCode: 1,
      stderr: `The service cannot listen on 127.0.0.1:${port} (EADDRINUSE). Another program does; set PORT to a free one.\n`,
    });
    await stop(service);
    expect(await readdir(join(folder, 'data'))).toEqual(['development-auth-secret']);
  });

  test('fails with the names of the settings when they refer to real data or production', async () => {
    const secret = 'file:private/name.db';
    const settings = { DATABASE_URL: secret, SANDBOX_DATABASE_URL: secret, CARRIER_URL: 'http://127.0.0.1:9' };
    const folder = temporaryFolder();
    const production = { NODE_ENV: 'production', SEED_DEMO: 'false' };
    const refused = await failToStart({ args: ['--demo'], cwd: folder, environment: { ...settings, ...production } });
    expect(refused.exitCode).toBe(1);
    for (const key of [...Object.keys(settings), ...Object.keys(production)]) expect(refused.stderr).toContain(key);
    expect(refused.stderr).not.toContain('private');
    expect(await readdir(folder)).toEqual([]);
  });

  test.each([
    [['--now', '2026-01-15'], '--now requires --demo'],
    [['--demo', '--now', '2026-02-30'], 'must be a valid date'],
    [['--demo', '--now', '1999-12-31'], 'must be between 2000 and 2045'],
    [['--demo', '--now'], 'argument missing'],
    [['--dmeo'], "unknown option '--dmeo'"],
    [['demo'], 'too many arguments'],
  ])('fails with usage for %p', async (args, reason) => {
    const { exitCode, stderr, stdout } = await failToStart({ args });
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect(stderr).toContain(reason);
    expect(stderr).toMatch(/--now <time> +with --demo/);
  });

  test.each(['demo', 'now'])('fails with a hint when npm consumed --%s', async (flag) => {
    const { exitCode, stderr } = await failToStart({ environment: { [`npm_config_${flag}`]: 'true' } });
    expect(exitCode).toBe(1);
    expect(stderr).toBe(`npm has taken --${flag} for itself. Its own flags end with --: npm start -- --${flag}\n`);
  });

  test('prints its flags for --help', async () => {
    const { exitCode, stdout } = await failToStart({ args: ['--help'] });
    expect(exitCode).toBe(0);
    expect(stdout).toContain('--demo ');
  });
});

test('createRepeatableIds returns the same distinct ascending UUIDs of version 7 each time', () => {
  const take = (series: number) => Array.from({ length: 300 }, createRepeatableIds(series));
  const ids = take(1);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect([...new Set(ids)].sort()).toEqual(ids);
  expect(take(1)).toEqual(ids);
  expect(new Set([...ids, ...take(2)]).size).toBe(600);
});
