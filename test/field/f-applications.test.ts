import { describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { eq } from 'drizzle-orm';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { countParts } from '../../src/db/queries';
import { activities } from '../../src/db/schema/lists';
import { applicationAttempts, applications, auditEvents, erasedUserId } from '../../src/db/schema/people';
import { createAuditStore } from '../../src/modules/audit/store';
import { createHttpCarrier } from '../../src/modules/coverage/http-carrier';
import { createOperationStore } from '../../src/modules/coverage/outcomes';
import { ApplicationsBody } from '../../src/modules/coverage/service';
import { createApplicationStore } from '../../src/modules/coverage/store';
import { createPersonalDataStore } from '../../src/modules/privacy/store';
import { createSalesStore } from '../../src/modules/sales/store';
import { UserBody } from '../../src/modules/users/model';
import { createPrometheusMetrics } from '../../src/telemetry/metrics';
import {
  applicant,
  counselor,
  coverageServiceOf,
  createTestApp,
  manager,
  testCarrier,
  testConfig,
  testOperator,
} from '../support/app';
import { createCommandLine, refusalOf } from '../support/command';
import { earlierMigrations, explainFirst, temporaryDatabase } from '../support/database';
import { atEnd, temporaryFolder } from '../support/resources';

const coverage = '/v2/private/ltc/totalCoverage';
const dayMs = 24 * 60 * 60_000;
const pricing = [{ product: 'TERM_10', coverage: 500_000, terms: [{ years: 10, price: 12.34, riders: [] }] }];
const never = () => false;

type Respond = (request: { method: string; reference: string }) => Response | Promise<Response>;

/** A carrier that returns 500 until a test replaces `respond`, an app, and the command line in this process. */
async function setUp() {
  const carrierState: { respond: Respond; calls: string[] } = {
    respond: () => new Response(null, { status: 500 }),
    calls: [],
  };
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      const sent = v.safeParse(v.object({ clientReference: v.string() }), await request.json().catch(() => undefined));
      const reference = sent.success ? sent.output.clientReference : (request.url.split('/').at(-1) ?? '');
      carrierState.calls.push(`${request.method} ${reference}`);
      return carrierState.respond({ method: request.method, reference });
    },
  });
  atEnd(() => server.stop(true));
  const url = `http://127.0.0.1:${server.port}`;
  const carrier = createHttpCarrier({
    ...testCarrier,
    attempts: 1,
    breakerFailures: 1000,
    timeoutMs: 5_000,
    url,
    apiKey: 'key',
  });
  const testApp = await createTestApp({ carrier });
  const { db, url: databaseUrl } = testApp;
  const folder = temporaryFolder();
  const write = async (name: string, value: unknown) => {
    await Bun.write(join(folder, name), JSON.stringify(value));
    return join(folder, name);
  };
  const start = (as = 'ada', identity: object = {}) =>
    testApp.call('POST', coverage, { as, body: { ...applicant, ...identity } });
  return {
    ...{ testApp, db, carrier, carrierState, write, start },
    /** An application that the carrier has not decided. */
    async open(as = 'ada', identity: object = {}) {
      expect((await start(as, identity)).status).toBeGreaterThanOrEqual(500);
      const { applications: listed } = v.parse(
        ApplicationsBody,
        (await testApp.call('GET', '/v2/private/user/applications', { as })).body,
      ).data;
      return listed[0]?.id ?? '';
    },
    planning: (...args: string[]) =>
      refusalOf({ DATABASE_URL: databaseUrl, CARRIER_URL: url }, 'applications', ...args),
    stateOf: async (id: string) => {
      const [row] = await db.select().from(applications).where(eq(applications.id, id));
      return row;
    },
    eventsOf: async (action: 'accepted' | 'declined' | 'abandoned') =>
      (await Array.fromAsync(createAuditStore(db).pages({ action }))).flat(),
    reconcile: () => {
      testApp.now = new Date(testApp.now.getTime() + 60 * 60_000);
      return coverageServiceOf(testApp, carrier).reconcile('one', never);
    },
  };
}

