import { describe, expect, test } from 'bun:test';
import { and, asc, count, eq, type SQL, sql } from 'drizzle-orm';
import { blob, integer, numeric, sqliteTable, text } from 'drizzle-orm/sqlite-core';
import { openServiceDatabase } from '../../src/db/client';
import { findDatabaseError } from '../../src/db/errors';
import { acquireLease, compileQuery, member, UnmetConditionError, upsertRows } from '../../src/db/queries';
import { staff } from '../../src/db/schema/lists';
import { applications, users } from '../../src/db/schema/people';
import { createAuditStore } from '../../src/modules/audit/store';
import { createPersonalDataStore } from '../../src/modules/privacy/store';
import { createSalesStore } from '../../src/modules/sales/store';
import { seedDemo } from '../../src/seed';
import { describeZone } from '../../src/shared/calendar';
import { applicant, counselor, createTestApp, manager, startSandbox, testOperator } from '../support/app';
import { createCommandLine } from '../support/command';
import { auditEventsOf } from '../support/database';
import { atEnd } from '../support/resources';

test('a cemetery has the same _id on every database and in every version', async () => {
  const { call, db, now } = await createTestApp();
  await seedDemo(db, now);
  expect((await call('GET', '/v2/private/cemetery/all?limit=1', { as: 'reader' })).body).toMatchObject({
    data: { cemeteries: [{ _id: 'fc74e5b57236a90e480110f5', name: 'Amber Hill Memorial Park' }] },
  });
});

test('the audit log records a refusal once an hour, also among other events of the user', async () => {
  const testApp = await createTestApp();
  const audit = createAuditStore(testApp.db);
  const event = { userId: 'ada', actor: 'person', requestId: 'request-1' } as const;
  await audit.record({ ...event, action: 'saved', now: 0 });
  for (const now of [1, 2, 3_600_001, 3_600_002, 3_600_003])
    await audit.recordRefusal({ ...event, action: 'refused', section: 'monthlyGlance', now });
  const refusals = (await auditEventsOf(testApp, 'ada')).filter(({ action }) => action === 'refused');
  expect(refusals.map(({ occurredAt }) => occurredAt)).toEqual([1, 3_600_002]);
});

test('erasure of a user leaves no application id, including that of the superseded one', async () => {
  const { call, db, now } = await createTestApp({ carrier: (await startSandbox()).carrier() });
  for (const lastName of ['Byron', 'King'])
    await call('POST', '/v2/private/ltc/totalCoverage', { as: 'ada', body: { ...applicant, lastName } });
  const stored = await db.select().from(applications).orderBy(asc(applications.supersedes));
  expect(stored.map(({ supersedes }) => supersedes)).toEqual([null, stored[0]?.id ?? '']);
  await createPersonalDataStore(db).erase('ada', { operator: testOperator, now });
  const { rows } = await db.$client.execute('SELECT * FROM applications');
  expect(rows.length).toBe(2);
  for (const { id } of stored) expect(JSON.stringify(rows)).not.toContain(id);
});

describe('a compiled query', () => {
  const fields = {
    id: staff.id,
    name: staff.firstName,
    managerId: staff.managerId,
    both: sql<string>`${staff.firstName} || ${sql.placeholder('suffix')}`,
  };
  const isOf = (name: string) => eq(staff.id, sql.placeholder(name));

  test('binds each placeholder and constant in its place, and returns what Drizzle returns', async () => {
    const { db } = await createTestApp();
    let builds = 0;
    const build = () => {
      builds += 1;
      const isCounselor = and(isOf('id'), eq(staff.role, 'counselor'), isOf('again'));
      return db.select(fields).from(staff).where(isCounselor);
    };
    const find = compileQuery(db, fields, build);
    await createSalesStore(db).upsertStaff([manager('m1'), counselor('c1', 'm1')], new Date(0));
    for (const [id, again] of [
      ['c1', 'c1'],
      ['c1', 'm1'],
      ['m1', 'm1'],
      ['c2', 'c2'],
    ]) {
      const values = { suffix: "'?'", id, again };
      expect(await find(values)).toEqual(await build().prepare().execute(values));
    }
    expect(await find({ suffix: '!', id: 'c1', again: 'c1' })).toHaveLength(1);
    expect(builds).toBe(5);
  });

  test('returns the rows of a write', async () => {
    const { db } = await createTestApp();
    await createSalesStore(db).upsertStaff([manager('m1')], new Date(0));
    const rename = compileQuery(db, fields, () =>
      db
        .update(staff)
        .set({ firstName: sql`${sql.placeholder('name')}` })
        .where(isOf('id'))
        .returning(fields),
    );
    const renamed = { id: 'm1', name: 'Byron', managerId: null, both: 'Byron, A.' };
    expect(await rename({ id: 'm1', name: 'Byron', suffix: ', A.' })).toEqual([renamed]);
    expect(await rename({ id: 'm2', name: 'Byron', suffix: '' })).toEqual([]);
  });

  test('rejects a placeholder without a value, and a value of another type than its column', async () => {
    const { db } = await createTestApp();
    const find = (name: SQL) =>
      compileQuery(db, fields, () =>
        db
          .select({ ...fields, name })
          .from(staff)
          .where(isOf('id')),
      );
    await createSalesStore(db).upsertStaff([manager('m1')], new Date(0));
    await expect(find(sql`'x'`)({ suffix: '' })).rejects.toThrow(TypeError);
    for (const name of [sql`1`, sql`NULL`, sql`x'00'`])
      await expect(find(name)({ id: 'm1', suffix: '' })).rejects.toThrow('the type of its column');
  });

  test('accepts no field with a decoder, by its types and when it is built', async () => {
    const { db } = await createTestApp();
    const build = () => db.select().from(staff);
    const other = sqliteTable('other', {
      flag: integer('flag', { mode: 'boolean' }),
      day: integer('day', { mode: 'timestamp' }),
      json: text('json', { mode: 'json' }),
      bytes: blob('bytes'),
      decimal: numeric('decimal', { mode: 'number' }),
    });
    // @ts-expect-error
    expect(() => compileQuery(db, { flag: other.flag }, build)).toThrow('a decoder');
    // @ts-expect-error
    expect(() => compileQuery(db, { day: other.day }, build)).toThrow('a decoder');
    // @ts-expect-error
    expect(() => compileQuery(db, { json: other.json }, build)).toThrow('a decoder');
    // @ts-expect-error
    expect(() => compileQuery(db, { bytes: other.bytes }, build)).toThrow('a decoder');
    // @ts-expect-error
    expect(() => compileQuery(db, { isNew: sql`1`.mapWith(Boolean) }, build)).toThrow('a decoder');
    // The types do not show these decoders.
    expect(() => compileQuery(db, { decimal: other.decimal }, build)).toThrow('a decoder');
    expect(() => compileQuery(db, { count: count() }, build)).toThrow('a decoder');
  });
});

