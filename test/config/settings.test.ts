import { describe, expect, test } from 'bun:test';
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { secretSettings } from '../../src/config/secrets';
import { ConfigError, mistypedSettings, readConfig, Settings } from '../../src/config/settings';
import { temporaryFolder } from '../support/resources';

type Values = Readonly<Record<string, string | undefined>>;

const inPem = { type: 'spki', format: 'pem' } as const;
const edPem = generateKeyPairSync('ed25519').publicKey.export(inPem).toString();
const rsaPem = (modulusLength: number) =>
  generateKeyPairSync('rsa', { modulusLength }).publicKey.export(inPem).toString();
const ecPem = (namedCurve: string) => generateKeyPairSync('ec', { namedCurve }).publicKey.export(inPem).toString();

const production = {
  NODE_ENV: 'production',
  AUTH_SECRET: 'u7Xw2Qm9Zk4Tn8Rb1Vc6Ld3Hs5Jf0PgAy',
  AUTH_ISSUER: 'https://issuer.example',
  AUTH_AUDIENCE: 'planning',
  CARRIER_URL: 'https://carrier.example',
  CARRIER_API_KEY: 'carrier-key',
  CHAT_ID: 'chat',
  CHAT_TOKEN: 'chat-token',
  TRUSTED_PROXY_COUNT: '1',
};
const anotherSecret = 'Jm0x7Qe2Rk9Zb4Wd6Tn1Vy8Ls3Hc5PgFa';

function faultsOf(environment: Values): ConfigError['faults'] {
  try {
    readConfig(environment);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.faults;
  }
}

const invalidSettings = (environment: Values) => faultsOf(environment).map(({ key }) => key);