const done = 'the command succeeded';

describe('planning applications list', () => {
  test('F18 list prints state, age, number and user, filters by state and age, and records the access', async () => {
    const line = await createCommandLine();
    const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 5_000 });
    atEnd(() => db.$client.close());
    const now = Date.now();
    const row = (id: string, userId: string, state: string, ageMs: number, more = 'NULL, NULL') =>
      `('${id}', '${userId}', 'ltc', '${id}', 0, '{}', '${state}', 2, 0, ${now - ageMs}, ${more})`;
    await db.$client.execute(`INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state,
      attempt, attempt_started_at, created_at, application_number, abandoned_at) VALUES
      ${row('a', 'ada', 'unknown', 9 * dayMs)}, ${row('b', 'bob', 'submitting', 30_000)},
      ${row('c', 'cyd', 'unknown', 2 * 3_600_000, 'NULL, 5')}, ${row('d', 'dan', 'submitted', dayMs, '1234567, NULL')},
      ${row('e', 'eve', 'declined', dayMs)}, ${row('f', erasedUserId, 'unknown', dayMs)}`);
    const list = async (...args: string[]) => {
      const { exitCode, stdout } = await line.planning('applications', 'list', ...args);
      expect(exitCode).toBe(0);
      return stdout
        .trimEnd()
        .split('\n')
        .slice(1)
        .map((text) => text.split(/ {2,}/));
    };
    expect(await list()).toEqual(
      [
        ['a', 'ltc', 'unknown', '9d', '', 'ada'],
        ['b', 'ltc', 'submitting', expect.stringMatching(/^\d\ds$|^1m$/), '', 'bob'],
      ].map((cells) => cells.filter((cell) => cell !== '')),
    );
    expect((await list('--older-than', '7d')).map(([id]) => id)).toEqual(['a']);
    expect((await list('--state', 'abandoned', 'submitted')).map(([id, , ...rest]) => [id, ...rest])).toEqual([
      ['c', 'abandoned', '2h', 'cyd'],
      ['d', 'submitted', '1d', '1234567', 'dan'],
    ]);
    const { stdout } = await line.planning('applications', 'list', '--json');
    expect(JSON.parse(stdout)).toMatchObject({
      applications: [{ id: 'a', user: 'ada', state: 'unknown', appNumber: null, attempts: 2 }, { id: 'b' }],
    });
    const accesses = (await Array.fromAsync(createAuditStore(db).pages({ action: 'read' }))).flat();
    expect(accesses).toHaveLength(4);
    expect(accesses[0]).toMatchObject({ actor: 'operator', section: 'applications', userId: '' });
  }, 30_000);

  test('F18 list reads open applications by their index, page after page, each once', async () => {
    const { db } = await temporaryDatabase();
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
  test('F18 settle stores an acceptance with purchase, credit and number, as the carrier would, with the operator as actor', async () => {
    const { testApp, db, open, planning, write, stateOf, eventsOf, reconcile, carrierState } = await setUp();
    const sales = createSalesStore(db);
    await sales.upsertStaff([manager('boss'), counselor('c1', 'boss')], testApp.now);
    await testApp.call('POST', '/v2/private/user/profile', { as: 'ada', body: {} });
    await sales.assignCounselor({ userId: 'ada', counselorId: 'c1', operator: testOperator, now: testApp.now });
    const id = await open();
    const file = await write('pricing.json', pricing);
    expect(await planning('settle', id, '--number', '4711', '--pricing', file)).toStartWith(
      'Nothing was settled: use --yes',
    );
    expect(await planning('settle', id, '--number', '4711', '--pricing', file, '--yes')).toBe(done);
    expect(await stateOf(id)).toMatchObject({ state: 'submitted', applicationNumber: 4711 });
    const { user } = v.parse(UserBody, (await testApp.call('GET', '/v2/private/user', { as: 'ada' })).body);
    expect(user.purchase).toEqual({ partner: { appNumber: 4711, pricing } });
    // A quote and an application.
    expect(await db.$count(activities)).toBe(2);
    expect(await eventsOf('accepted')).toMatchObject([
      { userId: 'ada', actor: 'operator', actorId: expect.any(String), applicationId: id },
    ]);
    const before = carrierState.calls.length;
    expect([await reconcile(), carrierState.calls.length]).toEqual([0, before]);
    expect(await planning('settle', id, '--declined', 'declined', '--yes')).toBe(
      'The application is already submitted.',
    );
  });

  test('F18 settle stores a decline, also of an abandoned application', async () => {
    const { open, planning, stateOf, eventsOf } = await setUp();
    const id = await open();
    expect(await planning('abandon', id, '--yes')).toBe(done);
    expect(await planning('settle', id, '--declined', 'not-filed', '--yes')).toBe(done);
    expect(await stateOf(id)).toMatchObject({ state: 'declined', declineReason: 'not-filed' });
    expect(await eventsOf('declined')).toMatchObject([{ actor: 'operator', applicationId: id }]);
  });

  test('F18 settle names each field that would be invalid from the carrier, without its value', async () => {
    const { open, planning, write, stateOf } = await setUp();
    const id = await open();
    const bad = await write('bad.json', [
      { product: 'canary-product', coverage: -1, terms: [{ years: 0, price: 0, riders: 'canary' }] },
    ]);
    const message = await planning('settle', id, '--number', 'canary', '--pricing', bad, '--yes');
    expect(message.split('\n').sort()).toEqual([
      '  --number must be a whole number from 1',
      '  pricing.0.coverage must be at least 0',
      '  pricing.0.terms.0.price must be at least 0.01',
      '  pricing.0.terms.0.riders must be a list',
      '  pricing.0.terms.0.years must be at least 1',
      'Nothing was settled:',
    ]);
    const file = await write('pricing.json', pricing);
    expect(await planning('settle', id, '--number', '5', '--yes')).toStartWith('Give --number and --pricing');
    expect(await planning('settle', id, '--number', '5', '--pricing', file, '--declined', 'declined')).toStartWith(
      'Give either',
    );
    expect(await stateOf(id)).toMatchObject({ state: 'unknown', applicationNumber: null });
  });

  test('F18 settle refuses a number that another person holds, and leaves the application unchanged', async () => {
    const { open, planning, write, stateOf, start, carrierState } = await setUp();
    const id = await open('eve');
    expect(await planning('abandon', id, '--yes')).toBe(done);
    carrierState.respond = () => Response.json({ applicationNumber: 7, pricing }, { status: 201 });
    expect((await start('ada')).status).toBe(200);
    const file = await write('pricing.json', pricing);
    const message = await planning('settle', id, '--number', '7', '--pricing', file, '--yes');
    expect(message).toBe('Nothing was settled: another application has this number.');
    expect(await stateOf(id)).toMatchObject({
      state: 'unknown',
      abandonedAt: expect.any(Number),
      applicationNumber: null,
    });
  });

  test('F18 settle wins over any later outcome of a running attempt of the reconciler', async () => {
    for (const late of [
      () => Response.json({ applicationNumber: 99, pricing }),
      () => Response.json({ decision: 'declined' }, { status: 422 }),
      () => new Response(null, { status: 400 }),
    ]) {
      const { open, planning, write, stateOf, reconcile, carrierState, db } = await setUp();
      const id = await open();
      const asked = Promise.withResolvers<void>();
      const response = Promise.withResolvers<Response>();
      carrierState.respond = () => {
        asked.resolve();
        return response.promise;
      };
      const reconciling = reconcile();
      await asked.promise;
      const file = await write('pricing.json', pricing);
      expect(await planning('settle', id, '--number', '5', '--pricing', file, '--yes')).toBe(done);
      response.resolve(late());
      await reconciling;
      expect(await stateOf(id)).toMatchObject({ state: 'submitted', applicationNumber: 5 });
      expect(await db.$count(auditEvents, eq(auditEvents.action, 'accepted'))).toBe(1);
    }
  });

  test('F18 settle and abandon are refused during a call to the carrier, and for a missing or erased application', async () => {
    const { open, planning, db, testApp } = await setUp();
    const id = await open();
    await db.update(applications).set({ state: 'submitting', attemptStartedAt: Date.now() });
    for (const command of [
      ['settle', id, '--declined', 'declined', '--yes'],
      ['abandon', id, '--yes'],
    ]) {
      expect(await planning(...command)).toMatch(/^A request to the carrier is in flight\. Try again in \d+ s\.$/);
    }
    expect(await planning('abandon', 'nothing', '--yes')).toBe('There is no application with this id.');
    await createPersonalDataStore(db).erase('ada', { operator: testOperator, now: testApp.now });
    const [erased] = await db.select().from(applications);
    expect(await planning('abandon', erased?.id ?? '', '--yes')).toBe(
      'The user was erased, and the application closed.',
    );
  });
});

