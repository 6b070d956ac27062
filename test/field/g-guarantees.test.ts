import { expect, test } from 'bun:test';
import { referenceOptions } from '../../src/db/schema';
import { createAuditStore } from '../../src/modules/audit/store';
import { seedDemo } from '../../src/seed-demo';
import { createTestApp } from '../support/app';
import { fillEvents, trailOf } from '../support/audit';

const cemeteries = '/v2/private/cemetery/all';

test('G11 the last page that can be asked for is empty and has the true count', async () => {
  const { call, db, now } = await createTestApp();
  await seedDemo(db, now);
  const response = await call('GET', `${cemeteries}?page=999999999999999&limit=1000`, { as: 'reader' });
  expect(response).toMatchObject({ status: 200, body: { data: { cemeteries: [], count: 12 } } });
});

test('G11 a cemetery has the same _id on every database and in every version', async () => {
  const { call, db, now } = await createTestApp();
  await seedDemo(db, now);
  expect((await call('GET', `${cemeteries}?limit=1`, { as: 'reader' })).body).toMatchObject({
    data: { cemeteries: [{ _id: 'fc74e5b57236a90e480110f5', name: 'Amber Hill Memorial Park' }] },
  });
});

test('G11 a list that has changed is shown after the clock was set back', async () => {
  const testApp = await createTestApp();
  const read = () => testApp.call('GET', '/v2/private/healthAndCare/', { as: 'reader' });
  await read();
  await testApp.db.update(referenceOptions).set({ title: 'Changed' });
  testApp.now = new Date(testApp.now.getTime() - 3_600_000);
  expect((await read()).text).toContain('"title":"Changed"');
});

test('G11 a refusal is in the audit trail once an hour, whatever else the trail tells of the person', async () => {
  const testApp = await createTestApp();
  const audit = createAuditStore(testApp.db);
  const event = { userId: 'ada', actor: 'person', requestId: 'request-1' } as const;
  const refuse = (now: number) => audit.recordRefusal({ ...event, action: 'refused', section: 'monthlyGlance', now });
  await audit.record({ ...event, action: 'saved', now: 0 });
  for (const now of [1, 2, 3_600_001, 3_600_002, 3_600_003]) await refuse(now);
  const refusals = (await trailOf(testApp, 'ada')).filter(({ action }) => action === 'refused');
  expect(refusals.map(({ occurredAt }) => occurredAt)).toEqual([1, 3_600_002]);
});

test('G11 the pages of the audit trail give each event once where many have the same instant', async () => {
  const { db } = await createTestApp();
  await fillEvents(db, 5_000, '1000');
  const ids: number[] = [];
  for await (const page of createAuditStore(db).pages('ada')) ids.push(...page.map(({ id }) => id));
  expect([ids.length, new Set(ids).size]).toEqual([2_500, 2_500]);
});
