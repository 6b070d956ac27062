import { describe, expect, spyOn, test } from 'bun:test';
import * as v from 'valibot';
import { type Database, openDatabase } from '../../src/db/client';
import { auditEvents, auditRetention } from '../../src/db/schema/people';
import { createLog } from '../../src/log';
import { type AuditLogFacts, planRetention } from '../../src/modules/audit/retention';
import { type AuditFilter, createAuditStore, startAuditRetention } from '../../src/modules/audit/store';
import { createCommandLine } from '../support/command';
import { explainFirst, fillEvents, temporaryDatabase } from '../support/database';
import { createProduction, type Production } from '../support/processes';
import { atEnd, until } from '../support/resources';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** Six years, and an hour in which the test runs. */
const sixYearsMs = 6 * 365 * dayMs + hourMs;
const now = Date.UTC(2026, 10, 28, 12);
const never = () => false;

const PrintedEvents = v.object({
  user: v.nullable(v.string()),
  events: v.array(
    v.object({
      time: v.string(),
      action: v.string(),
      actor: v.string(),
      actorId: v.nullable(v.string()),
      user: v.optional(v.string()),
    }),
  ),
});

async function openFile(url: string): Promise<Database> {
  const db = await openDatabase({ url, timeoutMs: 5000 });
  atEnd(() => db.$client.close());
  return db;
}

describe('the clock of the retention', () => {
  const days = 2192;
  const trail = (asOf: number): AuditLogFacts => ({
    ...{ oldest: asOf - days * dayMs, newest: asOf, events: 100_000 },
    state: { days, asOf, checkedAt: asOf, dayBeganAt: asOf, removed: 0 },
  });

  test.each([
    ['six years ahead', sixYearsMs, 'clock-ahead'],
    ['32 days ahead', 32 * dayMs, 'clock-ahead'],
    ['two days behind', -2 * dayMs, 'clock-behind'],
    ['six years behind', -sixYearsMs, 'clock-behind'],
  ] as const)('F8 removes nothing when the clock is %s', (_, differenceMs, hold) => {
    const plan = planRetention(trail(now), days, now + differenceMs);
    expect(plan).toMatchObject({ atMost: 0, holds: [hold], next: { asOf: now } });
  });

  test('F8 the clock of the retention starts from the newest event on the first run, and ignores a clock that is years ahead', () => {
    const plan = planRetention({ ...trail(now), state: undefined }, days, now + sixYearsMs);
    expect(plan).toMatchObject({ atMost: 0, holds: ['clock-ahead'], next: { asOf: now, days } });
  });

  test('F8 the clock of the retention follows the machine clock without traffic', () => {
    let facts = trail(now);
    for (let hour = 1; hour <= 24 * 60; hour += 1) {
      const plan = planRetention(facts, days, now + hour * hourMs);
      expect(plan.holds).toEqual([]);
      facts = { ...facts, state: plan.next };
    }
    expect(facts.state?.asOf).toBe(now + 60 * dayMs);
  });

  test('F8 the clock of the retention catches up at twice real time after ten days of downtime', () => {
    let facts = trail(now);
    const restartedAt = now + 10 * dayMs;
    let hours = 0;
    for (; hours < 1_000; hours += 1) {
      const at = restartedAt + hours * hourMs;
      const { next, holds } = planRetention(facts, days, at);
      expect(next.asOf - (facts.state?.asOf ?? 0)).toBeLessThanOrEqual(Math.max(dayMs + hourMs, 4 * hourMs));
      facts = { ...facts, state: next };
      if (holds.length === 0) break;
    }
    expect(hours / 24).toBeGreaterThan(8);
    expect(hours / 24).toBeLessThan(10);
  });

  test('F8 the clock of the retention gains less than five hours in a loop of 100 restarts', () => {
    let facts = trail(now);
    for (let restart = 0; restart < 100; restart += 1) {
      facts = { ...facts, state: planRetention(facts, days, now + 20 * dayMs + restart * 1_000).next };
    }
    expect((facts.state?.asOf ?? 0) - now).toBeLessThan(5 * hourMs);
  });
});