describe('planning applications abandon', () => {
  test('F18 abandon ends an application that the reconciler gave up after a week, and resets the metric of its age', async () => {
    const { open, planning, eventsOf, reconcile, testApp, db, carrierState } = await setUp();
    const id = await open();
    testApp.now = new Date(testApp.now.getTime() + 8 * dayMs);
    const before = carrierState.calls.length;
    expect([await reconcile(), carrierState.calls.length]).toEqual([0, before]);
    const age = () => createOperationStore(db).findOldestOpenAge(testApp.now.getTime());
    expect(await age()).toBe((8 * dayMs + 60 * 60_000) / 1000);
    expect(await planning('abandon', id)).toStartWith('Nothing was abandoned: use --yes');
    expect(await planning('abandon', id, '--yes')).toBe(done);
    expect(await planning('abandon', id, '--yes')).toBe('The application is already abandoned.');
    expect(await age()).toBeUndefined();
    expect(await countParts(db, 'applications')).toMatchObject({ unknown: 0, abandoned: 1 });
    expect(await eventsOf('abandoned')).toMatchObject([{ userId: 'ada', actor: 'operator', applicationId: id }]);
  });

  test('F18 the service sends an abandoned application again under the same id when the person applies again', async () => {
    const { open, planning, start, stateOf, carrierState } = await setUp();
    const id = await open();
    await planning('abandon', id, '--yes');
    carrierState.respond = ({ method }) =>
      method === 'GET'
        ? new Response(null, { status: 404 })
        : Response.json({ applicationNumber: 8, pricing }, { status: 201 });
    expect((await start()).status).toBe(200);
    expect(new Set(carrierState.calls.map((call) => call.split(' ')[1]))).toEqual(new Set([id]));
    expect(await stateOf(id)).toMatchObject({ state: 'submitted', applicationNumber: 8, abandonedAt: null });
  });

  test('F18 the service stores an acceptance that arrives after the abandonment, and no other outcome', async () => {
    for (const [late, expected] of [
      [() => Response.json({ applicationNumber: 9, pricing }), { state: 'submitted', abandonedAt: null }],
      [() => new Response(null, { status: 400 }), { state: 'unknown', abandonedAt: expect.any(Number) }],
    ] as const) {
      const { open, planning, stateOf, reconcile, carrierState } = await setUp();
      const id = await open();
      const asked = Promise.withResolvers<void>();
      const response = Promise.withResolvers<Response>();
      carrierState.respond = () => {
        asked.resolve();
        return response.promise;
      };
      const reconciling = reconcile();
      await asked.promise;
      expect(await planning('abandon', id, '--yes')).toBe(done);
      response.resolve(late());
      await reconciling;
      expect(await stateOf(id)).toMatchObject(expected);
    }
  });

  test('F18 abandon records no attempt when a new attempt has begun since the read', async () => {
    const { open, stateOf, db, testApp } = await setUp();
    const read = await stateOf(await open());
    if (read === undefined) throw new Error('The application was not stored');
    const store = createApplicationStore(db);
    const now = testApp.now.getTime();
    const taken = await store.claim(read, now);
    if (taken === undefined) throw new Error('The application was not taken over');
    expect(await store.abandon(read, { ...testOperator, requestId: null, now })).toBe(false);
    await store.settle(
      taken,
      { kind: 'declined', reason: 'declined', reply: '422' },
      'c',
      { reconcileAt: null },
      { requestId: null, now },
    );
    expect(await db.select().from(applicationAttempts).orderBy(applicationAttempts.attempt)).toMatchObject([
      { attempt: 1 },
      { attempt: 2, outcome: 'declined', reply: '422' },
    ]);
    expect(await store.isNeverAccepted({ ...taken, attempt: 3 })).toBe(false);
  });
});

