import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { testSecret, testToken } from '../support/app';
import { atEnd } from '../support/cleanup';
import { copyTemplate, temporaryFolder } from '../support/database';
import { type Measurement, measure, type Request } from './wrk';

const userId = 'bench';
const source = new URL('../../src/main.ts', import.meta.url).pathname;
const limitServer = new URL('limit-server.ts', import.meta.url).pathname;
const matchesPath = '/v2/private/engine/matches';
const body = JSON.stringify({
  livingStatus: 'stayHome',
  billsAndDebt: ['mortgage', 'cc'],
  financialPriorities: ['payingFuneral'],
  selections: [{ id: 1, title: 'My children' }],
  customSelections: [{ title: 'My niece %d' }],
});

interface Case {
  readonly name: string;
  readonly connections: number;
  readonly request: Omit<Request, 'url' | 'headers'> & { readonly path: string };
  /** Which server it is measured beside, and the least share of it that is aimed at. */
  readonly beside: {
    readonly server: 'limit' | 'service';
    readonly request?: Case['request'];
    readonly atLeast: number;
  };
}

const save = { path: '/v2/private/deepDives/lifeInsurance', method: 'POST', body } as const;
const cases: readonly Case[] = [
  { name: 'save', connections: 16, request: save, beside: { server: 'limit', atLeast: 0.65 } },
  { name: 'save', connections: 64, request: save, beside: { server: 'limit', atLeast: 0.8 } },
  { name: 'read', connections: 16, request: { path: '/v2/private/user' }, beside: { server: 'limit', atLeast: 0.4 } },
  {
    name: 'lists',
    connections: 16,
    request: { path: '/v2/private/healthAndCare/' },
    beside: { server: 'limit', atLeast: 0.5 },
  },
  {
    name: 'matches',
    connections: 16,
    request: { path: matchesPath, method: 'POST' },
    beside: { server: 'service', request: save, atLeast: 0.5 },
  },
];

export interface Comparison extends Measurement {
  readonly name: string;
  readonly connections: number;
  readonly besideRequestsPerSecond: number;
  readonly ratio: number;
  readonly atLeast: number;
}

/** Loads the service and the limit by turns, in one run, and gives the median of some rounds of each case. */
export async function compareServers(settings: { rounds: number; seconds: number }): Promise<Comparison[]> {
  const servers = await startServers();
  const token = await testToken({ id: userId, now: new Date() });
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const load = ({ path, ...request }: Case['request'], server: 'limit' | 'service', connections: number) =>
    measure({ ...request, url: `${servers[server]}${path}`, headers }, connections, settings.seconds);
  const comparisons: Comparison[] = [];
  for (const { name, connections, request, beside } of cases) {
    const rounds: { own: Measurement; other: Measurement; ratio: number }[] = [];
    for (let round = 0; round < settings.rounds; round += 1) {
      const own = await load(request, 'service', connections);
      const other = await load(beside.request ?? request, beside.server, connections);
      rounds.push({ own, other, ratio: own.requestsPerSecond / other.requestsPerSecond });
    }
    const middle = rounds.toSorted((a, b) => a.ratio - b.ratio)[rounds.length >> 1];
    if (middle === undefined) throw new Error('There is no round');
    comparisons.push({
      name,
      connections,
      ...middle.own,
      errors: rounds.reduce((sum, { own, other }) => sum + own.errors + other.errors, 0),
      besideRequestsPerSecond: middle.other.requestsPerSecond,
      ratio: middle.ratio,
      atLeast: beside.atLeast,
    });
  }
  return comparisons;
}

/** Both serve the same rows, each from a file of its own. */
async function startServers() {
  const folder = temporaryFolder();
  const path = join(folder, 'data/planning.db');
  await copyTemplate(path);
  const service = await start([source], folder, {
    AUTH_SECRET: testSecret,
    PORT: '0',
    SEED_DEMO: 'false',
    DATABASE_URL: `file:${path}`,
  });
  const headers = { authorization: `Bearer ${await testToken({ id: userId, now: new Date() })}` };
  await fetch(`${service}${matchesPath}`, { method: 'POST', headers });
  const lists = join(folder, 'lists.json');
  await Bun.write(lists, await fetch(`${service}/v2/private/healthAndCare/`, { headers }));
  const copy = join(folder, 'limit.db');
  for (const suffix of ['', '-wal']) copyFileSync(`${path}${suffix}`, `${copy}${suffix}`);
  return { service, limit: await start([limitServer, copy, lists, userId], folder, {}) };
}

/** Starts a server, and gives the address that it prints. */
async function start(args: string[], cwd: string, environment: Record<string, string>): Promise<string> {
  const log = join(cwd, `${args.length}.log`);
  const child = Bun.spawn([process.execPath, ...args], {
    cwd,
    env: { PATH: process.env.PATH, ...environment },
    stdout: Bun.file(log),
    stderr: 'inherit',
  });
  atEnd(async () => {
    child.kill();
    await child.exited;
  });
  for (let attempt = 0; attempt < 200; attempt += 1) {
    await Bun.sleep(50);
    const address = /http:\/\/127\.0\.0\.1:\d+/.exec(await Bun.file(log).text())?.[0];
    if (address !== undefined) return address;
  }
  throw new Error('A server did not start');
}
