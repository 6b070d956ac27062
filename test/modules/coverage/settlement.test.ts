import { describe, expect, test } from 'bun:test';
import { eq } from 'drizzle-orm';
import { countParts } from '../../../src/db/queries';
import { applicationAttempts, applications, auditEvents } from '../../../src/db/schema/people';
import { createAuditStore } from '../../../src/modules/audit/store';
import { identityHash } from '../../../src/modules/coverage/service';
import { createApplicationStore } from '../../../src/modules/coverage/store';
import { startReconciler } from '../../../src/modules/coverage/submissions';
import { createPersonalDataStore } from '../../../src/modules/privacy/store';
import { CarrierError } from '../../../src/shared/carrier';
import { createPrometheusMetrics } from '../../../src/telemetry/metrics';
import {
  accepted,
  applicant,
  coverageDepsOf,
  createCoverageApp,
  createTestCarrier,
  declined,
  refused,
  testOperator,
  unavailable,
} from '../../support/app';
import { auditEventsOf } from '../../support/database';
import { never, until } from '../../support/resources';
import { aScrape } from '../../support/telemetry';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const longestBackoffMs = 600_000;
const augusta = { firstName: 'Augusta' };
const eve = { as: 'eve' };
const metrics = createPrometheusMetrics({ replica: undefined });
const shared = await createCoverageApp({ metrics });

/** The app of most tests, without people and applications, with a carrier that responds as given. */
async function appThat(respond: ReturnType<typeof createTestCarrier>['respond'], app = shared) {
  await app.reset({ respond });
  const row = async () => (await app.db.select().from(applications))[0];
  return {
    ...app,
    row,
    states: async (as = 'ada') =>
      (await app.list(as)).applications.map(({ state, appNumber }) => `${state} ${appNumber}`),
    logged: (text: string) => app.testApp.logLines.filter((line) => line.includes(text)).length,
    /** Reconciles whenever the application that the carrier refuses is due, until it is abandoned, and at the end. */
    async days(count: number) {
      let leftMs = count * dayMs;
      for (let isOver = false; !isOver; ) {
        const { reconcileAt, abandonedAt } = (await row()) ?? never();
        const waitMs = Math.max((reconcileAt ?? 0) - app.testApp.now.getTime(), longestBackoffMs);
        isOver = abandonedAt !== null || waitMs > leftMs;
        const stepMs = isOver ? leftMs : waitMs;
        leftMs -= stepMs;
        app.pass(stepMs);
        await app.reconcile();
      }
    },
  };
}

