import { describe, expect, test } from 'bun:test';
import { chmodSync, closeSync, openSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import * as v from 'valibot';
import packageJson from '../../package.json';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { applicant, callerOf, testSecret, testToken } from '../support/app';
import { programOf } from '../support/artifacts';
import { keys } from '../support/database';
import { createSaveHistory } from '../support/disks';
import { createRawClient } from '../support/http';
import {
  createProduction,
  failToStart,
  type Production,
  refusedStart,
  startInProcess,
  startService,
} from '../support/processes';
import { amount, atEnd, freePort, runToEnd, temporaryFolder, until } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const root = join(import.meta.dirname, '../..');
const profile = '/v2/private/user/profile';
const ltc = '/v2/private/ltc/lifetimeCare';
const main = await programOf('src/main');

describe('first start in a folder', async () => {
  const cwd = temporaryFolder();
  const script = packageJson.scripts.start.replace('src/main.ts', `'${join(root, 'src/main.ts')}'`);
  const [first, second] = await Promise.all([
    startService({ cwd, environment: { REPORT_TIME_ZONE: 'Asia/Kathmandu' } }),
    startService({ cwd, under: ['sh', '-c', script] }),
  ]);
  const token = await first.token();
  const bearer = (signed: string) => ({ headers: { authorization: `Bearer ${signed}` } });
  const [one, other] = [callerOf(first.address), callerOf(second.address)];

  test('prints the addresses, the zone of the months and a curl command that returns 200', async () => {
    expect(first.output()).toContain(`docs     ${first.address}/swagger`);
    expect(first.output()).toContain('months   Asia/Kathmandu, now +05:45, without a change to come\n');
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

  test('gives two parallel processes and the token command the same key and data, and the package script SIGTERM', async () => {
    const program = [process.execPath, await programOf('src/cli/main'), 'token', '--sub', 'ada'];
    const env = { PATH: process.env.PATH, NODE_ENV: 'development' };
    const { stdout } = await runToEnd(Bun.spawn(program, { cwd, env, stdout: 'pipe', stderr: 'pipe' }));
    const ada = bearer(stdout.trim());
    expect((await one('POST', ltc, { ...ada, body: { careCosts: 1 } })).status).toBe(200);
    const { body } = await other('POST', ltc, { ...ada, body: { policyValue: 2 } });
    expect(body).toMatchObject({ user: { id: 'ada', ltc: { lifetimeCare: { careCosts: 1, policyValue: 2 } } } });
    expect((await other('GET', '/v2/private/healthAndCare/', bearer(token))).status).toBe(200);
    second.process.kill('SIGTERM');
    expect(await second.process.exited).toBe(0);
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
        DATABASE_ENCRYPTION_KEY: 'sesame-short',
        AUTH_SECRET,
        CARRIER_URL: 'https://sesame-user:sesame-password@carrier.example',
        PUBLIC_URL: 'http://planning.example',
        CHAT_ID: 'demo-chat',
        CHAT_TOKEN: 'demo-chat-token',
        SEED_DEMO: 'true',
      },
    });
    expect([exitCode, stdout]).toEqual([1, '']);
    const refused = [...stderr.matchAll(/^ {2}([A-Z_]+) /gm)].map(([, key]) => key);
    const missing = ['AUTH_ISSUER', 'AUTH_AUDIENCE', 'CARRIER_API_KEY'];
    const insecure = ['CHAT_ID', 'CHAT_TOKEN', 'AUTH_SECRET', 'PUBLIC_URL', 'SEED_DEMO'];
    expect(refused.sort()).toEqual([...missing, ...insecure, 'CARRIER_URL', 'DATABASE_ENCRYPTION_KEY'].sort());
    for (const shown of [AUTH_SECRET, 'sesame', 'demo-chat-token']) expect(stderr).not.toContain(shown);
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

test('acknowledged saves of 16 concurrent writers in an encrypted file survive SIGKILL', async () => {
  const cwd = temporaryFolder();
  const environment = { LOG_LEVEL: 'error', AUTH_SECRET: testSecret, DATABASE_ENCRYPTION_KEY: keys.right };
  const service = await startService({ cwd, environment });
  const call = callerOf(service.address);
  const killedAfter = amount({ long: 2000, short: 200 });
  const acknowledged = Array<number>(16).fill(0);
  let saves = 0;
  const save = async (saver: number) => {
    for (let careCosts = 1; ; careCosts += 1) {
      const response = await call('POST', ltc, { as: `saver-${saver}`, body: { careCosts } }).catch(() => undefined);
      if (response?.status !== 200) return;
      acknowledged[saver] = careCosts;
      saves += 1;
      if (saves === killedAfter) service.process.kill('SIGKILL');
    }
  };
  await Promise.all(acknowledged.map((_, saver) => save(saver)));
  await service.process.exited;
  expect(saves).toBeGreaterThanOrEqual(killedAfter);
  const url = `file:${join(cwd, 'data/planning.db')}`;
  const db = await openServiceDatabase({ url, timeoutMs: 2000, encryptionKey: keys.right });
  const { rows } = await db.$client.execute("SELECT id, ltc_lifetime_care ->> 'careCosts' AS careCosts FROM users");
  db.$client.close();
  const stored = acknowledged.map((_, saver) => Number(rows.find(({ id }) => id === `saver-${saver}`)?.careCosts));
  // The kill may have come between a commit and its response.
  expect(stored).toEqual(acknowledged.map((last, saver) => (stored[saver] === last + 1 ? last + 1 : last)));
});

describe('signal', async () => {
  const production = await createProduction();
  const ignored = ['SIGUSR1', 'SIGUSR2', 'SIGALRM', 'SIGVTALRM', 'SIGPROF', 'SIGIO'] as const;

  /** Saves until the service refuses connections, and records the acknowledged saves. */
  function startSavers({ call, process: child }: Production, name: string) {
    const history = createSaveHistory();
    const statuses = new Set<number>();
    let isStopping = false;
    let broken = 0;
    const saver = async (as: string) => {
      for (let round = 0; ; round += 1) {
        const wasStopping = isStopping;
        const body = { firstName: 'A'.repeat((round % 50) + 1) };
        const response = await call('POST', profile, { as, body }).catch(() => undefined);
        if (response === undefined) {
          // New connections fail after the process stops listening; open ones must not break.
          if (!wasStopping) broken += 1;
          return;
        }
        statuses.add(response.status);
        if (response.status === 200) history.note(as, response);
        await Bun.sleep(5);
      }
    };
    const saving = Promise.all(Array.from({ length: 8 }, (_, index) => saver(`${name}-${index}`)));
    return {
      saved: () => history.acknowledged.length,
      /** Waits for the exit, because the service has its database open until then. */
      async end() {
        isStopping = true;
        await saving;
        const exitCode = await child.exited;
        return { exitCode, statuses: [...statuses], broken, faults: history.faultsOf(production.databasePath) };
      },
    };
  }

  test('SIGTERM completes every request under load and exits with 0, after signals that are ignored', async () => {
    const service = await production.start({ environment: { DRAIN_MS: '300' } });
    const savers = startSavers(service, 'SIGTERM');
    for (const sent of ['SIGHUP', ...ignored] as const) {
      const before = savers.saved();
      service.process.kill(sent);
      await until(() => savers.saved() > before + 5);
    }
    const ignoredLines = () => service.logLines().filter(({ msg }) => msg === 'the signal is ignored');
    await until(() => ignoredLines().length >= ignored.length);
    expect(ignoredLines().map(({ level, signal }) => [level, signal])).toEqual(ignored.map((name) => ['info', name]));
    service.process.kill('SIGTERM');
    expect(await savers.end()).toEqual({ exitCode: 0, statuses: [200], broken: 0, faults: [] });
  });

  test('SIGQUIT during the drain of SIGTERM ends the process at once and loses no acknowledged save', async () => {
    const service = await production.start({ environment: { DRAIN_MS: '600000' } });
    const savers = startSavers(service, 'SIGQUIT');
    await until(() => savers.saved() > 30);
    service.process.kill('SIGTERM');
    await until(async () => (await service.health()) === 503);
    service.process.kill('SIGQUIT');
    expect(await savers.end()).toMatchObject({ exitCode: 0, faults: [] });
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

  test('reloads its secrets on SIGHUP when a setting names a secret file, and ends on SIGINT without the drain', async () => {
    const AUTH_SECRET_FILE = join(temporaryFolder(), 'secret');
    await Bun.write(AUTH_SECRET_FILE, testSecret);
    const { child, output } = await startInTerminal({ AUTH_SECRET_FILE, DRAIN_MS: '600000' });
    child.kill('SIGHUP');
    await until(() => output().includes('the secrets were read again'));
    child.kill('SIGINT');
    expect(await child.exited).toBe(0);
  });
});

describe.skipIf(process.platform !== 'linux')('a service whose standard output takes no lines', () => {
  async function start(stdout: number) {
    const port = await freePort();
    const environment = { NODE_ENV: 'development', PORT: String(port), SEED_DEMO: 'false', LOG_LEVEL: 'debug' };
    const env = { PATH: process.env.PATH, CARRIER_URL: 'http://127.0.0.1:1', ...environment };
    const child = Bun.spawn([process.execPath, main], { cwd: temporaryFolder(), env, stdout, stderr: 'pipe' });
    atEnd(() => child.kill('SIGKILL'));
    const live = async () => (await fetch(`http://127.0.0.1:${port}/health/live`).catch(() => undefined))?.status;
    await until(async () => (await live()) === 200);
    return {
      async expectServed(requests: number) {
        for (let count = 0; count < requests; count += 1) expect(await live()).toBe(200);
      },
      async expectStop() {
        child.kill('SIGTERM');
        expect([await child.exited, await new Response(child.stderr).text()]).toEqual([0, '']);
        closeSync(stdout);
      },
    };
  }

  test('serves requests and stops on a full disk', async () => {
    const service = await start(openSync('/dev/full', 'w'));
    await service.expectServed(20);
    await service.expectStop();
  });

  test('serves requests while its reader stalls and after its reader ends, and then stops', async () => {
    const path = join(temporaryFolder(), 'pipe');
    Bun.spawnSync(['mkfifo', path]);
    const reader = openSync(path, 'r+');
    const service = await start(openSync(path, 'w'));
    // Their lines exceed the 64 kB of a pipe.
    await service.expectServed(400);
    closeSync(reader);
    await service.expectServed(20);
    await service.expectStop();
  });
});

test('a process without a free file descriptor serves open connections, and starts applications afterwards', async () => {
  const environment = { AUTH_SECRET: testSecret, CARRIER_ATTEMPTS: '1' };
  const service = await startService({ descriptors: 96, environment });
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

test.skipIf(!hasSqld)(
  'a start names the migrate command on an empty libSQL server, and waits for a server that becomes available later',
  async () => {
    const sqld = await startSqld();
    expect(await refusedStart({ DATABASE_URL: sqld.url })).toMatch(/Run `(?:bun )?planning migrate`/);
    const db = await openDatabase({ url: sqld.url, timeoutMs: 2000 });
    await migrateDatabase(db);
    db.$client.close();
    await sqld.kill();
    const starting = startInProcess({ DATABASE_URL: sqld.url });
    await Bun.sleep(100);
    await sqld.start();
    const { call } = await starting;
    expect((await call('POST', profile, { as: 'ada', body: { firstName: 'Ada' } })).status).toBe(200);
  },
);
