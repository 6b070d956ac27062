import { describe, expect, spyOn, test } from 'bun:test';
import * as v from 'valibot';
import { type Database, openDatabase } from '../../src/db/client';
import { completedTasks } from '../../src/db/schema/lists';
import { auditEvents, auditRetention } from '../../src/db/schema/people';
import { createLog } from '../../src/log';
import { type AuditLogFacts, planRetention } from '../../src/modules/audit/retention';
import { type AuditFilter, createAuditStore, startAuditRetention } from '../../src/modules/audit/store';
import { createSalesStore } from '../../src/modules/sales/store';
import { createTestApp, manager } from '../support/app';
import { createCommandLine } from '../support/command';
import { auditLinesOf, explainFirst, fillEvents, temporaryDatabase } from '../support/database';
import { startInProcess } from '../support/processes';
import { atEnd, until } from '../support/resources';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** Six years, and an hour in which the test runs. */
const sixYearsMs = 6 * 365 * dayMs + hourMs;
const now = Date.UTC(2026, 10, 28, 12);
const me = Bun.spawnSync(['id', '-un']).stdout.toString().trim();

const Event = v.strictObject({
  time: v.pipe(v.string(), v.isoTimestamp()),
  action: v.string(),
  section: v.nullable(v.string()),
  actor: v.string(),
  actorId: v.nullable(v.string()),
  requestId: v.nullable(v.string()),
  applicationId: v.nullable(v.string()),
  user: v.optional(v.string()),
});
const PrintedEvents = v.object({ user: v.nullable(v.string()), events: v.array(Event) });

/** A command line with a database, and an app on it. */
async function setUp(environment: Record<string, string> = {}) {
  const line = await createCommandLine(environment);
  const db = await openDatabase({ url: line.databaseUrl, timeoutMs: 5_000 });
  atEnd(() => db.$client.close());
  const testApp = await createTestApp({ db });
  await createSalesStore(db).upsertStaff([manager('boss')], testApp.now);
  return {
    ...line,
    db,
    testApp,
    save: (requestId: string, careCosts = 1) =>
      testApp.call('POST', '/v2/private/ltc/lifetimeCare', {
        as: 'ada',
        body: { careCosts },
        headers: { 'x-request-id': requestId },
      }),
    audit: async (...args: string[]) => {
      const { exitCode, stdout, stderr } = await line.planning('audit', ...args, '--json');
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
      return v.parse(PrintedEvents, JSON.parse(stdout));
    },
  };
}

type Printed = v.InferOutput<typeof PrintedEvents>;
const linesOf = ({ events }: Printed) =>
  events.map(({ action, section, requestId }) => `${action} ${section} ${action === 'read' ? '…' : requestId}`);

