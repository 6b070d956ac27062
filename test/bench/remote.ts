import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createUserStore } from '../../src/modules/users/store';
import { hasSqld, startSqld } from '../support/sqld';

const savers = 64;
const measuredMs = 2_000;

/** How much faster 64 concurrent savers are served by a libSQL server when their saves go in one batch. */
export async function compareRemoteSaves(): Promise<{ name: string; ratio: number; goal: string }[]> {
  if (!hasSqld) return [];
  const { url } = await startSqld();
  const single = await openDatabase({ url, timeoutMs: 20_000 });
  await migrateDatabase(single);
  const grouped = openServiceDatabase({ url, timeoutMs: 20_000 });
  /** What is stored in a fixed time: a server may leave one of many writers waiting that nobody comes after. */
  const countSaves = async (db: typeof single) => {
    const store = createUserStore(db);
    const untilMs = performance.now() + measuredMs;
    let saves = 0;
    const saver = async (userId: string) => {
      for (let value = 0; performance.now() < untilMs; value += 1) {
        const patch = { careCosts: value, careSafety: performance.now() };
        await store.saveSection({ userId, section: 'ltcLifetimeCare', patch, now: new Date() });
        if (performance.now() < untilMs) saves += 1;
      }
    };
    const saving = Promise.allSettled(Array.from({ length: savers }, (_, index) => saver(`s${index}`)));
    await Promise.race([saving, Bun.sleep(measuredMs + 1_000)]);
    return saves;
  };
  const ratios: number[] = [];
  for (let round = 0; round < 3; round += 1) ratios.push((await countSaves(grouped)) / (await countSaves(single)));
  for (const { $client } of [single, grouped]) $client.close();
  const ratio = ratios.toSorted((a, b) => a - b)[1] ?? Number.NaN;
  return [{ name: 'remote, 64 savers, grouped beside one by one', ratio, goal: '≥ 8' }];
}
