import { expect, test } from 'bun:test';
import * as v from 'valibot';
import { openServiceDatabase } from '../../src/db/client';
import { findDatabaseError } from '../../src/db/errors';
import { acquireLease } from '../../src/db/queries';
import { neededMigration, schemaState } from '../../src/db/schema-check';
import { createRateLimits } from '../../src/http/rate-limits';
import { createAuditStore } from '../../src/modules/audit/store';
import { createPersonalDataStore } from '../../src/modules/privacy/store';
import { seedDemo } from '../../src/seed';
import { applicant, createTestApp, startSandbox, testOperator } from '../support/app';
import { auditEventsOf, fillEvents } from '../support/database';
import { atEnd } from '../support/resources';

const Applications = v.object({
  data: v.object({ applications: v.array(v.object({ id: v.string(), supersedes: v.nullable(v.string()) })) }),
});
const cemeteries = '/v2/private/cemetery/all';

test('G11 the last possible page is empty and has the true count', async () => {
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

test('G11 the audit log records a refusal once an hour, also among other events of the user', async () => {
  const testApp = await createTestApp();
  const audit = createAuditStore(testApp.db);
  const event = { userId: 'ada', actor: 'person', requestId: 'request-1' } as const;
  const refuse = (now: number) => audit.recordRefusal({ ...event, action: 'refused', section: 'monthlyGlance', now });
  await audit.record({ ...event, action: 'saved', now: 0 });
  for (const now of [1, 2, 3_600_001, 3_600_002, 3_600_003]) await refuse(now);
  const refusals = (await auditEventsOf(testApp, 'ada')).filter(({ action }) => action === 'refused');
  expect(refusals.map(({ occurredAt }) => occurredAt)).toEqual([1, 3_600_002]);
});

test('G11 the pages of the audit log return each event once when many have the same timestamp', async () => {
  const { db } = await createTestApp();
  await fillEvents(db, 5_000, '1000');
  const ids: number[] = [];
  for await (const page of createAuditStore(db).pages({ userId: 'ada' })) ids.push(...page.map(({ id }) => id));
  expect([ids.length, new Set(ids).size]).toEqual([2_500, 2_500]);
});

test('G11 erasure of a user leaves no application id, including that of the superseded one', async () => {
  const sandbox = await startSandbox();
  const { call, db, now } = await createTestApp({ carrier: sandbox.carrier() });
  for (const lastName of ['Byron', 'King'])
    await call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body: { ...applicant, lastName } });
  const { body } = await call('GET', '/v2/private/user/applications', { as: 'ada' });
  const { applications } = v.parse(Applications, body).data;
  expect(applications.map(({ supersedes }) => supersedes)).toEqual([applications[1]?.id ?? '', null]);

  await createPersonalDataStore(db).erase('ada', { operator: testOperator, now });
  const { rows } = await db.$client.execute('SELECT * FROM applications');
  expect(rows.length).toBe(2);
  for (const { id } of applications) expect(JSON.stringify(rows)).not.toContain(id);
});

test('G11 a response of an instance that shuts down closes its connection', async () => {
  const { call, lifecycle } = await createTestApp();
  expect((await call('GET', '/health/live')).headers.get('connection')).toBeNull();
  lifecycle.isDraining = true;
  for (const path of ['/health/live', '/health/ready', '/v2/private/user'])
    expect([path, (await call('GET', path)).headers.get('connection')]).toEqual([path, 'close']);
});

test('G11 the application rate limit is rounded up, so that it is never zero', async () => {
  for (const [perMinute, quota] of [
    [1, 1],
    [20, 1],
    [21, 2],
    [600, 30],
  ] as const) {
    const rateLimits = createRateLimits({ perMinute, trustedProxyCount: 0 }, () => 0);
    const { call } = await createTestApp({ rateLimits });
    const { headers } = await call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body: applicant });
    expect(headers.get('ratelimit-policy')).toBe(`"default";q=${perMinute};w=60, "coverage";q=${quota};w=60`);
  }
});

test('G11 a lease is free from the second in which it expires, and not before', async () => {
  const { db } = await createTestApp();
  const endsIn = (seconds: number) =>
    db.$client.execute(`UPDATE leases SET expires_at = unixepoch() + ${seconds} WHERE name = 'work'`);
  expect(await acquireLease(db, 'work', 'one', 30)).toBeTrue();
  await endsIn(5);
  expect(await acquireLease(db, 'work', 'two', 30)).toBeFalse();
  await endsIn(0);
  expect(await acquireLease(db, 'work', 'two', 30)).toBeTrue();
});

test('G11 a schema fits when its oldest reader is this build', async () => {
  const { db } = await createTestApp();
  const fitWith = async (minReader: number) => {
    await db.$client.execute(`UPDATE schema_compatibility SET min_reader = ${minReader}`);
    return schemaState(db.$client);
  };
  expect(await fitWith(neededMigration)).toBe('compatible');
  expect(await fitWith(neededMigration + 1)).toBe('too-new');
});

test.each([
  [401, true],
  [404, false],
  [408, true],
  [429, true],
  [500, true],
])('G11 a response of %i from the database server counts as temporary: %p', async (status, isUnavailable) => {
  const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('refused', { status }) });
  atEnd(() => server.stop(true));
  const db = await openServiceDatabase({ url: `http://127.0.0.1:${server.port}`, timeoutMs: 2_000 });
  atEnd(() => db.$client.close());
  const failure = findDatabaseError(await db.$client.execute('SELECT 1').catch((error: unknown) => error));
  expect(failure?.isUnavailable).toBe(isUnavailable);
});