describe('an application without a decision', () => {
  test.each([
    [() => new CarrierError('timeout', ''), 504, 'carrier-timeout'],
    [unavailable, 503, 'carrier-unavailable'],
    [refused, 502, 'carrier-bad-answer'],
  ])('is unknown and keeps the earlier purchase: %s', async (failure, status, slug) => {
    const { carrier, start, states, user } = await appThat(() => accepted(1));
    await start();
    const { purchase } = await user();
    carrier.respond = failure;
    const response = await start(augusta);
    expect(response).toMatchObject({ status, body: { type: `/problems/${slug}` } });
    expect(response.headers.get('retry-after')).toBe('5');
    expect(await states()).toEqual(['unknown null', 'submitted 1']);
    expect((await user()).purchase).toEqual(purchase);
  });

  test.each(['before', 'after'])(
    'has one number in each repeat when an earlier process stopped %s the carrier accepted it',
    async (moment) => {
      const { testApp, db, carrier, start, user, states, pass, saveProfile } = await appThat(unavailable);
      await saveProfile({});
      const [id, now] = [Bun.randomUUIDv7(), testApp.now.getTime()];
      await createApplicationStore(db).open({
        ...{ id, userId: 'ada', flow: 'ltc', identityHash: identityHash(applicant), generation: 0, applicant },
        ...{ requestId: 'request-1', now, attemptStartedAt: now },
      });
      if (moment === 'after') carrier.numbers.set(id, 1);
      carrier.respond = carrier.acceptAll;
      const early = await start();
      expect(early).toMatchObject({ status: 409, body: { type: '/problems/application-in-progress' } });
      expect(early.headers.get('retry-after')).toBe('2');
      pass(60_000);
      const repeated = await Promise.all([start(), start(), start()]);
      expect(repeated.map(({ status }) => status)).toEqual([200, 200, 200]);
      expect((await user()).purchase.partner?.appNumber).toBe(1);
      expect([await states(), carrier.numbers.size]).toEqual([['submitted 1'], 1]);
    },
  );

  test.each([
    [6.9, 1],
    [7.1, 0],
  ])('is settled by the reconciler after %d days %d times', async (days, times) => {
    const { carrier, start, reconcile, pass } = await appThat(unavailable);
    await start();
    carrier.respond = carrier.acceptAll;
    pass(days * dayMs);
    expect(await reconcile()).toBe(times);
  });

  test('stays unknown while the reconciler tries it with growing delays, for seven days', async () => {
    const { start, row, states, pass, reconcile } = await appThat(unavailable);
    await start();
    const attemptsAfter = async (times: number, ms: number) => {
      for (let time = 0; time < times; time += 1) {
        pass(ms);
        await reconcile();
      }
      return (await row())?.attempt ?? 0;
    };
    const early = await attemptsAfter(12, 5_000);
    expect(early).toBeWithin(3, 8);
    expect(await attemptsAfter(6, dayMs)).toBe(early + 6);
    expect(await attemptsAfter(2, dayMs)).toBe(early + 6);
    expect(await states()).toEqual(['unknown null']);
  });
});

describe('the reconciler', () => {
  const twoOpen = async () => {
    const app = await appThat(unavailable);
    await app.start();
    await app.start(augusta);
    app.carrier.respond = app.carrier.acceptAll;
    app.pass(5_000);
    return app;
  };

  test('runs for one lease holder until that holder releases the lease', async () => {
    const { carrier, start, service, reconcile, pass } = await twoOpen();
    expect(await reconcile('one')).toBe(2);
    carrier.respond = unavailable;
    await start({ state: 'CA' });
    carrier.respond = carrier.acceptAll;
    pass(60_000);
    expect(await reconcile('another')).toBe(0);
    await service.stopReconciling('another');
    expect(await reconcile('another')).toBe(0);
    await service.stopReconciling('one');
    expect(await reconcile('another')).toBe(1);
  });

  test('releases its lease when it is stopped', async () => {
    const { testApp, carrier, service, start, reconcile, pass } = await twoOpen();
    const reconciler = startReconciler(service, coverageDepsOf(testApp, carrier));
    await until(() => carrier.numbers.size === 2);
    await reconciler.stop();
    carrier.respond = unavailable;
    await start({ state: 'CA' });
    carrier.respond = carrier.acceptAll;
    pass(5_000);
    expect(await reconcile()).toBe(1);
  });

  test('starts no further application after a stop, and keeps the purchase of the newest', async () => {
    const { service, list, user, reconcile } = await twoOpen();
    let stopChecks = 0;
    expect(await service.reconcile('one', () => stopChecks++ > 0)).toBe(1);
    expect(await reconcile('one')).toBe(1);
    const [newest] = (await list()).applications;
    expect(newest).toMatchObject({ state: 'submitted' });
    expect((await user()).purchase.partner?.appNumber).toBe(newest?.appNumber ?? 0);
  });
});

