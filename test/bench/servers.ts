import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { openDatabase } from '../../src/db/client';
import { readShippedCatalog } from '../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../src/modules/matching/catalog-store';
import { hashCatalog } from '../../src/seed';
import { testSecret } from '../support/app';
import { copyTemplate } from '../support/database';
import { atEnd, never, temporaryFolder } from '../support/resources';
import { authorizationOf } from './load';

/** A user with saved answers, and one with saved answers and 50 matches. */
export type Person = 'answered' | 'matched';
export type ServerName = 'service' | 'limit' | 'hono' | 'fastify';

export interface Server {
  readonly address: string;
  readonly pid: number;
}

const at = (path: string) => join(import.meta.dirname, path);
export const programs = { service: at('../../src/main.ts'), bareElysia: at('hello-server.ts') };

const answers = {
  '/v2/private/user/profile': { firstName: 'Ada', lastName: 'Byron', dateOfBirth: '1961-03-10', state: 'VA' },
  '/v2/private/ltc/lifetimeCare': { careCosts: 4500, insuranceCover: ['leavingForFamily'] },
  '/v2/private/deepDives/lifetimeCare': { careSafety: 5 },
  '/v2/private/deepDives/lifeInsurance': { livingStatus: 'stayHome', financialPriorities: ['leavingForKids'] },
} as const;

/** Starts the service and the compared servers, each on a copy of the same database. */
export async function startServers(): Promise<Readonly<Record<ServerName, Server>>> {
  const folder = temporaryFolder();
  const path = join(folder, 'planning.db');
  await copyTemplate(path);
  await addLargeCatalog(path);
  const service = await startOn(`file:${path}`);
  for (const person of ['answered', 'matched'] as const) await storePerson(service, person);
  const lists = join(folder, 'lists.json');
  const headers = { authorization: await authorizationOf('answered') };
  await Bun.write(lists, await fetch(`${service.address}/v2/private/healthAndCare/`, { headers }));
  const startPeer = (name: string, command: readonly string[]) => {
    const copy = join(folder, `${name}.db`);
    for (const suffix of ['', '-wal']) copyFileSync(`${path}${suffix}`, `${copy}${suffix}`);
    return start([...command, copy, lists], { AUTH_SECRET: testSecret, NODE_ENV: 'production' });
  };
  return {
    service,
    limit: await startPeer('limit', [process.execPath, at('limit-server.ts')]),
    hono: await startPeer('hono', [process.execPath, at('peers/hono.ts')]),
    fastify: await startPeer('fastify', ['node', await bundleForNode(at('peers/fastify.ts'))]),
  };
}

export async function storePerson(service: Server, person: Person): Promise<void> {
  const all = person === 'matched' ? { ...answers, '/v2/private/engine/matches': {} } : answers;
  for (const [route, body] of Object.entries(all)) await post(service, route, person, body);
}

/** Starts the service as a process. */
export function startOn(databaseUrl: string, settings: Record<string, string> = {}): Promise<Server> {
  const environment = { AUTH_SECRET: testSecret, PORT: '0', SEED_DEMO: 'false', DATABASE_URL: databaseUrl };
  return start([process.execPath, programs.service], { ...environment, ...settings });
}

export async function post({ address }: Server, route: string, person: string, body: object): Promise<void> {
  const headers = { authorization: await authorizationOf(person), 'content-type': 'application/json' };
  const response = await fetch(`${address}${route}`, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${route} returned ${response.status}: ${await response.text()}`);
}

/** Starts a program that prints its address. Its log is a file, as in production. */
async function start(command: string[], environment: Record<string, string>): Promise<Server> {
  const cwd = temporaryFolder();
  const log = Bun.file(join(cwd, 'log'));
  const env = { PATH: process.env.PATH, NODE_ENV: 'development', ...environment };
  const child = Bun.spawn(command, { cwd, env, stdout: log, stderr: 'inherit' });
  atEnd(async () => {
    child.kill();
    await child.exited;
  });
  for (let attempt = 0; attempt < 400; attempt += 1) {
    await Bun.sleep(25);
    const address = /http:\/\/127\.0\.0\.1:\d+/.exec(await log.text())?.[0];
    if (address !== undefined) return { address, pid: child.pid };
  }
  throw new Error(`${command.join(' ')} did not start`);
}

/** Node.js resolves no imports without an extension. The folder lets it find the packages. */
async function bundleForNode(path: string): Promise<string> {
  const outdir = at('../../node_modules/.cache/bench');
  await Bun.build({ entrypoints: [path], outdir, target: 'node', packages: 'external', naming: '[name].mjs' });
  return join(outdir, 'fastify.mjs');
}

/** Replaces the catalogue with 50 products and 300 rules, derived from the shipped ones. */
export async function addLargeCatalog(path: string): Promise<void> {
  const shipped = readShippedCatalog();
  const byRules = shipped.products.toSorted((a, b) => b.rules.length - a.rules.length);
  const products = Array.from({ length: 50 }, (_, index) => {
    const product = byRules[index % byRules.length] ?? never();
    return { ...product, id: index + 1, rules: product.rules.slice(0, 6) };
  });
  const catalog = { ...shipped, products };
  const db = await openDatabase({ url: `file:${path}`, timeoutMs: 5_000 });
  const origin = { source: 'imported', contentHash: hashCatalog(catalog), now: new Date() } as const;
  if ((await createCatalogStore(db).add(catalog, origin)) === undefined)
    throw new Error('The catalogue was not stored');
  await db.$client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
  db.$client.close();
}
