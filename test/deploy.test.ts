import { describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import packageJson from '../package.json';
import { readConfig, Settings } from '../src/config/settings';
import { buildMovedBundle } from './support/artifacts';
import { startService } from './support/processes';
import { freePort, until } from './support/resources';
import { hasSqld, sqldVersion } from './support/servers';

const root = join(import.meta.dirname, '..');
const read = (name: string) => Bun.file(join(root, name)).text();

/** The instructions of the Dockerfile in order. */
const instructions = [...(await read('Dockerfile')).matchAll(/^([A-Z]+) +(.+)$/gm)].map(([, name, value = '']) => ({
  name,
  value,
}));
const valuesOf = (name: string) => instructions.filter((each) => each.name === name).map(({ value }) => value);
const Command = v.tupleWithRest([v.literal('bun')], v.string());
/** The arguments of a `bun` command in exec form. */
const argumentsOf = (value = '') => v.parse(Command, JSON.parse(value.slice(value.indexOf('[')))).slice(1);

const Service = v.object({
  image: v.string(),
  build: v.optional(v.literal('.')),
  command: v.optional(Command),
  env_file: v.optional(v.literal('.env')),
  environment: v.record(v.string(), v.nullable(v.string())),
  logging: v.object({ driver: v.literal('json-file'), options: v.record(v.string(), v.string()) }),
  stop_grace_period: v.optional(v.string()),
  ports: v.optional(v.array(v.string()), []),
  healthcheck: v.optional(v.object({ test: v.optional(v.tupleWithRest([v.literal('CMD')], v.string())) })),
  depends_on: v.optional(v.record(v.string(), v.object({ condition: v.string() })), {}),
});
const Compose = v.object({ services: v.record(v.string(), Service) });
const { services } = v.parse(Compose, Bun.YAML.parse(await read('compose.yaml')));
const own = Object.entries(services).filter(([, { build }]) => build !== undefined);
const imageEnvironment = Object.fromEntries(valuesOf('ENV').flatMap((value) => value.split(' ').map(toPair)));

/** A `.env` with the settings that production requires. */
const dotEnv: Readonly<Record<string, string>> = {
  AUTH_SECRET: 'a secret of production, 32 bytes long',
  AUTH_ISSUER: 'issuer',
  AUTH_AUDIENCE: 'audience',
  CARRIER_URL: 'https://carrier.example',
  CARRIER_API_KEY: 'carrier-key',
  CHAT_ID: 'chat',
  CHAT_TOKEN: 'chat-token',
  PUBLIC_URL: 'https://planning.example',
};

function toPair(assignment: string): [string, string] {
  const [key = '', value = ''] = assignment.split('=');
  return [key, value];
}

type Values = Readonly<Record<string, string>>;

/** The environment of a container: the image, the `.env` file, and `environment`, in which `${KEY:?message}` must be set. */
function environmentOf({ environment, env_file }: v.InferOutput<typeof Service>, file: Values): Values {
  const own = Object.entries(environment).map(([key, value]) => {
    const name = /^\$\{([A-Z_]+):\?.+\}$/.exec(value ?? '')?.[1];
    const filled = name === undefined ? value : file[name];
    if (filled === undefined) throw new Error(`${key} must be set`);
    return [key, filled ?? ''] as const;
  });
  return { ...imageEnvironment, ...(env_file === '.env' ? file : {}), ...Object.fromEntries(own) };
}

describe('compose.yaml', () => {
  test.each(own)('F15 passes every setting of .env to %s, except those that the deployment fixes', (_, service) => {
    const keys = Object.keys(Settings.entries);
    const file = Object.fromEntries(keys.map((key) => [key, `value of ${key}`]));
    const given = environmentOf(service, file);
    expect(Object.keys(given).sort()).toEqual([...keys].sort());
    const fixed = keys.filter((key) => given[key] !== file[key]);
    expect(fixed.sort()).toEqual(['DATABASE_READ_URL', 'DATABASE_URL', 'HOST', 'NODE_ENV', 'PORT']);
  });

  test.each(own)('starts %s in production with the settings of .env and contains no secrets', (_, service) => {
    expect(readConfig(environmentOf(service, dotEnv))).toMatchObject({
      isProduction: true,
      host: '0.0.0.0',
      database: { url: 'http://primary:8080' },
    });
    expect(Object.keys(service.environment).filter((key) => /KEY|TOKEN|SECRET/.test(key))).toEqual([]);
    expect(() => environmentOf(service, {})).toThrow('must be set');
  });

  test('F15 bounds the log of every container', () => {
    for (const { logging } of Object.values(services)) {
      expect(logging.options).toEqual({ 'max-size': expect.stringMatching(/^\d+m$/), 'max-file': expect.any(String) });
    }
  });

  test.each(own)('F25 gives %s longer to stop than the drain and the shutdown timeout take', (_, service) => {
    const { drainMs, shutdownTimeoutMs } = readConfig(environmentOf(service, dotEnv));
    const seconds = Number(/^(\d+)s$/.exec(service.stop_grace_period ?? '')?.[1]);
    expect(seconds * 1000).toBeGreaterThan(drainMs + shutdownTimeoutMs + 2000);
  });

  test('publishes ports on this machine only', () => {
    const ports = Object.values(services).flatMap((service) => service.ports);
    expect(ports).toEqual(['127.0.0.1:3001:3000', '127.0.0.1:3002:3000']);
  });

  test('waits only for services with a health check or for the completed migration', () => {
    for (const { depends_on } of Object.values(services)) {
      for (const [name, { condition }] of Object.entries(depends_on)) {
        const awaited = services[name];
        if (condition === 'service_healthy') expect(awaited?.healthcheck?.test).toBeDefined();
        else expect([condition, awaited?.command?.at(-1)]).toEqual(['service_completed_successfully', 'migrate']);
      }
    }
    expect(Object.keys(services['planning-1']?.depends_on ?? {})).toEqual(['primary', 'replica', 'migrate']);
  });

  test.skipIf(!hasSqld)('runs the libSQL server that the tests run', () => {
    for (const name of ['primary', 'replica']) expect(services[name]?.image).toEndWith(`:v${sqldVersion()}`);
  });
});

describe('Dockerfile', () => {
  test('builds and runs with the pinned Bun version, not on musl', () => {
    const { bun } = packageJson.devDependencies;
    expect(valuesOf('FROM')).toEqual([`oven/bun:${bun} AS build`, `oven/bun:${bun}-slim`]);
  });

  test('copies only files that exist and that .dockerignore allows', async () => {
    const copied = valuesOf('COPY').filter((value) => !value.startsWith('--from'));
    const sources = copied.flatMap((value) => value.split(' ').slice(0, -1));
    expect(sources.filter((path) => !existsSync(join(root, path)))).toEqual([]);
    const [all, ...allowed] = (await read('.dockerignore')).trim().split('\n');
    expect([all, ...allowed.sort()]).toEqual(['*', ...sources.map((path) => `!${path}`).sort()]);
    expect(valuesOf('COPY').filter((value) => value.startsWith('--from'))).toEqual(['--from=build /build/dist ./']);
  });

  test('F25 starts the bundle as a user that may write data only, with liveness as health check', async () => {
    expect(valuesOf('USER')).toEqual(['bun']);
    expect(valuesOf('VOLUME')).toEqual(['/app/data']);
    const { bundle } = await buildMovedBundle();
    for (const { command } of Object.values(services)) {
      if (command !== undefined) expect(existsSync(join(bundle, command[2] ?? ''))).toBeTrue();
    }
    const PORT = String(await freePort());
    const isHealthy = async () => {
      const [check] = valuesOf('HEALTHCHECK');
      const env = { PORT, HTTP_PROXY: 'http://127.0.0.1:9', NO_PROXY: 'internal.example' };
      const child = Bun.spawn([process.execPath, ...argumentsOf(check)], { env, stderr: 'ignore' });
      return (await child.exited) === 0;
    };
    expect(await isHealthy()).toBeFalse();
    // Nothing listens at this address, so the database is unavailable.
    const unavailable = { DATABASE_URL: 'http://127.0.0.1:1', DRAIN_MS: '3000' };
    const environment = { ...imageEnvironment, ...dotEnv, ...unavailable, PORT };
    const service = await startService({ program: argumentsOf(valuesOf('CMD')[0]), cwd: bundle, environment });
    const readiness = () => fetch(`http://127.0.0.1:${PORT}/health/ready`);
    expect([await isHealthy(), (await readiness()).status]).toEqual([true, 503]);
    service.process.kill('SIGTERM');
    await until(async () => (await readiness()).headers.get('connection') === 'close');
    expect(await isHealthy()).toBeTrue();
    expect(await service.process.exited).toBe(0);
    expect(await isHealthy()).toBeFalse();
  });
});