describe('the bounds of the retention', () => {
  const state = { days: 31, asOf: now, checkedAt: now, dayBeganAt: now, removed: 0 };

  test('F8 the removal per day is a tenth of the audit log, or 1,000 events of a small one', () => {
    const atMost = (events: number, removed: number, at = now) =>
      planRetention({ oldest: 0, newest: now, events, state: { ...state, removed } }, 31, at).atMost;
    expect([atMost(100, 0), atMost(50_000, 0), atMost(50_000, 4_000), atMost(50_000, 5_000)]).toEqual([
      1_000, 5_000, 1_000, 0,
    ]);
    expect(atMost(50_000, 5_000, now + 23 * hourMs)).toBe(0);
    expect(atMost(50_000, 5_000, now + dayMs)).toBe(5_000);
    expect(atMost(10_000_000, 0)).toBe(250_000);
  });

  test('F8 a lowered setting keeps the longer retention, and a raised one applies at once', () => {
    const facts = { oldest: 0, newest: now, events: 10, state: { ...state, days: 2192 } };
    expect(planRetention(facts, 219, now)).toMatchObject({
      ...{ holds: ['shortened'], before: now - 2192 * dayMs, next: { days: 2192 } },
    });
    expect(planRetention(facts, 3_000, now)).toMatchObject({ holds: [], next: { days: 3_000 } });
  });

  test('F8 a first run with a setting shorter than the audit log requires a confirmation', () => {
    const facts = { oldest: now - 2_000 * dayMs, newest: now, events: 10, state: undefined };
    expect(planRetention(facts, 219, now)).toMatchObject({ holds: ['shortened'], next: { days: 2_000 } });
    expect(planRetention(facts, 1_999, now)).toMatchObject({ holds: [], next: { days: 1_999 } });
  });
});

describe('a run of the retention', () => {
  const setUp = async (days = 31) => {
    const { db } = await temporaryDatabase();
    const store = createAuditStore(db);
    const at = Date.now();
    await store.advance(undefined, { days, asOf: at, checkedAt: at, dayBeganAt: at, removed: 0 });
    const lines: string[] = [];
    const log = createLog('info', { write: (line) => lines.push(line) });
    const run = async (settingDays: number, clockMs = at) => {
      const [before] = await db.select().from(auditRetention);
      const events = await db.$count(auditEvents);
      const retention = startAuditRetention(
        createAuditStore(db),
        { db, clock: () => new Date(clockMs), log },
        settingDays,
      );
      // The state changes before the removal, which a stop would cancel.
      await until(async () => {
        const [now] = await db.select().from(auditRetention);
        if (Bun.deepEquals(now, before)) return false;
        const removed = (now?.removed ?? 0) - (now?.dayBeganAt === before?.dayBeganAt ? (before?.removed ?? 0) : 0);
        return (await db.$count(auditEvents)) === events - removed;
      });
      await retention.stop();
    };
    return { db, store, at, lines, run };
  };

  test('F8 a run of the retention logs the number and the age limit of the events before it removes them', async () => {
    const { db, at, run } = await setUp();
    await fillEvents(db, 12, `${at} - 40 * ${dayMs}`);
    await fillEvents(db, 3, String(at));
    const removals = spyOn(db, 'delete');
    const before: number[] = [];
    const lines: string[] = [];
    const log = createLog('info', {
      write: (line) => {
        lines.push(line);
        before.push(removals.mock.calls.length);
      },
    });
    const retention = startAuditRetention(createAuditStore(db), { db, clock: () => new Date(at), log }, 31);
    await until(async () => (await db.$count(auditEvents)) === 3);
    await retention.stop();
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ level: 'info', events: 12, days: 31 }]);
    expect([before, removals.mock.calls.length]).toEqual([[0], 1]);
    await run(31, at + hourMs);
    expect(await db.$count(auditEvents)).toBe(3);
  });

  test('F8 a run of the retention uses the retention in force while the setting is smaller, and logs it once', async () => {
    const { db, at, lines, run } = await setUp(365);
    await fillEvents(db, 10, `${at} - 300 * ${dayMs}`);
    await fillEvents(db, 4, `${at} - 400 * ${dayMs}`);
    await run(31);
    await run(31, at + hourMs);
    expect(await db.$count(auditEvents)).toBe(10);
    const message = lines.map((line) => JSON.parse(line));
    expect(message[0]).toMatchObject({ level: 'warn', setting: 'AUDIT_RETENTION_DAYS' });
    expect(message[0].rule).toContain('planning audit prune');
    expect(message[1]).toMatchObject({ level: 'info', events: 4, days: 365 });
  });

  test.each([sixYearsMs, -sixYearsMs])('F8 removes and stores nothing while the clocks differ by %d ms', async (ms) => {
    const { db, at, lines } = await setUp();
    await fillEvents(db, 10, `${at} - 40 * ${dayMs}`);
    const before = await db.select().from(auditRetention);
    const log = createLog('info', { write: (line) => lines.push(line) });
    const retention = startAuditRetention(createAuditStore(db), { db, clock: () => new Date(at + ms), log }, 31);
    await until(() => lines.length > 0);
    await retention.stop();
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ level: 'warn', days: 2190 }]);
    expect(lines[0]).toContain('the clock of the database differs');
    expect([await db.$count(auditEvents), await db.select().from(auditRetention)]).toEqual([10, before]);
  });

  test('F8 the retention removes each event once when several processes run it simultaneously', async () => {
    const { db, at, lines } = await setUp();
    await fillEvents(db, 3_000, `${at} - 40 * ${dayMs}`);
    const log = createLog('info', { write: (line) => lines.push(line) });
    const runs = [1, 2, 3].map(() =>
      startAuditRetention(createAuditStore(db), { db, clock: () => new Date(at + 1), log }, 31),
    );
    await until(async () => (await db.$count(auditEvents)) === 2_000);
    await Promise.all(runs.map((run) => run.stop()));
    expect(await db.$count(auditEvents)).toBe(2_000);
  });

  test('F21 a run of the retention finds expired events stored after newer ones', async () => {
    const { db, store, at } = await setUp();
    await fillEvents(db, 2_000, String(at));
    await fillEvents(db, 700, `${at} - 40 * ${dayMs}`);
    await fillEvents(db, 10, String(at));
    expect(await store.removeExpired({ before: at - 31 * dayMs }, never)).toBe(700);
    expect(await db.$count(auditEvents)).toBe(2_010);
  });
});

