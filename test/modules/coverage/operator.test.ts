import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import { openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { countParts } from '../../../src/db/queries';
import { activities } from '../../../src/db/schema/lists';
import { applicationAttempts, applications, erasedUserId } from '../../../src/db/schema/people';
import { createOperationStore } from '../../../src/modules/coverage/outcomes';
import { createApplicationStore } from '../../../src/modules/coverage/store';
import { createPersonalDataStore } from '../../../src/modules/privacy/store';
import { createSalesStore } from '../../../src/modules/sales/store';
import type { CarrierDecision, CarrierError } from '../../../src/shared/carrier';
import { createPrometheusMetrics } from '../../../src/telemetry/metrics';
import {
  accepted,
  carrierPricing,
  counselor,
  createCoverageApp,
  createTestCarrier,
  declined,
  manager,
  refused,
  testConfig,
  testOperator,
  unavailable,
} from '../../support/app';
import { refusalOf, runInProcess } from '../../support/command';
import { auditEventsOf, earlierMigrations, explainFirst } from '../../support/database';
import { atEnd, never, temporaryFolder } from '../../support/resources';
import { aScrape } from '../../support/telemetry';

const hourMs = 60 * 60_000;
const dayMs = 24 * hourMs;
const done = 'the command succeeded';
const metrics = createPrometheusMetrics({ replica: undefined });
const metricsToken = 'a-token-for-the-scrapes-0123456789abc';
// The commands name the carrier of a settled application by its address.
const carrier = createTestCarrier('carrier.example');
const app = await createCoverageApp({ carrier, metrics, config: { ...testConfig, metricsToken } });
const { db, testApp } = app;
const env = { DATABASE_URL: testApp.url, CARRIER_URL: 'http://carrier.example' };

/** The app with one undecided application of `as`, and the commands of an operator. */
async function setUp(as = 'ada') {
  await app.reset({ respond: unavailable });
  expect((await app.start({}, { as })).status).toBe(503);
  const planning = (...args: string[]) => refusalOf(env, 'applications', ...args);
  const [{ id } = never()] = (await app.list(as)).applications;
  return {
    ...{ ...app, planning, id },
    row: async () => {
      const [row] = await db.select().from(applications).where(eq(applications.id, id));
      return row ?? never();
    },
    settle: async (number: string, pricing: unknown = carrierPricing) => {
      const file = join(temporaryFolder(), 'pricing.json');
      await Bun.write(file, JSON.stringify(pricing));
      return planning('settle', id, '--number', number, '--pricing', file, '--yes');
    },
    eventsOf: async (wanted: 'accepted' | 'declined' | 'abandoned') =>
      (await auditEventsOf(app, as)).filter((event) => event.action === wanted && event.applicationId === id),
    /** Runs `meanwhile` during a call of the reconciler to the carrier, which then replies. */
    async duringCall(meanwhile: () => Promise<unknown>, reply: CarrierDecision | CarrierError) {
      app.pass(hourMs);
      const [call] = carrier.hold(1);
      const reconciling = app.reconcile();
      await call?.arrived;
      await meanwhile();
      call?.respond(reply);
      await reconciling;
    },
  };
}

describe('planning applications list', () => {
  test('prints state, age, number and user, filters by state and age, and records the access', async () => {
    await app.reset();
    const now = Date.now();
    const print = (...args: string[]) => runInProcess({ env, cwd: '.' }, ['applications', 'list', ...args]);
    const row = (id: string, userId: string, state: string, ageMs: number, more = 'NULL, NULL') =>
      `('${id}', '${userId}', 'ltc', '${id}', 0, '{}', '${state}', 2, 0, ${now - ageMs}, ${more})`;
    await db.$client.execute(`INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state,
      attempt, attempt_started_at, created_at, application_number, abandoned_at) VALUES
      ${row('a', 'ada', 'unknown', 9 * dayMs)}, ${row('b', 'bob', 'submitting', 30_000)},
      ${row('c', 'cyd', 'unknown', 2 * hourMs, 'NULL, 5')}, ${row('d', 'dan', 'submitted', dayMs, '1234567, NULL')},
      ${row('e', 'eve', 'declined', dayMs)}, ${row('f', erasedUserId, 'unknown', dayMs)}`);
    const list = async (...args: string[]) => {
      const { exitCode, stdout } = await print(...args);
      expect(exitCode).toBe(0);
      const [, ...rows] = stdout.trimEnd().split('\n');
      return rows.map((text) => text.split(/ {2,}/));
    };
    expect(await list()).toEqual([
      ['a', 'ltc', 'unknown', '9d', 'ada'],
      ['b', 'ltc', 'submitting', expect.stringMatching(/^\d\ds$|^\dm$/), 'bob'],
    ]);
    expect((await list('--older-than', '7d')).map(([id]) => id)).toEqual(['a']);
    expect(await list('--state', 'abandoned', 'submitted')).toEqual([
      ['c', 'ltc', 'abandoned', '2h', 'cyd'],
      ['d', 'ltc', 'submitted', '1d', '1234567', 'dan'],
    ]);
    expect((await list('--state', 'submitting')).map(([id]) => id)).toEqual(['b']);
    const { stdout } = await print('--json');
    expect(JSON.parse(stdout)).toMatchObject({
      applications: [{ id: 'a', user: 'ada', state: 'unknown', appNumber: null, attempts: 2 }, { id: 'b' }],
    });
    const access = { action: 'read', actor: 'operator', section: 'applications' };
    expect(await auditEventsOf(app, '')).toMatchObject(Array(5).fill(access));
  });

  test('reads open applications by their index, page after page, each once', async () => {
    await app.reset();
    await db.$client.execute(`WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 1600)
      INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state, attempt,
        attempt_started_at, created_at)
      SELECT format('%05d', (v * 7919) % 100003), 'ada', 'ltc', v, 0, '{}', iif(v % 2, 'unknown', 'submitted'), 1, v, v FROM n`);
    const store = createOperationStore(db);
    const ids = async (...args: Parameters<typeof store.pages>) =>
      (await Array.fromAsync(store.pages(...args))).flat().map(({ id }) => id);
    const open = await ids(['unknown', 'submitting']);
    expect([open.length, new Set(open).size]).toEqual([800, 800]);
    expect(open).toEqual(open.toSorted());
    expect(await ids(['submitted', 'unknown'], 1_001)).toHaveLength(1_000);
    const plan = await explainFirst(db, (watched) => createOperationStore(watched).pages(['unknown']).next());
    expect(plan.join()).toContain('applications_open');
  });
});

describe('planning applications settle', () => {
  test('stores an acceptance as the carrier would, with the operator as actor', async () => {
    const { id, planning, settle, row, user, eventsOf, reconcile, pass } = await setUp();
    const sales = createSalesStore(db);
    await sales.upsertStaff([manager('boss'), counselor('c1', 'boss')], testApp.now);
    await sales.assignCounselor({ userId: 'ada', counselorId: 'c1', operator: testOperator, now: testApp.now });
    expect(await planning('settle', id, '--declined', 'declined')).toStartWith('Nothing was settled: use --yes');
    expect(await settle('4711')).toBe(done);
    expect(await row()).toMatchObject({ state: 'submitted', applicationNumber: 4711, carrier: carrier.id });
    expect((await user()).purchase).toEqual({ partner: { appNumber: 4711, pricing: carrierPricing } });
    expect(await db.$count(activities)).toBe(2);
    const event = { userId: 'ada', actor: 'operator', actorId: expect.any(String), applicationId: id };
    expect(await eventsOf('accepted')).toMatchObject([event]);
    pass(hourMs);
    expect([await reconcile(), carrier.calls.length]).toEqual([0, 1]);
    expect(await planning('settle', id, '--declined', 'declined', '--yes')).toBe(
      'The application is already submitted.',
    );
  });

  test('stores a decline, also of an abandoned application', async () => {
    const { id, planning, row, eventsOf } = await setUp();
    expect(await planning('abandon', id, '--yes')).toBe(done);
    expect(await planning('settle', id, '--declined', 'not-filed', '--yes')).toBe(done);
    expect(await row()).toMatchObject({ state: 'declined', declineReason: 'not-filed' });
    expect(await eventsOf('declined')).toMatchObject([{ actor: 'operator', applicationId: id }]);
  });

  test('names each field that would be invalid from the carrier, without its value', async () => {
    const { id, planning, settle, row } = await setUp();
    const terms = [
      { years: 0, price: 0, riders: 'canary' },
      { years: 10.5, price: 1, riders: [] },
    ];
    const message = await settle('canary', [{ product: 'canary-product', coverage: -1, terms }]);
    expect(message.split('\n').sort()).toEqual([
      '  --number must be a whole number from 1',
      '  pricing.0.coverage must be at least 0',
      '  pricing.0.terms.0.price must be at least 0.01',
      '  pricing.0.terms.0.riders must be a list',
      '  pricing.0.terms.0.years must be at least 1',
      '  pricing.0.terms.1.years must be a whole number',
      'Nothing was settled:',
    ]);
    expect(await planning('settle', id, '--number', '5', '--yes')).toStartWith('Give --number and --pricing');
    const both = ['--number', '5', '--pricing', 'pricing.json', '--declined', 'declined'];
    expect(await planning('settle', id, ...both)).toStartWith('Give either');
    expect(await row()).toMatchObject({ state: 'unknown', applicationNumber: null });
  });

  test('refuses a number that another user holds, and leaves the application unchanged', async () => {
    const { id, planning, settle, row, start } = await setUp('eve');
    expect(await planning('abandon', id, '--yes')).toBe(done);
    carrier.respond = () => accepted(7);
    expect((await start()).status).toBe(200);
    expect(await settle('7')).toBe('Nothing was settled: another application has this number.');
    expect(await row()).toMatchObject({ state: 'unknown', abandonedAt: expect.any(Number), applicationNumber: null });
  });

  test.each<[name: string, reply: CarrierDecision | CarrierError]>([
    ['accepts', accepted(99)],
    ['declines', declined],
    ['refuses', refused()],
  ])('is final when the carrier then %s in a running attempt', async (_, reply) => {
    const { settle, row, duringCall, eventsOf } = await setUp();
    await duringCall(async () => expect(await settle('5')).toBe(done), reply);
    expect(await row()).toMatchObject({ state: 'submitted', applicationNumber: 5 });
    expect(await eventsOf('accepted')).toHaveLength(1);
  });

  test.each([
    { command: 'settle', args: ['--declined', 'declined', '--yes'] },
    { command: 'abandon', args: ['--yes'] },
  ])('$command is refused during a call to the carrier, and without an open application', async ({ command, args }) => {
    const { id, planning } = await setUp();
    await db.update(applications).set({ state: 'submitting', attemptStartedAt: Date.now() });
    const inFlight = /^A request to the carrier is in flight\. Try again in \d+ s\.$/;
    expect(await planning(command, id, ...args)).toMatch(inFlight);
    expect(await planning(command, 'nothing', ...args)).toBe('There is no application with this id.');
    await createPersonalDataStore(db).erase('ada', { operator: testOperator, now: testApp.now });
    const [erased] = await db.select().from(applications);
    const closed = 'The user was erased, and the application closed.';
    expect(await planning(command, erased?.id ?? '', ...args)).toBe(closed);
  });
});

describe('planning applications abandon', () => {
  test('ends an application that the reconciler gave up after a week, and its age in the metrics', async () => {
    const { id, planning, eventsOf, reconcile, pass } = await setUp();
    pass(8 * dayMs);
    expect([await reconcile(), carrier.calls.length]).toEqual([0, 1]);
    const age = () => createOperationStore(db).findOldestOpenAge(testApp.now.getTime());
    expect(await age()).toBe((8 * dayMs) / 1000);
    expect(await planning('abandon', id)).toStartWith('Nothing was abandoned: use --yes');
    expect(await planning('abandon', id, '--yes')).toBe(done);
    expect(await planning('abandon', id, '--yes')).toBe('The application is already abandoned.');
    expect(await age()).toBeUndefined();
    expect(await countParts(db, 'applications')).toMatchObject({ unknown: 0, abandoned: 1 });
    expect(await eventsOf('abandoned')).toMatchObject([{ userId: 'ada', actor: 'operator', applicationId: id }]);
  });

  test('lets the user send the application again under the same id', async () => {
    const { id, planning, start, row } = await setUp();
    await planning('abandon', id, '--yes');
    carrier.respond = () => accepted(8);
    expect((await start()).status).toBe(200);
    expect(new Set(carrier.calls)).toEqual(new Set([id]));
    expect(await row()).toMatchObject({ state: 'submitted', applicationNumber: 8, abandonedAt: null });
    const attempts = await db.select().from(applicationAttempts).orderBy(applicationAttempts.attempt);
    expect(attempts.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
  });

  const stillAbandoned = { state: 'unknown', abandonedAt: expect.any(Number) };
  test.each<[name: string, reply: CarrierDecision | CarrierError, expected: object]>([
    ['an acceptance', accepted(9), { state: 'submitted', abandonedAt: null }],
    ['no refusal', refused(), stillAbandoned],
    ['no decline', declined, stillAbandoned],
  ])('keeps %s of a running attempt', async (_, reply, expected) => {
    const { id, planning, row, duringCall } = await setUp();
    await duringCall(async () => expect(await planning('abandon', id, '--yes')).toBe(done), reply);
    expect(await row()).toMatchObject(expected);
  });

  test('records no attempt when a new attempt has begun since the read', async () => {
    const { row } = await setUp();
    const read = await row();
    const store = createApplicationStore(db);
    const now = testApp.now.getTime();
    const taken = (await store.claim(read, now)) ?? never();
    expect(await store.abandon(read, { ...testOperator, requestId: null, now })).toBe(false);
    await store.settle(taken, declined, 'c', { reconcileAt: null }, { requestId: null, now });
    expect(await db.select().from(applicationAttempts).orderBy(applicationAttempts.attempt)).toMatchObject([
      { attempt: 1 },
      { attempt: 2, outcome: 'declined', reply: '422' },
    ]);
    expect(await store.isNeverAccepted({ ...taken, attempt: 3 })).toBe(false);
  });
});

test('GET /metrics has the age of the oldest undecided application, 0 without one, and no value without a database', async () => {
  const { pass, start } = await setUp();
  pass(hourMs);
  await start({}, { as: 'bob' });
  pass(hourMs);
  const { text } = await testApp.call('GET', '/metrics', { headers: { authorization: `Bearer ${metricsToken}` } });
  expect(text).toMatch(/^planning_applications_oldest_unknown_seconds 7200$/m);
  const none = await metrics.print({ ...aScrape, database: { applications: {}, completedTasks: {} } });
  expect(none).toContain('planning_applications_oldest_unknown_seconds 0\n');
  expect(await metrics.print(aScrape)).not.toMatch(/^planning_applications_oldest_unknown_seconds/m);
});

describe('applications of erased users', () => {
  const none = { submitting: 0, submitted: 0, declined: 0, unknown: 0, abandoned: 0 };

  const findAge = () => createOperationStore(db).findOldestOpenAge(Date.now());

  test('are closed by the erasure, and excluded from counts and ages', async () => {
    await setUp();
    expect(await countParts(db, 'applications')).toMatchObject({ unknown: 1 });
    await createPersonalDataStore(db).erase('ada', { operator: testOperator, now: testApp.now });
    expect([await countParts(db, 'applications'), await findAge()]).toEqual([none, undefined]);
    const closed = { userId: erasedUserId, abandonedAt: testApp.now.getTime() };
    expect(await db.select().from(applications)).toMatchObject([closed]);
  });

  test('are excluded after an erasure by the previous build, which does not close them', async () => {
    await setUp();
    await db.update(applications).set({ userId: erasedUserId, identityHash: 'anonymous' });
    expect([await countParts(db, 'applications'), await findAge()]).toEqual([none, undefined]);
    await db.delete(applications);
    expect(await countParts(db, 'applications')).toEqual(none);
  });

  test('are closed by the migration, which corrects the counts', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 10_000 });
    atEnd(() => db.$client.close());
    await migrateDatabase(db, await earlierMigrations(13));
    await db.$client.execute(`INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state,
      attempt, attempt_started_at, created_at, abandoned_at) VALUES
      ('a', '', 'ltc', 'a', 0, '{}', 'unknown', 1, 0, 0, NULL), ('b', '', 'ltc', 'b', 0, '{}', 'submitting', 1, 0, 0, NULL),
      ('c', '', 'ltc', 'c', 0, '{}', 'unknown', 1, 0, 0, 5), ('d', 'ada', 'ltc', 'd', 0, '{}', 'unknown', 1, 0, 0, NULL),
      ('e', '', 'ltc', 'e', 0, '{}', 'submitted', 1, 0, 0, NULL)`);
    const counts = () => countParts(db, 'applications');
    expect(await counts()).toMatchObject({ unknown: 2, submitting: 1, abandoned: 1, submitted: 1 });
    await migrateDatabase(db);
    expect(await counts()).toMatchObject({ unknown: 1, submitting: 0, abandoned: 0, submitted: 1 });
    const { rows } = await db.$client.execute('SELECT id FROM applications WHERE abandoned_at IS NULL ORDER BY id');
    expect(rows.map(({ id }) => id)).toEqual(['d', 'e']);
  });
});
