import { join } from 'node:path';
import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { createCemeteryStore } from '../../src/modules/cemeteries/store';
import { createUserStore } from '../../src/modules/users/store';
import { testSecret } from '../support/app';
import { programOf } from '../support/artifacts';
import { copyTemplate } from '../support/database';
import { freePort, temporaryFolder } from '../support/resources';
import { startPrimary, startSqld } from '../support/servers';
import {
  alternate,
  authorizationOf,
  type Figure,
  median,
  type Request,
  rateOf,
  ratio,
  ratioOf,
  type Settings,
} from './load';
import { post, programs, type Server, startOn } from './servers';

/** The first page of 150,000 cemeteries beside the first page of 12. */
export async function comparePages({ rounds, seconds, report }: Settings): Promise<Figure[]> {
  report('storing 150,000 cemeteries');
  const [few, many] = [await startWithCemeteries(12), await startWithCemeteries(150_000)];
  const page = { path: '/v2/private/cemetery/all', headers: { authorization: await authorizationOf('reader') } };
  const rates = await alternate({ many, few }, rounds, (server) => rateOf(server, page, 16, seconds), report);
  return [ratio('page, first of 150,000 rows, 16 connections', rates.many, 'of 12 rows', rates.few, 0.9)];
}

async function startWithCemeteries(count: number): Promise<Server> {
  const file = join(temporaryFolder(), 'planning.db');
  await copyTemplate(file);
  const db = await openDatabase({ url: `file:${file}`, timeoutMs: 5_000 });
  const store = createCemeteryStore(db);
  const place = { street: '1 Main St', city: 'Springfield', state: 'IL', zip: '62701' } as const;
  for (let from = 0; from < count; from += 1_000) {
    const numbers = Array.from({ length: Math.min(1_000, count - from) }, (_, index) => from + index);
    const records = numbers.map((n) => ({ ...place, externalId: `bench-${n}`, name: `Hill ${(n * 7919) % 150_000}` }));
    await store.upsert(records, { createdBy: 'bench', now: new Date() });
  }
  db.$client.close();
  return startOn(`file:${file}`);
}

/** Saves of 64 concurrent writers on a libSQL server in shared transactions, beside a request for each save. */
export async function compareRemoteSaves({ rounds, seconds, report }: Settings): Promise<Figure[]> {
  const measureSaves = async (open: typeof openDatabase | typeof openServiceDatabase) => {
    const sqld = await startPrimary();
    const db = await open({ url: sqld.url, timeoutMs: 20_000 });
    const store = createUserStore(db);
    const endsAtMs = performance.now() + seconds * 1000;
    let saves = 0;
    const saving = Array.from({ length: 64 }, async (_, saver) => {
      for (let value = 0; performance.now() < endsAtMs; value += 1) {
        const patch = { careCosts: value, careSafety: value / 100 };
        const ids = { userId: `s${saver}`, requestId: Bun.randomUUIDv7() };
        await store.saveSection({ ...ids, section: 'ltcLifetimeCare', patch, now: new Date() });
        if (performance.now() < endsAtMs) saves += 1;
      }
    });
    // A server may never respond to the last of many writers; the timeout ends that wait.
    const all = Promise.allSettled(saving);
    await Promise.race([all, Bun.sleep(seconds * 1000 + 500)]);
    await sqld.kill();
    db.$client.close();
    return saves / seconds;
  };
  const opens = { grouped: openServiceDatabase, single: openDatabase };
  const rates = await alternate(opens, rounds, measureSaves, report);
  return [ratio('remote, 64 savers', rates.grouped, 'a request for each save', rates.single, 8)];
}

/**
 * Reads from a replica file and from a replica server beside reads from the primary, all on this machine, and saves through
 * four instances beside saves through one.
 */
export async function compareReplicas({ rounds, seconds, report }: Settings): Promise<Figure[]> {
  const primary = await startPrimary();
  const server = await startSqld({ replicaOf: primary });
  const startWith = (reader: Record<string, string>) => startOn(primary.url, { AUTH_SECRET: testSecret, ...reader });
  const file = await startWith({ DATABASE_REPLICA_PATH: 'replica.db' });
  const served = await startWith({ DATABASE_READ_URL: server.url });
  const [direct, fourth] = [await startWith({}), await startWith({})];
  const path = '/v2/private/deepDives/lifeInsurance';
  await post(direct, path, 'reader', { livingStatus: 'stayHome', customSelections: [{ title: 'My niece' }] });
  // Both replicas need time to sync.
  await Bun.sleep(3_000);

  const headers = { authorization: await authorizationOf('reader'), 'content-type': 'application/json' };
  const read = { path: '/v2/private/user', headers };
  const reads = await alternate({ file, served, direct }, rounds, (at) => rateOf(at, read, 16, seconds), report);
  const save: Request = { path, method: 'POST', headers, body: '{"customSelections":[{"title":"My niece %d"}]}' };
  const all = [file, served, direct, fourth];
  const groups = { one: [direct], four: all };
  const measureSaves = async (servers: readonly Server[]) => {
    const rates = servers.map((server) => rateOf(server, save, 64 / servers.length, seconds));
    return (await Promise.all(rates)).reduce((sum, rate) => sum + rate, 0);
  };
  const saves = await alternate(groups, rounds, measureSaves, report);
  return [
    ratio('read from a replica file, 16 connections', reads.file, 'from the primary', reads.direct, 5),
    ratio('read from a replica server, 16 connections', reads.served, 'from the primary', reads.direct),
    ratio('saves through four instances, 64 connections', saves.four, 'through one', saves.one),
  ];
}

/** The start of the process to its first 200, from sources and from the bundle, beside the start of a bare Elysia app. */
export async function compareStarts({ rounds, report }: Settings): Promise<Figure[]> {
  const path = join(temporaryFolder(), 'planning.db');
  await copyTemplate(path);
  const settings = { AUTH_SECRET: testSecret, SEED_DEMO: 'false', DATABASE_URL: `file:${path}` };
  const timeStart = async (program: string) => {
    const port = String(await freePort());
    const startedAtMs = performance.now();
    const child = Bun.spawn([process.execPath, program], {
      cwd: temporaryFolder(),
      env: { PATH: process.env.PATH, NODE_ENV: 'development', ...settings, PORT: port },
      stdout: 'ignore',
      stderr: 'inherit',
    });
    try {
      while (performance.now() - startedAtMs < 20_000) {
        const response = await fetch(`http://127.0.0.1:${port}/health/ready`).catch(() => undefined);
        if (response?.status === 200) return performance.now() - startedAtMs;
        await Bun.sleep(1);
      }
      throw new Error(`${program} did not respond`);
    } finally {
      child.kill();
      await child.exited;
    }
  };
  const started = { ...programs, bundle: await programOf('src/main') };
  const times = await alternate(started, 2 * rounds + 1, timeStart, report);
  const beside = `bare Elysia, ${median(times.bareElysia).toFixed(0)} ms`;
  const start = (name: string, own: readonly number[], atMost: number) => {
    return { name, p50Ms: median(own), beside, value: ratioOf(own, times.bareElysia), atMost };
  };
  return [
    start('start to the first 200, from sources', times.service, 1.8),
    start('start to the first 200, from the bundle', times.bundle, 1.3),
  ];
}
