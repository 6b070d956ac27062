import { describe, expect, test } from 'bun:test';
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { signToken } from '../../src/auth/signing';
import { secretSettings } from '../../src/config/secrets';
import { ConfigError, readConfig } from '../../src/config/settings';
import { applicant } from '../support/app';
import { createProduction, failToStart, type Production, productionSettings } from '../support/processes';
import { atEnd, temporaryFolder, until } from '../support/resources';

const values = {
  AUTH_SECRET: 'kI8sJd72bXqPz0VnM4tYwQe1RuA9cLf6',
  CARRIER_API_KEY: 'carrier-key-of-the-first-month',
  CHAT_TOKEN: 'chat-token-of-the-first-month',
  METRICS_TOKEN: 'u5Gk9Wz2Qb7Xn4Td8Rm1Vc6Lj3Hs0PfYe',
} as const;

/** Writes secrets into files of a folder, and returns the settings that name them. */
function inFiles(secrets: Readonly<Record<string, string>>, { mode = 0o400, folder = temporaryFolder() } = {}) {
  const entries = Object.entries(secrets).map(([key, text]) => {
    const path = join(folder, key);
    writeFileSync(path, text);
    chmodSync(path, mode);
    return [`${key}_FILE`, path] as const;
  });
  return Object.fromEntries(entries);
}

const aroundRule = 'names a file with white space before or after the secret: remove it';

const { AUTH_SECRET: _, ...withoutSecret } = productionSettings;

