import { describe, expect, test } from 'bun:test';
import { idempotencyKeys } from '../../../src/db/schema/people';
import { createAuditStore } from '../../../src/modules/audit/store';
import { createApplicationStore } from '../../../src/modules/coverage/store';
import { createPersonalDataStore } from '../../../src/modules/privacy/store';
import { createSalesStore } from '../../../src/modules/sales/store';
import {
  accepted,
  canaryApplicant as applicant,
  counselor,
  coverageServiceOf,
  createCoverageApp,
  manager,
  type TestResponse,
  testOperator,
  unavailable,
} from '../../support/app';
import { saveRoutes } from '../../support/contract';
import { auditEventsOf } from '../../support/database';

const as = 'canary-person';
const request = {
  ...{ userId: as, flow: 'ltc' as const, applicant, idempotencyKey: undefined, preconditions: {} },
  requestId: 'request-1',
};
const nothing = { record: false, applications: [], attempts: 0, idempotencyKeys: 0, events: 0, keptAs: null };
const inProgress = { slug: 'application-in-progress' };

async function setUp() {
  const app = await createCoverageApp();
  const { testApp, db, carrier, service, saveProfile } = app;
  // A number that occurs nowhere else.
  const firstNumber = 4_711_001;
  carrier.respond = ({ count }) => accepted(firstNumber + count);
  const { now } = testApp;
  const sales = createSalesStore(db);
  await sales.upsertStaff([manager('boss'), counselor('c1', 'boss')], now);
  /** Stores data in every section and every table that can refer to a person. */
  const fill = async (id: string) => {
    const post = (path: string, body?: object, headers = {}) => testApp.call('POST', path, { as: id, body, headers });
    const profile = { firstName: 'Canaryfirst', heightCm: 170 };
    await post('/v2/private/user/profile', profile, { 'x-request-id': 'canary-request' });
    await sales.assignCounselor({ userId: id, counselorId: 'c1', operator: testOperator, now });
    for (const { path } of saveRoutes.filter((route) => !route.path.includes('profile'))) {
      await post(path, { selections: [{ id: 1, title: 'Canarytitle' }] });
    }
    await post('/v2/private/engine/matches');
    for (const flow of ['ltc', 'life']) {
      await post(`/v2/private/${flow}/totalCoverage`, applicant, { 'idempotency-key': `canary-key-${flow}` });
    }
  };
  /** Every value of every table, in lower case. */
  const dump = async (): Promise<string> => {
    const { rows: tables } = await db.$client.execute("SELECT name FROM sqlite_master WHERE type = 'table'");
    const contents = tables.map(async ({ name }) =>
      (await db.$client.execute(`SELECT * FROM "${name}"`)).rows.map((row) => ({ ...row })),
    );
    return JSON.stringify(await Promise.all(contents)).toLowerCase();
  };
  const get = (path: string): Promise<TestResponse> =>
    testApp.call(
      'GET',
      `/v2/private/user${path}`,
      path.includes('glance') ? { as: 'boss', roles: ['salesManager'] } : { as },
    );
  const personalData = createPersonalDataStore(db);
  return {
    ...{ testApp, db, carrier, service, saveProfile, fill, dump, get, personalData },
    erase: (userId: string) => personalData.erase(userId, { operator: testOperator, now }),
    start: () => service.start(request).catch((error: unknown) => error),
    /** Runs `during` in the call to the carrier, which then accepts. */
    meanwhile(during: () => Promise<unknown>) {
      carrier.respond = async (sent) => {
        await during();
        return carrier.acceptAll(sent);
      };
    },
  };
}

