import { describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import packageJson from '../package.json';
import { readConfig, Settings } from '../src/config';
import { buildMovedBundle } from './support/bundle';
import { freePort } from './support/free-port';
import { startService } from './support/service';
import { hasSqld, sqldVersion } from './support/sqld';

const root = join(import.meta.dirname, '..');
const read = (name: string) => Bun.file(join(root, name)).text();

/** Each instruction of the Dockerfile with what follows it, in order. */
const instructions = [...(await read('Dockerfile')).matchAll(/^([A-Z]+) +(.+)$/gm)].map(([, name, value = '']) => ({
  name,
  value,
}));
const valuesOf = (name: string) => instructions.filter((each) => each.name === name).map(({ value }) => value);
const Command = v.tupleWithRest([v.literal('bun')], v.string());
/** The arguments for Bun of a command in the exec form. */
const argumentsOf = (value = '') => v.parse(Command, JSON.parse(value.slice(value.indexOf('[')))).slice(1);

const Service = v.object({
  image: v.string(),
  build: v.optional(v.literal('.')),
  command: v.optional(Command),
  environment: v.record(v.string(), v.nullable(v.string())),
  healthcheck: v.optional(v.object({ test: v.optional(v.tupleWithRest([v.literal('CMD')], v.string())) })),
  depends_on: v.optional(v.record(v.string(), v.object({ condition: v.string() })), {}),
});
const Compose = v.object({ services: v.record(v.string(), Service) });
const { services } = v.parse(Compose, Bun.YAML.parse(await read('compose.yaml')));
const own = Object.entries(services).filter(([, { build }]) => build !== undefined);
const imageEnvironment = Object.fromEntries(valuesOf('ENV').flatMap((value) => value.split(' ').map(toPair)));

/** What whoever runs compose.yaml is asked for. */
const asked: Readonly<Record<string, string>> = {
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

type Environment = Readonly<Record<string, string | null>>;

/** As compose fills it in: a key without a value is passed on if it is set, `${KEY:?message}` must be set. */
function filledIn(environment: Environment): Record<string, string | undefined> {
  const entries = Object.entries(environment).map(([key, value]) => {
    const name = value === null ? key : /^\$\{([A-Z_]+):\?.+\}$/.exec(value)?.[1];
    return [key, name === undefined ? (value ?? undefined) : asked[name]] as const;
  });
  return Object.fromEntries(entries);
}

/** What the file itself gives. */
function written(environment: Environment): Record<string, string | undefined> {
  return filledIn(
    Object.fromEntries(Object.entries(environment).filter(([, value]) => value?.startsWith('$') === false)),
  );
}

describe('compose.yaml', () => {
  test('gives the service only settings that it has', () => {
    expect(own.map(([name]) => name)).toEqual(['migrate', 'planning-1', 'planning-2']);
    for (const [, { environment }] of own) {
      expect(Object.keys(environment).filter((key) => !(key in Settings.entries))).toEqual([]);
    }
  });

  test.each(own)('gives %s what production must have, and asks for every secret', (_, { environment }) => {
    expect(readConfig({ ...imageEnvironment, ...filledIn(environment) })).toMatchObject({
      isProduction: true,
      host: '0.0.0.0',
      database: { url: 'http://primary:8080' },
    });
    for (const key of Object.keys(asked)) expect(environment[key] ?? '${').toStartWith('${');
    expect(() => readConfig({ ...imageEnvironment, ...written(environment) })).toThrow('AUTH_ISSUER must be set');
  });

  test('waits for what is there, and for a server only if it tells its health', () => {
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

describe('the Dockerfile', () => {
  test('builds and runs with the Bun of this package, and not on musl', () => {
    const { bun } = packageJson.devDependencies;
    expect(valuesOf('FROM')).toEqual([`oven/bun:${bun} AS build`, `oven/bun:${bun}-slim`]);
  });

  test('copies what is there, and what .dockerignore lets through', async () => {
    const copied = valuesOf('COPY').filter((value) => !value.startsWith('--from'));
    const sources = copied.flatMap((value) => value.split(' ').slice(0, -1));
    expect(sources.filter((path) => !existsSync(join(root, path)))).toEqual([]);
    const [all, ...allowed] = (await read('.dockerignore')).trim().split('\n');
    expect([all, ...allowed.sort()]).toEqual(['*', ...sources.map((path) => `!${path}`).sort()]);
    expect(valuesOf('COPY').filter((value) => value.startsWith('--from'))).toEqual(['--from=build /build/dist ./']);
  });

  test('starts the bundle as whoever has no right but on data, and asks for its health', async () => {
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
    const environment = { ...imageEnvironment, ...asked, PORT };
    const service = await startService({ program: argumentsOf(valuesOf('CMD')[0]), cwd: bundle, environment });
    expect(await isHealthy()).toBeTrue();
    service.process.kill('SIGTERM');
    // For half a second it goes on answering, so that its callers move on.
    while ((await fetch(`http://127.0.0.1:${PORT}/health/live`)).headers.get('connection') !== 'close')
      await Bun.sleep(5);
    expect(await isHealthy()).toBeFalse();
    expect(await service.process.exited).toBe(0);
  });
});
