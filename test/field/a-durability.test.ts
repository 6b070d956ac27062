import { Database as SqliteDatabase } from 'bun:sqlite';
import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { callerOf, createTestApp, testSecret } from '../support/app';
import { temporaryFolder } from '../support/database';
import { amount } from '../support/long';
import { createSaveHistory } from '../support/save-history';
import { startService } from '../support/service';

const ltc = '/v2/private/ltc/lifetimeCare';
const savers = 8;

describe('A2 the history of saves', () => {
  test('A2 shows each acknowledged save, and no gap, after the service was killed while it saved', async () => {
    const path = join(temporaryFolder(), 'planning.db');
    const history = createSaveHistory();
    for (let round = 0; round < amount({ long: 20, short: 3 }); round += 1) {
      const service = await startService({
        environment: { AUTH_SECRET: testSecret, DATABASE_URL: `file:${path}`, SEED_DEMO: 'false' },
      });
      const call = callerOf(service.address);
      const before = history.acknowledged.length;
      let isKilled = false;
      const save = async (userId: string) => {
        for (let value = 1; !isKilled; value += 1) {
          const answer = await call('POST', ltc, { as: userId, body: { careCosts: round * 100_000 + value } }).catch(
            () => undefined,
          );
          // The kill came before the response.
          if (answer === undefined) return;
          expect(answer.status).toBe(200);
          history.note(userId, answer);
          if (history.acknowledged.length - before > 60 + 17 * round) {
            isKilled = true;
            service.process.kill('SIGKILL');
          }
        }
      };
      await Promise.all(Array.from({ length: savers }, (_, index) => save(`saver-${index}`)));
      await service.process.exited;
      expect(history.acknowledged.length - before).toBeGreaterThan(60);
      expect(history.faultsOf(path)).toEqual([]);
    }
  }, 120_000);

  test.each([
    { loss: 'its event alone', sql: 'DELETE FROM audit_events WHERE id = (SELECT max(id) FROM audit_events)' },
    {
      loss: 'its version and its event',
      sql: `DELETE FROM audit_events WHERE id = (SELECT max(id) FROM audit_events);
        UPDATE users SET version = version - 1`,
    },
    { loss: 'its version alone', sql: 'UPDATE users SET version = version - 1' },
  ])('A2 shows a lost save that a later save has overwritten: without $loss', async ({ sql }) => {
    const { call, url } = await createTestApp();
    const path = url.slice('file:'.length);
    const history = createSaveHistory();
    const save = async (careCosts: number) =>
      history.note('ada', await call('POST', ltc, { as: 'ada', body: { careCosts } }));
    await save(1);
    await save(2);
    expect(history.faultsOf(path)).toEqual([]);
    const database = new SqliteDatabase(path);
    // What a lost page takes with it is no change, and no trigger sees it.
    database.run('DROP TRIGGER audit_events_not_removed');
    database.exec(sql);
    database.close();
    await save(3);
    expect((await call('GET', '/v2/private/user', { as: 'ada' })).body).toMatchObject({
      user: { ltc: { lifetimeCare: { careCosts: 3 } } },
    });
    expect(history.faultsOf(path)).not.toEqual([]);
  });
});
