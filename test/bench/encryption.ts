import { testSecret } from '../support/app';
import { keys } from '../support/database';
import { startService } from '../support/processes';
import { type Figure, median } from './figure';
import { authorizationOf } from './servers';
import { measure } from './wrk';

interface Options {
  readonly rounds: number;
  readonly seconds: number;
}

/** More records than the SQLite page cache holds, so that reads decrypt pages. */
const personCount = 1_000;
const selections = Array.from({ length: 40 }, (_, id) => ({
  id,
  title: `Something of a hundred letters ${'x'.repeat(70)}`,
}));

/** Compares saves and reads of many records in an encrypted file with those in a plain file. */
export async function compareEncryption(
  { rounds, seconds }: Options,
  report: (name: string) => void,
): Promise<Figure[]> {
  const start = (key: object) => startService({ environment: { AUTH_SECRET: testSecret, SEED_DEMO: 'false', ...key } });
  const services = { encrypted: await start({ DATABASE_ENCRYPTION_KEY: keys.right }), plain: await start({}) };
  const people = await Promise.all(
    Array.from({ length: personCount }, (_, index) => authorizationOf(`person-${index}`)),
  );
  const path = '/v2/private/deepDives/lifeInsurance';
  const save = (authorization: string, title: string) => ({
    path,
    method: 'POST' as const,
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify({ selections, customSelections: [{ title }] }),
  });
  for (const { address } of Object.values(services)) {
    for (const person of people) {
      const { method, headers, body } = save(person, 'My niece');
      await fetch(`${address}${path}`, { method, headers, body });
    }
  }
  const loads = {
    save: people.map((person) => save(person, 'My niece %d')),
    read: people.map((authorization) => ({ path: '/v2/private/user', headers: { authorization } })),
  };
  const figures: Figure[] = [];
  for (const name of ['save', 'read'] as const) {
    const rates: Record<'encrypted' | 'plain', number[]> = { encrypted: [], plain: [] };
    for (let round = 0; round < rounds; round += 1) {
      for (const kind of ['encrypted', 'plain'] as const) {
        report(`encryption, ${name}, round ${round + 1} of ${rounds}, ${kind}`);
        const load = { address: services[kind].address, requests: loads[name], connections: 16, seconds };
        rates[kind].push((await measure(load)).requestsPerSecond);
      }
    }
    figures.push({
      name: `${name} in an encrypted file, ${personCount} people, 16 connections`,
      requestsPerSecond: median(rates.encrypted),
      beside: `not encrypted, ${median(rates.plain).toFixed(0)}/s`,
      value: median(rates.encrypted.map((rate, round) => rate / (rates.plain[round] ?? Number.NaN))),
      unit: '×',
    });
  }
  return figures;
}
