import { describe, expect, test } from 'bun:test';
import { type Database, openServiceDatabase } from '../../../src/db/client';
import { DatabaseError } from '../../../src/db/errors';
import { createLog } from '../../../src/log';
import { createAuditStore, startAuditRetention } from '../../../src/modules/audit/store';
import { createHttpCarrier } from '../../../src/modules/coverage/http-carrier';
import { createSalesStore } from '../../../src/modules/sales/store';
import { createUserStore } from '../../../src/modules/users/store';
import {
  applicant,
  type CallOptions,
  canaryApplicant,
  counselor,
  coverageServiceOf,
  createTestApp,
  manager,
  startSandbox,
  type TestApp,
  testCarrier,
  testOperator,
} from '../../support/app';
import { saveRoutes } from '../../support/contract';
import { auditEventsOf, auditLinesOf, beforeStatements, fillEvents, temporaryDatabase } from '../../support/database';
import { amount, until } from '../../support/resources';

const ltc = '/v2/private/ltc/lifetimeCare';
const glance = '/v2/private/user/salesManager/monthly-glance?month=3';

/** Sends a request with the given request id. */
const send = (
  { call }: TestApp,
  requestId: string,
  path: string,
  { headers, ...options }: CallOptions & { method?: string },
) => call(options.method ?? 'POST', path, { ...options, headers: { 'x-request-id': requestId, ...headers } });