describe('an outcome that arrives late', () => {
  test('does not settle an application as declined when a newer attempt has claimed it', async () => {
    const { db, carrier, start, states, user, pass, reconcile } = await appThat(unavailable);
    const [old, newer] = carrier.hold(2);
    const first = start();
    await old?.arrived;
    pass(60_000);
    const second = reconcile();
    await newer?.arrived;
    old?.respond(declined);
    await until(async () => (await db.$count(applicationAttempts)) === 1);
    expect(await states()).toEqual(['submitting null']);
    newer?.respond(accepted(1));
    expect(await second).toBe(1);
    expect(await states()).toEqual(['submitted 1']);
    expect((await first).status).toBe(200);
    expect((await user()).purchase.partner?.appNumber).toBe(1);
  });

  test('does not replace the purchase of a newer application', async () => {
    const { carrier, start, states, user, pass, reconcile } = await appThat(unavailable);
    const [old, newer, late] = carrier.hold(3);
    const older = start(augusta);
    await old?.arrived;
    newer?.respond(accepted(2));
    await start();
    pass(60_000);
    late?.respond(accepted(1));
    expect(await reconcile()).toBe(1);
    expect(await states()).toEqual(['submitted 2', 'submitted 1']);
    expect((await user()).purchase.partner?.appNumber).toBe(2);
    old?.respond(accepted(1));
    await older;
  });
});

describe('an application number', () => {
  const seven = () => accepted(7);

  test('of another identity leaves the application unknown, is logged, and is counted', async () => {
    const { start, states, user, logged } = await appThat(seven);
    const print = () => metrics.print({ ...aScrape, database: { applications: { abandoned: 1 }, completedTasks: {} } });
    const takenIn = (text: string) => Number(/^planning_application_numbers_taken_total (\d+)$/m.exec(text)?.[1]);
    const before = takenIn(await print());
    expect((await start()).status).toBe(200);
    expect(await start({}, eve)).toMatchObject({ status: 502, body: { type: '/problems/carrier-bad-answer' } });
    expect(logged('that another application holds')).toBe(1);
    expect((await start(augusta)).status).toBe(502);
    expect([await states('eve'), await states()]).toEqual([['unknown null'], ['unknown null', 'submitted 7']]);
    expect((await user('eve')).purchase).toEqual({});
    const text = await print();
    expect(takenIn(text) - before).toBe(2);
    expect(text).toContain('planning_applications{state="abandoned"} 1');
  });

  test('goes to one user when the carrier gives it to many at once', async () => {
    const { db, start } = await appThat(seven);
    const started = Array.from({ length: 8 }, (_, index) => start({}, { as: `person-${index}` }));
    const statuses = (await Promise.all(started)).map(({ status }) => status);
    expect(statuses.sort()).toEqual([200, ...Array(7).fill(502)]);
    expect(await db.$count(applications, eq(applications.applicationNumber, 7))).toBe(1);
  });

  test.each([
    ['no row names another carrier', 'test-carrier', 502, ['unknown null']],
    ['a row names another carrier', 'other.example', 200, ['submitted 7']],
  ])('of an earlier build is compared unless %s', async (_, named, status, expected) => {
    const { testApp, db, carrier, service, start, states } = await appThat(seven);
    for (const as of ['ada', 'cyd']) {
      await start({}, { as });
      await db.update(applications).set({ state: 'submitted', applicationNumber: 7, carrier: null });
    }
    await db.update(applications).set({ carrier: named }).where(eq(applications.userId, 'cyd'));
    await startReconciler(service, coverageDepsOf(testApp, carrier)).stop();
    expect((await start({}, eve)).status).toBe(status);
    expect(await states('eve')).toEqual(expected);
  });

  test('that is taken is no refusal: the application settles when the carrier gives another number', async () => {
    const { db, carrier, start, states, pass, reconcile } = await appThat(seven);
    await start();
    await start({}, eve);
    const attempts = async () => {
      const [row] = await db.select().from(applications).where(eq(applications.userId, 'eve'));
      expect(row).toMatchObject({ state: 'unknown', refusals: 0, abandonedAt: null });
      return row?.attempt ?? 0;
    };
    for (const [ms, count] of [
      [30_000, 1],
      [31_000, 2],
    ] as const) {
      pass(ms);
      await reconcile();
      expect(await attempts()).toBe(count);
    }
    for (let part = 0; part < 9; part += 1) {
      pass(hourMs * 7);
      await reconcile();
    }
    expect(await attempts()).toBeGreaterThan(8);
    carrier.respond = () => accepted(8);
    pass(hourMs * 7);
    expect(await reconcile()).toBe(1);
    expect(await states('eve')).toEqual(['submitted 8']);
  });

  test('is not compared with numbers of other carriers', async () => {
    const { db, start } = await appThat(seven);
    await start();
    const other = await createCoverageApp({ db, carrier: createTestCarrier('other') });
    other.carrier.respond = seven;
    expect((await other.start({}, eve)).status).toBe(200);
    expect(await db.$count(applications, eq(applications.applicationNumber, 7))).toBe(2);
  });
});

