import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { callerOf, createTestApp, testSecret } from '../support/app';
import { createSaveHistory } from '../support/disks';
import { startService } from '../support/processes';
import { amount, temporaryFolder } from '../support/resources';

const ltc = '/v2/private/ltc/lifetimeCare';
const lifetimeCare = '/v2/private/deepDives/lifetimeCare';
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
          const response = await call('POST', ltc, { as: userId, body: { careCosts: round * 100_000 + value } }).catch(
            () => undefined,
          );
          // The kill came before the response.
          if (response === undefined) return;
          expect(response.status).toBe(200);
          history.note(userId, response);
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

  test('A2 has one event for each version when two flows answer one question in turn', async () => {
    const { call, db, url } = await createTestApp();
    const history = createSaveHistory();
    const flows = [
      { path: ltc, section: 'ltc.lifetimeCare', answers: { careFacilityType: 'inHome', careSafety: 2 } },
      { path: lifetimeCare, section: 'lifetimeCare', answers: { careFacilityType: 'nursingHome', careSafety: 4 } },
    ];
    const expected: string[] = [];
    const save = async ({ path, section }: (typeof flows)[number], body: object, headers = {}) => {
      const response = await call('POST', path, { as: 'ada', body, headers });
      expect(response.status).toBe(200);
      history.note('ada', response);
      expected.push(`${section} ${response.headers.get('x-request-id')}`);
    };
    for (const headers of [{}, { 'if-match': '*' }]) {
      // The second turn repeats the answers of the first: it changes the newest answers alone. The third changes both.
      for (const turn of [0, 0, 1]) {
        for (const flow of flows)
          await save(
            flow,
            { ...flow.answers, ...(turn === 1 && { careSafety: Object.keys(headers).length }) },
            headers,
          );
      }
      for (const flow of flows) await save(flow, { careSafety: flow.answers.careSafety }, headers);
    }
    expect(history.faultsOf(url.slice('file:'.length))).toEqual([]);
    const { rows } = await db.$client.execute('SELECT section, request_id, actor FROM audit_events ORDER BY id');
    expect(rows.map(({ section, request_id }) => `${section} ${request_id}`)).toEqual(expected);
    expect(new Set(rows.map(({ actor }) => actor))).toEqual(new Set(['person']));
  });

  test.each([
    { loss: 'its event alone', sql: 'DELETE FROM audit_events WHERE id = (SELECT max(id) FROM audit_events)' },
    {
      loss: 'its version and its event',
      sql: `DELETE FROM audit_events WHERE id = (SELECT max(id) FROM audit_events);
        UPDATE users SET version = version - 1`,
    },
    { loss: 'its version alone', sql: 'UPDATE users SET version = version - 1' },
  ])('A2 shows a lost save that a later save has overwritten: without $loss', async ({ sql }) => {
    const { call, db, url } = await createTestApp();
    const path = url.slice('file:'.length);
    const history = createSaveHistory();
    const save = async (careCosts: number) =>
      history.note('ada', await call('POST', ltc, { as: 'ada', body: { careCosts } }));
    await save(1);
    await save(2);
    expect(history.faultsOf(path)).toEqual([]);
    // No trigger fires when a page is lost.
    const { rows } = await db.$client.execute("SELECT sql FROM sqlite_schema WHERE name = 'audit_events_not_removed'");
    await db.$client.batch(['DROP TRIGGER audit_events_not_removed', sql, String(rows[0]?.sql)]);
    await save(3);
    expect((await call('GET', '/v2/private/user', { as: 'ada' })).body).toMatchObject({
      user: { ltc: { lifetimeCare: { careCosts: 3 } } },
    });
    expect(history.faultsOf(path)).not.toEqual([]);
  });
});
