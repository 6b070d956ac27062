import { describe, expect, test } from 'bun:test';
import { createAuditStore } from '../../../src/modules/audit/store';
import { createApplicationStore } from '../../../src/modules/coverage/store';
import { createPersonalDataStore } from '../../../src/modules/privacy/store';
import { createSalesStore } from '../../../src/modules/sales/store';
import { createUserStore } from '../../../src/modules/users/store';
import {
  canaryApplicant as applicant,
  counselor,
  coverageServiceOf,
  createTestApp,
  manager,
  startSandbox,
  testOperator,
} from '../../support/app';
import { saveRoutes } from '../../support/contract';
import { auditEventsOf } from '../../support/database';

const request = {
  userId: 'canary-person',
  flow: 'ltc' as const,
  applicant,
  idempotencyKey: undefined,
  preconditions: {},
  requestId: 'request-1',
};
const nothing = { record: false, applications: [], attempts: 0, idempotencyKeys: 0, events: 0, keptAs: null };

async function setUp() {
  const sandbox = await startSandbox();
  const testApp = await createTestApp({ carrier: sandbox.carrier() });
  const { db, now } = testApp;
  const sales = createSalesStore(db);
  await sales.upsertStaff([manager('boss'), counselor('c1', 'boss')], now);
  /** Stores data in every section and every table that can refer to a person. */
  const fill = async (as: string) => {
    await testApp.call('POST', '/v2/private/user/profile', {
      as,
      body: { firstName: 'Canaryfirst', heightCm: 170 },
      headers: { 'x-request-id': 'canary-request' },
    });
    await sales.assignCounselor({ userId: as, counselorId: 'c1', operator: testOperator, now });
    for (const { path } of saveRoutes.filter(({ path }) => path.includes('deepDives') || path.includes('ltc'))) {
      await testApp.call('POST', path, { as, body: { selections: [{ id: 1, title: 'Canarytitle' }] } });
    }
    await testApp.call('POST', '/v2/private/engine/matches', { as });
    for (const flow of ['ltc', 'life']) {
      const headers = { 'idempotency-key': `canary-key-${flow}` };
      await testApp.call('POST', `/v2/private/${flow}/totalCoverage`, { as, body: applicant, headers });
    }
  };
  /** Every value of every table. */
  const dump = async (): Promise<string> => {
    const { rows: tables } = await db.$client.execute("SELECT name FROM sqlite_master WHERE type = 'table'");
    const contents = await Promise.all(
      tables.map(async ({ name }) =>
        (await db.$client.execute(`SELECT * FROM "${name}"`)).rows.map((row) => ({ ...row })),
      ),
    );
    return JSON.stringify(contents);
  };
  const personalData = createPersonalDataStore(db);
  const erase = (userId: string) => personalData.erase(userId, { operator: testOperator, now });
  const carrier = sandbox.carrier();
  /** The coverage service with work that runs during the call to the carrier. */
  const serviceWith = (during: () => Promise<unknown>) =>
    coverageServiceOf(testApp, {
      id: carrier.id,
      async start(application, mayBeKnown) {
        await during();
        return carrier.start(application, mayBeKnown);
      },
    });
  return { testApp, fill, dump, personalData, erase, sandbox, serviceWith };
}

const glanceOf = async (testApp: Awaited<ReturnType<typeof createTestApp>>) =>
  (
    await testApp.call('GET', '/v2/private/user/salesManager/monthly-glance?month=3', {
      as: 'boss',
      roles: ['salesManager'],
    })
  ).text;