describe('GET /metrics', () => {
  test('F18 a scrape has the age of the oldest undecided application, 0 without one, and no value without a database', async () => {
    const metrics = createPrometheusMetrics({ replica: undefined });
    const config = { ...testConfig, metricsToken: 'a-token-for-the-scrapes-0123456789abc' };
    const testApp = await createTestApp({ metrics, config });
    const scrape = async () => {
      const headers = { authorization: `Bearer ${config.metricsToken}` };
      const { text } = await testApp.call('GET', '/metrics', { headers });
      return /^planning_applications_oldest_unknown_seconds (.*)$/m.exec(text)?.[1];
    };
    expect((await testApp.call('POST', coverage, { as: 'ada', body: applicant })).status).toBeGreaterThanOrEqual(500);
    testApp.now = new Date(testApp.now.getTime() + 2 * 60 * 60_000);
    expect(await scrape()).toBe('7200');
    const facts = { applications: {}, completedTasks: {} };
    const print = (database?: typeof facts) =>
      metrics.print({ inFlight: 0, database, isWritable: true, hasLostDatabase: false });
    expect(await print(facts)).toContain('planning_applications_oldest_unknown_seconds 0\n');
    expect(await print()).not.toMatch(/^planning_applications_oldest_unknown_seconds/m);
  });
});

