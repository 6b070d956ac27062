import { authorizationOf, type Figure, type Measurement, measure, median, ratioOf, type Settings } from './load';
import { type Person, type ServerName, startServers } from './servers';

const lifeInsurance = JSON.stringify({
  livingStatus: 'stayHome',
  billsAndDebt: ['mortgage', 'cc'],
  financialPriorities: ['payingFuneral'],
  selections: [{ id: 1, title: 'My children' }],
  customSelections: [{ title: 'My niece %d' }],
});
const requests = {
  save: { path: '/v2/private/deepDives/lifeInsurance', method: 'POST', body: lifeInsurance },
  read: { path: '/v2/private/user', method: 'GET' },
  lists: { path: '/v2/private/healthAndCare/', method: 'GET' },
  matches: { path: '/v2/private/engine/matches', method: 'POST' },
} as const;

interface Load {
  readonly server: ServerName;
  readonly request: keyof typeof requests;
  readonly person: Person;
}

interface Case {
  readonly name: string;
  readonly connections: number;
  readonly own: Omit<Load, 'server'>;
  /** The compared loads, with the minimum ratio of the speeds. */
  readonly beside: readonly (readonly [other: Load, atLeast?: number])[];
}

const save = { request: 'save', person: 'answered' } as const;
const saveMatched = { request: 'save', person: 'matched' } as const;
const read = { request: 'read', person: 'answered' } as const;
const lists = { request: 'lists', person: 'answered' } as const;
const on = (server: ServerName, load: Case['own']): Load => ({ ...load, server });

const cases: readonly Case[] = [
  {
    name: 'save',
    connections: 16,
    own: save,
    beside: [
      [on('limit', save), 0.75],
      [on('hono', save), 3],
      [on('fastify', save), 2],
    ],
  },
  {
    name: 'save',
    connections: 64,
    own: save,
    beside: [
      [on('limit', save), 1],
      [on('hono', save), 3],
      [on('fastify', save), 3],
    ],
  },
  {
    name: 'save, record with 50 matches',
    connections: 16,
    own: saveMatched,
    beside: [[on('limit', saveMatched), 0.65]],
  },
  {
    name: 'read',
    connections: 16,
    own: read,
    beside: [
      [on('limit', read), 0.6],
      [on('hono', read), 2.5],
      [on('fastify', read), 1.8],
    ],
  },
  {
    name: 'lists',
    connections: 16,
    own: lists,
    beside: [
      [on('limit', lists), 0.65],
      [on('hono', lists), 1.1],
      [on('fastify', lists), 1.2],
    ],
  },
  {
    name: 'matches',
    connections: 16,
    own: { request: 'matches', person: 'matched' },
    beside: [[on('service', save), 0.5], [on('service', saveMatched)]],
  },
];

/** Loads the service and the other servers alternately; each ratio is the median over the rounds. */
export async function compareServers({ rounds, seconds, warmUp, report }: Settings): Promise<Figure[]> {
  const servers = await startServers();
  const run = async ({ server, request, person }: Load, connections: number, forSeconds = seconds) => {
    const authorization = await authorizationOf(person);
    // The limit server verifies no token and gets the user id directly.
    const headers = { authorization, 'content-type': 'application/json', 'x-user': person };
    return measure(servers[server], { ...requests[request], headers }, connections, forSeconds);
  };
  const figures: Figure[] = [];
  for (const { name, connections, own, beside } of cases) {
    const title = `${name}, ${connections} connections`;
    const loads = [on('service', own), ...beside.map(([other]) => other)];
    report(`${title}, warming up`);
    for (const load of loads) await run(load, connections, warmUp);
    const measured: Measurement[][] = loads.map(() => []);
    for (let round = 0; round < rounds; round += 1) {
      report(`${title}, round ${round + 1} of ${rounds}`);
      for (const [index, load] of loads.entries()) measured[index]?.push(await run(load, connections));
    }
    const [service = [], ...others] = measured;
    const rates = (all: readonly Measurement[]) => all.map(({ requestsPerSecond }) => requestsPerSecond);
    const shared = {
      name: title,
      requestsPerSecond: median(rates(service)),
      p50Ms: median(service.map(({ p50Ms }) => p50Ms)),
      p99Ms: median(service.map(({ p99Ms }) => p99Ms)),
      cpuUs: median(service.map(({ cpuUs }) => cpuUs)),
    };
    for (const [index, [{ server, request, person }, atLeast]] of beside.entries()) {
      const other = others[index] ?? [];
      figures.push({
        ...shared,
        errors: [...service, ...other].reduce((sum, { errors }) => sum + errors, 0),
        beside: `${server === 'service' ? `own ${request} (${person})` : server}, ${median(rates(other)).toFixed(0)}/s, ${median(other.map(({ cpuUs }) => cpuUs)).toFixed(0)} µs`,
        value: ratioOf(rates(service), rates(other)),
        ...(atLeast === undefined ? {} : { atLeast }),
      });
    }
    if (name === 'save') {
      figures.push({ name: title, beside: 'its p50, of its p99', value: shared.p99Ms / shared.p50Ms, atMost: 3 });
    }
  }
  return figures;
}