function faultsOf(environment: Record<string, string>): readonly { key: string; rule: string }[] {
  try {
    readConfig(environment);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
}

describe('F12 a secret in a file', () => {
  test.each([
    ['no line break', '', ''],
    ['a line break at its end', '', '\n'],
    ['a line break of Windows at its end', '', '\r\n'],
    ['a byte order mark', '\uFEFF', '\r\n'],
  ])('F12 has the value of its text without line breaks: %s', (_name, before, after) => {
    const around = (text: string) => `${before}${text}${after}`;
    const settings = inFiles({ DATABASE_AUTH_TOKEN: around('token'), AUTH_SECRET: around(values.AUTH_SECRET) });
    expect(readConfig({ ...withoutSecret, ...settings })).toMatchObject({
      database: { authToken: 'token' },
      auth: { key: { kind: 'secret', secret: values.AUTH_SECRET } },
    });
  });

  test.each(secretSettings.map((key) => [key]))('F12 conflicts with %s itself', (key) => {
    const file = inFiles({ [key]: 'x'.repeat(40) });
    expect(faultsOf({ [key]: 'y'.repeat(40), ...file })).toContainEqual({
      key: `${key}_FILE`,
      rule: `and ${key} are both set: set one of them`,
    });
  });

  test.each<[string, string, rule: string]>([
    ['is missing', 'missing', 'names a file that does not exist'],
    ['is a folder', 'folder', 'names a folder'],
    ['is empty', 'empty', 'names an empty file'],
    ['has only a line break', 'line', 'names an empty file'],
    ['is large', 'large', 'names a file of more than 64 kB'],
    ['starts with a space', 'spaceBefore', aroundRule],
    ['ends with a space', 'spaceAfter', aroundRule],
    ['ends with two line breaks', 'lines', aroundRule],
    ['is UTF-16', 'utf16', 'names a file that is not UTF-8 text'],
    ['is a pipe', 'pipe', 'names a device or a pipe, not a file'],
    ['is in a file', 'empty/secret', 'names a file in a folder that does not exist'],
  ])('F12 causes one error when the file %s', async (_name, name, rule) => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'folder'));
    Bun.spawnSync(['mkfifo', join(folder, 'pipe')]);
    writeFileSync(join(folder, 'utf16'), Buffer.from(`\uFEFF${values.AUTH_SECRET}`, 'utf16le'));
    inFiles({ empty: '', line: '\n', large: 'x'.repeat(65_537) }, { folder });
    const text = values.AUTH_SECRET;
    inFiles({ spaceBefore: ` ${text}`, spaceAfter: `${text} \n`, lines: `${text}\n\n` }, { folder });
    expect(faultsOf({ ...withoutSecret, AUTH_SECRET_FILE: join(folder, name) })).toEqual([
      { key: 'AUTH_SECRET_FILE', rule },
    ]);
  });

  test('F12 cannot be a folder, of any size that the file system reports', () => {
    const folder = temporaryFolder();
    for (let index = 0; statSync(folder).size <= 64 * 1024; index += 1) {
      if (index === 3000) return;
      writeFileSync(join(folder, `${index}${'x'.repeat(200)}`), '');
    }
    expect(faultsOf({ ...withoutSecret, AUTH_SECRET_FILE: folder })).toEqual([
      { key: 'AUTH_SECRET_FILE', rule: 'names a folder' },
    ]);
  });

  test('F12 may be a PEM with line breaks at its end', () => {
    const pem = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' }).toString();
    const settings = { ...withoutSecret, ...inFiles({ AUTH_PUBLIC_KEY: `${pem}\n\n` }) };
    expect(readConfig(settings).auth.key.kind).toBe('public-key');
  });

  test('F12 must meet the rules of its setting', () => {
    expect(faultsOf({ ...withoutSecret, ...inFiles({ AUTH_SECRET: 'x'.repeat(40) }) })).toMatchObject([
      { key: 'AUTH_SECRET' },
    ]);
    expect(faultsOf({ ...withoutSecret, ...inFiles({ AUTH_SECRET: 'short' }) })).toMatchObject([
      { key: 'AUTH_SECRET' },
    ]);
  });

  test.each([
    [0o400, undefined],
    [0o440, undefined],
    [0o444, 'names a file that every user of this machine can read: set its mode to 0400'],
    [0o602, 'names a file that every user of this machine can change: set its mode to 0400'],
  ])('F12 causes a warning by the mode of its file: %o', (mode, rule) => {
    const { warnings } = readConfig({ ...withoutSecret, ...inFiles({ AUTH_SECRET: values.AUTH_SECRET }, { mode }) });
    expect(warnings.find(({ key }) => key === 'AUTH_SECRET_FILE')?.rule).toBe(rule);
  });

  test.skipIf(process.getuid?.() !== 0 || Bun.which('setpriv') === null)(
    'F12 causes an error when this user cannot read the file',
    async () => {
      const settings = inFiles({ AUTH_SECRET: values.AUTH_SECRET });
      const program = `const { readConfig } = await import(${JSON.stringify(join(import.meta.dirname, '../../src/config/settings'))}); readConfig(process.env)`;
      chmodSync(join(settings.AUTH_SECRET_FILE ?? '', '..'), 0o755);
      const { stderr } = Bun.spawnSync(
        ['setpriv', '--reuid', '65534', '--clear-groups', process.execPath, '-e', program],
        { env: { PATH: process.env.PATH, ...withoutSecret, ...settings }, stderr: 'pipe', stdout: 'ignore' },
      );
      expect(stderr.toString()).toContain('AUTH_SECRET_FILE names a file that this user cannot read');
    },
  );

  test('F12 ends a start with one line and exit code 1 when it cannot be read', async () => {
    const settings = { ...withoutSecret, AUTH_SECRET_FILE: join(temporaryFolder(), 'missing') };
    const { exitCode, stderr } = await failToStart({ environment: settings });
    expect(exitCode).toBe(1);
    expect(stderr).toStartWith('These settings cannot be used:\n  AUTH_SECRET_FILE names a file that does not exist\n');
    const { planning } = await createProduction(settings, { without: ['AUTH_SECRET'] });
    expect(await planning('doctor')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('AUTH_SECRET_FILE'),
    });
  });
});