describe('audit log', () => {
  test('records section, time and request id of each save', async () => {
    const testApp = await createTestApp();
    for (const [index, { path }] of saveRoutes.entries()) {
      const body = path.includes('profile') ? { heightCm: 170 } : { selections: [{ id: 1, title: 'a' }] };
      await send(testApp, `request-${index}`, path, { as: 'ada', body });
    }
    await send(testApp, 'request-m', '/v2/private/engine/matches', { as: 'ada' });
    const story = await auditLinesOf(testApp, 'ada');
    expect(story).toEqual([
      'saved ltc.lifetimeCare person request-0',
      'saved lifeInsurance person request-1',
      'saved lifetimeCare person request-2',
      'saved profile person request-3',
      'saved insurance.matches person request-m',
    ]);
    const [first] = await auditEventsOf(testApp, 'ada');
    expect(first).toMatchObject({ occurredAt: testApp.now.getTime(), actorId: null, requestId: 'request-0' });
  });

  test('records no event for a request that changes nothing', async () => {
    const testApp = await createTestApp();
    const save = (requestId: string, options: CallOptions) => send(testApp, requestId, ltc, { as: 'ada', ...options });
    const made = await save('request-1', { body: { careCosts: 1 } });
    const tag = made.headers.get('etag') ?? '';
    await save('request-2', { body: { careCosts: 1 } });
    await save('request-3', { body: {} });
    await save('request-4', { body: { careCosts: 1 }, headers: { 'if-match': tag } });
    expect((await save('request-5', { body: { careCosts: 2 }, headers: { 'if-match': '"1-1"' } })).status).toBe(412);
    expect((await save('request-6', { body: { careCosts: 'x' } })).status).toBe(422);
    expect((await save('request-7', { as: 'bob', body: {}, headers: { 'if-match': '*' } })).status).toBe(412);
    await send(testApp, 'request-8', '/v2/private/engine/matches', { as: 'ada' });
    await send(testApp, 'request-9', '/v2/private/engine/matches', { as: 'ada' });
    await send(testApp, 'request-a', '/v2/private/engine/preview', { as: 'ada', body: {} });
    await send(testApp, 'request-b', '/v2/private/user', { as: 'ada', method: 'GET' });
    expect(await auditLinesOf(testApp, 'ada')).toEqual([
      'saved ltc.lifetimeCare person request-1',
      'saved insurance.matches person request-8',
    ]);
    expect(await auditLinesOf(testApp, 'bob')).toEqual([]);
  });

  test('records an empty first save, a removed answer and two requests with one id', async () => {
    const testApp = await createTestApp();
    const save = (requestId: string, body: object) => send(testApp, requestId, ltc, { as: 'ada', body });
    await save('request-1', {});
    await save('request-2', { careCosts: 1 });
    await save('request-2', { careCosts: 2 });
    await save('request-3', { careCosts: null });
    expect(await auditLinesOf(testApp, 'ada')).toEqual([
      'saved - person request-1',
      'saved ltc.lifetimeCare person request-2',
      'saved ltc.lifetimeCare person request-2',
      'saved ltc.lifetimeCare person request-3',
    ]);
  });

  test('records an application from start to purchase and nothing for a repeat', async () => {
    const sandbox = await startSandbox();
    const testApp = await createTestApp({ carrier: sandbox.carrier() });
    const start = (requestId: string, body = canaryApplicant) =>
      send(testApp, requestId, '/v2/private/ltc/totalCoverage', { as: 'ada', body });
    expect((await start('request-1')).status).toBe(200);
    expect((await start('request-2')).status).toBe(200);
    expect(await auditLinesOf(testApp, 'ada')).toEqual([
      'saved profile person request-1',
      'started - person request-1',
      'accepted - person request-1',
      'saved purchase.partner person request-1',
    ]);
    const events = await auditEventsOf(testApp, 'ada');
    const { rows } = await testApp.db.$client.execute('SELECT id FROM applications');
    const id = String(rows[0]?.id);
    expect(events.map(({ applicationId }) => applicationId)).toEqual([null, id, id, null]);
    expect(JSON.stringify(events)).not.toContain('Canary');
  });

  test('records a decline, an unknown outcome and its settlement by the service', async () => {
    const sandbox = await startSandbox();
    const testApp = await createTestApp({ carrier: sandbox.carrier() });
    const start = (requestId: string, lastName: string) =>
      send(testApp, requestId, '/v2/private/life/totalCoverage', { as: lastName, body: { ...applicant, lastName } });
    await start('request-1', 'Declined');
    await start('request-2', 'Dropped');
    expect((await auditLinesOf(testApp, 'Declined')).slice(1)).toEqual([
      'started - person request-1',
      'declined - person request-1',
    ]);
    const untilLost = ['started - person request-2', 'unsettled - person request-2'];
    expect((await auditLinesOf(testApp, 'Dropped')).slice(1)).toEqual(untilLost);
    testApp.now = new Date(testApp.now.getTime() + 60_000);
    const away = createHttpCarrier({ ...testCarrier, url: 'http://127.0.0.1:1', apiKey: undefined });
    expect(await coverageServiceOf(testApp, away).reconcile('one', () => false)).toBe(0);
    expect((await auditLinesOf(testApp, 'Dropped')).slice(1)).toEqual(untilLost);
    testApp.now = new Date(testApp.now.getTime() + 3_600_000);
    expect(await coverageServiceOf(testApp, sandbox.carrier()).reconcile('one', () => false)).toBe(1);
    expect((await auditLinesOf(testApp, 'Dropped')).slice(1)).toEqual([
      ...untilLost,
      'accepted - service -',
      'saved purchase.partner service -',
    ]);
  });

  test('has exactly one event for each stored version after parallel saves and matches', async () => {
    const testApp = await createTestApp();
    const responses = await Promise.all(
      Array.from({ length: 60 }, (_, index) => {
        const requestId = `request-${index}`;
        const as = `p${index % 3}`;
        return index % 5 === 0
          ? send(testApp, requestId, '/v2/private/engine/matches', { as })
          : send(testApp, requestId, ltc, { as, body: { careCosts: index % 7 } });
      }),
    );
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([200]));
    const { rows } = await testApp.db.$client.execute(`SELECT version,
      (SELECT count(*) FROM audit_events WHERE user_id = users.id) AS events,
      (SELECT count(DISTINCT request_id) FROM audit_events WHERE user_id = users.id) AS requests FROM users`);
    expect(rows).toHaveLength(3);
    for (const { version, events, requests } of rows) {
      expect({ version, requests }).toEqual({ version: Number(events), requests: Number(events) });
    }
  });
});