describe('planning audit', () => {
  const read = async (db: Database, filter: AuditFilter & { limit?: number }) =>
    (await Array.fromAsync(createAuditStore(db).pages(filter))).flat();

  /** 6,000 saves of two users, and some events of operators and a manager, whose ids are not in order of time. */
  const filled = async () => {
    const { db } = await temporaryDatabase();
    await fillEvents(db, 6_000, `${now} - abs(3000 - value) * 1000`);
    const store = createAuditStore(db);
    for (let index = 0; index < 20; index += 1) {
      const requestId = `command-${index}`;
      const at = now - ((index * 7) % 20) * 60_000;
      const operator = { actor: 'operator', actorId: index % 2 ? 'root' : 'olivia', requestId, now: at } as const;
      await store.record({ ...operator, userId: index % 4 ? 'ada' : 'boss', action: index % 3 ? 'read' : 'exported' });
      await store.record({ userId: 'boss', actor: 'staff', action: 'read', requestId, now: at });
    }
    return db;
  };

  test('F21 planning audit returns the events that match user, actor, action and time, newest first, each once', async () => {
    const db = await filled();
    const all = await db.select().from(auditEvents);
    const since = now - 10 * 60_000;
    const values = {
      userId: [undefined, 'ada', 'boss'],
      by: [undefined, 'root', 'boss', 'ada'],
      action: [undefined, 'saved', 'read', 'exported'],
      sinceMs: [undefined, since],
      untilMs: [undefined, now - 60_000],
    } as const;
    for (const userId of values.userId)
      for (const by of values.by)
        for (const action of values.action)
          for (const sinceMs of values.sinceMs)
            for (const untilMs of values.untilMs) {
              const expected = all
                .filter((event) => userId === undefined || event.userId === userId)
                .filter(
                  (event) =>
                    by === undefined ||
                    event.actorId === by ||
                    (event.userId === by && event.actorId === null && ['person', 'staff'].includes(event.actor)),
                )
                .filter((event) => action === undefined || event.action === action)
                .filter(({ occurredAt }) => occurredAt >= (sinceMs ?? 0) && occurredAt < (untilMs ?? now * 2))
                .sort((one, other) => other.occurredAt - one.occurredAt || other.id - one.id)
                .map(({ id }) => id);
              const found = await read(db, { userId, by, action, sinceMs, untilMs });
              expect(found.map(({ id }) => id)).toEqual(expected);
            }
  }, 60_000);

  test.each<[string, AuditFilter, string[]]>([
    [
      'time',
      { sinceMs: 1, untilMs: now },
      ['SEARCH audit_events USING INDEX audit_events_by_time (occurred_at>? AND occurred_at<?)'],
    ],
    [
      'saves in a time',
      { action: 'saved', sinceMs: 1 },
      ['SEARCH audit_events USING INDEX audit_events_by_time (occurred_at>?)'],
    ],
    ['a rare action', { action: 'erased' }, ['SEARCH audit_events USING INDEX audit_events_by_action (action=?)']],
    [
      'user and action',
      { userId: 'ada', action: 'erased' },
      ['SEARCH audit_events USING INDEX audit_events_by_user (user_id=?)'],
    ],
  ])('F21 reads by an index without sorting: %s', async (_, filter, expected) => {
    const { db } = await temporaryDatabase();
    const plan = await explainFirst(db, (watched) => createAuditStore(watched).pages(filter).next());
    expect(plan).toEqual(expected);
  });

  test('F21 planning audit reads the events of an actor by two indexes and merges them', async () => {
    const { db } = await temporaryDatabase();
    const plan = await explainFirst(db, (watched) =>
      createAuditStore(watched).pages({ by: 'root', action: 'read' }).next(),
    );
    expect(plan.join('\n')).toContain('audit_events_by_actor (actor_id=?)');
    expect(plan.join('\n')).toContain('audit_events_by_user (user_id=?)');
    expect(plan.join('\n')).not.toMatch(/SCAN audit_events|TEMP B-TREE/);
  });

  test('F21 planning audit prints events of all users with the id of each user, and records the access', async () => {
    const line = await createCommandLine();
    const db = await openFile(line.databaseUrl);
    await createAuditStore(db).record({
      ...{ userId: 'ada', actor: 'operator', actorId: 'root', action: 'exported' },
      requestId: 'command-1',
      now,
    });
    await fillEvents(db, 5, String(now - dayMs));
    const audit = async (...args: string[]) => {
      const { exitCode, stdout, stderr } = await line.planning('audit', ...args, '--json');
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
      return v.parse(PrintedEvents, JSON.parse(stdout));
    };
    const found = await audit('--action', 'exported', '--since', '2026-11-28', '--until', '2026-11-29');
    expect(found).toMatchObject({ user: null, events: [{ user: 'ada', action: 'exported', actorId: 'root' }] });
    expect(found.events).toHaveLength(1);
    const accesses = await audit('--action', 'read');
    expect(accesses.events).toMatchObject([
      { user: '', action: 'read' },
      { user: '', action: 'read' },
    ]);
    const { stdout } = await line.planning(
      'audit',
      '--by',
      'root',
      '--action',
      'exported',
      '--since',
      '2026-11-28',
      '--until',
      '2026-11-29',
    );
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((text) => text.split(/ {2,}/).at(-1)),
    ).toEqual(['user', 'ada']);
    const refused = await Promise.all([
      line.planning('audit'),
      line.planning('audit', '--since', '2026-03-02', '--until', '2026-03-02'),
      line.planning('audit', '--until', 'soon'),
      line.planning('audit', '--action', 'sneezed'),
    ]);
    expect(refused.map(({ exitCode, stdout }) => [exitCode, stdout])).toEqual(Array(4).fill([1, '']));
    expect(refused[0]?.stderr).toBe('Name a user, or one of --by, --action, --since and --until.\n');
    expect(refused[1]?.stderr).toBe('--until must be later than --since.\n');
  }, 30_000);
});