describe('erasure', () => {
  test('removes every identifying value from all tables', async () => {
    const { testApp, fill, dump, personalData, erase } = await setUp();
    await fill('canary-person');
    const before = await personalData.find('canary-person');
    expect(before.record?.profile).toContain('"lastName":"Canarylast"');
    expect(before.applications).toHaveLength(2);
    const traces = [
      'canary',
      ...before.applications.flatMap((each) => [each.id, each.identityHash, String(each.applicationNumber)]),
    ];
    const filled = (await dump()).toLowerCase();
    for (const trace of traces) expect(filled).toContain(trace);

    expect(await erase('canary-person')).toEqual({
      record: true,
      applications: before.applications.map(({ id, applicationNumber }) => ({ reference: id, applicationNumber })),
      attempts: 2,
      idempotencyKeys: 2,
      events: expect.any(Number),
      keptAs: expect.stringMatching(/^erased:[0-9a-f]{32}$/),
    });
    const after = (await dump()).toLowerCase();
    for (const trace of traces) expect(after).not.toContain(trace);
    expect(await testApp.call('GET', '/v2/private/user', { as: 'canary-person' })).toMatchObject({ status: 404 });
    expect((await testApp.call('GET', '/v2/private/user/applications', { as: 'canary-person' })).body).toEqual({
      data: { applications: [], next: null },
    });
  });

  test('keeps the counselor’s monthly glance and the application states', async () => {
    const { testApp, fill, erase } = await setUp();
    await fill('canary-person');
    const before = await glanceOf(testApp);
    expect(before).toContain('"qoutes":2');
    await erase('canary-person');
    expect(await glanceOf(testApp)).toBe(before);
    const { rows } = await testApp.db.$client.execute('SELECT flow, state FROM applications ORDER BY flow');
    expect(rows.map(({ flow, state }) => `${flow} ${state}`)).toEqual(['life submitted', 'ltc submitted']);
  });

  test('keeps the audit events under an anonymous id and adds its own event', async () => {
    const { testApp, fill, personalData, erase } = await setUp();
    await fill('canary-person');
    const story = async (userId: string) =>
      (await auditEventsOf(testApp, userId)).map(({ occurredAt, action, section, actor, actorId }) =>
        [occurredAt, action, section, actor, actorId].join(' '),
      );
    const before = await story('canary-person');
    expect(before.length).toBeGreaterThan(8);
    const { keptAs, events } = await erase('canary-person');
    expect(events).toBe(before.length);
    expect(await story('canary-person')).toEqual([]);
    const after = await story(keptAs ?? '');
    expect(after.toSorted()).toEqual([...before, `${testApp.now.getTime()} erased  operator tester`].toSorted());
    expect((await auditEventsOf(testApp, keptAs ?? '')).filter(({ applicationId }) => applicationId !== null)).toEqual(
      [],
    );
    expect(await erase('canary-person')).toEqual(nothing);
    // A user with audit events only is erased as well.
    await createAuditStore(testApp.db).record({
      ...{ userId: 'canary-person', action: 'refused', actor: 'person', requestId: null, now: 0 },
    });
    expect((await personalData.find('canary-person')).isAudited).toBeTrue();
    expect(await erase('canary-person')).toMatchObject({ record: false, events: 1 });
    expect((await personalData.find('canary-person')).isAudited).toBeFalse();
  });

  test('keeps the read events of a person who is still in staff', async () => {
    const { testApp, erase } = await setUp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'boss', body: { heightCm: 170 } });
    await glanceOf(testApp);
    expect(await erase('boss')).toMatchObject({ record: true, events: 1 });
    expect(await auditEventsOf(testApp, 'boss')).toMatchObject([{ action: 'read', actor: 'staff' }]);
    expect(await erase('boss')).toEqual(nothing);
  });

  test('changes no other user and can be repeated', async () => {
    const { testApp, fill, personalData, erase } = await setUp();
    await fill('canary-person');
    await fill('neighbour');
    const before = await personalData.find('neighbour');
    expect(await erase('canary-person')).toMatchObject({ record: true, attempts: 2 });
    expect(await erase('canary-person')).toEqual(nothing);
    expect(await erase('unknown')).toEqual(nothing);
    expect(await personalData.find('neighbour')).toEqual(before);
    expect(await testApp.call('GET', '/v2/private/user', { as: 'neighbour' })).toMatchObject({ status: 200 });
  });

  test('allows a new record with a new ETag and new applications', async () => {
    const { testApp, fill, erase, sandbox } = await setUp();
    await fill('canary-person');
    const tag = (await testApp.call('GET', '/v2/private/user', { as: 'canary-person' })).headers.get('etag');
    await erase('canary-person');
    testApp.now = new Date(testApp.now.getTime() + 1);
    await fill('canary-person');
    const again = await testApp.call('GET', '/v2/private/user', { as: 'canary-person' });
    expect(again.headers.get('etag')).not.toBe(tag);
    expect(await sandbox.store.count()).toBe(4);
  });

  test('keeps an application in flight out of a record that is created meanwhile', async () => {
    const { testApp, erase, serviceWith } = await setUp();
    const service = serviceWith(async () => {
      await erase('canary-person');
      await testApp.call('POST', '/v2/private/user/profile', { as: 'canary-person', body: {} });
    });
    const started = await service.start(request).catch((error: unknown) => error);
    expect(started).toMatchObject({ slug: 'application-in-progress' });
    const { body } = await testApp.call('GET', '/v2/private/user', { as: 'canary-person' });
    expect(body).toMatchObject({ user: { purchase: {} } });
    expect(JSON.stringify(body)).not.toContain('partner');
  });

  test('leaves no application and makes no carrier call when it runs between identity save and application', async () => {
    const { testApp, dump, erase, sandbox } = await setUp();
    const opening = createApplicationStore(testApp.db).open({
      id: 'never',
      userId: 'canary-person',
      flow: 'ltc',
      identityHash: 'hash',
      generation: 0,
      applicant: request.applicant,
      requestId: 'request-1',
      now: 0,
      attemptStartedAt: 0,
    });
    expect(await opening).toBeUndefined();
    // Erases the person at the service's first application query, which follows the identity save.
    const save = createUserStore(testApp.db).saveSection;
    const erasingDb = new Proxy(testApp.db, {
      get(target, property, receiver) {
        if (property !== 'select') return Reflect.get(target, property, receiver);
        return (...args: []) => {
          void erase('canary-person');
          return target.select(...args);
        };
      },
    });
    await save({
      userId: 'canary-person',
      section: 'profile',
      patch: request.applicant,
      requestId: null,
      now: testApp.now,
    });
    const service = coverageServiceOf({ ...testApp, db: erasingDb }, sandbox.carrier());
    expect(await service.start(request).catch((error: unknown) => error)).toMatchObject({
      slug: 'application-in-progress',
    });
    expect((await dump()).toLowerCase()).not.toContain('canary');
    expect(await sandbox.store.count()).toBe(0);
  });

  test('discards the carrier response when it runs during an application', async () => {
    const { testApp, dump, erase, serviceWith } = await setUp();
    const started = serviceWith(() => erase('canary-person')).start(request);
    expect(await started.catch((error: unknown) => error)).toMatchObject({ slug: 'application-in-progress' });
    expect((await dump()).toLowerCase()).not.toContain('canary');

    // The reconciler does not settle an application that was open at the erasure.
    const dropped = { ...request, applicant: { ...request.applicant, lastName: 'Dropped' } };
    await serviceWith(async () => undefined)
      .start(dropped)
      .catch(() => undefined);
    await erase('canary-person');
    testApp.now = new Date(testApp.now.getTime() + 3_600_000);
    expect(await serviceWith(async () => undefined).reconcile('one', () => false)).toBe(0);
    expect((await dump()).toLowerCase()).not.toContain('canary');
  });
});