describe('audit of the monthly glance', () => {
  const roles = ['salesManager'];
  const setUp = async (overrides: Parameters<typeof createTestApp>[0] = {}) => {
    const testApp = await createTestApp(overrides);
    await createSalesStore(testApp.db).upsertStaff([manager('boss'), counselor('c1', 'boss')], testApp.now);
    return testApp;
  };

  test('records the resolved month of each read and nothing for an invalid query', async () => {
    const testApp = await setUp();
    const read = (requestId: string, path: string) =>
      send(testApp, requestId, path, { method: 'GET', as: 'boss', roles });
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
    const db = beforeStatements((await createTestApp()).db, (sql) => {
      if (isAway && /audit_events/.test(sql)) throw new DatabaseError('ECONNREFUSED', true);
    });
    const testApp = await createTestApp({ db });
    await createSalesStore(db).upsertStaff([manager('boss', 'Canarylast')], testApp.now);
    const read = () => testApp.call('GET', glance, { as: 'boss', roles });
    expect((await read()).status).toBe(200);
    isAway = true;
    const refused = await read();
    expect(refused).toMatchObject({ status: 503, body: { type: '/problems/database-unavailable' } });
    expect(refused.headers.get('retry-after')).not.toBeNull();
    // A forbidden request still gets 403.
    expect((await testApp.call('GET', glance, { as: 'outsider' })).status).toBe(403);
  });

  test('records a refused read once an hour for each user', async () => {
    const testApp = await setUp();
    const read = (as: string, options: CallOptions = {}) =>
      send(testApp, `request-${as}`, glance, { method: 'GET', as, ...options });
    const refusals = async () => (await Promise.all(['c1', 'bob'].map((id) => auditLinesOf(testApp, id)))).flat();
    for (let count = 0; count < 5; count += 1) {
      expect((await read('c1')).status).toBe(403);
      expect((await read('bob', { roles })).status).toBe(403);
    }
    const both = ['refused monthlyGlance person request-c1', 'refused monthlyGlance person request-bob'];
    await until(async () => (await refusals()).length >= 2);
    await Bun.sleep(50);
    expect(await refusals()).toEqual(both);
    testApp.now = new Date(testApp.now.getTime() + 3_600_001);
    await read('bob');
    await until(async () => (await auditLinesOf(testApp, 'bob')).length === 2);
  });
});

describe('audit of operator commands', () => {
  test('records staff imports and counselor assignments only for the people they change', async () => {
    const testApp = await createTestApp();
    const { db, now } = testApp;
    const sales = createSalesStore(db);
    const importStaff = (atMs: number, ...records: ReturnType<typeof manager>[]) =>
      sales.upsertStaff(records, new Date(now.getTime() + atMs), { operator: testOperator });
    await importStaff(0, manager('boss'), manager('other'), counselor('c1', 'boss'));
    await importStaff(1, manager('boss'), manager('other'), counselor('c1', 'other'));
    await importStaff(2, manager('boss'), manager('other'), counselor('c1', 'other'));
    const imported = 'imported staff operator command-1';
    expect(await auditLinesOf(testApp, 'c1')).toEqual([imported, imported]);
    expect(await auditLinesOf(testApp, 'boss')).toEqual([imported]);

    const assign = (counselorId: string | null) =>
      sales.assignCounselor({ userId: 'ada', counselorId, operator: testOperator, now });
    expect(await assign('c1')).toBeFalse();
    await testApp.call('POST', ltc, { as: 'ada', body: {}, headers: { 'x-request-id': 'request-1' } });
    for (const counselorId of ['c1', 'c1', null, null]) expect(await assign(counselorId)).toBeTrue();
    expect(await auditLinesOf(testApp, 'ada')).toEqual([
      'saved - person request-1',
      'assigned counselor operator command-1',
      'assigned counselor operator command-1',
    ]);
    expect((await auditEventsOf(testApp, 'ada')).at(-1)?.actorId).toBe('tester');
  });
});