describe('planning audit', () => {
  test('prints the events of a user, newest first, and records its own read by the user of the system', async () => {
    const { testApp, audit, save, planning } = await setUp({ USER: 'mallory', LOGNAME: 'm', SUDO_USER: 'mallory' });
    testApp.now = new Date('2026-03-10T12:00:00.000Z');
    await save('request-1', 1);
    testApp.now = new Date('2026-03-11T12:00:00.000Z');
    await save('request-2', 2);
    const [header, ownRead, ...lines] = (await planning('audit', 'ada')).stdout.trimEnd().split('\n');
    expect(header).toMatch(/^time +action +section +actor +request +application$/);
    expect(ownRead).toMatch(new RegExp(`^\\S+Z  read +audit +operator ${me} +[\\w-]{36}$`));
    expect(lines.map((text) => text.split(/ {2,}/))).toEqual([
      ['2026-03-11T12:00:00.000Z', 'saved', 'ltc.lifetimeCare', 'person', 'request-2'],
      ['2026-03-10T12:00:00.000Z', 'saved', 'ltc.lifetimeCare', 'person', 'request-1'],
    ]);
    const saved = ['saved ltc.lifetimeCare request-2', 'saved ltc.lifetimeCare request-1'];
    const ownReads = (count: number) => Array.from({ length: count }, () => 'read audit …');
    expect(linesOf(await audit('ada'))).toEqual([...ownReads(2), ...saved]);
    expect(linesOf(await audit('ada', '--limit', '1'))).toEqual(ownReads(1));
    expect(linesOf(await audit('ada', '--since', '2026-03-11'))).toEqual([...ownReads(4), saved[0] ?? '']);
  });

  test('prints events of all users with the id of each user, and records the access', async () => {
    const { db, planning, audit } = await setUp();
    const exported = { userId: 'ada', actor: 'operator', actorId: 'root', action: 'exported' } as const;
    await createAuditStore(db).record({ ...exported, requestId: 'command-1', now });
    await fillEvents(db, 5, String(now - dayMs));
    const filter = ['--action', 'exported', '--since', '2026-11-28', '--until', '2026-11-29'];
    const event = expect.objectContaining({ user: 'ada', action: 'exported', actorId: 'root' });
    expect(await audit(...filter)).toEqual({ user: null, events: [event] });
    const access = expect.objectContaining({ user: '', action: 'read' });
    expect((await audit('--action', 'read')).events).toEqual([access, access]);
    const lines = (await planning('audit', '--by', 'root', ...filter)).stdout.trimEnd().split('\n');
    expect(lines.map((text) => text.split(/ {2,}/).at(-1))).toEqual(['user', 'ada']);
  });

  test('fails with a message for unknown users and invalid options, and records nothing', async () => {
    const { planning, db } = await setUp();
    for (const [args, message] of [
      ['unknown', 'The audit log has no events of this user.\n'],
      ['boss --since yesterday', '--since must be a date that exists'],
      ['boss --limit 0', 'whole number from 1'],
      ['--json', 'Name a user, or one of --by, --action, --since and --until.\n'],
      ['--since 2026-03-02 --until 2026-03-02', '--until must be later than --since.\n'],
      ['--until soon', '--until must be a date that exists'],
      ['--action sneezed', 'Allowed choices are'],
    ] as const) {
      const failure = { exitCode: 1, stdout: '', stderr: expect.stringContaining(message) };
      expect(await planning('audit', ...args.split(' '))).toEqual(failure);
    }
    expect(await db.$count(auditEvents)).toBe(0);
  });

  test('prints reads by staff and the events of other commands, which an export contains and an erasure renames', async () => {
    const { db, testApp, audit, save, planning, write } = await setUp();
    await testApp.call('GET', '/v2/private/user/salesManager/monthly-glance?month=3', {
      as: 'boss',
      roles: ['salesManager'],
    });
    expect(linesOf(await audit('boss'))).toEqual(['read audit …', 'read monthlyGlance/2026-03 …']);
    await save('request-1');
    for (const command of ['show ada', 'assign ada boss', 'assign ada boss']) {
      expect(await planning('user', ...command.split(' '))).toMatchObject({ exitCode: 0 });
    }
    const { stdout } = await planning('user', 'export', 'ada');
    const { auditTrail } = v.parse(v.object({ auditTrail: v.array(Event) }), JSON.parse(stdout));
    expect(auditTrail.map(({ action, actor }) => `${action} ${actor}`)).toEqual([
      ...['exported operator', 'assigned operator', 'read operator', 'saved person'],
    ]);
    const erased = await planning('user', 'erase', 'ada', '--yes');
    const [, keptAs = ''] = /keeps 4 events and this one as (erased:[0-9a-f]{32})\./.exec(erased.stdout) ?? [];
    expect(await auditLinesOf({ db }, 'ada')).toEqual([]);
    const kept = ['assigned', 'erased', 'exported', 'read', 'saved'];
    expect((await auditLinesOf({ db }, keptAs)).map((event) => event.split(' ')[0] ?? '').sort()).toEqual(kept);
    expect((await planning('audit', keptAs)).stdout).toMatch(/ erased +operator /);
    await write('staff.csv', 'id,role,firstName,lastName,managerId\nc1,counselor,Emmy,Noether,boss\n');
    expect(await planning('import', 'staff', 'staff.csv')).toMatchObject({ exitCode: 0 });
    expect((await planning('audit', 'c1')).stdout).toMatch(/ imported +staff +operator /);
  });
});

