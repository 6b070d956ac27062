/** Tasks that a test runs in separate processes against one database. Prints the number of iterations. */
import { sql } from 'drizzle-orm';
import Connection from 'libsql';
import { openDatabase, openServiceDatabase, writeBatch } from '../../src/db/client';
import { encryptionOption } from '../../src/db/database-file';
import { migrateDatabase } from '../../src/db/migrate';
import { users } from '../../src/db/schema/people';
import { createUserStore } from '../../src/modules/users/store';

const [url = '', task = '', argument = ''] = process.argv.slice(2);
const { DATABASE_ENCRYPTION_KEY: encryptionKey } = process.env;
const settings = { url, timeoutMs: 10_000, encryptionKey };
const db = await (task === 'migrate' ? openDatabase : openServiceDatabase)(settings);
const store = createUserStore(db);
const save = (section: 'ltcLifetimeCare' | 'lifetimeCare', patch: object) =>
  store.saveSection({ userId: 'shared', section, patch: { ...patch }, requestId: null, now: new Date() });

const tasks: Record<string, () => Promise<number>> = {
  careCosts: () => times(async (value) => void (await save('ltcLifetimeCare', { careCosts: value }))),
  careSafety: () => times(async (value) => void (await save('lifetimeCare', { careSafety: value }))),
  /** Reads before it writes, which fails in a deferred transaction with a concurrent writer. */
  batch: () =>
    times(async () => {
      await writeBatch(db, [
        db.select().from(users).limit(1),
        db.update(users).set({ version: sql`${users.version} + 1` }),
      ]);
    }),
  /** Saves two rows in each transaction and prints its number after the acknowledgement, until it is stopped. */
  pairs: async () => {
    for (let value = 1; ; value += 1) {
      const rows = ['a', 'b'].map((half) => ({
        id: `${argument}-${value}-${half}`,
        version: 1,
        createdAt: 0,
        updatedAt: 0,
      }));
      await writeBatch(
        db,
        rows.map((row) => db.insert(users).values(row)),
      );
      process.stdout.write(`${value}\n`);
    }
  },
  /** Saves for eight users in parallel and prints each acknowledged request id, until it is stopped. */
  requests: async () => {
    const saver = async (userId: string) => {
      for (let value = 1; ; value += 1) {
        const requestId = `${userId}-${value}`;
        const patch = { careCosts: value };
        const save = { userId, section: 'ltcLifetimeCare', patch, requestId, now: new Date() } as const;
        // The test has killed the server and will kill this process.
        if ((await store.saveSection(save).catch(() => undefined)) === undefined) return;
        process.stdout.write(`${requestId}\n`);
      }
    };
    await Promise.all(Array.from({ length: 8 }, (_, index) => saver(`${argument}-${index}`)));
    await Bun.sleep(60_000);
    return 0;
  },
  /** Reads within a transaction until its standard input ends. */
  read: async () => {
    const connection = new Connection(url.slice('file:'.length), { timeout: 0, ...encryptionOption(encryptionKey) });
    connection.exec('BEGIN; SELECT count(*) FROM users');
    process.stdout.write('reading\n');
    await Bun.stdin.text();
    connection.exec('COMMIT');
    return 1;
  },
  migrate: async () => {
    await migrateDatabase(db, argument);
    return 1;
  },
};

async function times(work: (value: number) => Promise<void>): Promise<number> {
  for (let value = 1; value <= Number(argument); value += 1) await work(value);
  return Number(argument);
}

process.stdout.write(`${await tasks[task]?.()}\n`);
db.$client.close();
