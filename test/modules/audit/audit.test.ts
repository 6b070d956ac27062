import { describe, expect, test } from 'bun:test';
import Connection from 'libsql';
import type { Database } from '../../../src/db/client';
import { DatabaseError } from '../../../src/db/errors';
import { auditEvents } from '../../../src/db/schema/people';
import { createLog } from '../../../src/log';
import { planRetention } from '../../../src/modules/audit/retention';
import { createAuditStore, startAuditRetention } from '../../../src/modules/audit/store';
import { createSalesStore } from '../../../src/modules/sales/store';
import {
  type CallOptions,
  counselor,
  createCoverageApp,
  createTestApp,
  declined,
  manager,
  testOperator,
  unavailable,
} from '../../support/app';
import { saveRoutes } from '../../support/contract';
import { auditEventsOf, auditLinesOf, beforeStatements, fillEvents, temporaryDatabase } from '../../support/database';
import { until } from '../../support/resources';

const ltc = '/v2/private/ltc/lifetimeCare';
const matches = '/v2/private/engine/matches';
const glance = '/v2/private/user/salesManager/monthly-glance?month=3';
const hourMs = 3_600_000;
const app = await createCoverageApp();
const { testApp, carrier, start, reconcile } = app;

/** Sends a request with the given request id. */
const send = (requestId: string, path: string, options: CallOptions & { method?: string }) => {
  const headers = { 'x-request-id': requestId, ...options.headers };
  return testApp.call(options.method ?? 'POST', path, { ...options, headers });
};

