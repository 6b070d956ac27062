import { openDatabase, openServiceDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { createUserStore } from '../../src/modules/users/store';
import { hasSqld, startSqld } from '../support/sqld';

const savers = 64;
const savesEach = 10;

/** How much faster 64 concurrent savers are served by a libSQL server when their saves go in one batch. */
export async function compareRemoteSaves(): Promise<{ name: string; ratio: number; goal: string }[]> {
  if (!hasSqld) return [];
  const { url } = await startSqld();
  const single = await openDatabase({ url, timeoutMs: 120_000 });
  await migrateDatabase(single);
  const grouped = openServiceDatabase({ url, timeoutMs: 20_000 });
  const timeMs = async (db: typeof single) => {
    const store = createUserStore(db);
    const startedAtMs = performance.now();
    await Promise.all(
      Array.from({ length: savers }, async (_, saver) => {
        for (let value = 0; value < savesEach; value += 1) {
          const patch = { careCosts: value, careSafety: performance.now() };
          await store.saveSection({ userId: `s${saver}`, section: 'ltcLifetimeCare', patch, now: new Date() });
        }
      }),
    );
    return performance.now() - startedAtMs;
  };
  const ratios: number[] = [];
  for (let round = 0; round < 3; round += 1) ratios.push((await timeMs(single)) / (await timeMs(grouped)));
  for (const { $client } of [single, grouped]) $client.close();
  const ratio = ratios.toSorted((a, b) => a - b)[1] ?? Number.NaN;
  return [{ name: 'remote, 64 savers, grouped beside one by one', ratio, goal: '≥ 8' }];
}
