import { join } from 'node:path';
import { openDatabase } from '../../src/db/client';
import { createCemeteryStore } from '../../src/modules/cemeteries/store';
import { copyTemplate } from '../support/database';
import { temporaryFolder } from '../support/resources';
import { type Figure, median } from './figure';
import { authorizationOf, startServiceOn } from './servers';
import { measure } from './wrk';

const few = 12;
const many = 150_000;
const chunk = 1_000;
const deepPage = 10_000;
const deepReads = 100;
const path = '/v2/private/cemetery/all';

/** Starts the service with the given number of cemeteries and returns its address. */
async function startWith(count: number): Promise<string> {
  const folder = temporaryFolder();
  const file = join(folder, 'planning.db');
  await copyTemplate(file);
  const db = await openDatabase({ url: `file:${file}`, timeoutMs: 5_000 });
  const store = createCemeteryStore(db);
  for (let from = 0; from < count; from += chunk) {
    const records = Array.from({ length: Math.min(chunk, count - from) }, (_, index) => ({
      externalId: `bench-${from + index}`,
      name: `Hill ${((from + index) * 7919) % many}`,
      street: '1 Main St',
      city: 'Springfield',
      state: 'IL' as const,
      zip: '62701',
    }));
    await store.upsert(records, { createdBy: 'bench', now: new Date() });
  }
  db.$client.close();
  return (await startServiceOn(file, folder)).address;
}

/** Compares the first page of 150,000 cemeteries with that of 12, and measures a deep page. */
export async function comparePages(
  { rounds, seconds }: { rounds: number; seconds: number },
  report: (name: string) => void,
): Promise<Figure[]> {
  report('storing 150,000 cemeteries');
  const addresses = { few: await startWith(few), many: await startWith(many) };
  const headers = { authorization: await authorizationOf('reader') };
  const load = (address: string) => measure({ address, requests: [{ path, headers }], connections: 16, seconds });
  const measured: { few: number[]; many: number[]; p50Ms: number; p99Ms: number; errors: number } = {
    few: [],
    many: [],
    p50Ms: 0,
    p99Ms: 0,
    errors: 0,
  };
  for (let round = 0; round < rounds; round += 1) {
    report(`page, round ${round + 1} of ${rounds}`);
    const own = await load(addresses.many);
    const other = await load(addresses.few);
    measured.many.push(own.requestsPerSecond);
    measured.few.push(other.requestsPerSecond);
    Object.assign(measured, {
      p50Ms: own.p50Ms,
      p99Ms: own.p99Ms,
      errors: measured.errors + own.errors + other.errors,
    });
  }
  const deep: number[] = [];
  for (let read = 0; read < deepReads; read += 1) {
    const startedAtMs = performance.now();
    const response = await fetch(`${addresses.many}${path}?page=${deepPage}`, { headers });
    await response.text();
    deep.push(performance.now() - startedAtMs);
  }
  return [
    {
      name: 'page, first of 150,000 rows, 16 connections',
      requestsPerSecond: median(measured.many),
      p50Ms: measured.p50Ms,
      p99Ms: measured.p99Ms,
      errors: measured.errors,
      beside: `of 12 rows, ${median(measured.few).toFixed(0)}/s`,
      value: median(measured.many.map((rate, round) => rate / (measured.few[round] ?? Number.NaN))),
      unit: '×',
      atLeast: 0.9,
    },
    { name: 'page, 10,000th of 150,000 rows', value: median(deep), unit: 'ms', atMost: 10 },
  ];
}