describe('readConfig', () => {
  test('has a default for every setting in development', () => {
    expect(readConfig({})).toMatchObject({
      isProduction: false,
      host: '127.0.0.1',
      port: 3000,
      database: { url: 'file:data/planning.db', timeoutMs: 2000 },
      auth: { key: { kind: 'development' }, rolesClaim: 'roles' },
      bodyLimitBytes: 262_144,
      reportTimeZone: 'UTC',
      logLevel: 'info',
      metricsToken: undefined,
      tracing: undefined,
    });
  });

  test('has rate limits and a drain only in production, and CORS for every port of loopback only in development', () => {
    expect(readConfig({}).rateLimit).toEqual({ perMinute: 0, trustedProxyCount: 0 });
    expect(readConfig(production).rateLimit).toEqual({ perMinute: 600, trustedProxyCount: 1 });
    expect(readConfig({ ...production, RATE_LIMIT_PER_MINUTE: '0' }).rateLimit.perMinute).toBe(0);
    expect([readConfig({}).drainMs, readConfig(production).drainMs]).toEqual([0, 15_000]);
    // Kubernetes gives a stop 30 s.
    expect(readConfig(production).drainMs + readConfig(production).shutdownTimeoutMs).toBeLessThan(28_000);
    const loopback = ['localhost:*', '127.0.0.1:*', '[::1]:*'];
    const origins = ['http', 'https'].flatMap((scheme) => loopback.map((host) => `${scheme}://${host}`));
    expect(readConfig({}).corsOrigins).toEqual(origins);
    expect(readConfig(production).corsOrigins).toEqual([]);
  });

  test.each([
    ['https://app.example.com, http://localhost:5173', ['https://app.example.com', 'http://localhost:5173']],
    [
      'https://b.example/ ,https://C.example,https://d.example:443',
      'https://b.example https://c.example https://d.example'.split(' '),
    ],
    ['http://localhost:*,https://127.0.0.1:*/', ['http://localhost:*', 'https://127.0.0.1:*']],
  ])('normalizes CORS_ORIGINS=%s', (list, origins) => {
    expect(readConfig({ CORS_ORIGINS: list }).corsOrigins).toEqual(origins);
  });

  const remote = { DATABASE_URL: 'libsql://db.example' };
  const server = { DATABASE_READ_URL: 'https://replica.example' };
  const file = { DATABASE_REPLICA_PATH: 'data/replica.db' };
  const key = { DATABASE_ENCRYPTION_KEY: 'k'.repeat(32) };

  test('accepts one replica of a libSQL server, and an encryption key with a file to encrypt', () => {
    const [url, path] = [server.DATABASE_READ_URL, file.DATABASE_REPLICA_PATH];
    expect(readConfig(remote).replica).toBeUndefined();
    expect(readConfig({ ...remote, ...server }).replica).toEqual({ kind: 'server', url });
    expect(readConfig({ ...remote, ...file }).replica).toEqual({ kind: 'file', path, intervalMs: 1000 });
    expect(readConfig(key).database.encryptionKey).toBe(key.DATABASE_ENCRYPTION_KEY);
    expect(invalidSettings({ ...key, ...remote, ...file })).toEqual([]);
  });

  test.each<[invalid: string[], Values]>([
    [['DATABASE_READ_URL', 'DATABASE_REPLICA_PATH'], { ...remote, ...server, ...file }],
    [['DATABASE_READ_URL'], server],
    [['DATABASE_READ_URL'], { ...remote, DATABASE_READ_URL: remote.DATABASE_URL }],
    [['DATABASE_REPLICA_PATH'], { DATABASE_URL: 'file:a.db', ...file }],
    [['DATABASE_ENCRYPTION_KEY'], { ...key, ...remote }],
    [['DATABASE_ENCRYPTION_KEY'], { ...key, ...remote, ...server }],
    [['AUTH_SECRET', 'AUTH_JWKS_URL'], { AUTH_SECRET: 'x'.repeat(32), AUTH_JWKS_URL: 'https://issuer.example/jwks' }],
  ])('rejects a combination by %j: %j', (invalid, settings) => {
    expect(invalidSettings(settings)).toEqual(invalid);
  });

  test.each(Object.keys(Settings.entries))('rejects an empty %s', (name) => {
    expect(invalidSettings({ [name]: '' })).toEqual([name]);
  });

  test.each([
    ['NODE_ENV', ['prod', 'test', 'Production']],
    ['PORT', ['-1', '65536', '3000.5', '0x10', '1e3', ' 3000', 'abc']],
    ['PUBLIC_URL', ['example.com', 'ftp://example.com', 'http://', 'https://me:secret@example.com']],
    ['PUBLIC_URL', ['https://example.com/base', 'https://example.com?x=1']],
    ['DATABASE_URL', ['planning.db', 'file:', 'file::memory:', 'file:a.db?mode=ro', 'file:data/', 'file://data/x.db']],
    ['DATABASE_URL', ['postgres://x', ':memory:', 'http://', 'libsql://db.example?authToken=abc']],
    ['DATABASE_TIMEOUT_MS', ['0', '49', '20001', '-5', '2s']],
    ['AUTH_SECRET', ['short', 'x'.repeat(31)]],
    ['DATABASE_ENCRYPTION_KEY', ['short', 'x'.repeat(31)]],
    ['AUTH_PUBLIC_KEY', ['x', edPem.replace('PUBLIC', 'PRIVATE'), rsaPem(1024), ecPem('secp384r1')]],
    ['AUTH_JWKS_URL', ['x', 'file:///etc/passwd']],
    ['REPORT_TIME_ZONE', ['Mars/Olympus', 'x']],
    ['BODY_LIMIT_BYTES', ['0', '1023', '16777217']],
    ['LOG_LEVEL', ['verbose', 'INFO']],
    ['METRICS_TOKEN', ['x'.repeat(31), `${'x'.repeat(32)} x`, 'é'.repeat(32)]],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', ['collector:4318', 'https://a:b@collector', 'https://collector?a=b']],
    ['OTEL_EXPORTER_OTLP_HEADERS', ['key', '=value', 'a=b,', 'a=b c', 'a=%0d%0ab', 'a=%', 'ä=b']],
    ['OTEL_TRACES_SAMPLER_ARG', ['-0.1', '1.1', '2', '1e-3', '.5', 'all']],
    ['SEED_DEMO', ['yes', '1', 'TRUE']],
    ['CORS_ORIGINS', ['*', '', ',', 'https://a.example,', 'https://a.example/app', 'a.example', 'null']],
    ['CORS_ORIGINS', ['https://*.example', 'https://a.example:*', 'http://localhost.example:*']],
    ['CORS_ORIGINS', ['http://localhost:*:*']],
    ['CORS_ORIGINS', ['https://u@a.example', 'ftp://a.example', 'HTTPS://a.example']],
  ])('rejects an invalid %s: %j', (name, values) => {
    for (const value of values) expect([value, invalidSettings({ [name]: value })]).toEqual([value, [name]]);
  });

  test.each([
    ['DATABASE_READ_URL', ['file:a.db', 'ftp://a', 'a', 'libsql://db.example?authToken=abc']],
    ['DATABASE_REPLICA_PATH', [':memory:', 'a?b', 'folder/', 'file:a.db']],
  ])('rejects an invalid %s of a remote database: %j', (name, values) => {
    for (const value of values) expect([value, invalidSettings({ ...remote, [name]: value })]).toEqual([value, [name]]);
  });

  test.each([
    ['DATABASE_URL', ['file:planning.db', 'file:/srv/a b/planning.db', 'http://127.0.0.1:8080', 'wss://db.example']],
    ['DATABASE_URL', ['libsql://db.example']],
    ['AUTH_PUBLIC_KEY', [edPem, rsaPem(2048), ecPem('P-256'), edPem.replaceAll('\n', '\\n')]],
    ['AUTH_SECRET', ['é'.repeat(16)]],
    ['REPORT_TIME_ZONE', ['America/New_York', 'Pacific/Kiritimati']],
    ['METRICS_TOKEN', ['x'.repeat(32)]],
    ['OTEL_EXPORTER_OTLP_HEADERS', ['a=', 'x-key=a%2Cb%3D,y=z=', 'authorization=Basic%20abc=']],
    ['OTEL_TRACES_SAMPLER_ARG', ['0', '0.05', '1', '1.0']],
    ['PORT', ['0', '65535']],
  ])('accepts a valid %s: %j', (name, values) => {
    for (const value of values) expect([value, invalidSettings({ [name]: value })]).toEqual([value, []]);
  });

  test('reports all invalid settings in one error that quotes no value', () => {
    const canary = 'canary-4711';
    const faults = Object.keys(Settings.entries).flatMap((name) => faultsOf({ [name]: canary }));
    const all = faultsOf(Object.fromEntries(faults.map(({ key }) => [key, canary])));
    expect(all.map(({ key }) => key)).toEqual(expect.arrayContaining(['AUTH_SECRET_FILE', 'LOG_LEVEL', 'PORT']));
    expect(JSON.stringify([faults, all])).not.toContain(canary);
  });

  test('parses the endpoint and the headers of the trace receiver', () => {
    const endpoint = 'https://collector.example/base';
    const OTEL_EXPORTER_OTLP_HEADERS = 'x-key=a%2Cb%20c,y=z=';
    const { tracing } = readConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: `${endpoint}/`, OTEL_EXPORTER_OTLP_HEADERS });
    const headers = { 'x-key': 'a,b c', y: 'z=' };
    expect(tracing).toEqual({ endpoint, headers, serviceName: 'personal-planning-service', ratio: 1 });
  });
});