test('a lease is free from the second in which it expires, and not before', async () => {
  const { db } = await createTestApp();
  const endsIn = (seconds: number) =>
    db.$client.execute(`UPDATE leases SET expires_at = unixepoch() + ${seconds} WHERE name = 'work'`);
  expect(await acquireLease(db, 'work', 'one', 30)).toBeTrue();
  await endsIn(5);
  expect(await acquireLease(db, 'work', 'two', 30)).toBeFalse();
  await endsIn(0);
  expect(await acquireLease(db, 'work', 'two', 30)).toBeTrue();
});

test('an upsert stores nothing when its condition does not hold', async () => {
  const { db, now } = await createTestApp();
  const content = Object.fromEntries(['id', 'role', 'firstName', 'lastName'].map((name) => [name, member(name)]));
  const upsert = { table: staff, key: 'id', content, records: [manager('boss')], now };
  await expect(upsertRows(db, { ...upsert, onlyIf: sql`1 = 2` })).rejects.toBeInstanceOf(UnmetConditionError);
  expect(await db.$count(staff)).toBe(0);
  expect(await upsertRows(db, { ...upsert, onlyIf: sql`1 = 1` })).toEqual({ added: 1, changed: 0, unchanged: 0 });
});

test('the database rejects a stored section that is not JSON', async () => {
  const { call, db } = await createTestApp();
  await call('POST', '/v2/private/user/profile', { as: 'holder', body: {} });
  const broken = db.$client.execute("UPDATE users SET profile = '{' WHERE id = 'holder'");
  await expect(broken).rejects.toMatchObject({ code: 'SQLITE_CONSTRAINT' });
  expect(await db.select().from(users).where(eq(users.id, 'holder'))).toMatchObject([{ profile: null }]);
});

test.each([
  [401, true],
  [404, false],
  [408, true],
  [429, true],
  [500, true],
])('a response of %i from the database server counts as temporary: %p', async (status, isUnavailable) => {
  const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('refused', { status }) });
  atEnd(() => server.stop(true));
  const db = await openServiceDatabase({ url: `http://127.0.0.1:${server.port}`, timeoutMs: 2_000 });
  atEnd(() => db.$client.close());
  const failure = findDatabaseError(await db.$client.execute('SELECT 1').catch((error: unknown) => error));
  expect(failure?.isUnavailable).toBe(isUnavailable);
});

describe('time zone of reports', () => {
  test.each([
    ['UTC', '2026-01-15', 'UTC'],
    ['America/New_York', '2026-01-15', 'America/New_York, now -05:00, -04:00 from 2026-03-08'],
    ['America/New_York', '2026-07-01', 'America/New_York, now -04:00, -05:00 from 2026-11-01'],
    ['Australia/Lord_Howe', '2026-01-15', 'Australia/Lord_Howe, now +11:00, +10:30 from 2026-04-05'],
    ['Asia/Kathmandu', '2026-01-15', 'Asia/Kathmandu, now +05:45, without a change to come'],
    ['Etc/GMT+5', '2026-01-15', 'Etc/GMT+5, now -05:00, without a change to come'],
    ['Pacific/Kiritimati', '2026-01-15', 'Pacific/Kiritimati, now +14:00, without a change to come'],
  ])('has its offset and next change in the description: %s at %s', (zone, date, expected) => {
    expect(describeZone(zone, new Date(date))).toBe(expected);
  });

  test('appears in the output of doctor', async () => {
    const { planning } = await createCommandLine({ REPORT_TIME_ZONE: 'Asia/Kathmandu' });
    const zone = 'Asia/Kathmandu, now +05:45, without a change to come';
    expect((await planning('doctor')).stdout).toContain(`months and ages in ${zone}`);
  });
});