describe('audit log', () => {
  test('records section, time and request id of each save', async () => {
    for (const [index, { path }] of saveRoutes.entries()) {
      const body = path.includes('profile') ? { heightCm: 170 } : { selections: [{ id: 1, title: 'a' }] };
      await send(`request-${index}`, path, { as: 'saver', body });
    }
    await send('request-m', matches, { as: 'saver' });
    expect(await auditLinesOf(testApp, 'saver')).toEqual([
      'saved ltc.lifetimeCare person request-0',
      'saved lifeInsurance person request-1',
      'saved lifetimeCare person request-2',
      'saved profile person request-3',
      'saved insurance.matches person request-m',
    ]);
    const [first] = await auditEventsOf(testApp, 'saver');
    expect(first).toMatchObject({ occurredAt: testApp.now.getTime(), actorId: null, requestId: 'request-0' });
  });

  test('records no event for a request that changes nothing', async () => {
    const save = (requestId: string, options: CallOptions) => send(requestId, ltc, { as: 'same', ...options });
    const made = await save('request-1', { body: { careCosts: 1 } });
    const ifMatch = (tag: string) => ({ headers: { 'if-match': tag } });
    await save('request-2', { body: { careCosts: 1 } });
    await save('request-3', { body: {} });
    await save('request-4', { body: { careCosts: 1 }, ...ifMatch(made.headers.get('etag') ?? '') });
    expect((await save('request-5', { body: { careCosts: 2 }, ...ifMatch('"1-1"') })).status).toBe(412);
    expect((await save('request-6', { body: { careCosts: 'x' } })).status).toBe(422);
    expect((await save('request-7', { as: 'absent', body: {}, ...ifMatch('*') })).status).toBe(412);
    await send('request-8', matches, { as: 'same' });
    await send('request-9', matches, { as: 'same' });
    await send('request-a', '/v2/private/engine/preview', { as: 'same', body: {} });
    await send('request-b', '/v2/private/user', { as: 'same', method: 'GET' });
    expect(await auditLinesOf(testApp, 'same')).toEqual([
      'saved ltc.lifetimeCare person request-1',
      'saved insurance.matches person request-8',
    ]);
    expect(await auditLinesOf(testApp, 'absent')).toEqual([]);
  });

  test('records an empty first save, a removed answer and two requests with one id', async () => {
    const save = (requestId: string, body: object) => send(requestId, ltc, { as: 'empty', body });
    await save('request-1', {});
    await save('request-2', { careCosts: 1 });
    await save('request-2', { careCosts: 2 });
    await save('request-3', { careCosts: null });
    expect(await auditLinesOf(testApp, 'empty')).toEqual([
      'saved - person request-1',
      'saved ltc.lifetimeCare person request-2',
      'saved ltc.lifetimeCare person request-2',
      'saved ltc.lifetimeCare person request-3',
    ]);
  });

  test('records an application from start to purchase, nothing for a repeat, and a complete profile once', async () => {
    const apply = (requestId: string, flow: string) =>
      start({}, { as: 'buyer', flow, headers: { 'x-request-id': requestId } });
    for (const [index, flow] of ['ltc', 'ltc', 'life'].entries()) {
      expect((await apply(`request-${index}`, flow)).status).toBe(200);
    }
    const events = ['started -', 'accepted -', 'saved purchase.partner'];
    expect(await auditLinesOf(testApp, 'buyer')).toEqual([
      'saved profile person request-0',
      ...events.map((event) => `${event} person request-0`),
      ...events.map((event) => `${event} person request-2`),
    ]);
    const [life = null, first = null] = (await app.list('buyer')).applications.map(({ id }) => id);
    const expected = [null, first, first, null, life, life, null];
    expect((await auditEventsOf(testApp, 'buyer')).map(({ applicationId }) => applicationId)).toEqual(expected);
  });

  test('records a decline, an unknown outcome and its settlement by the service', async () => {
    await app.reset({ respond: ({ count }) => (count === 1 ? declined : unavailable()) });
    const linesOf = async (as: string) => (await auditLinesOf(testApp, as)).slice(1);
    for (const as of ['declined', 'open']) await start({}, { as, headers: { 'x-request-id': 'request-1' } });
    expect(await linesOf('declined')).toEqual(['started - person request-1', 'declined - person request-1']);
    const untilLost = ['started - person request-1', 'unsettled - person request-1'];
    expect(await linesOf('open')).toEqual(untilLost);
    app.pass(60_000);
    expect([await reconcile(), await linesOf('open')]).toEqual([0, untilLost]);
    carrier.respond = carrier.acceptAll;
    app.pass(hourMs);
    expect(await reconcile()).toBe(1);
    expect(await linesOf('open')).toEqual([...untilLost, 'accepted - service -', 'saved purchase.partner service -']);
  });

  test('has exactly one event for each stored version after parallel saves and matches', async () => {
    const responses = await Promise.all(
      Array.from({ length: 60 }, (_, index) => {
        const as = `parallel-${index % 3}`;
        const [path, body] = index % 5 === 0 ? [matches, undefined] : [ltc, { careCosts: index % 7 }];
        return send(`request-${index}`, path, { as, body });
      }),
    );
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([200]));
    const { rows } = await testApp.db.$client.execute(`SELECT version,
      (SELECT count(*) FROM audit_events WHERE user_id = users.id) AS events,
      (SELECT count(DISTINCT request_id) FROM audit_events WHERE user_id = users.id) AS requests
      FROM users WHERE id LIKE 'parallel-%'`);
    expect(rows).toHaveLength(3);
    for (const { version, events, requests } of rows) {
      expect({ version, requests }).toEqual({ version: Number(events), requests: Number(events) });
    }
  });
});

test('an access to the events of a user is recorded if there are any', async () => {
  const audit = createAuditStore(testApp.db);
  const access = { userId: 'watched', action: 'read', actor: 'operator', requestId: null, now: 1 } as const;
  expect([await audit.recordAccess(access), await auditLinesOf(testApp, 'watched')]).toEqual([false, []]);
  await send('request-1', ltc, { as: 'watched', body: {} });
  expect(await audit.recordAccess(access)).toBeTrue();
  expect(await auditLinesOf(testApp, 'watched')).toEqual(['saved - person request-1', 'read - operator -']);
});