describe('F12 a secret that is replaced in its file', () => {
  /** A carrier that records the API keys of its requests. */
  function startCarrier() {
    const keys: (string | null)[] = [];
    const server = Bun.serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch(request) {
        keys.push(request.headers.get('authorization'));
        return new Response('not found', { status: 404 });
      },
    });
    atEnd(() => server.stop(true));
    return { keys, url: server.url.origin };
  }

  const tokenBy = (secret: string) =>
    signToken({
      secret,
      issuer: productionSettings.AUTH_ISSUER,
      audience: productionSettings.AUTH_AUDIENCE,
      rolesClaim: 'roles',
      roles: [],
      id: 'ada',
      ttlSeconds: 3600,
      now: new Date(),
    });
  const metricsOf = async ({ address }: Production, token: string) =>
    (await fetch(`${address}/metrics`, { headers: { authorization: `Bearer ${token}` } })).status;

  test('F12 takes effect after SIGHUP, or the log asks for a restart', async () => {
    const carrier = startCarrier();
    const folder = temporaryFolder();
    const files = inFiles(values, { folder, mode: 0o600 });
    const production = await createProduction(
      { CARRIER_URL: carrier.url, ...files },
      { without: ['AUTH_SECRET', 'CARRIER_API_KEY', 'CHAT_TOKEN'] },
    );
    const service = await production.start();
    const linesOf = (start: string) => service.logLines().filter(({ msg }) => msg.startsWith(start));
    const call = async (secret: string) => {
      const headers = { authorization: `Bearer ${await tokenBy(secret)}`, 'content-type': 'application/json' };
      const path = `${service.address}/v2/private/ltc/totalCoverage`;
      return (await fetch(path, { method: 'POST', headers, body: JSON.stringify(applicant) })).status;
    };
    expect(await call(values.AUTH_SECRET)).not.toBe(401);
    expect(carrier.keys).toContain(`Bearer ${values.CARRIER_API_KEY}`);
    expect(await metricsOf(service, values.METRICS_TOKEN)).toBe(200);

    service.process.kill('SIGHUP');
    await until(() => linesOf('the secrets were read again').length === 1);

    writeFileSync(join(folder, 'AUTH_SECRET'), '');
    service.process.kill('SIGHUP');
    await until(() => linesOf('the secrets are not read again').length === 1);
    expect(linesOf('the secrets are not read again')).toMatchObject([
      { level: 'error', setting: 'AUTH_SECRET_FILE', rule: 'names an empty file' },
    ]);
    expect(await call(values.AUTH_SECRET)).not.toBe(401);

    const next = {
      AUTH_SECRET: 'Zx3Vb7Nm1Qw5Er9Ty2Ui6Op0As4Df8Gh',
      CARRIER_API_KEY: 'carrier-key-of-the-second-month',
      CHAT_TOKEN: 'chat-token-of-the-second-month',
      METRICS_TOKEN: 'c7Vb3Nm9Kq1Ws5Ed0Rf8Tg2Yh6Uj4IkOl',
    };
    inFiles(next, { folder, mode: 0o600 });
    service.process.kill('SIGHUP');
    await until(() => linesOf('the new value').length === 4);
    expect(linesOf('the new value is in use').map(({ setting }) => setting)).toEqual([
      'CARRIER_API_KEY',
      'AUTH_SECRET',
      'METRICS_TOKEN',
    ]);
    expect(linesOf('the new value takes effect after a restart')).toMatchObject([
      { level: 'warn', setting: 'CHAT_TOKEN' },
    ]);
    expect(await call(values.AUTH_SECRET)).toBe(401);
    carrier.keys.length = 0;
    expect(await call(next.AUTH_SECRET)).not.toBe(401);
    expect(new Set(carrier.keys)).toEqual(new Set([`Bearer ${next.CARRIER_API_KEY}`]));
    expect(await metricsOf(service, values.METRICS_TOKEN)).toBe(401);
    expect(await metricsOf(service, next.METRICS_TOKEN)).toBe(200);
    const secrets = [...Object.values(values), ...Object.values(next)];
    expect(secrets.filter((secret) => service.output().includes(secret))).toEqual([]);
  });

  test('F12 leaves the process running after many SIGHUP signals', async () => {
    const service = await (await createProduction()).start();
    for (let count = 0; count < 20; count += 1) {
      service.process.kill('SIGHUP');
      expect(await service.health('live')).toBe(200);
    }
    await until(() => service.logLines().some(({ msg }) => msg.includes('none has changed')));
    service.process.kill('SIGTERM');
    expect(await service.process.exited).toBe(0);
  });
});