describe('Retry-After of the carrier', () => {
  const busy = () => new CarrierError('unavailable', '', { status: 503, retryAfterMs: 60_000 });

  test('holds for the user and for the reconciler until it has passed', async () => {
    const { carrier, start, states, reconcile, pass } = await appThat(busy);
    expect((await start()).headers.get('retry-after')).toBe('60');
    carrier.respond = carrier.acceptAll;
    pass(20_000);
    const repeated = await start();
    expect(repeated).toMatchObject({ status: 503, body: { type: '/problems/carrier-unavailable' } });
    expect(repeated.headers.get('retry-after')).toBe('40');
    expect([await reconcile(), carrier.calls.length]).toEqual([0, 1]);
    pass(40_001);
    expect(await reconcile()).toBe(1);
    expect(await states()).toEqual(['submitted 1']);
  });

  test('is ignored when the clock is set back by more than the longest wait', async () => {
    const { carrier, start, pass } = await appThat(busy);
    await start();
    carrier.respond = carrier.acceptAll;
    pass(-dayMs);
    expect((await start()).status).toBe(200);
  });
});

describe('an application that the carrier refuses', () => {
  test('is abandoned after eight refusals over more than twelve hours', async () => {
    const { db, carrier, start, list, days, logged } = await appThat(refused);
    expect((await start({}, eve)).status).toBe(502);
    await days(2);
    expect(carrier.calls).toHaveLength(8);
    const [abandoned] = (await list('eve')).applications;
    expect(abandoned).toMatchObject({ state: 'abandoned', appNumber: null });
    const tookMs = Date.parse(abandoned?.settledAt ?? '') - Date.parse(abandoned?.createdAt ?? '');
    expect(tookMs).toBeGreaterThan(12 * hourMs);
    expect(logged('is abandoned')).toBe(1);
    const event = { action: 'abandoned', actor: 'service', applicationId: abandoned?.id };
    expect((await auditEventsOf({ db }, 'eve')).at(-1)).toMatchObject(event);
  });

  test.each([
    ['was unavailable', unavailable],
    ['sent an invalid acceptance', () => new CarrierError('bad-answer', '', { status: 200 })],
  ])('stays open when the carrier %s before, and may have accepted it', async (_, first) => {
    const { carrier, start, row, states, days, pass, reconcile } = await appThat(first);
    await start();
    carrier.respond = refused;
    for (let press = 0; press < 8; press += 1) {
      expect((await start()).status).toBe(502);
      pass(1_000);
    }
    await days(4);
    expect(await row()).toMatchObject({ state: 'unknown', abandonedAt: null });
    // The delays keep growing.
    expect(carrier.calls.length).toBeLessThan(32);
    carrier.respond = carrier.acceptAll;
    pass(6 * hourMs);
    expect(await reconcile()).toBe(1);
    expect([await states(), carrier.numbers.size]).toEqual([['submitted 1'], 1]);
  });

  test('counts no repeat of the user before the wait has passed, and settles when the carrier then accepts it', async () => {
    const { carrier, start, row, states, pass, reconcile } = await appThat(refused);
    for (let press = 0; press < 30; press += 1) {
      expect((await start()).status).toBe(502);
      pass(1_000);
    }
    expect(carrier.calls).toHaveLength(30);
    expect(await row()).toMatchObject({ state: 'unknown', refusals: 1, abandonedAt: null });
    pass(31_000);
    await start();
    expect(await row()).toMatchObject({ refusals: 2 });
    carrier.respond = carrier.acceptAll;
    pass(6 * hourMs);
    expect(await reconcile()).toBe(1);
    expect(await states()).toEqual(['submitted 1']);
  });

  test('is sent again under the same reference when the user applies again', async () => {
    const { carrier, start, row, states, days } = await appThat(refused);
    await start();
    await days(1);
    expect(await states()).toEqual(['abandoned null']);
    expect((await start()).status).toBe(502);
    expect(await row()).toMatchObject({ state: 'unknown', refusals: 1, abandonedAt: null });
    await days(1);
    expect(await states()).toEqual(['abandoned null']);
    carrier.respond = carrier.acceptAll;
    expect((await start()).status).toBe(200);
    expect(await states()).toEqual(['submitted 1']);
    expect(new Set(carrier.calls).size).toBe(1);
  });

  test('is unknown to the previous build, counted as abandoned, and not counted after an erasure', async () => {
    const { testApp, db, carrier, start, row, days } = await appThat(refused);
    await start();
    await days(1);
    // The response schema of the previous build has no other states.
    expect(['submitting', 'submitted', 'declined', 'unknown']).toContain((await row())?.state ?? '');
    const counts = async () => Object.entries(await countParts(db, 'applications')).filter(([, count]) => count !== 0);
    expect(await counts()).toEqual([['abandoned', 1]]);
    const sent = carrier.calls.length;
    await createPersonalDataStore(db).erase('ada', { operator: testOperator, now: testApp.now });
    await days(1);
    expect([carrier.calls.length, await counts()]).toEqual([sent, []]);
    // The previous build sets only the state.
    await db.update(applications).set({ state: 'submitted' });
    expect(await counts()).toEqual([['submitted', 1]]);
  });
});

