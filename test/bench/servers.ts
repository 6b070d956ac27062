import { copyFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { openDatabase } from '../../src/db/client';
import { readShippedCatalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { hashCatalog } from '../../src/seed';
import { testSecret, testToken } from '../support/app';
import { copyTemplate } from '../support/database';
import { atEnd, temporaryFolder } from '../support/resources';

const shippedCatalog = readShippedCatalog();
/** A user with saved answers, and one with saved answers and 50 matches. */
export const people = ['answered', 'matched'] as const;
export const peers = ['hono', 'fastify', 'express'] as const;
export type ServerName = 'service' | 'limit' | (typeof peers)[number];
/** The address of each server. */
export type Servers = Readonly<Record<ServerName, string>>;

export interface Started {
  readonly address: string;
  readonly pid: number;
}

const at = (path: string) => join(import.meta.dirname, path);
const programs = {
  limit: [process.execPath, at('limit-server.ts')],
  hono: [process.execPath, at('peers/hono.ts')],
  fastify: ['node', at('peers/fastify.mjs')],
  express: ['node', at('peers/express.mjs')],
} as const;

const answers = {
  '/v2/private/user/profile': { firstName: 'Ada', lastName: 'Byron', dateOfBirth: '1961-03-10', state: 'VA' },
  '/v2/private/ltc/lifetimeCare': { careCosts: 4500, insuranceCover: ['leavingForFamily'] },
  '/v2/private/deepDives/lifetimeCare': { careSafety: 5 },
  '/v2/private/deepDives/lifeInsurance': { livingStatus: 'stayHome', financialPriorities: ['leavingForKids'] },
} as const;

export async function authorizationOf(userId: string): Promise<string> {
  return `Bearer ${await testToken({ id: userId, now: new Date() })}`;
}

/** Starts the service and the compared servers, each on a copy of the same database. */
export async function startServers(): Promise<Servers> {
  installPeers();
  const folder = temporaryFolder();
  const path = join(folder, 'data/planning.db');
  await copyTemplate(path);
  await addLargeCatalog(path);
  const { address: service } = await startServiceOn(path, folder);
  for (const person of people) {
    const headers = { authorization: await authorizationOf(person), 'content-type': 'application/json' };
    const post = async (route: string, body: object) => {
      const response = await fetch(`${service}${route}`, { method: 'POST', headers, body: JSON.stringify(body) });
      if (!response.ok) throw new Error(`${route} returned ${response.status}: ${await response.text()}`);
    };
    for (const [route, body] of Object.entries(answers)) await post(route, body);
    if (person === 'matched') await post('/v2/private/engine/matches', {});
  }
  const lists = join(folder, 'lists.json');
  const authorization = await authorizationOf(people[0]);
  await Bun.write(lists, await fetch(`${service}/v2/private/healthAndCare/`, { headers: { authorization } }));
  const startPeer = async (name: keyof typeof programs) => {
    const copy = join(folder, `${name}.db`);
    for (const suffix of ['', '-wal']) copyFileSync(`${path}${suffix}`, `${copy}${suffix}`);
    const environment = { AUTH_SECRET: testSecret, NODE_ENV: 'production' };
    return (await start([...programs[name], copy, lists], environment)).address;
  };
  return {
    service,
    limit: await startPeer('limit'),
    hono: await startPeer('hono'),
    fastify: await startPeer('fastify'),
    express: await startPeer('express'),
  };
}

/** Starts the service as a process on a migrated database. */
export function startServiceOn(databasePath: string, cwd: string): Promise<Started> {
  return start([process.execPath, at('../../src/main.ts')], serviceEnvironment(databasePath), cwd);
}

export function serviceEnvironment(databasePath: string): Record<string, string> {
  return { AUTH_SECRET: testSecret, PORT: '0', SEED_DEMO: 'false', DATABASE_URL: `file:${databasePath}` };
}

/** Starts a program that prints its address. */
async function start(
  command: string[],
  environment: Record<string, string>,
  cwd = temporaryFolder(),
): Promise<Started> {
  const log = join(temporaryFolder(), 'log');
  const child = Bun.spawn(command, {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'development', ...environment },
    stdout: Bun.file(log),
    stderr: 'inherit',
  });
  atEnd(async () => {
    child.kill();
    await child.exited;
  });
  for (let attempt = 0; attempt < 400; attempt += 1) {
    await Bun.sleep(25);
    const address = /http:\/\/127\.0\.0\.1:\d+/.exec(await Bun.file(log).text())?.[0];
    if (address !== undefined) return { address, pid: child.pid };
  }
  throw new Error(`${command.join(' ')} did not start`);
}

function installPeers(): void {
  if (Bun.which('node') === null) throw new Error('The compared servers need Node.js.');
  const cwd = at('peers');
  if (existsSync(join(cwd, 'node_modules'))) return;
  process.stderr.write('Installing the compared servers …\n');
  const { exitCode } = Bun.spawnSync([process.execPath, 'install', '--frozen-lockfile'], {
    cwd,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (exitCode !== 0) throw new Error('The compared servers could not be installed.');
}

/** Replaces the catalogue with 50 products and 300 rules, derived from the shipped ones. */
async function addLargeCatalog(path: string): Promise<void> {
  const shipped = shippedCatalog.products.toSorted((a, b) => b.rules.length - a.rules.length);
  const products = Array.from({ length: 50 }, (_, index) => {
    const product = shipped[index % shipped.length];
    if (product === undefined) throw new Error('The shipped catalogue is empty');
    return { ...product, id: index + 1, rules: product.rules.slice(0, 6) };
  });
  const catalog = { ...shippedCatalog, products };
  const db = await openDatabase({ url: `file:${path}`, timeoutMs: 5_000 });
  const origin = { source: 'imported', contentHash: hashCatalog(catalog), now: new Date() } as const;
  const version = await createCatalogStore(db).add(catalog, origin);
  if (version === undefined) throw new Error('The catalogue was not stored');
  await db.$client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
  db.$client.close();
}
