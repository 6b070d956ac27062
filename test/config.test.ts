import { describe, expect, test } from 'bun:test';
import { generateKeyPairSync } from 'node:crypto';
import { ConfigError, readConfig, Settings } from '../src/config/settings';

const pem = (type: 'ed25519') => generateKeyPairSync(type).publicKey.export({ type: 'spki', format: 'pem' }).toString();
const rsaPem = (modulusLength: number) =>
  generateKeyPairSync('rsa', { modulusLength }).publicKey.export({ type: 'spki', format: 'pem' }).toString();
const ecPem = (namedCurve: string) =>
  generateKeyPairSync('ec', { namedCurve }).publicKey.export({ type: 'spki', format: 'pem' }).toString();

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

function invalidSettings(environment: Record<string, string | undefined>): string[] {
  try {
    readConfig(environment);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.faults.map(({ key }) => key);
  }
}

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
    });
  });

  test('enables rate limits only in production and disables them with 0', () => {
    expect(readConfig({}).rateLimit).toEqual({ perMinute: 0, trustedProxyCount: 0 });
    expect(readConfig(production).rateLimit).toEqual({ perMinute: 600, trustedProxyCount: 1 });
    expect(readConfig({ ...production, RATE_LIMIT_PER_MINUTE: '0' }).rateLimit.perMinute).toBe(0);
  });

  test('drains by default only in production, and together with the timeout in less than the 30 s of Kubernetes', () => {
    expect([readConfig({}).drainMs, readConfig(production).drainMs]).toEqual([0, 15_000]);
    expect(readConfig(production).drainMs + readConfig(production).shutdownTimeoutMs).toBeLessThan(28_000);
  });

  test('normalizes CORS origins and allows a port wildcard only for loopback hosts', () => {
    expect(readConfig(production).corsOrigins).toEqual([]);
    const loopback = ['localhost:*', '127.0.0.1:*', '[::1]:*'];
    expect(readConfig({}).corsOrigins).toEqual(
      ['http', 'https'].flatMap((scheme) => loopback.map((host) => `${scheme}://${host}`)),
    );
    const list =
      'https://app.example.com, http://localhost:5173,https://b.example/ ,https://C.example,https://d.example:443,http://localhost:*,https://127.0.0.1:*/';
    expect(readConfig({ CORS_ORIGINS: list }).corsOrigins).toEqual([
      'https://app.example.com',
      'http://localhost:5173',
      'https://b.example',
      'https://c.example',
      'https://d.example',
      'http://localhost:*',
      'https://127.0.0.1:*',
    ]);
    for (const invalid of [
      '*',
      '',
      ',',
      'https://a.example,',
      'https://a.example/app',
      'https://*.example',
      'https://a.example:*',
      'http://localhost.example:*',
      'http://localhost:*:*',
      'a.example',
      'null',
      'https://u@a.example',
      'ftp://a.example',
      'HTTPS://a.example',
    ])
      expect(invalidSettings({ CORS_ORIGINS: invalid })).toEqual(['CORS_ORIGINS']);
  });

  test('accepts at most one replica, and only of a libSQL server', () => {
    const remote = { DATABASE_URL: 'libsql://db.example' };
    const server = { DATABASE_READ_URL: 'https://replica.example' };
    const file = { DATABASE_REPLICA_PATH: 'data/replica.db' };
    expect(readConfig({ ...remote, ...server }).replica).toEqual({ kind: 'server', url: 'https://replica.example' });
    expect(readConfig({ ...remote, ...file }).replica).toEqual({
      kind: 'file',
      path: 'data/replica.db',
      intervalMs: 1000,
    });
    expect(readConfig(remote).replica).toBeUndefined();
    expect(invalidSettings({ ...remote, ...server, ...file })).toEqual(['DATABASE_READ_URL', 'DATABASE_REPLICA_PATH']);
    expect(invalidSettings(server)).toEqual(['DATABASE_READ_URL']);
    expect(invalidSettings({ DATABASE_URL: 'file:a.db', ...file })).toEqual(['DATABASE_REPLICA_PATH']);
    for (const url of ['file:a.db', 'ftp://a', 'a']) {
      expect(invalidSettings({ ...remote, DATABASE_READ_URL: url })).toEqual(['DATABASE_READ_URL']);
    }
    for (const key of ['DATABASE_URL', 'DATABASE_READ_URL']) {
      expect(invalidSettings({ ...remote, [key]: 'libsql://db.example?authToken=abc' })).toEqual([key]);
    }
    expect(invalidSettings({ ...remote, DATABASE_READ_URL: remote.DATABASE_URL })).toEqual(['DATABASE_READ_URL']);
    for (const path of [':memory:', 'a?b', 'folder/', 'file:a.db']) {
      expect(invalidSettings({ ...remote, DATABASE_REPLICA_PATH: path })).toEqual(['DATABASE_REPLICA_PATH']);
    }
  });

  test('accepts an encryption key only with a file to encrypt', () => {
    const key = { DATABASE_ENCRYPTION_KEY: 'k'.repeat(32) };
    const remote = { DATABASE_URL: 'libsql://db.example' };
    expect(readConfig(key).database.encryptionKey).toBe(key.DATABASE_ENCRYPTION_KEY);
    expect(invalidSettings({ ...key, ...remote, DATABASE_REPLICA_PATH: 'data/replica.db' })).toEqual([]);
    expect(invalidSettings({ ...key, ...remote })).toEqual(['DATABASE_ENCRYPTION_KEY']);
    expect(invalidSettings({ ...key, ...remote, DATABASE_READ_URL: 'https://replica.example' })).toEqual([
      'DATABASE_ENCRYPTION_KEY',
    ]);
  });

  test.each(Object.keys(Settings.entries))('rejects an empty %s', (key) => {
    expect(invalidSettings({ [key]: '' })).toEqual([key]);
  });

  test.each([
    ['NODE_ENV', ['prod', 'test', 'Production']],
    ['PORT', ['-1', '65536', '3000.5', '0x10', '1e3', ' 3000', 'abc']],
    [
      'PUBLIC_URL',
      [
        'example.com',
        'ftp://example.com',
        'http://',
        'https://example.com/base',
        'https://example.com?x=1',
        'https://me:secret@example.com',
      ],
    ],
    [
      'DATABASE_URL',
      [
        'planning.db',
        'file:',
        'file::memory:',
        'file:a.db?mode=ro',
        'file:data/',
        'file://data/x.db',
        'postgres://x',
        ':memory:',
        'http://',
      ],
    ],
    ['DATABASE_TIMEOUT_MS', ['0', '49', '20001', '-5', '2s']],
    ['AUTH_SECRET', ['short', 'x'.repeat(31)]],
    ['DATABASE_ENCRYPTION_KEY', ['short', 'x'.repeat(31)]],
    ['AUTH_PUBLIC_KEY', ['x', pem('ed25519').replace('PUBLIC', 'PRIVATE'), rsaPem(1024), ecPem('secp384r1')]],
    ['AUTH_JWKS_URL', ['x', 'file:///etc/passwd']],
    ['REPORT_TIME_ZONE', ['Mars/Olympus', 'x']],
    ['BODY_LIMIT_BYTES', ['0', '1023', '16777217']],
    ['LOG_LEVEL', ['verbose', 'INFO']],
    ['METRICS_TOKEN', ['x'.repeat(31), `${'x'.repeat(32)} x`, 'é'.repeat(32)]],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', ['collector:4318', 'https://a:b@collector', 'https://collector?a=b']],
    ['OTEL_EXPORTER_OTLP_HEADERS', ['key', '=value', 'a=b,', 'a=b c', 'a=%0d%0ab', 'a=%', 'ä=b']],
    ['OTEL_TRACES_SAMPLER_ARG', ['-0.1', '1.1', '2', '1e-3', '.5', 'all']],
    ['SEED_DEMO', ['yes', '1', 'TRUE']],
  ])('rejects an invalid %s: %j', (key, values) => {
    for (const value of values) {
      expect(invalidSettings({ [key]: value })).toEqual([key]);
    }
  });

  test.each([
    [
      'DATABASE_URL',
      [
        'file:planning.db',
        'file:/srv/a b/planning.db',
        'http://127.0.0.1:8080',
        'libsql://db.example',
        'wss://db.example',
      ],
    ],
    ['AUTH_PUBLIC_KEY', [pem('ed25519'), rsaPem(2048), ecPem('P-256'), pem('ed25519').replaceAll('\n', '\\n')]],
    ['AUTH_SECRET', ['é'.repeat(16)]],
    ['REPORT_TIME_ZONE', ['America/New_York', 'Pacific/Kiritimati']],
    ['METRICS_TOKEN', ['x'.repeat(32)]],
    ['OTEL_EXPORTER_OTLP_HEADERS', ['a=', 'x-key=a%2Cb%3D,y=z=', 'authorization=Basic%20abc=']],
    ['OTEL_TRACES_SAMPLER_ARG', ['0', '0.05', '1', '1.0']],
    ['PORT', ['0', '65535']],
  ])('accepts a valid %s: %j', (key, values) => {
    for (const value of values) expect(invalidSettings({ [key]: value })).toEqual([]);
  });

  test('quotes no value in an error message', () => {
    const canary = 'canary-4711';
    const environment = Object.fromEntries(Object.keys(Settings.entries).map((key) => [key, canary]));
    expect(invalidSettings(environment).length).toBeGreaterThan(8);
    expect(() => readConfig(environment)).toThrow(
      expect.objectContaining({ message: expect.not.stringContaining(canary) }),
    );
  });

  test('reports all invalid settings in one error', () => {
    expect(invalidSettings({ PORT: 'x', LOG_LEVEL: 'x', AUTH_SECRET: 'x', SEED_DEMO: 'x' }).sort()).toEqual([
      'AUTH_SECRET',
      'LOG_LEVEL',
      'PORT',
      'SEED_DEMO',
    ]);
  });

  test('parses the endpoint and the headers of the trace receiver', () => {
    expect(readConfig({}).tracing).toBeUndefined();
    const receiver = { OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector.example/base/' };
    expect(readConfig({ ...receiver, OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a%2Cb%20c,y=z=' }).tracing).toEqual({
      endpoint: 'https://collector.example/base',
      headers: { 'x-key': 'a,b c', y: 'z=' },
      serviceName: 'personal-planning-service',
      ratio: 1,
    });
  });

  test('accepts only one kind of token key', () => {
    const both = { AUTH_SECRET: 'x'.repeat(32), AUTH_JWKS_URL: 'https://issuer.example/jwks' };
    expect(invalidSettings(both)).toEqual(['AUTH_SECRET', 'AUTH_JWKS_URL']);
  });
});

