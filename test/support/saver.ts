/** A process of its own that saves `count` times to one user: `bun saver.ts URL a|b COUNT`. Prints how many it did. */
import { openDatabase } from '../../src/db/client';
import { createUserStore } from '../../src/modules/users/store';

const [url = '', name, count] = process.argv.slice(2);
const db = await openDatabase({ url, timeoutMs: 10_000 });
const store = createUserStore(db);
let saved = 0;
for (let value = 1; value <= Number(count); value += 1) {
  const what =
    name === 'a'
      ? ({ section: 'ltcLifetimeCare', patch: { careCosts: value } } as const)
      : ({ section: 'lifetimeCare', patch: { careSafety: value } } as const);
  if (await store.saveSection({ userId: 'shared', now: new Date(), ...what })) saved += 1;
}
process.stdout.write(`${saved}\n`);
db.$client.close();
