import { describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import packageJson from '../package.json';
import { serveOptions } from '../src/app';
import { readConfig, Settings } from '../src/config/settings';
import { createLog } from '../src/log';
import { productionSettings } from './support/processes';
import { hasSqld, sqldVersion } from './support/servers';

const root = join(import.meta.dirname, '..');
const read = (name: string) => Bun.file(join(root, name)).text();
const production = readConfig(productionSettings);
/** A container or unit that gets less time to stop is killed. */
const stopMs = production.drainMs + production.shutdownTimeoutMs + 2000;

/** The instructions of the Dockerfile in order. */
const instructions = [...(await read('Dockerfile')).matchAll(/^([A-Z]+) +(.+)$/gm)];
const valuesOf = (name: string) => instructions.flatMap(([, each, value = '']) => (each === name ? [value] : []));

describe('compose.yaml', async () => {
  const Command = v.tupleWithRest([v.literal('bun')], v.string());
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
  const { NODE_ENV: _, ...settings } = productionSettings;
  const dotEnv = { ...settings, CARRIER_URL: 'https://carrier.example', PUBLIC_URL: 'https://planning.example' };

  /** The environment of a container: the image, the `.env` file, and `environment`, in which `${KEY:?message}` must be set. */
  function environmentOf({ environment, env_file }: v.InferOutput<typeof Service>, file: Record<string, string>) {
    const image = valuesOf('ENV').flatMap((value) => value.split(' ').map((each) => each.split('=', 2)));
    const fixed = Object.entries(environment).map(([key, value]) => {
      const name = /^\$\{([A-Z_]+):\?.+\}$/.exec(value ?? '')?.[1];
      const filled = name === undefined ? value : file[name];
      if (filled === undefined) throw new Error(`${key} must be set`);
      return [key, filled ?? ''] as const;
    });
    const all: Record<string, string> = Object.fromEntries(image);
    return { ...all, ...(env_file === '.env' ? file : {}), ...Object.fromEntries(fixed) };
  }

  test.each(own)('passes every setting of .env to %s, except those that the deployment fixes', (_, service) => {
    const keys = Object.keys(Settings.entries);
    const file = Object.fromEntries(keys.map((key) => [key, `value of ${key}`]));
    const given = environmentOf(service, file);
    expect(Object.keys(given).sort()).toEqual([...keys].sort());
    const fixed = keys.filter((key) => given[key] !== file[key]);
    expect(fixed.sort()).toEqual(['DATABASE_READ_URL', 'DATABASE_URL', 'HOST', 'NODE_ENV', 'PORT']);
  });

  test.each(own)('starts %s in production with the settings of .env and contains no secrets', (_, service) => {
    const database = { url: 'http://primary:8080' };
    const config = readConfig(environmentOf(service, dotEnv));
    expect(config).toMatchObject({ isProduction: true, host: '0.0.0.0', database });
    expect(Object.keys(service.environment).filter((key) => /KEY|TOKEN|SECRET/.test(key))).toEqual([]);
    expect(() => environmentOf(service, {})).toThrow('must be set');
  });

  test.each(own)('gives %s longer to stop than the drain and the shutdown timeout take', (_, service) => {
    expect(Number(/^(\d+)s$/.exec(service.stop_grace_period ?? '')?.[1]) * 1000).toBeGreaterThan(stopMs);
  });

  test('bounds the log of every container', () => {
    for (const { logging } of Object.values(services)) {
      expect(logging.options).toEqual({ 'max-size': expect.stringMatching(/^\d+m$/), 'max-file': expect.any(String) });
    }
  });

  test('publishes ports on this machine only', () => {
    const ports = Object.values(services).flatMap((service) => service.ports);
    expect(ports).toEqual(['127.0.0.1:3001:3000', '127.0.0.1:3002:3000']);
  });

  test('waits only for services with a health check or for the completed migration', () => {
    const awaited = Object.values(services).flatMap(({ depends_on }) => Object.entries(depends_on));
    for (const [name, { condition }] of awaited) {
      const { healthcheck, command } = services[name] ?? {};
      if (condition === 'service_healthy') expect(healthcheck?.test).toBeDefined();
      else expect([condition, command?.at(-1)]).toEqual(['service_completed_successfully', 'migrate']);
    }
    expect(Object.keys(services['planning-1']?.depends_on ?? {})).toEqual(['primary', 'replica', 'migrate']);
  });

  test('runs entry points of the bundle', () => {
    const programs = Object.values(services).flatMap(({ command }) => (command === undefined ? [] : [command[2]]));
    expect(new Set(programs)).toEqual(new Set(['src/cli/main.js']));
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

  test('runs as a user that may write data only', () => {
    expect([valuesOf('USER'), valuesOf('VOLUME')]).toEqual([['bun'], ['/app/data']]);
  });

  test('copies only files that exist and that .dockerignore allows', async () => {
    const copied = valuesOf('COPY').filter((value) => !value.startsWith('--from'));
    const sources = copied.flatMap((value) => value.split(' ').slice(0, -1));
    expect(sources.filter((path) => !existsSync(join(root, path)))).toEqual([]);
    const [all, ...allowed] = (await read('.dockerignore')).trim().split('\n');
    expect([all, ...allowed.sort()]).toEqual(['*', ...sources.map((path) => `!${path}`).sort()]);
    expect(valuesOf('COPY').filter((value) => value.startsWith('--from'))).toEqual(['--from=build /build/dist ./']);
  });
});

describe('docs/deploy', () => {
  test.each([
    ['nginx.conf', /keepalive_timeout (\d+)s/],
    ['Caddyfile', /\tkeepalive (\d+)s/],
  ])('%s closes idle connections before the service does, and during the drain', async (file, pattern) => {
    const seconds = Number(pattern.exec(await read(`docs/deploy/${file}`))?.[1]);
    const { idleTimeout } = serveOptions({ config: production, log: createLog('silent'), newRequestId: () => '' });
    expect(seconds).toBeGreaterThan(0);
    expect(seconds).toBeLessThan(Math.min(idleTimeout, production.drainMs / 1000));
    expect(await read('docs/deploy.md')).toContain(`the service: ${idleTimeout} s by default`);
  });

  test('planning@.service grants more time to stop than the drain and the shutdown timeout take', async () => {
    const seconds = /^TimeoutStopSec=(\d+)/m.exec(await read('docs/deploy/planning@.service'))?.[1];
    expect(Number(seconds) * 1000).toBeGreaterThan(stopMs);
  });

  test('planning.env has every setting that production requires', async () => {
    const lines = (await read('docs/deploy/planning.env')).split('\n').filter((line) => /^[A-Z]/.test(line));
    const example: Record<string, string> = Object.fromEntries(lines.map((line) => line.split(/=(.*)/s, 2)));
    const placeholders = Object.keys(example).filter((key) => example[key] === 'changeme');
    expect(placeholders.sort()).toEqual(['AUTH_SECRET', 'CARRIER_API_KEY', 'CHAT_ID', 'CHAT_TOKEN']);
    for (const key of placeholders) expect(() => readConfig({ NODE_ENV: 'production', ...example })).toThrow(key);
    const { AUTH_SECRET, CARRIER_API_KEY, CHAT_ID, CHAT_TOKEN } = productionSettings;
    const filled = { ...example, AUTH_SECRET, CARRIER_API_KEY, CHAT_ID, CHAT_TOKEN };
    expect(readConfig({ NODE_ENV: 'production', ...filled }).isProduction).toBeTrue();
  });
});