describe('readConfig in production', () => {
  const receiver = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector.example' };

  test.each<[string, invalid: (string | undefined)[]]>([
    ['AUTH_ISSUER', [undefined, 'your-issuer']],
    ['AUTH_AUDIENCE', [undefined, 'placeholder']],
    ['CARRIER_URL', [undefined, 'http://carrier.example']],
    ['CARRIER_API_KEY', [undefined, 'changeme', 'secret']],
    ['CHAT_ID', [undefined, 'demo-chat']],
    ['CHAT_TOKEN', [undefined, 'demo-chat-token']],
    ['AUTH_SECRET', ['x'.repeat(32), 'abc123'.repeat(10), 'change-me-change-me-change-me-change-me']],
    ['AUTH_SECRET', ['<a secret of at least 32 bytes goes here>', '$AUTH_SECRET that a shell has not filled in']],
    ['DATABASE_ENCRYPTION_KEY', ['0'.repeat(64), 'example-key-of-some-documentation-page']],
    ['DATABASE_AUTH_TOKEN', ['your-token']],
    ['PUBLIC_URL', ['http://planning.example']],
    ['SEED_DEMO', ['true']],
  ])('rejects a single insecure setting: %s', (key, values) => {
    for (const value of values)
      expect([value, invalidSettings({ ...production, [key]: value })]).toEqual([value, [key]]);
  });

  test('rejects a missing key for tokens, a JWKS over http and a key of a trace receiver over http', () => {
    const invalid = (change: Values) => invalidSettings({ ...production, ...change });
    expect(invalid({ AUTH_SECRET: undefined })).toEqual(['AUTH_SECRET or AUTH_PUBLIC_KEY or AUTH_JWKS_URL']);
    const jwks = { AUTH_SECRET: undefined, AUTH_JWKS_URL: 'http://issuer.example/jwks' };
    expect(invalid(jwks)).toEqual(['AUTH_JWKS_URL']);
    const withKey = { ...receiver, OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a' };
    expect(invalid(withKey)).toEqual(['OTEL_EXPORTER_OTLP_ENDPOINT']);
  });

  test.each<[string, Values]>([
    ['settings that replace every insecure default', {}],
    ['a test key of the carrier', { CARRIER_API_KEY: 'test_sk_4eC39HqLyjWDarjtT1zdp7dc' }],
    ['loopback addresses', { CARRIER_URL: 'http://127.0.0.1:3900', PUBLIC_URL: 'http://localhost:3000' }],
    ['a hexadecimal secret', { AUTH_SECRET: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08' }],
    ['a libSQL server in a private network', { DATABASE_URL: 'http://primary:8080' }],
    ['an encryption key', { DATABASE_ENCRYPTION_KEY: anotherSecret }],
    ['a trace receiver over http without headers', receiver],
    [
      'a trace receiver over http on loopback with headers',
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318', OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a' },
    ],
  ])('accepts %s', (_, change) => {
    expect(readConfig({ ...production, ...change })).toMatchObject({ isProduction: true, seedDemo: undefined });
  });

  test('reports every insecure and every invalid setting in one error', () => {
    expect(invalidSettings({ NODE_ENV: 'production', PORT: 'x' })).toEqual([
      ...['PORT', 'AUTH_ISSUER', 'AUTH_AUDIENCE', 'CARRIER_URL', 'CARRIER_API_KEY', 'CHAT_ID', 'CHAT_TOKEN'],
      'AUTH_SECRET or AUTH_PUBLIC_KEY or AUTH_JWKS_URL',
    ]);
  });

  test('rejects equal values for any two secrets', () => {
    const secrets = [
      ...['AUTH_SECRET', 'DATABASE_ENCRYPTION_KEY', 'METRICS_TOKEN', 'CARRIER_API_KEY', 'DATABASE_AUTH_TOKEN'],
      'CHAT_TOKEN',
    ];
    for (const [index, one] of secrets.entries()) {
      for (const other of secrets.slice(index + 1)) {
        const equal = { [one]: anotherSecret, [other]: anotherSecret };
        expect([one, ...invalidSettings({ ...production, ...equal })]).toEqual([one, other]);
      }
    }
  });

  test('rejects the development secret of this folder', () => {
    expect(() => readConfig(production, production.AUTH_SECRET)).toThrow('AUTH_SECRET must not be the development key');
    expect(readConfig(production, 'another').warnings.map(({ key }) => key)).toContain('NODE_ENV');
  });

  const named = { ...production, AUTH_ISSUER: 'https://id.acme.net', CARRIER_URL: 'https://carrier.acme.net' };
  const publicUrl = { PUBLIC_URL: 'https://planning.acme.net' };
  const token = { DATABASE_AUTH_TOKEN: 'token-of-mine' };
  test.each<[Values, string[]]>([
    [{}, ['DATABASE_ENCRYPTION_KEY', 'PUBLIC_URL']],
    [{ TRUSTED_PROXY_COUNT: undefined }, ['DATABASE_ENCRYPTION_KEY', 'PUBLIC_URL', 'TRUSTED_PROXY_COUNT']],
    [{ TRUSTED_PROXY_COUNT: undefined, RATE_LIMIT_PER_MINUTE: '0' }, ['DATABASE_ENCRYPTION_KEY', 'PUBLIC_URL']],
    [{ DATABASE_ENCRYPTION_KEY: anotherSecret, ...publicUrl }, []],
    [{ DATABASE_URL: 'libsql://db.example', ...token, ...publicUrl }, []],
    [
      { DATABASE_URL: 'http://primary:8080', DATABASE_READ_URL: 'ws://replica:8080', ...publicUrl },
      ['DATABASE_URL', 'DATABASE_READ_URL', 'DATABASE_AUTH_TOKEN'],
    ],
    [
      { DATABASE_URL: 'libsql://db.example?tls=0', DATABASE_REPLICA_PATH: 'data/replica.db', ...token, ...publicUrl },
      ['DATABASE_ENCRYPTION_KEY', 'DATABASE_URL'],
    ],
  ])('warns about settings that may be insecure: %j', (change, keys) => {
    expect(readConfig({ ...named, ...change }).warnings.map(({ key }) => key)).toEqual(keys);
    expect(readConfig({ ...named, ...change, NODE_ENV: 'development' }).warnings).toEqual([]);
  });

  test.each([
    ['PUBLIC_URL', 'https://planning.example'],
    ['AUTH_ISSUER', 'https://issuer.example/realms/main'],
    ['AUTH_ISSUER', 'issuer.invalid'],
    ['AUTH_AUDIENCE', 'https://api.test'],
    ['CARRIER_URL', 'https://carrier.example.com:8443/v1'],
  ])('warns about a reserved example name: %s=%s', (key, value) => {
    const { warnings } = readConfig({ ...named, ...publicUrl, [key]: value });
    expect(warnings.filter(({ rule }) => rule.includes('reserved'))).toEqual([
      { key, rule: 'has a name that is reserved for examples and tests' },
    ]);
  });
});

describe('secret in a file', () => {
  const { AUTH_SECRET: secret, ...settings } = production;

  /** Writes a file and returns its path. */
  function write(content: string | Uint8Array, mode = 0o400): string {
    const path = join(temporaryFolder(), 'secret');
    writeFileSync(path, content);
    chmodSync(path, mode);
    return path;
  }
  const makePipe = () => {
    const path = join(temporaryFolder(), 'pipe');
    Bun.spawnSync(['mkfifo', path]);
    return path;
  };
  /** The size of this folder is above the limit of a secret file. */
  const makeLargeFolder = () => {
    const folder = temporaryFolder();
    for (let index = 0; index < 400; index += 1) mkdirSync(join(folder, `${index}${'x'.repeat(200)}`));
    return folder;
  };

  test.each([
    ['no line break', '', ''],
    ['a line break at its end', '', '\n'],
    ['a line break of Windows at its end', '', '\r\n'],
    ['a byte order mark', '\uFEFF', '\r\n'],
  ])('has the value of its text without line breaks: %s', (_, before, after) => {
    const AUTH_SECRET_FILE = write(before + secret + after);
    expect(readConfig({ ...settings, AUTH_SECRET_FILE }).auth.key).toEqual({ kind: 'secret', secret });
  });

  test('may be a PEM with line breaks at its end', () => {
    expect(readConfig({ ...settings, AUTH_PUBLIC_KEY_FILE: write(`${edPem}\n\n`) }).auth.key.kind).toBe('public-key');
  });

  test.each(secretSettings.map((key) => [key]))('conflicts with %s itself', (key) => {
    const rule = `and ${key} are both set: set one of them`;
    const both = { [key]: 'y'.repeat(40), [`${key}_FILE`]: write('x'.repeat(40)) };
    expect(faultsOf(both)).toContainEqual({ key: `${key}_FILE`, rule });
  });

  const aroundRule = 'names a file with white space before or after the secret: remove it';
  test.each<[string, rule: string, make: () => string]>([
    ['is missing', 'names a file that does not exist', () => join(temporaryFolder(), 'missing')],
    ['is a folder', 'names a folder', temporaryFolder],
    ['is a large folder', 'names a folder', makeLargeFolder],
    ['is empty', 'names an empty file', () => write('')],
    ['has only a line break', 'names an empty file', () => write('\n')],
    ['is large', 'names a file of more than 64 kB', () => write('x'.repeat(65_537))],
    ['starts with a space', aroundRule, () => write(` ${secret}`)],
    ['ends with a space', aroundRule, () => write(`${secret} \n`)],
    ['ends with two line breaks', aroundRule, () => write(`${secret}\n\n`)],
    ['is UTF-16', 'names a file that is not UTF-8 text', () => write(Buffer.from(`\uFEFF${secret}`, 'utf16le'))],
    ['is a pipe', 'names a device or a pipe, not a file', makePipe],
    ['is in a file', 'names a file in a folder that does not exist', () => join(write(''), 'secret')],
  ])('causes one error when the file %s', (_, rule, make) => {
    expect(faultsOf({ ...settings, AUTH_SECRET_FILE: make() })).toEqual([{ key: 'AUTH_SECRET_FILE', rule }]);
  });

  test.each(['x'.repeat(40), 'short'])('must meet the rules of its setting: %s', (text) => {
    expect(invalidSettings({ ...settings, AUTH_SECRET_FILE: write(text) })).toEqual(['AUTH_SECRET']);
  });

  test.each([
    [0o400, undefined],
    [0o440, undefined],
    [0o444, 'names a file that every user of this machine can read: set its mode to 0400'],
    [0o602, 'names a file that every user of this machine can change: set its mode to 0400'],
  ])('causes a warning by the mode of its file: %o', (mode, rule) => {
    const { warnings } = readConfig({ ...settings, AUTH_SECRET_FILE: write(secret, mode) });
    expect(warnings.find(({ key }) => key === 'AUTH_SECRET_FILE')?.rule).toBe(rule);
  });
});

test.each([
  ['RATE_LIMIT_PER_MINTE', 'RATE_LIMIT_PER_MINUTE'],
  ['AUTH_JWKS_URI', 'AUTH_JWKS_URL'],
  ['AUTH_AUDIENCES', 'AUTH_AUDIENCE'],
  ['database_url', 'DATABASE_URL'],
  ['CORS_ORIGIN', 'CORS_ORIGINS'],
  ['LOGLEVEL', 'LOG_LEVEL'],
  ['PORTS', 'PORT'],
  ['DATABASE_ENCRYPTION_PASSPHRASE', 'DATABASE_ENCRYPTION_KEY'],
])('mistypedSettings pairs %s with the setting %s', (key, nearest) => {
  const rule = `is not a setting of this service; the nearest is ${nearest}`;
  expect(mistypedSettings({ [key]: 'x' })).toEqual([{ key, rule }]);
});

test('mistypedSettings ignores variables of other programs', () => {
  const others = ['PATH', 'HOME', 'HOSTNAME', 'OTEL_RESOURCE_ATTRIBUTES', 'AUTH_PORT_80_TCP_ADDR', 'constructor'];
  others.push('DATABASE_SERVICE_HOST', 'NEW_DATABASE_ENCRYPTION_KEY');
  expect(mistypedSettings(Object.fromEntries(others.map((key) => [key, 'x'])))).toEqual([]);
});

test('.env.example lists every setting as a comment', async () => {
  const example = await Bun.file(new URL('../../.env.example', import.meta.url)).text();
  const keys = [...example.matchAll(/^# ?([A-Z_]+)=/gm)].map(([, key]) => key ?? '');
  expect(keys).toEqual(Object.keys(Settings.entries));
  expect(example.split('\n').filter((line) => line !== '' && !line.startsWith('#'))).toEqual([]);
});
