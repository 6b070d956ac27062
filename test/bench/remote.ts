import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createUserStore } from '../../src/modules/users/store';
import { hasSqld, startSqld } from '../support/servers';
import { type Figure, median } from './figure';

const savers = 64;
const measuredMs = 3_000;

/** Saves per second of 64 concurrent writers on a libSQL server; each writer waits for its response. */
async function measureSaves(open: typeof openDatabase | typeof openServiceDatabase): Promise<number> {
  const sqld = await startSqld();
  const settings = { url: sqld.url, timeoutMs: 20_000 };
  const migrating = await openDatabase(settings);
  await migrateDatabase(migrating);
  migrating.$client.close();
  const db = await open(settings);
  const store = createUserStore(db);
  const untilMs = performance.now() + measuredMs;
  let saves = 0;
  const saver = async (userId: string) => {
    for (let value = 0; performance.now() < untilMs; value += 1) {
      const patch = { careCosts: value, careSafety: value / 100 };
      await store.saveSection({
        userId,
        section: 'ltcLifetimeCare',
        patch,
        requestId: Bun.randomUUIDv7(),
        now: new Date(),
      });
      if (performance.now() < untilMs) saves += 1;
    }
  };
  const saving = Promise.all(Array.from({ length: savers }, (_, index) => saver(`s${index}`)));
  // A server may never respond to the last of many writers; the timeout ends that wait.
  await Promise.race([saving, Bun.sleep(measuredMs + 500)]);
  saving.catch(() => undefined);
  await sqld.kill();
  db.$client.close();
  return (saves / measuredMs) * 1000;
}

/** The speed-up of group commit for 64 concurrent writers on a libSQL server. */
export async function compareRemoteSaves(rounds: number, report: (name: string) => void): Promise<Figure[]> {
  if (!hasSqld) return [];
  const grouped: number[] = [];
  const single: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    report(`remote, round ${round + 1} of ${rounds}`);
    grouped.push(await measureSaves(openServiceDatabase));
    single.push(await measureSaves(openDatabase));
  }
  return [
    {
      name: 'remote, 64 savers',
      requestsPerSecond: median(grouped),
      beside: `a request for each save, ${median(single).toFixed(0)}/s`,
      value: median(grouped.map((rate, round) => rate / (single[round] ?? Number.NaN))),
      unit: '×',
      atLeast: 8,
    },
  ];
}
