import { describe, expect, test } from 'bun:test';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { signToken } from '../src/auth/signing';
import { ConfigError, readConfig } from '../src/config/settings';
import { openDatabase } from '../src/db/client';
import { migrateDatabase } from '../src/db/migrate';
import { seedDatabase } from '../src/seed';
import { canaryApplicant } from './support/app';
import { createCommandLine } from './support/command';
import { failToStart, type Start, startService } from './support/processes';
import { cases, isLong, temporaryFolder, until } from './support/resources';
import { hasSqld, startSqld } from './support/servers';

/** Every secret setting, each with a distinct word, so that a failure names it. */
const secrets = {
  AUTH_SECRET: 'sesame-auth-Jm0x7Qe2Rk9Zb4Wd6Tn1Vy8',
  CARRIER_API_KEY: 'sesame-carrier-7Qe2Rk9',
  CHAT_TOKEN: 'sesame-chat-Zb4Wd6Tn1',
  DATABASE_AUTH_TOKEN: 'sesame-database-Vy8Ls3Hc5',
  DATABASE_ENCRYPTION_KEY: 'sesame-encryption-Hc5Pg3Fa9Lw6Xz2Bu8',
} as const;
const inAddress = 'sesame-user:sesame-password';
const settings = {
  NODE_ENV: 'production',
  AUTH_ISSUER: 'https://issuer.example',
  AUTH_AUDIENCE: 'planning',
  CARRIER_URL: 'http://127.0.0.1:1',
  CHAT_ID: 'room',
  LOG_LEVEL: 'debug',
};

const secretsIn = (text: string) => [...new Set(text.match(/sesame-\w+/g) ?? [])];