describe('a service in production', () => {
  const stop = async ({ process }: Production) => {
    process.kill('SIGINT');
    expect(await process.exited).toBe(0);
  };
  const stored = (db: Database) => db.select().from(auditRetention);

  test('F8 a service removes nothing at a start with a lowered retention, until `planning audit prune` confirms it', async () => {
    const production = await createProduction({ AUDIT_RETENTION_DAYS: '2192' });
    const db = await openFile(production.databaseUrl);
    const at = Date.now();
    await fillEvents(db, 50, `${at} - 400 * ${dayMs}`);
    await fillEvents(db, 5, String(at));
    const first = await production.start();
    await until(async () => (await stored(db)).length === 1);
    await stop(first);
    const service = await production.start({ environment: { AUDIT_RETENTION_DAYS: '219' } });
    await until(() => service.logLines().some((line) => line.setting === 'AUDIT_RETENTION_DAYS'));
    await stop(service);
    expect(await db.$count(auditEvents)).toBe(55);
    expect(await stored(db)).toMatchObject([{ days: 2192 }]);

    const short = await createCommandLine({
      ...production.settings,
      AUDIT_RETENTION_DAYS: '219',
      DATABASE_URL: production.databaseUrl,
    });
    const doctor = await short.planning('doctor');
    expect(doctor.stdout).toMatch(/warning +audit trail +AUDIT_RETENTION_DAYS \(219, in force 2192\) is smaller/);
    expect((await short.planning('audit', 'prune')).stderr).toStartWith('Nothing was removed');
    const dry = await short.planning('audit', 'prune', '--dry-run', '--json');
    expect(JSON.parse(dry.stdout)).toMatchObject({ days: 219, appliedDays: 2192, events: 50, removed: 0 });
    expect(await db.$count(auditEvents)).toBe(55);
    const otherDay = new Date(at + 2 * dayMs).toISOString().slice(0, 10);
    for (const [today, reason] of [
      ['yesterday', 'It must be a date that exists as YYYY-MM-DD.'],
      ['2026-02-30', 'It must be a date that exists as YYYY-MM-DD.'],
      [otherDay, '--today gives another date.'],
    ] as const) {
      const wrong = await short.planning('audit', 'prune', '--yes', '--today', today);
      expect(wrong).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(reason) });
    }
    expect(await db.$count(auditEvents)).toBe(55);
    const pruned = await short.planning('audit', 'prune', '--yes', '--json');
    expect(pruned).toMatchObject({ exitCode: 0, stderr: '' });
    expect(JSON.parse(pruned.stdout)).toMatchObject({ removed: 50 });
    expect(await stored(db)).toMatchObject([{ days: 219 }]);
    const events = await Array.fromAsync(createAuditStore(db).pages({ action: 'pruned' }));
    expect(events.flat()).toMatchObject([{ actor: 'operator', userId: '', section: 'audit' }]);
    expect((await short.planning('doctor')).stdout).not.toContain('audit trail');
  }, 60_000);

  test.each([
    ['ahead', -sixYearsMs, 'ahead of the audit log'],
    ['behind', sixYearsMs, 'behind the audit log'],
  ])(
    'F8 a service removes nothing at a start whose clock is six years %s of the audit log, and logs it',
    async (_, offsetMs, message) => {
      const production = await createProduction({ AUDIT_RETENTION_DAYS: '31' });
      const db = await openFile(production.databaseUrl);
      // A test cannot set the machine clock, so it moves the audit log and the state of the retention instead.
      const asOf = Date.now() + offsetMs;
      await createAuditStore(db).advance(undefined, {
        ...{ days: 31, asOf, checkedAt: asOf, dayBeganAt: asOf, removed: 0 },
      });
      await fillEvents(db, 40, `${asOf} - 20 * ${dayMs}`);
      const service = await production.start();
      await until(() => service.logLines().some(({ msg }) => msg.includes(message)));
      expect(await service.health()).toBe(200);
      expect(
        (await service.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'ada', body: { careCosts: 1 } })).status,
      ).toBe(200);
      await stop(service);
      expect(service.logLines().filter(({ msg }) => msg.includes(message))).toMatchObject([
        { level: 'warn', days: 2190 },
      ]);
      // The event of the save has the time of the wrong clock. The next start ignores it.
      const again = await production.start();
      await until(() => again.logLines().some(({ msg }) => msg.includes(message)));
      await stop(again);
      expect(await db.$count(auditEvents)).toBe(41);
      const { stdout, exitCode } = await production.planning('doctor');
      expect([exitCode, /warning +audit trail +2190 days: the clock is/.test(stdout)]).toEqual([0, true]);
      const refused = await production.planning('audit', 'prune', '--yes');
      expect(refused).toMatchObject({ exitCode: 1, stdout: '' });
      expect(refused.stderr).toMatch(
        /^The clock says .* 2190 days (after|before) the time of the audit log\. Set the clock/,
      );
      const today = new Date().toISOString().slice(0, 10);
      expect((await production.planning('audit', 'prune', '--yes', '--today', today)).exitCode).toBe(0);
      expect((await production.planning('doctor')).stdout).not.toContain('audit trail');
    },
    60_000,
  );
});