const dayMs = 24 * 60 * 60_000;
const nowMs = Date.now();
const before = nowMs - 31 * dayMs;
const never = () => false;

describe('audit retention', () => {
  const instants = async (db: Database): Promise<number[]> => {
    const { rows } = await db.$client.execute('SELECT occurred_at FROM audit_events ORDER BY id');
    return rows.map(({ occurred_at }) => Number(occurred_at));
  };
  const startRetention = (db: Database) => {
    const lines: object[] = [];
    const log = createLog('info', { write: (line) => lines.push(JSON.parse(line)) });
    const retention = startAuditRetention(createAuditStore(db), { db, clock: () => new Date(nowMs), log }, 31);
    return { lines, stop: () => retention.stop() };
  };

  test('removes exactly the expired events and logs the count', async () => {
    const { db } = await temporaryDatabase();
    const state = { days: 31, asOf: nowMs, checkedAt: nowMs, dayBeganAt: nowMs, removed: 0 };
    await createAuditStore(db).advance(undefined, state);
    await fillEvents(db, 3_000, `${nowMs} - (3000 - value) * ${dayMs / 10}`);
    const all = await instants(db);
    for (const logged of [[expect.objectContaining({ level: 'info', events: 1_000, days: 31 })], []]) {
      const { lines, stop } = startRetention(db);
      await until(async () => (await instants(db)).length === 2_000);
      await stop();
      expect(lines).toEqual(logged);
    }
    expect(await instants(db)).toEqual(all.slice(1_000));
  });

  test('removes each event once when three stores run in parallel', async () => {
    const { db } = await temporaryDatabase();
    await fillEvents(db, 2_000, `${before} - 1`);
    const removed = await Promise.all([1, 2, 3].map(() => createAuditStore(db).removeExpired({ before }, never)));
    expect(removed.reduce((sum, count) => sum + count)).toBe(2_000);
  });

  test('removes expired events that follow events with a future timestamp', async () => {
    const { db } = await temporaryDatabase();
    await fillEvents(db, 1_200, `${nowMs} + ${dayMs}`);
    await fillEvents(db, 700, `${before} - 1`);
    await fillEvents(db, 10, String(nowMs));
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
    const { lines, stop } = startRetention(db);
    await until(() => lines.length > 0);
    await stop();
    expect(lines[0]).toMatchObject({ msg: 'could not remove old audit events' });
  });

  test('removes in short steps so that saves proceed in parallel', async () => {
    const { url } = await temporaryDatabase();
    // On a busy disk an fsync may take seconds.
    const db = await openServiceDatabase({ url, timeoutMs: 20_000 });
    const rows = amount({ long: 1_000_000, short: 10_000 });
    await fillEvents(db, rows, `${before} - 1`);
    const store = createUserStore(db);
    let isDone = false;
    const removing = createAuditStore(db)
      .removeExpired({ before }, never)
      .finally(() => {
        isDone = true;
      });
    let saves = 0;
    for (; !isDone; saves += 1) {
      const save = { userId: 'saver', section: 'ltcLifetimeCare', patch: { careCosts: saves } } as const;
      await store.saveSection({ ...save, requestId: `request-${saves}`, now: new Date(nowMs) });
    }
    expect(await removing).toBe(rows);
    // At least one save for every five steps of 500 rows.
    expect(saves).toBeGreaterThan(rows / 2_500);
    expect(await instants(db)).toHaveLength(saves);
    db.$client.close();
  }, 300_000);
});