describe('audit of the monthly glance', () => {
  const roles = ['salesManager'];

  test('records the resolved month of each read and nothing for an invalid query', async () => {
    await createSalesStore(testApp.db).upsertStaff([manager('boss')], testApp.now);
    const read = (requestId: string, path: string) => send(requestId, path, { method: 'GET', as: 'boss', roles });
    expect((await read('request-1', glance)).status).toBe(200);
    await read('request-2', glance.replace('=3', '=February&year=2025'));
    expect((await read('request-3', glance.replace('=3', '=nonsense'))).status).toBe(422);
    expect(await auditLinesOf(testApp, 'boss')).toEqual([
      'read monthlyGlance/2026-03 staff request-1',
      'read monthlyGlance/2025-02 staff request-2',
    ]);
  });

  test('returns 503 without data when the audit event cannot be written', async () => {
    let isAway = false;
    const db = beforeStatements((await temporaryDatabase()).db, (sql) => {
      if (isAway && /audit_events/.test(sql)) throw new DatabaseError('ECONNREFUSED', true);
    });
    const { call, now } = await createTestApp({ db });
    await createSalesStore(db).upsertStaff([manager('boss')], now);
    const read = () => call('GET', glance, { as: 'boss', roles });
    expect((await read()).status).toBe(200);
    isAway = true;
    const refused = await read();
    expect(refused).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect(refused.headers.get('retry-after')).not.toBeNull();
    // A forbidden request still gets 403.
    expect((await call('GET', glance, { as: 'outsider' })).status).toBe(403);
  });

  test('records a refused read once an hour for each user', async () => {
    const others = { plain: [], outsider: roles };
    const read = async (id: string) => {
      for (const [as, each] of Object.entries(others)) {
        expect((await send(id, glance, { method: 'GET', as, roles: each })).status).toBe(403);
      }
    };
    const refusals = async () =>
      (await Promise.all(Object.keys(others).map((id) => auditLinesOf(testApp, id)))).flat().length;
    for (let count = 0; count < 5; count += 1) await read('request-1');
    await until(async () => (await refusals()) >= 2);
    app.pass(hourMs + 1);
    await read('request-2');
    await until(async () => (await refusals()) >= 4);
    const expected = ['request-1', 'request-2'].map((id) => `refused monthlyGlance person ${id}`);
    for (const id of Object.keys(others)) expect(await auditLinesOf(testApp, id)).toEqual(expected);
  });
});

test('audit of operator commands records staff imports and assignments only for the people they change', async () => {
  const { db, now } = testApp;
  const sales = createSalesStore(db);
  const team = [manager('east'), manager('west')];
  for (const [atMs, leader] of ['east', 'west', 'west'].entries()) {
    const at = new Date(now.getTime() + atMs);
    await sales.upsertStaff([...team, counselor('c1', leader)], at, { operator: testOperator });
  }
  const imported = 'imported staff operator command-1';
  expect(await auditLinesOf(testApp, 'c1')).toEqual([imported, imported]);
  expect(await auditLinesOf(testApp, 'east')).toEqual([imported]);

  const assign = (counselorId: string | null) =>
    sales.assignCounselor({ userId: 'client', counselorId, operator: testOperator, now });
  expect(await assign('c1')).toBeFalse();
  await send('request-1', ltc, { as: 'client', body: {} });
  for (const counselorId of ['c1', 'c1', null, null]) expect(await assign(counselorId)).toBeTrue();
  expect(await auditLinesOf(testApp, 'client')).toEqual([
    'saved - person request-1',
    'assigned counselor operator command-1',
    'assigned counselor operator command-1',
  ]);
  expect((await auditEventsOf(testApp, 'client')).at(-1)?.actorId).toBe('tester');
});

