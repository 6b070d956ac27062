import { type Figure, median } from './figure';
import { authorizationOf, peers, type ServerName, type Servers } from './servers';
import { type Measurement, measure } from './wrk';

const lifeInsuranceBody = JSON.stringify({
  livingStatus: 'stayHome',
  billsAndDebt: ['mortgage', 'cc'],
  financialPriorities: ['payingFuneral'],
  selections: [{ id: 1, title: 'My children' }],
  customSelections: [{ title: 'My niece %d' }],
});

const requests = {
  save: { path: '/v2/private/deepDives/lifeInsurance', method: 'POST', body: lifeInsuranceBody },
  read: { path: '/v2/private/user', method: 'GET' },
  lists: { path: '/v2/private/healthAndCare/', method: 'GET' },
  matches: { path: '/v2/private/engine/matches', method: 'POST' },
} as const;

interface Load {
  readonly server: ServerName;
  readonly request: keyof typeof requests;
  readonly userId: 'answered' | 'matched';
}

interface Case {
  readonly name: string;
  readonly connections: number;
  readonly load: Omit<Load, 'server'>;
  /** The compared loads, with the minimum ratio of the speeds. */
  readonly beside: readonly { readonly load: Load; readonly atLeast?: number }[];
}

/** The same load on other servers. */
function on(load: Case['load'], goals: Partial<Record<ServerName, number>>): Case['beside'] {
  const servers = ['limit', ...peers] as const;
  return servers.map((server) => ({
    load: { ...load, server },
    ...(goals[server] === undefined ? {} : { atLeast: goals[server] }),
  }));
}

const save = { request: 'save', userId: 'answered' } as const;
const saveMatched = { request: 'save', userId: 'matched' } as const;
const read = { request: 'read', userId: 'answered' } as const;
const lists = { request: 'lists', userId: 'answered' } as const;
const matches = { request: 'matches', userId: 'matched' } as const;

const cases: readonly Case[] = [
  { name: 'save', connections: 16, load: save, beside: on(save, { limit: 0.65, fastify: 2, hono: 3 }) },
  { name: 'save', connections: 64, load: save, beside: on(save, { limit: 0.8, fastify: 3, hono: 3 }) },
  {
    name: 'save, record with 50 matches',
    connections: 16,
    load: saveMatched,
    beside: [{ load: { ...saveMatched, server: 'limit' } }],
  },
  { name: 'read', connections: 16, load: read, beside: on(read, { limit: 0.4 }) },
  { name: 'lists', connections: 16, load: lists, beside: on(lists, { limit: 0.5, fastify: 1.2 }) },
  {
    name: 'matches',
    connections: 16,
    load: matches,
    beside: [{ load: { ...save, server: 'service' }, atLeast: 0.5 }, { load: { ...saveMatched, server: 'service' } }],
  },
];

interface HttpSettings {
  readonly rounds: number;
  readonly seconds: number;
  /** Seconds of load before the first round, because the JIT compiler needs thousands of requests. */
  readonly warmUp: number;
  readonly report: (name: string) => void;
}

/** Loads the service and the other servers alternately; each ratio is the median over the rounds. */
export async function compareServers(
  servers: Servers,
  { rounds, seconds, warmUp, report }: HttpSettings,
): Promise<Figure[]> {
  const figures: Figure[] = [];
  const run = async ({ server, request, userId }: Load, connections: number, forSeconds = seconds) => {
    const headers = {
      authorization: await authorizationOf(userId),
      'content-type': 'application/json',
      // The limit server verifies no token and gets the user id directly.
      'x-user': userId,
    };
    return measure({
      address: servers[server],
      requests: [{ ...requests[request], headers }],
      connections,
      seconds: forSeconds,
    });
  };
  for (const { name, connections, load, beside } of cases) {
    const title = `${name}, ${connections} connections`;
    report(`${title}, warming up`);
    for (const each of [{ ...load, server: 'service' } as const, ...beside.map((other) => other.load)]) {
      await run(each, connections, warmUp);
    }
    const own: Measurement[] = [];
    const others: Measurement[][] = beside.map(() => []);
    for (let round = 0; round < rounds; round += 1) {
      report(`${title}, round ${round + 1} of ${rounds}`);
      own.push(await run({ ...load, server: 'service' }, connections));
      for (const [index, other] of beside.entries()) others[index]?.push(await run(other.load, connections));
    }
    const middle = own.toSorted((a, b) => a.requestsPerSecond - b.requestsPerSecond)[rounds >> 1];
    if (middle === undefined) throw new Error('There is no round');
    for (const [index, { load: other, atLeast }] of beside.entries()) {
      const measured = others[index] ?? [];
      const rates = measured.map(({ requestsPerSecond }) => requestsPerSecond);
      figures.push({
        name: title,
        requestsPerSecond: middle.requestsPerSecond,
        p50Ms: middle.p50Ms,
        p99Ms: middle.p99Ms,
        errors: [...own, ...measured].reduce((sum, { errors }) => sum + errors, 0),
        beside: `${other.server === 'service' ? `own ${other.request} (${other.userId})` : other.server}, ${median(rates).toFixed(0)}/s`,
        value: median(rates.map((rate, round) => (own[round]?.requestsPerSecond ?? Number.NaN) / rate)),
        unit: '×',
        ...(atLeast === undefined ? {} : { atLeast }),
      });
    }
    if (name === 'save') {
      const spread = median(own.map(({ p50Ms, p99Ms }) => p99Ms / p50Ms));
      figures.push({ name: title, beside: 'its p50, of its p99', value: spread, unit: '×', atMost: 4 });
    }
  }
  return figures;
}