describe('a clock that is wrong by six years', () => {
  const yearsMs = 6 * 365 * dayMs;

  test('does not make a decline last for years', async () => {
    const { carrier, start, pass } = await appThat(() => declined);
    pass(yearsMs);
    expect((await start()).status).toBe(422);
    pass(-yearsMs);
    carrier.respond = carrier.acceptAll;
    expect((await start()).status).toBe(200);
  });

  test.each([yearsMs, -yearsMs])('leaves open applications unchanged: %d ms', async (ms) => {
    const { db, carrier, start, pass, reconcile } = await appThat(unavailable);
    await start();
    const states = () => db.select({ id: applications.id, state: applications.state }).from(applications);
    const before = await states();
    pass(ms);
    await reconcile();
    expect(await states()).toEqual(before);
    pass(-ms);
    carrier.respond = carrier.acceptAll;
    expect((await start()).status).toBe(200);
    expect(await db.$count(applications)).toBe(1);
  });

  test('does not make an idempotency key last for years', async () => {
    const { db, start, pass } = await appThat(unavailable);
    const apply = async (identity: object) => (await start(identity, { headers: { 'idempotency-key': 'one' } })).status;
    pass(yearsMs);
    expect([await apply({}), await apply(augusta)]).toEqual([503, 422]);
    pass(-yearsMs);
    expect([await apply(augusta), await apply({})]).toEqual([503, 422]);
    expect((await start()).status).toBe(503);
    expect(await db.$count(applications)).toBe(2);
  });

  test('does not stop the recording of refusals', async () => {
    const { db } = shared;
    const audit = createAuditStore(db);
    const now = Date.now();
    for (const at of [now, now + yearsMs, now + 1, now + hourMs + 1]) {
      await audit.recordRefusal({ userId: 'refused', actor: 'person', action: 'refused', requestId: null, now: at });
    }
    expect(await db.$count(auditEvents, eq(auditEvents.userId, 'refused'))).toBe(3);
  });
});