describe('pages of audit events', () => {
  test('contain the events that match user, actor, action and time, newest first, each once', async () => {
    const { db } = await temporaryDatabase();
    const store = createAuditStore(db);
    // Saves of two users, three at a time, and events of operators and a manager, whose ids are not in order of time.
    await fillEvents(db, 2_100, `${now} - abs(1050 - value) / 3 * 1000`);
    for (let index = 0; index < 20; index += 1) {
      const at = { requestId: `command-${index}`, now: now - ((index * 7) % 20) * 60_000 };
      const operator = { actor: 'operator', actorId: index % 2 ? 'root' : 'olivia' } as const;
      const action = index % 3 ? 'read' : 'exported';
      await store.record({ ...operator, ...at, userId: index % 4 ? 'ada' : 'boss', action });
      await store.record({ ...at, userId: 'boss', actor: 'staff', action: 'read' });
    }
    const all = await db.select().from(auditEvents);
    const newestFirst = all.sort((one, other) => other.occurredAt - one.occurredAt || other.id - one.id);
    const times = [
      {},
      { sinceMs: now - 10 * 60_000, limit: 1_010 },
      { sinceMs: now - 10 * 60_000, untilMs: now - 60_000 },
    ];
    const filters = [undefined, 'ada', 'boss'].flatMap((userId) =>
      [undefined, 'root', 'boss', 'ada'].flatMap((by) =>
        ([undefined, 'saved', 'exported'] as const).flatMap((action) =>
          times.map((time): AuditFilter & { limit?: number } => ({ userId, by, action, ...time })),
        ),
      ),
    );
    for (const { userId, by, action, sinceMs = 0, untilMs = Infinity, limit } of filters) {
      const isBy = ({ actor, actorId, ...event }: (typeof all)[number]) =>
        actorId === by || (event.userId === by && actorId === null && ['person', 'staff'].includes(actor));
      const expected = newestFirst
        .filter((event) => userId === undefined || event.userId === userId)
        .filter((event) => by === undefined || isBy(event))
        .filter((event) => action === undefined || event.action === action)
        .filter(({ occurredAt }) => occurredAt >= sinceMs && occurredAt < untilMs)
        .slice(0, limit);
      const filter = { userId, by, action, sinceMs, untilMs: untilMs === Infinity ? undefined : untilMs, limit };
      const found = (await Array.fromAsync(store.pages(filter))).flat();
      expect(found.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
    }
  });

  test.each<[string, AuditFilter, string[]]>([
    ['time', { sinceMs: 1, untilMs: now }, ['by_time (occurred_at>? AND occurred_at<?)']],
    ['saves in a time', { action: 'saved', sinceMs: 1 }, ['by_time (occurred_at>?)']],
    ['a rare action', { action: 'erased' }, ['by_action (action=?)']],
    ['user and action', { userId: 'ada', action: 'erased' }, ['by_user (user_id=?)']],
    ['user and time', { userId: 'ada', sinceMs: 1 }, ['by_user (user_id=? AND occurred_at>?)']],
    ['actor', { by: 'root', action: 'read' }, ['by_actor (actor_id=?)', 'by_user (user_id=?)']],
  ])('are read by an index without sorting: %s', async (_, filter, indexes) => {
    const { db } = await temporaryDatabase();
    const plan = await explainFirst(db, (watched) => createAuditStore(watched).pages(filter).next());
    const steps = plan.filter((step) => /audit_events|B-TREE/.test(step));
    expect(steps).toEqual(indexes.map((index) => `SEARCH audit_events USING INDEX audit_events_${index}`));
  });
});

describe('planRetention', () => {
  const days = 2192;
  const stateOf = (asOf: number, of = days) => ({ days: of, asOf, checkedAt: asOf, dayBeganAt: asOf, removed: 0 });
  const facts: AuditLogFacts = { oldest: now - days * dayMs, newest: now, events: 100_000, state: stateOf(now) };

  const after = (state: typeof facts.state, ms: number) => planRetention({ ...facts, state }, days, now + ms);

  test.each([
    ['six years ahead', sixYearsMs, 'clock-ahead'],
    ['32 days ahead', 32 * dayMs, 'clock-ahead'],
    ['two days behind', -2 * dayMs, 'clock-behind'],
    ['six years behind', -sixYearsMs, 'clock-behind'],
  ] as const)('removes nothing when the clock is %s', (_, differenceMs, hold) => {
    expect(after(facts.state, differenceMs)).toMatchObject({ atMost: 0, holds: [hold], next: { asOf: now } });
  });

  test('starts from the newest event on the first run, and ignores a clock that is years ahead', () => {
    const held = { atMost: 0, holds: ['clock-ahead'], next: { asOf: now, days } };
    expect(after(undefined, sixYearsMs)).toMatchObject(held);
  });

  test('follows the machine clock without traffic', () => {
    let { state } = facts;
    for (let hour = 1; hour <= 24 * 60; hour += 1) {
      const plan = after(state, hour * hourMs);
      expect(plan.holds).toEqual([]);
      state = plan.next;
    }
    expect(state?.asOf).toBe(now + 60 * dayMs);
  });

  test('follows a clock that is a day ahead at once', () => {
    expect(after(facts.state, dayMs)).toMatchObject({ holds: [], next: { asOf: now + dayMs } });
  });

  test('catches up at twice real time after ten days of downtime', () => {
    let { state } = facts;
    let hours = 0;
    for (let isHeld = true; isHeld; hours += 1) {
      const { next, holds } = after(state, 10 * dayMs + hours * hourMs);
      expect(next.asOf - (state?.asOf ?? 0)).toBeLessThanOrEqual(dayMs + hourMs);
      state = next;
      isHeld = holds.length > 0 && hours < 1_000;
    }
    expect(hours / 24).toBeWithin(8, 10.1);
  });

  test('gains less than five hours in a loop of 100 restarts', () => {
    let { state } = facts;
    for (let restart = 0; restart < 100; restart += 1) state = after(state, 20 * dayMs + restart * 1_000).next;
    expect((state?.asOf ?? 0) - now).toBeLessThan(5 * hourMs);
  });

  test.each([
    [100, 0, 0, 1_000],
    [50_000, 0, 0, 5_000],
    [50_000, 4_000, 0, 1_000],
    [50_000, 5_000, 0, 0],
    [50_000, 5_000, 23 * hourMs, 0],
    [50_000, 5_000, dayMs, 5_000],
    [10_000_000, 0, 0, 250_000],
  ])(
    'of %i events, %i of them removed in the %i ms before, allows the removal of %i',
    (events, removed, sinceMs, atMost) => {
      const state = { ...stateOf(now, 31), removed };
      expect(planRetention({ ...facts, events, state }, 31, now + sinceMs).atMost).toBe(atMost);
    },
  );

  test('keeps the longer retention when the setting is lowered, and applies a raised one at once', () => {
    const shortened = { holds: ['shortened'], before: now - days * dayMs, next: { days } };
    expect(planRetention(facts, 219, now)).toMatchObject(shortened);
    expect(planRetention(facts, 3_000, now)).toMatchObject({ holds: [], next: { days: 3_000 } });
  });

  test('requires a confirmation of a first run with a setting shorter than the audit log', () => {
    const first = { oldest: now - 2_000 * dayMs, newest: now, events: 10, state: undefined };
    expect(planRetention(first, 219, now)).toMatchObject({ holds: ['shortened'], next: { days: 2_000 } });
    expect(planRetention(first, 1_999, now)).toMatchObject({ holds: [], next: { days: 1_999 } });
  });
});

describe('a run of the retention', () => {
  const setUpRetention = async (days = 31) => {
    const { db } = await temporaryDatabase();
    const at = Date.now();
    const state = { days, asOf: at, checkedAt: at, dayBeganAt: at, removed: 0 };
    await createAuditStore(db).advance(undefined, state);
    const lines: string[] = [];
    const start = (settingDays: number, clockMs = at, onLine: () => unknown = () => undefined) => {
      const log = createLog('info', { write: (line) => onLine() ?? lines.push(line) });
      return startAuditRetention(createAuditStore(db), { db, clock: () => new Date(clockMs), log }, settingDays);
    };
    /** Runs it to its end. */
    const run = async (...args: Parameters<typeof start>) => {
      await db.delete(completedTasks);
      const retention = start(...args);
      await until(async () => (await db.$count(completedTasks)) === 1);
      await retention.stop();
    };
    return { db, at, start, run, logged: () => lines.map((line) => JSON.parse(line)) };
  };

  test('logs the number and the age limit of the events before it removes them', async () => {
    const { db, at, run, logged } = await setUpRetention();
    await fillEvents(db, 12, `${at} - 40 * ${dayMs}`);
    await fillEvents(db, 3, String(at));
    const before: number[] = [];
    const count = spyOn(db, 'delete');
    await run(31, at, () => void before.push(count.mock.calls.length));
    expect(logged()).toMatchObject([{ level: 'info', events: 12, days: 31 }]);
    // The first call removes the mark of the last run.
    expect([before, count.mock.calls.length]).toEqual([[1], 2]);
    await run(31, at + hourMs);
    expect(await db.$count(auditEvents)).toBe(3);
  });

  test('uses the retention in force while the setting is smaller, and logs it once', async () => {
    const { db, at, logged, run } = await setUpRetention(365);
    await fillEvents(db, 10, `${at} - 300 * ${dayMs}`);
    await fillEvents(db, 4, `${at} - 400 * ${dayMs}`);
    await run(31);
    await run(31, at + hourMs);
    expect(await db.$count(auditEvents)).toBe(10);
    const rule = expect.stringContaining('planning audit prune');
    expect(logged().slice(0, 2)).toMatchObject([
      { level: 'warn', setting: 'AUDIT_RETENTION_DAYS', rule },
      { level: 'info', events: 4, days: 365 },
    ]);
  });

  test.each([sixYearsMs, -sixYearsMs])('removes and stores nothing while the clocks differ by %d ms', async (ms) => {
    const { db, at, start, logged } = await setUpRetention();
    await fillEvents(db, 10, `${at} - 40 * ${dayMs}`);
    const before = await db.select().from(auditRetention);
    const retention = start(31, at + ms);
    await until(() => logged().length > 0);
    await retention.stop();
    const msg = expect.stringContaining('the clock of the database differs');
    expect(logged()).toMatchObject([{ level: 'warn', days: 2190, msg }]);
    expect([await db.$count(auditEvents), await db.select().from(auditRetention)]).toEqual([10, before]);
  });

  test('removes the events of one day when three processes run it simultaneously', async () => {
    const { db, at, start } = await setUpRetention();
    await fillEvents(db, 3_000, `${at} - 40 * ${dayMs}`);
    const runs = [1, 2, 3].map(() => start(31, at + 1));
    await until(async () => (await db.$count(auditEvents)) === 2_000);
    await Promise.all(runs.map((run) => run.stop()));
    expect(await db.$count(auditEvents)).toBe(2_000);
  });
});

describe('planning audit prune', () => {
  const stored = (db: Database) => db.select().from(auditRetention);

  test('confirms a lowered retention, with which a start removes nothing before', async () => {
    const { db, databaseUrl: DATABASE_URL } = await setUp();
    const at = Date.now();
    await fillEvents(db, 50, `${at} - 400 * ${dayMs}`);
    await fillEvents(db, 5, String(at));
    const first = await startInProcess({ DATABASE_URL, AUDIT_RETENTION_DAYS: '2192' });
    await until(async () => (await stored(db)).length === 1);
    await first.stop();
    const service = await startInProcess({ DATABASE_URL, AUDIT_RETENTION_DAYS: '219' });
    await until(() => service.logLines().some((line) => line.setting === 'AUDIT_RETENTION_DAYS'));
    expect(await service.stop()).toBe(0);
    expect(await db.$count(auditEvents)).toBe(55);
    expect(await stored(db)).toMatchObject([{ days: 2192 }]);

    const { planning } = await createCommandLine({ DATABASE_URL, AUDIT_RETENTION_DAYS: '219' }, { isEmpty: true });
    const warning = /warning +audit trail +AUDIT_RETENTION_DAYS \(219, in force 2192\) is smaller/;
    expect((await planning('doctor')).stdout).toMatch(warning);
    const dry = await planning('audit', 'prune', '--dry-run', '--json');
    expect(JSON.parse(dry.stdout)).toMatchObject({ days: 219, appliedDays: 2192, events: 50, removed: 0 });
    const isNoDate = 'It must be a date that exists as YYYY-MM-DD.';
    for (const [args, reason] of [
      [[], 'Nothing was removed'],
      [['--yes', '--today', 'yesterday'], isNoDate],
      [['--yes', '--today', '2026-02-30'], isNoDate],
      [['--yes', '--today', new Date(at + 2 * dayMs).toISOString().slice(0, 10)], '--today gives another date.'],
    ] as const) {
      const wrong = await planning('audit', 'prune', ...args);
      expect(wrong).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(reason) });
    }
    expect(await db.$count(auditEvents)).toBe(55);
    const pruned = await planning('audit', 'prune', '--yes', '--json');
    expect(pruned).toMatchObject({ exitCode: 0, stderr: '' });
    expect(JSON.parse(pruned.stdout)).toMatchObject({ removed: 50 });
    expect(await stored(db)).toMatchObject([{ days: 219 }]);
    const events = await Array.fromAsync(createAuditStore(db).pages({ action: 'pruned' }));
    expect(events.flat()).toMatchObject([{ actor: 'operator', userId: '', section: 'audit' }]);
    expect((await planning('doctor')).stdout).not.toContain('audit trail');
  });

  test.each([
    ['ahead', -sixYearsMs],
    ['behind', sixYearsMs],
  ])('confirms a clock six years %s of the audit log, with which a start removes nothing before', async (side, ms) => {
    const { db, databaseUrl: DATABASE_URL, planning } = await setUp({ AUDIT_RETENTION_DAYS: '31' });
    // A test cannot set the machine clock, so it moves the audit log and the state of the retention instead.
    const asOf = Date.now() + ms;
    const store = createAuditStore(db);
    await store.advance(undefined, { days: 31, asOf, checkedAt: asOf, dayBeganAt: asOf, removed: 0 });
    await fillEvents(db, 40, `${asOf} - 20 * ${dayMs}`);
    // The second start ignores an event that has the time of the wrong clock.
    for (const start of [1, 2]) {
      const service = await startInProcess({ DATABASE_URL, AUDIT_RETENTION_DAYS: '31' });
      const held = () => service.logLines().filter(({ msg }) => msg.startsWith(`the clock is ${side}`));
      await until(() => held().length > 0);
      await store.record({ userId: 'ada', action: 'saved', actor: 'person', requestId: null, now: Date.now() });
      await service.stop();
      expect(held()).toMatchObject([{ level: 'warn', days: 2190 }]);
      expect(await db.$count(auditEvents)).toBe(40 + start);
    }
    expect((await planning('doctor')).stdout).toMatch(/warning +audit trail +2190 days: the clock is/);
    const refused = await planning('audit', 'prune', '--yes');
    const reason = /^The clock says .* 2190 days (after|before) the time of the audit log\. Set the clock/;
    expect(refused).toEqual({ exitCode: 1, stdout: '', stderr: expect.stringMatching(reason) });
    const today = new Date().toISOString().slice(0, 10);
    expect(await planning('audit', 'prune', '--yes', '--today', today)).toMatchObject({ exitCode: 0 });
    expect((await planning('doctor')).stdout).not.toContain('audit trail');
  });
});
