import { describe, expect, test } from 'bun:test';
import { type Database, openServiceDatabase } from '../../../src/db/client';
import { createLog } from '../../../src/log';
import { createAuditStore, startAuditRetention } from '../../../src/modules/audit/store';
import { createUserStore } from '../../../src/modules/users/store';
import { fillEvents, temporaryDatabase } from '../../support/database';
import { amount, isLong, until } from '../../support/resources';

const dayMs = 24 * 60 * 60_000;
const now = Date.now();
const before = now - 31 * dayMs;
const never = () => false;

const instants = async (db: Database): Promise<number[]> => {
  const { rows } = await db.$client.execute('SELECT occurred_at FROM audit_events ORDER BY id');
  return rows.map(({ occurred_at }) => Number(occurred_at));
};

describe('audit retention', () => {
  test('removes exactly the expired events and logs the count', async () => {
    const { db } = await temporaryDatabase();
    await createAuditStore(db).advance(undefined, {
      ...{ days: 31, asOf: now, checkedAt: now, dayBeganAt: now, removed: 0 },
    });
    await fillEvents(db, 3_000, `${now} - (3000 - value) * ${dayMs / 10}`);
    const lines: string[] = [];
    const log = createLog('info', { write: (line) => lines.push(line) });
    const all = await instants(db);
    const run = async (at: number, left: number) => {
      const retention = startAuditRetention(createAuditStore(db), { db, clock: () => new Date(at), log }, 31);
      await until(async () => (await instants(db)).length === left);
      await retention.stop();
    };
    await run(now, 2_000);
    await run(now, 2_000);
    expect(await instants(db)).toEqual(all.slice(1_000));
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      expect.objectContaining({ level: 'info', events: 1_000, days: 31 }),
    ]);
  });

  test('removes each event once when three stores run in parallel', async () => {
    const { db } = await temporaryDatabase();
    await fillEvents(db, 4_000, `${before} - 1`);
    const removed = await Promise.all([1, 2, 3].map(() => createAuditStore(db).removeExpired({ before }, never)));
    expect(removed.reduce((sum, count) => sum + count)).toBe(4_000);
  });

  test('removes expired events that follow events with a future timestamp', async () => {
    const { db } = await temporaryDatabase();
    await fillEvents(db, 1_200, `${now} + ${dayMs}`);
    await fillEvents(db, 700, `${before} - 1`);
    await fillEvents(db, 10, String(now));
    expect(await createAuditStore(db).removeExpired({ before }, never)).toBe(700);
    expect(await instants(db)).toHaveLength(1_210);
  });

  test('stops between steps when the service stops', async () => {
    const { db } = await temporaryDatabase();
    await fillEvents(db, 2_000, `${before} - 1`);
    let steps = 0;
    expect(await createAuditStore(db).removeExpired({ before }, () => ++steps > 2)).toBe(1_000);
  });

  test('logs a failure while the database is unavailable', async () => {
    const { db } = await temporaryDatabase();
    db.$client.close();
    const lines: string[] = [];
    const log = createLog('info', { write: (line) => lines.push(line) });
    const retention = startAuditRetention(createAuditStore(db), { db, clock: () => new Date(now), log }, 31);
    await until(() => lines.length > 0);
    await retention.stop();
    expect(lines[0]).toContain('could not remove old audit events');
  });

  test('removes in short steps so that saves proceed in parallel', async () => {
    const { url } = await temporaryDatabase();
    // On a busy disk an fsync may take seconds.
    const db = await openServiceDatabase({ url, timeoutMs: 20_000 });
    const rows = amount({ long: 1_000_000, short: 20_000 });
    await fillEvents(db, rows, `${before} - 1`);
    const store = createUserStore(db);
    const removing = createAuditStore(db).removeExpired({ before }, never);
    let isDone = false;
    void removing.then(() => {
      isDone = true;
    });
    const tookMs: number[] = [];
    for (let value = 1; !isDone; value += 1) {
      const startedAtMs = performance.now();
      const save = { userId: 'saver', section: 'ltcLifetimeCare', patch: { careCosts: value } } as const;
      await store.saveSection({ ...save, requestId: `request-${value}`, now: new Date(now) });
      tookMs.push(performance.now() - startedAtMs);
    }
    expect(await removing).toBe(rows);
    // At least one save for every five steps of 500 rows.
    expect(tookMs.length).toBeGreaterThan(rows / 2_500);
    expect(await instants(db)).toHaveLength(tookMs.length);
    db.$client.close();
    if (isLong) process.stderr.write(`longest save ${Math.max(...tookMs).toFixed(0)} ms of ${tookMs.length}\n`);
  }, 300_000);
});