describe('audit retention', () => {
  const nowMs = Date.now();

  test('keeps a longer log whole at its first run, and begins with the clock when there are no events', () => {
    const first = { events: 10, newest: nowMs, state: undefined };
    const oldest = nowMs - 2_000.5 * 24 * hourMs;
    expect(planRetention({ ...first, oldest }, 219, nowMs).next).toMatchObject({ days: 2_001, asOf: nowMs });
    const none = { events: 0, oldest: undefined, newest: undefined, state: undefined };
    expect(planRetention(none, 219, nowMs)).toMatchObject({ holds: [], next: { days: 219, asOf: nowMs } });
  });

  const before = nowMs - 31 * 24 * hourMs;
  const never = () => false;

  test('removes each expired event once, in three stores at once, also after events with a future time', async () => {
    const { db } = await temporaryDatabase();
    const kept = [`${nowMs} + 1000 * value`, String(before), `${before} + value`];
    await fillEvents(db, 1_200, kept[0] ?? '');
    await fillEvents(db, 1_700, `${before} - value`);
    for (const instant of kept.slice(1)) await fillEvents(db, 10, instant);
    const stores = [1, 2, 3].map(() => createAuditStore(db));
    const removed = await Promise.all(stores.map((store) => store.removeExpired({ before }, never)));
    expect(removed.reduce((sum, count) => sum + count)).toBe(1_700);
    const { rows } = await db.$client.execute('SELECT min(occurred_at) AS oldest, count(*) AS n FROM audit_events');
    expect({ ...rows[0] }).toMatchObject({ oldest: before, n: 1_220 });
  });

  test('stops between steps of 500 events when the service stops', async () => {
    const { db } = await temporaryDatabase();
    await fillEvents(db, 2_000, `${before} - 1`);
    let steps = 0;
    expect(await createAuditStore(db).removeExpired({ before }, () => ++steps > 2)).toBe(1_000);
  });

  test('pauses after each full step for as long as the step took, without a lock that another writer meets', async () => {
    const { db, url } = await temporaryDatabase();
    await fillEvents(db, 1_001, `${before} - 1`);
    const other = new Connection(url, { timeout: 0 });
    const beginningMs = performance.now();
    const pauses: number[] = [];
    const store = createAuditStore(beforeStatements(db, () => Bun.sleep(20)));
    const removed = await store.removeExpired({ before }, never, async (ms) => {
      pauses.push(ms);
      other.exec('BEGIN IMMEDIATE; ROLLBACK');
    });
    other.close();
    expect(removed).toBe(1_001);
    expect(pauses.map((ms) => ms > 15)).toEqual([true, true]);
    expect(pauses.reduce((sum, ms) => sum + ms)).toBeLessThan(performance.now() - beginningMs);
  });

  const startRetention = (db: Database, clockMs = nowMs) => {
    const lines: object[] = [];
    const log = createLog('info', { write: (line) => lines.push(JSON.parse(line)) });
    const retention = startAuditRetention(createAuditStore(db), { db, clock: () => new Date(clockMs), log }, 31);
    return { lines, stop: () => retention.stop() };
  };

  test.each([12, -12])('removes no event that has expired by one clock only, %d hours apart', async (hours) => {
    const { db } = await temporaryDatabase();
    const state = { days: 31, asOf: nowMs, checkedAt: nowMs, dayBeganAt: nowMs, removed: 0 };
    await createAuditStore(db).advance(undefined, state);
    const between = before + (hours / 2) * hourMs;
    await fillEvents(db, 2, `iif(value = 1, ${before} - ${40 * hourMs}, ${between})`);
    const removing = { level: 'info', msg: 'removing expired audit events', events: 1, days: 31 };
    for (const logged of [[expect.objectContaining(removing)], []]) {
      const { lines, stop } = startRetention(db, nowMs + hours * hourMs);
      await until(async () => (await db.$count(auditEvents)) < 2);
      await stop();
      expect(lines).toEqual(logged);
      // The bound of a day counts the removed events of each run.
      expect((await createAuditStore(db).findFacts()).state?.removed).toBe(1);
    }
    expect(await db.select({ at: auditEvents.occurredAt }).from(auditEvents)).toEqual([{ at: between }]);
  });

  test('logs a failure while the database is unavailable', async () => {
    const { db } = await temporaryDatabase();
    db.$client.close();
    const { lines, stop } = startRetention(db);
    await until(() => lines.length > 0);
    await stop();
    expect(lines[0]).toMatchObject({ msg: 'could not remove old audit events' });
  });
});