describe('applications of erased users', () => {
  test('F18 applications of erased users are closed by the erasure and excluded from counts and ages', async () => {
    const { open, db, testApp } = await setUp();
    await open();
    expect(await countParts(db, 'applications')).toMatchObject({ unknown: 1 });
    await createPersonalDataStore(db).erase('ada', { operator: testOperator, now: testApp.now });
    expect(await countParts(db, 'applications')).toEqual({
      submitting: 0,
      submitted: 0,
      declined: 0,
      unknown: 0,
      abandoned: 0,
    });
    expect(await createOperationStore(db).findOldestOpenAge(Date.now())).toBeUndefined();
    expect(await db.select().from(applications)).toMatchObject([
      { userId: erasedUserId, abandonedAt: testApp.now.getTime() },
    ]);
  });

  test('F18 applications of erased users are not counted after an erasure by the previous build', async () => {
    const { open, db } = await setUp();
    await open();
    await db.update(applications).set({ userId: erasedUserId, identityHash: 'anonymous' });
    expect(await countParts(db, 'applications')).toMatchObject({ unknown: 0, abandoned: 0 });
    expect(await createOperationStore(db).findOldestOpenAge(Date.now())).toBeUndefined();
    await db.delete(applications);
    expect(await countParts(db, 'applications')).toMatchObject({ unknown: 0, abandoned: 0 });
  });

  test('F18 applications of erased users are closed by the migration, which corrects the counts', async () => {
    const db = await openDatabase({ url: `file:${join(temporaryFolder(), 'planning.db')}`, timeoutMs: 10_000 });
    atEnd(() => db.$client.close());
    await migrateDatabase(db, await earlierMigrations(13));
    await db.$client.execute(`INSERT INTO applications (id, user_id, flow, identity_hash, generation, applicant, state,
      attempt, attempt_started_at, created_at, abandoned_at) VALUES
      ('a', '', 'ltc', 'a', 0, '{}', 'unknown', 1, 0, 0, NULL), ('b', '', 'ltc', 'b', 0, '{}', 'submitting', 1, 0, 0, NULL),
      ('c', '', 'ltc', 'c', 0, '{}', 'unknown', 1, 0, 0, 5), ('d', 'ada', 'ltc', 'd', 0, '{}', 'unknown', 1, 0, 0, NULL),
      ('e', '', 'ltc', 'e', 0, '{}', 'submitted', 1, 0, 0, NULL)`);
    expect(await countParts(db, 'applications')).toMatchObject({
      unknown: 2,
      submitting: 1,
      abandoned: 1,
      submitted: 1,
    });
    await migrateDatabase(db);
    expect(await countParts(db, 'applications')).toMatchObject({
      unknown: 1,
      submitting: 0,
      abandoned: 0,
      submitted: 1,
    });
    const { rows } = await db.$client.execute('SELECT id FROM applications WHERE abandoned_at IS NULL ORDER BY id');
    expect(rows.map(({ id }) => id)).toEqual(['d', 'e']);
  });
});

