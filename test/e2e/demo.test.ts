import { describe, expect, test } from 'bun:test';
import { mkdirSync, readdirSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { createRepeatableIds } from '../../src/demo/demo';
import { ApplicationsBody } from '../../src/modules/coverage/service';
import { MonthlyGlanceBody } from '../../src/modules/sales/model';
import { UserBody } from '../../src/modules/users/model';
import { applicant, callerOf } from '../support/app';
import { createCommandLine } from '../support/command';
import { privateRoutes } from '../support/contract';
import { failToStart, type Service, startService } from '../support/processes';
import { freePort, temporaryFolder } from '../support/resources';

/** Another loopback address on which the same port is free, if this machine has one. */
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
const otherLoopback = hasIpv6 ? '::1' : '127.0.0.1';
const glance = '/v2/private/user/salesManager/monthly-glance';

const tokensOf = (folder: string, { address }: Service) =>
  Bun.file(join(folder, `data/demo-${new URL(address).port}-tokens.json`)).json();

/** Collects the ETags of records into `recordTags`, because each start generates new ones. */
function callerWith({ address }: Service, token: string, recordTags: string[] = []) {
  const send = callerOf(address);
  return async (method: string, path: string, body?: object) => {
    const options = { headers: { authorization: `Bearer ${token}` }, ...(body && { body }) };
    const { status, headers, text } = await send(method, path, options);
    const [tag] = /^"\d+-\d+-[0-9a-f]{16}"$/.exec(headers.get('etag') ?? '') ?? [];
    if (tag !== undefined) recordTags.push(tag);
    const excluded = tag === undefined ? ['date'] : ['date', 'etag'];
    return { status, text, headers: [...headers].filter(([name]) => !excluded.includes(name)) };
  };
}

/** All readable responses before and after a series of writes. */
async function recordResponses(folder: string, service: Service) {
  const tokens = await tokensOf(folder, service);
  const tags: string[] = [];
  const user = callerWith(service, tokens['demo-user'], tags);
  const manager = callerWith(service, tokens['demo-manager'], tags);
  const paths = privateRoutes.filter(({ method }) => method === 'GET').map(({ path }) => `${path}?month=2044-05`);
  const responses: unknown[] = [tokens];
  const read = async () => {
    for (const path of [...paths, '/swagger/json', '/nowhere']) {
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

describe('a demo with a frozen clock', () => {
  const args = ['--demo', '--now', '2044-05-06'];

  test('returns identical responses after each start, with other ETags of records, and changes no other file', async () => {
    const environment = { PORT: String(await freePort()) };
    const { cwd, write, planning } = await createCommandLine({}, { isEmpty: true, isProcess: true });
    mkdirSync(join(cwd, 'data'), { mode: 0o700 });
    const own = ['data/planning.db', 'data/carrier-sandbox.db', 'data/demo-tokens.json'];
    for (const name of own) await write(name, 'mine');
    const first = await startService({ args, cwd, environment });
    expect(first.output()).toContain('The clock is frozen at 2044-05-06T00:00:00.000Z.');
    const before = await recordResponses(cwd, first);
    await stop(first);
    const second = await startService({ args, cwd, environment });
    const after = await recordResponses(cwd, second);
    expect(before.responses.length).toBeGreaterThan(40);
    expect(after.responses).toEqual(before.responses);
    expect(before.tags.length).toBeGreaterThan(4);
    expect(after.tags.filter((tag) => before.tags.includes(tag))).toEqual([]);

    const sign = async (...more: string[]) =>
      callerWith(second, (await planning('token', '--sub', 'fresh', ...more)).stdout.trim());
    const save = { careCosts: 1 };
    const saved = await (await sign('--now', '2044-05-06'))('POST', '/v2/private/ltc/lifetimeCare', save);
    expect(JSON.parse(saved.text).user).toMatchObject({ id: 'fresh', updatedAt: '2044-05-06T00:00:00.000Z' });
    // The clock of the demo has passed the end of a token of today.
    expect((await (await sign())('GET', '/v2/private/user')).status).toBe(401);
    await stop(second);
    for (const name of own) expect(await Bun.file(join(cwd, name)).text()).toBe('mine');
    const names = readdirSync(join(cwd, 'data')).filter((name) => !name.startsWith(`demo-${environment.PORT}`));
    expect(names.map((name) => `data/${name}`).sort()).toEqual([...own, 'data/development-auth-secret'].sort());
  });
});

describe('a demo', () => {
  test('starts once on a port, with a complete user and a team with sales, and again after SIGKILL', async () => {
    const cwd = temporaryFolder();
    const start = { args: ['--demo'], cwd, hasErrorsInOutput: true };
    const environment = { PORT: String(await freePort()), RATE_LIMIT_PER_MINUTE: '20' };
    const starts = await Promise.allSettled(
      ['127.0.0.1', '127.0.0.1', otherLoopback].map((HOST) =>
        startService({ ...start, environment: { ...environment, HOST } }),
      ),
    );
    const [service, ...more] = starts.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    if (service === undefined || more.length > 0) throw new Error('Not exactly one demo has started');
    const tokens = await tokensOf(cwd, service);
    const user = callerWith(service, tokens['demo-user']);
    const read = async () => v.parse(UserBody, JSON.parse((await user('GET', '/v2/private/user')).text)).user;
    const record = await read();
    expect(record.insurance.matches?.bestMatch?.productIcon).toStartWith(`${service.address}/icons/`);
    for (const section of [record.lifeInsurance, record.lifetimeCare, record.ltc.lifetimeCare])
      expect(section).toBeObject();
    expect(record.purchase.partner?.appNumber).toBe(100_001);
    const { text } = await user('GET', '/v2/private/user/applications');
    expect(v.parse(ApplicationsBody, JSON.parse(text)).data.applications).toMatchObject([
      { id: '019b76da-a800-7001-8000-000000000001', state: 'submitted', appNumber: 100_001 },
    ]);
    const lastMonth = new Date(Date.now() - 31 * 86_400_000).toISOString().slice(0, 7);
    const report = await callerWith(service, tokens['demo-manager'])('GET', `${glance}?month=${lastMonth}`);
    const { data } = v.parse(MonthlyGlanceBody, JSON.parse(report.text));
    expect(data.counselorsReport).toHaveLength(4);
    expect(data.teamGlance.totalMonthlyEarnings).toBeGreaterThan(0);

    // A second start on the port, also on another address, must not replace the data of the running demo.
    const refused = await failToStart({ ...start, environment: { ...environment, HOST: otherLoopback } });
    const stderr = `Another demo in this folder has port ${environment.PORT}: set PORT.\n`;
    expect(refused).toMatchObject({ exitCode: 1, stderr });
    expect(await read()).toEqual(record);
    service.process.kill('SIGKILL');
    await service.process.exited;
    await stop(await startService({ ...start, environment }));
  });

  test('removes its files after a stop on a random port, and fails to start on a port in use', async () => {
    const cwd = temporaryFolder();
    const service = await startService({ args: ['--demo'], cwd });
    const { port } = new URL(service.address);
    expect(readdirSync(join(cwd, 'data'))).toContain(`demo-${port}-tokens.json`);
    expect(service.output()).toContain(join(cwd, `data/demo-${port}-tokens.json\n`));
    expect(service.output()).toContain('mode     development, with settings from the environment\n');
    expect(service.output()).not.toContain('"level":"warn"');
    const [, page = ''] = /^ +page +(\S+)$/m.exec(service.output()) ?? [];
    expect((await fetch(page)).status).toBe(200);
    const refused = await failToStart({ args: ['--demo'], environment: { PORT: port } });
    expect(refused).toMatchObject({
      exitCode: 1,
      stderr: `The service cannot listen on 127.0.0.1:${port} (EADDRINUSE). Another program does; set PORT to a free one.\n`,
    });
    await stop(service);
    expect(readdirSync(join(cwd, 'data'))).toEqual(['development-auth-secret']);
  });

  test('fails with the names of settings that refer to real data or production, and creates nothing', async () => {
    const cwd = temporaryFolder();
    const secret = 'file:private/name.db';
    const environment = {
      ...{ DATABASE_URL: secret, SANDBOX_DATABASE_URL: secret, CARRIER_URL: 'http://127.0.0.1:9' },
      ...{ NODE_ENV: 'production', SEED_DEMO: 'false' },
    };
    const refused = await failToStart({ args: ['--demo'], cwd, environment });
    expect(refused.exitCode).toBe(1);
    for (const key of Object.keys(environment)) expect(refused.stderr).toContain(key);
    expect(refused.stderr).not.toContain('private');
    expect(readdirSync(cwd)).toEqual([]);
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