/** The message of a start that rejects the settings. */
function refusalOf(environment: Record<string, string>): string {
  try {
    readConfig(environment);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return 'The settings are valid';
}

/** The secrets that a running service exposes in responses, output and process arguments. */
async function exposedBy(start: Start, token = 'x.y.z') {
  const { DATABASE_ENCRYPTION_KEY } = start.environment ?? {};
  const { cwd } = await createCommandLine(DATABASE_ENCRYPTION_KEY === undefined ? {} : { DATABASE_ENCRYPTION_KEY }, {
    isProcess: true,
  });
  const service = await startService({ cwd, ...start, hasErrorsInOutput: true });
  const received: string[] = [];
  const send = async (path: string, init: RequestInit = {}) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${service.address}${path}`, { headers, ...init });
    received.push(JSON.stringify([...response.headers]), await response.text());
    return response.status;
  };
  const statuses = [
    await send('/v2/private/user'),
    await send('/v2/private/ltc/totalCoverage', { method: 'POST', body: JSON.stringify(canaryApplicant) }),
  ];
  for (const path of ['/health/live', '/health/ready', '/swagger/json', '/problems/unauthenticated', '/nowhere', '/']) {
    await send(path);
  }
  await send('/v2/private/ltc/lifetimeCare', { method: 'POST', body: '{' });
  const processArguments =
    process.platform === 'linux' ? readFileSync(`/proc/${service.process.pid}/cmdline`, 'utf8') : '';
  service.process.kill('SIGTERM');
  await service.process.exited;
  const output = service.output();
  return { statuses, output, seen: secretsIn([...received, processArguments, output].join('\n')) };
}

const tokenOf = () =>
  signToken({
    secret: secrets.AUTH_SECRET,
    issuer: settings.AUTH_ISSUER,
    audience: settings.AUTH_AUDIENCE,
    rolesClaim: 'roles',
    id: 'ada',
    roles: [],
    ttlSeconds: 600,
    now: new Date(),
  });

describe('secrets', () => {
  test('do not appear in responses, output and arguments of a running service at log level debug', async () => {
    const { DATABASE_AUTH_TOKEN, ...ofFile } = secrets;
    const { statuses, output, seen } = await exposedBy({ environment: { ...settings, ...ofFile } }, await tokenOf());
    expect(statuses).toEqual([404, 503]);
    expect(output).toContain('"msg":"request"');
    expect(seen).toEqual([]);
  }, 60_000);

  test.each([
    ['DATABASE_URL', `http://${inAddress}@127.0.0.1:1`],
    ['DATABASE_URL', `ws://${inAddress}@127.0.0.1:1`],
    ['AUTH_JWKS_URL', `http://${inAddress}@127.0.0.1:1/jwks?key=sesame-query`],
  ])(
    'do not appear when %s has credentials and is unreachable: %s',
    async (key, address) => {
      const { AUTH_SECRET, DATABASE_ENCRYPTION_KEY, ...others } = secrets;
      const auth = key === 'AUTH_JWKS_URL' ? {} : { AUTH_SECRET };
      const environment = { ...settings, ...others, ...auth, [key]: address };
      const token = await tokenOf();
      const { seen, output } = await exposedBy({ environment }, token).catch(async () => {
        const { stderr, stdout } = await failToStart({ environment });
        return { seen: secretsIn(stderr + stdout), output: stderr };
      });
      expect(output).not.toBe('');
      expect(seen).toEqual([]);
      const line = await createCommandLine(environment, { isProcess: true });
      for (const args of cases([['user', 'show', 'ada'], ['doctor'], ['migrate']], 2)) {
        const { stdout, stderr } = await line.planning(...args);
        expect({ args, seen: secretsIn(stdout + stderr) }).toEqual({ args, seen: [] });
      }
    },
    60_000,
  );

  test('do not appear when a start rejects a setting', async () => {
    // The short form starts one real process.
    let isReal = true;
    for (const bad of [
      { CARRIER_URL: `https://${inAddress}@carrier.example` },
      { PUBLIC_URL: `https://${inAddress}@planning.example` },
      { DATABASE_URL: 'libsql://db.example?authToken=sesame-query' },
      { AUTH_PUBLIC_KEY: 'sesame-private', AUTH_SECRET: 'sesame-auth' },
      { AUTH_SECRET: 'sesame-short', DATABASE_ENCRYPTION_KEY: 'sesame-short', CARRIER_API_KEY: 'sesame with space' },
      { DATABASE_URL: 'file:sesame-folder/nowhere/%' },
    ]) {
      const environment = { ...settings, ...secrets, ...bad };
      const message = refusalOf(environment);
      expect(message).toStartWith('These settings cannot be used:\n');
      expect(secretsIn(message)).toEqual([]);
      if (isReal) {
        const { exitCode, stdout, stderr } = await failToStart({ environment });
        expect({ exitCode, stdout, seen: secretsIn(stderr) }).toEqual({ exitCode: 1, stdout: '', seen: [] });
        expect(stderr).toStartWith(`${message}\nThe mode is production.`);
      }
      isReal = isLong;
    }
  }, 60_000);

  test('do not appear in the output of failing commands and doctor', async () => {
    const { DATABASE_AUTH_TOKEN, ...ofFile } = secrets;
    const line = await createCommandLine(
      { ...settings, ...ofFile, NEW_DATABASE_ENCRYPTION_KEY: 'sesame-new' },
      { isProcess: true },
    );
    await line.write('bad.json', '[{"a":');
    const other = await createCommandLine(
      {
        ...settings,
        ...ofFile,
        DATABASE_ENCRYPTION_KEY: `${ofFile.AUTH_SECRET}1`,
      },
      { isProcess: true },
    );
    await other.write('data/planning.db', readFileSync(join(line.cwd, 'data/planning.db')));
    for (const [{ planning }, ...args] of [
      [line, 'doctor'],
      [line, 'rekey', '--yes'],
      [line, 'restore', 'bad.json', '--yes'],
      [line, 'backup', 'data/planning.db'],
      [line, 'import', 'products', 'bad.json'],
      [line, 'user', 'show', 'unknown'],
      [other, 'doctor'],
      [other, 'migrate'],
    ] as const) {
      const { exitCode, stdout, stderr } = await planning(...args);
      expect({ args, exitCode, seen: secretsIn(stdout + stderr) }).toEqual({ args, exitCode: 1, seen: [] });
    }
  }, 60_000);

  test.skipIf(!hasSqld || process.platform !== 'linux')(
    'do not appear in the environment of the replica sync process, also with an .env file in the folder',
    async () => {
      const sqld = await startSqld();
      const db = await openDatabase({ url: sqld.url, timeoutMs: 5000 });
      await migrateDatabase(db);
      await seedDatabase(db, { withDemo: false, now: new Date(0) });
      db.$client.close();
      const cwd = temporaryFolder();
      const environment = { ...settings, ...secrets, DATABASE_URL: sqld.url, DATABASE_REPLICA_PATH: 'data/replica.db' };
      const lines = Object.entries(environment).map(([key, value]) => `${key}=${value}\n`);
      writeFileSync(join(cwd, '.env'), lines.join(''));
      const service = await startService({ cwd, environment: { NODE_ENV: 'production' } });
      expect(service.output()).toContain('"msg":"listening"');
      const { pid } = service.process;
      const children = () =>
        readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean);
      await until(() => children().length > 0 && service.output().includes('the replica follows the primary'));
      for (const child of children()) {
        const seen = ['environ', 'cmdline'].map((name) => readFileSync(`/proc/${child}/${name}`, 'utf8')).join('\0');
        expect(seen).toContain('replica-sync');
        expect(secretsIn(seen)).toEqual([]);
      }
      expect(secretsIn(service.output())).toEqual([]);
    },
    60_000,
  );
});

test('authenticated response contains the chat token and no other secret', async () => {
  const { DATABASE_AUTH_TOKEN, ...ofFile } = secrets;
  const { cwd } = await createCommandLine(
    { DATABASE_ENCRYPTION_KEY: secrets.DATABASE_ENCRYPTION_KEY },
    { isProcess: true },
  );
  const service = await startService({ cwd, environment: { ...settings, ...ofFile } });
  const read = async (authorization: string) => {
    const response = await fetch(`${service.address}/v2/private/healthAndCare/`, { headers: { authorization } });
    return secretsIn(JSON.stringify([...response.headers]) + (await response.text()));
  };
  expect(await read(`Bearer ${await tokenOf()}`)).toEqual(['sesame-chat']);
  expect(await read('Bearer x.y.z')).toEqual([]);
});