describe('a clock that is wrong by years', () => {
  const sixYearsMs = 6 * 365 * dayMs;

  test('F8 a decline does not last for years after the clock is corrected', async () => {
    const { testApp, start, carrierState } = await setUp();
    const right = testApp.now;
    carrierState.respond = () => Response.json({ decision: 'declined' }, { status: 422 });
    testApp.now = new Date(right.getTime() + sixYearsMs);
    expect((await start()).status).toBe(422);
    testApp.now = right;
    carrierState.respond = () => Response.json({ applicationNumber: 3, pricing }, { status: 201 });
    expect((await start()).status).toBe(200);
  });

  test.each([sixYearsMs, -sixYearsMs])(
    'F8 a clock that is wrong by %d ms leaves open and submitted applications unchanged',
    async (ms) => {
      const { testApp, db, open, start, reconcile, carrierState } = await setUp();
      await open('ada');
      const before = await db.select().from(applications);
      testApp.now = new Date(testApp.now.getTime() + ms);
      await reconcile();
      expect((await db.select().from(applications)).map(({ id, state }) => [id, state])).toEqual(
        before.map(({ id, state }) => [id, state]),
      );
      testApp.now = new Date(testApp.now.getTime() - ms);
      carrierState.respond = ({ reference }) =>
        Response.json({ applicationNumber: 3, pricing, clientReference: reference });
      expect((await start('ada')).status).toBe(200);
      expect(await db.$count(applications)).toBe(1);
    },
  );

  test('F8 an idempotency key does not last for years after the clock is corrected', async () => {
    const { testApp, db, start } = await setUp();
    const apply = async (firstName: string) =>
      (
        await testApp.call('POST', coverage, {
          ...{ as: 'ada', body: { ...applicant, firstName }, headers: { 'idempotency-key': 'one' } },
        })
      ).status;
    testApp.now = new Date(testApp.now.getTime() + sixYearsMs);
    expect(await apply('Ada')).toBe(503);
    expect(await apply('Augusta')).toBe(422);
    testApp.now = new Date(testApp.now.getTime() - sixYearsMs);
    expect([await apply('Augusta'), await apply('Ada')]).toEqual([503, 422]);
    expect((await start()).status).toBe(503);
    expect(await db.$count(applications)).toBe(2);
  });

  test('F8 refusal events are recorded after the clock is corrected', async () => {
    const { db } = await temporaryDatabase();
    const store = createAuditStore(db);
    const refusal = { userId: 'ada', actor: 'person', action: 'refused', requestId: null } as const;
    const now = Date.now();
    for (const at of [now, now + sixYearsMs, now + 1, now + 3_600_001])
      await store.recordRefusal({ ...refusal, now: at });
    expect(await db.$count(auditEvents)).toBe(3);
  });
});
