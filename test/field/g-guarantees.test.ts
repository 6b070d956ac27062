import { expect, test } from 'bun:test';
import { referenceOptions } from '../../src/db/schema';
import { seedDemo } from '../../src/seed-demo';
import { createTestApp } from '../support/app';

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
