import { describe, expect, test } from 'bun:test';
import { activities } from '../../../src/db/schema/lists';
import { createSalesStore } from '../../../src/modules/sales/store';
import { createUserStore } from '../../../src/modules/users/store';
import {
  applicant,
  counselor,
  coverageServiceOf,
  createTestApp,
  manager,
  startSandbox,
  testOperator,
} from '../../support/app';

async function setUp() {
  const sandbox = await startSandbox();
  const testApp = await createTestApp({ carrier: sandbox.carrier() });
  const { db, now } = testApp;
  const users = createUserStore(db);
  const sales = createSalesStore(db);
  await sales.upsertStaff([manager('boss'), counselor('c1', 'boss'), counselor('c2', 'boss')], now);
  await users.saveSection({ userId: 'ada', section: 'profile', patch: {}, requestId: null, now });
  return {
    testApp,
    assign: (counselorId: string | null) =>
      sales.assignCounselor({ userId: 'ada', counselorId, operator: testOperator, now }),
    start: (flow: 'ltc' | 'life' = 'ltc', changes = {}) =>
      testApp.call('POST', `/v2/private/${flow}/totalCoverage`, { as: 'ada', body: { ...applicant, ...changes } }),
    ledger: () => db.select().from(activities).orderBy(activities.staffId, activities.kind),
    reconcile: () => coverageServiceOf(testApp, sandbox.carrier()).reconcile('one', () => false),
  };
}

describe('activity credit of an application', () => {
  test('adds one quote and one application for the assigned counselor', async () => {
    const { testApp, assign, start, ledger } = await setUp();
    await assign('c1');
    expect((await start()).status).toBe(200);
    await start();
    await start();
    const credit = { staffId: 'c1', managerId: 'boss', amountCents: 0, occurredAt: testApp.now.getTime() };
    expect(await ledger()).toMatchObject([
      { ...credit, kind: 'application' },
      { ...credit, kind: 'quote' },
    ]);
    const glance = await testApp.call('GET', '/v2/private/user/salesManager/monthly-glance?month=3', {
      as: 'boss',
      roles: ['salesManager'],
    });
    expect(glance.body).toMatchObject({
      data: { teamGlance: { glance: { qoutes: 1, applications: 1 }, totalMonthlyEarnings: 0 } },
    });
  });

  test('adds the activities to a manager who is the assigned counselor', async () => {
    const { assign, start, ledger } = await setUp();
    await assign('boss');
    await start();
    expect(await ledger()).toMatchObject([{ staffId: 'boss', managerId: 'boss' }, { staffId: 'boss' }]);
  });

  test('adds nothing without an assigned counselor, also after a later assignment', async () => {
    const { assign, start, ledger } = await setUp();
    await start();
    await assign('c1');
    await start();
    expect(await ledger()).toEqual([]);
    await start('life');
    expect(await ledger()).toHaveLength(2);
    await assign(null);
    await start('ltc', { email: 'other@example.com' });
    expect(await ledger()).toHaveLength(2);
  });

  test('adds activities for each new number: another flow and corrected data', async () => {
    const { assign, start, ledger } = await setUp();
    await assign('c1');
    await start();
    await start('life');
    await assign('c2');
    await start('ltc', { dateOfBirth: '1981-03-11' });
    expect((await ledger()).map(({ staffId, kind }) => `${staffId} ${kind}`)).toEqual([
      'c1 application',
      'c1 application',
      'c1 quote',
      'c1 quote',
      'c2 application',
      'c2 quote',
    ]);
  });

  test('adds nothing for a declined application', async () => {
    const { assign, start, ledger } = await setUp();
    await assign('c1');
    expect((await start('ltc', { lastName: 'Declined' })).status).toBe(422);
    expect(await ledger()).toEqual([]);
  });

  test('adds activities once when a failed application is settled by reconciliation and then repeated', async () => {
    const { testApp, assign, start, ledger, reconcile } = await setUp();
    await assign('c1');
    expect((await start('ltc', { lastName: 'Dropped' })).status).toBe(503);
    expect(await ledger()).toEqual([]);
    testApp.now = new Date(testApp.now.getTime() + 60_000);
    expect(await reconcile()).toBe(1);
    expect(await ledger()).toHaveLength(2);
    expect((await start('ltc', { lastName: 'Dropped' })).status).toBe(200);
    expect(await ledger()).toHaveLength(2);
  });
});
