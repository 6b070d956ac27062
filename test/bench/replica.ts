import { startService } from '../support/processes';
import { hasSqld, startSqld } from '../support/servers';
import { callService, serviceEnvironment, startPrimary } from './cluster';
import { type Figure, median } from './figure';
import { authorizationOf } from './servers';
import { measure } from './wrk';

interface Options {
  readonly rounds: number;
  readonly seconds: number;
}

const person = 'reader';
const answers = {
  livingStatus: 'stayHome',
  billsAndDebt: ['mortgage', 'cc'],
  customSelections: [{ title: 'My niece' }],
};

/**
 * Compares reads from an embedded replica and from a replica server with reads from the primary, all on this machine,
 * and saves through four instances with saves through one.
 */
export async function compareReplicas({ rounds, seconds }: Options, report: (name: string) => void): Promise<Figure[]> {
  if (!hasSqld) return [];
  const primary = await startPrimary();
  const server = await startSqld({ replicaOf: primary });
  const start = (reader: Record<string, string>) =>
    startService({ environment: serviceEnvironment(primary, { ...reader, LOG_LEVEL: 'info' }) });
  const [near, served, direct, fourth] = await Promise.all([
    start({ DATABASE_REPLICA_PATH: 'replica.db' }),
    start({ DATABASE_READ_URL: server.url }),
    start({}),
    start({}),
  ]);
  await callService(direct, '/v2/private/deepDives/lifeInsurance', person, { body: answers });
  // Both replicas need time to sync.
  await Bun.sleep(3_000);

  const authorization = await authorizationOf(person);
  const read = { path: '/v2/private/user', headers: { authorization } };
  const save = {
    path: '/v2/private/deepDives/lifeInsurance',
    method: 'POST' as const,
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify({ ...answers, customSelections: [{ title: 'My niece %d' }] }),
  };
  const readsOf = { near: [] as number[], served: [] as number[], direct: [] as number[] };
  const savesOf = { one: [] as number[], four: [] as number[] };
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, { address }] of Object.entries({ near, served, direct })) {
      report(`replica, round ${round + 1} of ${rounds}, ${name}`);
      const { requestsPerSecond } = await measure({ address, requests: [read], connections: 16, seconds });
      if (name === 'near' || name === 'served' || name === 'direct') readsOf[name].push(requestsPerSecond);
    }
    report(`instances, round ${round + 1} of ${rounds}`);
    const load = (address: string, connections: number) => measure({ address, requests: [save], connections, seconds });
    savesOf.one.push((await load(direct.address, 64)).requestsPerSecond);
    const all = await Promise.all([near, served, direct, fourth].map(({ address }) => load(address, 16)));
    savesOf.four.push(all.reduce((sum, { requestsPerSecond }) => sum + requestsPerSecond, 0));
  }
  const besideDirect = `from the primary, ${median(readsOf.direct).toFixed(0)}/s`;
  const ratio = (rates: readonly number[], others: readonly number[]) =>
    median(rates.map((rate, round) => rate / (others[round] ?? Number.NaN)));
  return [
    {
      name: 'read from an embedded replica, 16 connections',
      requestsPerSecond: median(readsOf.near),
      beside: besideDirect,
      value: ratio(readsOf.near, readsOf.direct),
      unit: '×',
      atLeast: 5,
    },
    {
      name: 'read from a replica server, 16 connections',
      requestsPerSecond: median(readsOf.served),
      beside: besideDirect,
      value: ratio(readsOf.served, readsOf.direct),
      unit: '×',
    },
    {
      name: 'saves through four instances, 64 connections',
      requestsPerSecond: median(savesOf.four),
      beside: `through one, ${median(savesOf.one).toFixed(0)}/s`,
      value: ratio(savesOf.four, savesOf.one),
      unit: '×',
    },
  ];
}