describe('readConfig in production', () => {
  test('accepts settings that replace every insecure default', () => {
    expect(readConfig(production)).toMatchObject({ isProduction: true, seedDemo: undefined });
  });

  test.each([
    ['AUTH_ISSUER', { AUTH_ISSUER: undefined }],
    ['AUTH_AUDIENCE', { AUTH_AUDIENCE: undefined }],
    ['CARRIER_URL', { CARRIER_URL: undefined }],
    ['CARRIER_URL', { CARRIER_URL: 'http://carrier.example' }],
    ['CARRIER_API_KEY', { CARRIER_API_KEY: undefined }],
    ['CHAT_ID', { CHAT_ID: undefined }],
    ['CHAT_TOKEN', { CHAT_TOKEN: undefined }],
    ['AUTH_SECRET or AUTH_PUBLIC_KEY or AUTH_JWKS_URL', { AUTH_SECRET: undefined }],
    ['AUTH_JWKS_URL', { AUTH_SECRET: undefined, AUTH_JWKS_URL: 'http://issuer.example/jwks' }],
    ['AUTH_SECRET', { AUTH_SECRET: 'x'.repeat(32) }],
    ['AUTH_SECRET', { AUTH_SECRET: 'abc123'.repeat(10) }],
    ['AUTH_SECRET', { AUTH_SECRET: 'change-me-change-me-change-me-change-me' }],
    ['AUTH_SECRET', { AUTH_SECRET: '<a secret of at least 32 bytes goes here>' }],
    ['AUTH_SECRET', { AUTH_SECRET: '$AUTH_SECRET that a shell has not filled in' }],
    ['DATABASE_ENCRYPTION_KEY', { DATABASE_ENCRYPTION_KEY: '0'.repeat(64) }],
    ['DATABASE_ENCRYPTION_KEY', { DATABASE_ENCRYPTION_KEY: 'example-key-of-some-documentation-page' }],
    ['DATABASE_AUTH_TOKEN', { DATABASE_AUTH_TOKEN: 'your-token' }],
    ['CARRIER_API_KEY', { CARRIER_API_KEY: 'changeme' }],
    ['CARRIER_API_KEY', { CARRIER_API_KEY: 'secret' }],
    ['CHAT_ID', { CHAT_ID: 'demo-chat' }],
    ['CHAT_TOKEN', { CHAT_TOKEN: 'demo-chat-token' }],
    ['AUTH_ISSUER', { AUTH_ISSUER: 'your-issuer' }],
    ['AUTH_AUDIENCE', { AUTH_AUDIENCE: 'placeholder' }],
    ['PUBLIC_URL', { PUBLIC_URL: 'http://planning.example' }],
    ['SEED_DEMO', { SEED_DEMO: 'true' }],
    [
      'OTEL_EXPORTER_OTLP_ENDPOINT',
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector.example', OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a' },
    ],
  ])('rejects a single insecure setting: %s %j', (key, change) => {
    expect(invalidSettings({ ...production, ...change })).toEqual([key]);
  });

  test('rejects equal values for any two secrets', () => {
    const secrets = [
      'AUTH_SECRET',
      'DATABASE_ENCRYPTION_KEY',
      'METRICS_TOKEN',
      'CARRIER_API_KEY',
      'DATABASE_AUTH_TOKEN',
      'CHAT_TOKEN',
    ];
    for (const [index, one] of secrets.entries()) {
      for (const other of secrets.slice(index + 1)) {
        const same = 'Jm0x7Qe2Rk9Zb4Wd6Tn1Vy8Ls3Hc5PgFa';
        expect([one, ...invalidSettings({ ...production, [one]: same, [other]: same })]).toEqual([one, other]);
      }
    }
  });

  test('accepts a trace receiver over http without headers or on loopback', () => {
    expect(invalidSettings({ ...production, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector.example' })).toEqual([]);
    const local = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318', OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a' };
    expect(invalidSettings({ ...production, ...local })).toEqual([]);
  });

  test('rejects the development secret of this folder', () => {
    expect(() => readConfig(production, production.AUTH_SECRET)).toThrow('AUTH_SECRET must not be the development key');
    expect(readConfig(production, 'another').warnings.map(({ key }) => key)).toContain('NODE_ENV');
  });

  test.each([
    ['a test key of the carrier', { CARRIER_API_KEY: 'test_sk_4eC39HqLyjWDarjtT1zdp7dc' }],
    ['loopback addresses', { CARRIER_URL: 'http://127.0.0.1:3900', PUBLIC_URL: 'http://localhost:3000' }],
    [
      'a secret of hexadecimal digits',
      { AUTH_SECRET: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08' },
    ],
    ['a libSQL server in a private network', { DATABASE_URL: 'http://primary:8080' }],
    ['an encryption key', { DATABASE_ENCRYPTION_KEY: 'Jm0x7Qe2Rk9Zb4Wd6Tn1Vy8Ls3Hc5Pg' + 'Fa' }],
  ])('accepts %s', (_, change) => {
    expect(invalidSettings({ ...production, ...change })).toEqual([]);
  });

  const named = { ...production, AUTH_ISSUER: 'https://id.acme.net', CARRIER_URL: 'https://carrier.acme.net' };

  test.each([
    [{}, ['DATABASE_ENCRYPTION_KEY', 'PUBLIC_URL']],
    [{ TRUSTED_PROXY_COUNT: undefined }, ['DATABASE_ENCRYPTION_KEY', 'PUBLIC_URL', 'TRUSTED_PROXY_COUNT']],
    [{ TRUSTED_PROXY_COUNT: undefined, RATE_LIMIT_PER_MINUTE: '0' }, ['DATABASE_ENCRYPTION_KEY', 'PUBLIC_URL']],
    [{ DATABASE_ENCRYPTION_KEY: 'Jm0x7Qe2Rk9Zb4Wd6Tn1Vy8Ls3Hc5PgFa', PUBLIC_URL: 'https://planning.acme.net' }, []],
    [
      {
        DATABASE_URL: 'http://primary:8080',
        DATABASE_READ_URL: 'ws://replica:8080',
        PUBLIC_URL: 'https://planning.acme.net',
      },
      ['DATABASE_URL', 'DATABASE_READ_URL', 'DATABASE_AUTH_TOKEN'],
    ],
    [
      {
        DATABASE_URL: 'libsql://db.example',
        DATABASE_AUTH_TOKEN: 'token-of-mine',
        PUBLIC_URL: 'https://planning.acme.net',
      },
      [],
    ],
    [
      {
        DATABASE_URL: 'libsql://db.example?tls=0',
        DATABASE_AUTH_TOKEN: 'token-of-mine',
        DATABASE_REPLICA_PATH: 'data/replica.db',
        PUBLIC_URL: 'https://planning.acme.net',
      },
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
    const { warnings } = readConfig({ ...named, PUBLIC_URL: 'https://planning.acme.net', [key]: value });
    expect(warnings.filter(({ rule }) => rule.includes('reserved'))).toEqual([
      { key, rule: 'has a name that is reserved for examples and tests' },
    ]);
  });

  test('reports every insecure and every invalid setting in one error', () => {
    expect(invalidSettings({ NODE_ENV: 'production', PORT: 'x' })).toEqual([
      'PORT',
      'AUTH_ISSUER',
      'AUTH_AUDIENCE',
      'CARRIER_URL',
      'CARRIER_API_KEY',
      'CHAT_ID',
      'CHAT_TOKEN',
      'AUTH_SECRET or AUTH_PUBLIC_KEY or AUTH_JWKS_URL',
    ]);
  });
});

describe('.env.example', () => {
  test('lists every setting as a comment', async () => {
    const example = await Bun.file(new URL('../.env.example', import.meta.url)).text();
    const keys = [...example.matchAll(/^# ?([A-Z_]+)=/gm)].map(([, key]) => key ?? '');
    expect(keys).toEqual(Object.keys(Settings.entries));
    expect(example.split('\n').filter((line) => line !== '' && !line.startsWith('#'))).toEqual([]);
  });
});