describe('erasure', () => {
  test('removes every identifying value from all tables, and keeps sales, states and other users', async () => {
    const { testApp, db, fill, dump, get, personalData, erase } = await setUp();
    await fill(as);
    await fill('neighbour');
    const glance = (await get('/salesManager/monthly-glance?month=3')).text;
    expect(glance).toContain('"qoutes":4');
    const neighbour = await personalData.find('neighbour');
    const { record, applications } = await personalData.find(as);
    expect(record?.profile).toContain('"lastName":"Canarylast"');
    const attemptsOf = applications.map(({ attempts }) => attempts.map(({ applicationId }) => applicationId));
    expect(attemptsOf).toEqual(applications.map(({ id }) => [id]));
    const traces = [as, ...applications.flatMap((each) => [each.id, each.identityHash, `${each.applicationNumber}`])];
    const filled = await dump();
    for (const trace of traces) expect(filled).toContain(trace);

    expect(await erase(as)).toEqual({
      record: true,
      applications: applications.map(({ id, applicationNumber }) => ({ reference: id, applicationNumber })),
      attempts: 2,
      idempotencyKeys: 2,
      events: expect.any(Number),
      keptAs: expect.stringMatching(/^erased:[0-9a-f]{32}$/),
    });
    expect(await personalData.find('neighbour')).toEqual(neighbour);
    expect((await get('/salesManager/monthly-glance?month=3')).text).toBe(glance);
    const { rows } = await db.$client.execute("SELECT flow, state FROM applications WHERE user_id = '' ORDER BY flow");
    expect(rows.map(({ flow, state }) => `${flow} ${state}`)).toEqual(['life submitted', 'ltc submitted']);
    expect([await erase(as), await erase('unknown')]).toEqual([nothing, nothing]);
    expect(await erase('neighbour')).toMatchObject({ record: true, attempts: 2 });
    const after = await dump();
    for (const trace of ['canary', ...traces]) expect(after).not.toContain(trace);
    expect((await get('')).status).toBe(404);
    expect((await get('/applications')).body).toEqual({ data: { applications: [], next: null } });

    testApp.now = new Date(testApp.now.getTime() + 1);
    await fill(as);
    const again = (await personalData.find(as)).applications;
    expect(again.map(({ applicationNumber }) => applicationNumber)).toEqual([4_711_006, 4_711_007]);
  });

  test('keeps the audit events under an anonymous id and adds its own event', async () => {
    const { testApp, fill, personalData, erase } = await setUp();
    await fill(as);
    const story = async (userId: string) =>
      (await auditEventsOf(testApp, userId)).map(({ occurredAt, action, section, actor, actorId }) =>
        [occurredAt, action, section, actor, actorId].join(' '),
      );
    const before = await story(as);
    expect(before.length).toBeGreaterThan(8);
    const { keptAs, events } = await erase(as);
    expect(events).toBe(before.length);
    expect(await story(as)).toEqual([]);
    const after = await story(keptAs ?? '');
    expect(after.toSorted()).toEqual([...before, `${testApp.now.getTime()} erased  operator tester`].toSorted());
    const kept = await auditEventsOf(testApp, keptAs ?? '');
    expect(kept.filter(({ applicationId }) => applicationId !== null)).toEqual([]);
    // A user with audit events only is erased as well.
    const event = { action: 'refused', actor: 'person', requestId: null, now: 0 } as const;
    await createAuditStore(testApp.db).record({ userId: as, ...event });
    expect((await personalData.find(as)).isAudited).toBeTrue();
    expect(await erase(as)).toMatchObject({ record: false, events: 1 });
    expect((await personalData.find(as)).isAudited).toBeFalse();
  });

  test('keeps the read events of a person who is still in staff', async () => {
    const { testApp, saveProfile, get, erase } = await setUp();
    await saveProfile({ heightCm: 170 }, 'boss');
    await get('/salesManager/monthly-glance?month=3');
    expect(await erase('boss')).toMatchObject({ record: true, events: 1 });
    expect(await auditEventsOf(testApp, 'boss')).toMatchObject([{ action: 'read', actor: 'staff' }]);
    expect(await erase('boss')).toEqual(nothing);
  });

  test('removes the idempotency key of a request that stored nothing else', async () => {
    const { testApp, db, erase } = await setUp();
    const headers = { 'if-match': '*', 'idempotency-key': 'canary-key' };
    const options = { as, body: applicant, headers };
    expect((await testApp.call('POST', '/v2/private/ltc/totalCoverage', options)).status).toBe(412);
    const keptAs = expect.stringMatching(/^erased:/);
    expect(await erase(as)).toEqual({ ...nothing, idempotencyKeys: 1, keptAs });
    expect(await db.$count(idempotencyKeys)).toBe(0);
  });

  test('keeps an application in flight out of a record that is created meanwhile', async () => {
    const { saveProfile, get, erase, start, meanwhile } = await setUp();
    meanwhile(async () => {
      await erase(as);
      await saveProfile({}, as);
    });
    expect(await start()).toMatchObject(inProgress);
    const { body } = await get('');
    expect(body).toMatchObject({ user: { purchase: {} } });
    expect(JSON.stringify(body)).not.toContain('partner');
  });

  test('leaves no application and makes no carrier call when it runs between identity save and application', async () => {
    const { testApp, db, carrier, saveProfile, dump, erase } = await setUp();
    const opening = createApplicationStore(db).open({
      ...{ id: 'never', userId: as, flow: 'ltc', identityHash: 'hash', generation: 0, applicant },
      ...{ requestId: 'request-1', now: 0, attemptStartedAt: 0 },
    });
    expect(await opening).toBeUndefined();
    // Erases the person at the service's first application query, which follows the identity save.
    await saveProfile(applicant, as);
    const erasingDb = new Proxy(db, {
      get(target, property, receiver) {
        if (property !== 'select') return Reflect.get(target, property, receiver);
        return (...args: []) => {
          void erase(as);
          return target.select(...args);
        };
      },
    });
    const service = coverageServiceOf({ ...testApp, db: erasingDb }, carrier);
    expect(await service.start(request).catch((error: unknown) => error)).toMatchObject(inProgress);
    expect(await dump()).not.toContain('canary');
    expect(carrier.calls).toEqual([]);
  });

  test('discards the carrier response when it runs during an application', async () => {
    const { testApp, carrier, service, dump, erase, start, meanwhile } = await setUp();
    meanwhile(() => erase(as));
    expect(await start()).toMatchObject(inProgress);
    expect(await dump()).not.toContain('canary');

    // The reconciler does not settle an application that was open at the erasure.
    carrier.respond = unavailable;
    expect(await start()).toMatchObject({ slug: 'carrier-unavailable' });
    await erase(as);
    carrier.respond = carrier.acceptAll;
    testApp.now = new Date(testApp.now.getTime() + 3_600_000);
    expect(await service.reconcile('one', () => false)).toBe(0);
    expect(await dump()).not.toContain('canary');
  });
});
