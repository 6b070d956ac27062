import { beforeEach, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { asc } from 'drizzle-orm';
import { activitiesImport, staffImport } from '../../src/cli/import-kinds';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { activities, staff } from '../../src/db/schema/lists';
import { createSalesStore } from '../../src/modules/sales/store';
import { activity, counselor, createTestApp, manager } from '../support/app';
import { createCommandLine, importContent } from '../support/command';
import { temporaryDatabase } from '../support/database';
import { cases, isLong } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const { db } = await temporaryDatabase();
const store = createSalesStore(db);
const now = new Date('2026-03-10T12:00:00Z');
const staffHeader = 'id,role,firstName,lastName,managerId';
const header = 'externalId,staffId,kind,amount,occurredAt';

const importStaff = (...rows: string[]) =>
  importContent(staffImport, db, { content: [staffHeader, ...rows, ''].join('\n') });
const importActivities = (rows: string[], columns = header, timeZone = 'UTC') =>
  importContent(activitiesImport, db, { content: [columns, ...rows, ''].join('\n'), timeZone });
const storedStaff = async () =>
  (await db.select().from(staff).orderBy(asc(staff.id))).map(({ id, role, managerId }) => [id, role, managerId]);
const storedActivities = () => db.select().from(activities).orderBy(asc(activities.externalId));

beforeEach(async () => {
  await db.$client.batch(['DELETE FROM activities', 'DELETE FROM staff']);
});

describe('planning import staff', () => {
  test('accepts a manager listed after the counselors and changes nothing when repeated', async () => {
    const rows = ['c1,counselor,Emmy,Noether,boss', 'boss,salesManager,Mary,Somerville,'];
    expect(await importStaff(...rows)).toMatchObject({ refusal: '', counts: { added: 2 } });
    expect(await importStaff(...rows)).toMatchObject({ counts: { added: 0, changed: 0, unchanged: 2 } });
    expect(await storedStaff()).toEqual([
      ['boss', 'salesManager', null],
      ['c1', 'counselor', 'boss'],
    ]);
  });

  test('moves and promotes counselors and demotes a manager without a team', async () => {
    await importStaff(
      'boss,salesManager,A,B,',
      'old,salesManager,A,B,',
      'c1,counselor,A,B,old',
      'c2,counselor,A,B,boss',
    );
    expect(await importStaff('c2,salesManager,A,B,', 'c1,counselor,A,B,c2', 'old,counselor,A,B,boss')).toMatchObject({
      refusal: '',
      counts: { changed: 3 },
    });
    expect(await storedStaff()).toEqual([
      ['boss', 'salesManager', null],
      ['c1', 'counselor', 'c2'],
      ['c2', 'salesManager', null],
      ['old', 'counselor', 'boss'],
    ]);
  });

  test('accepts JSON with a missing or null managerId for managers', async () => {
    const content = JSON.stringify([
      { id: 'boss', role: 'salesManager', firstName: 'A', lastName: 'B', managerId: null },
      { id: 'c1', role: 'counselor', firstName: 'A', lastName: 'B', managerId: 'boss' },
      { id: 'boss-2', role: 'salesManager', firstName: 'A', lastName: 'B' },
    ]);
    expect(await importContent(staffImport, db, { name: 'staff.json', content })).toMatchObject({
      refusal: '',
      counts: { added: 3 },
    });
  });

  test('reports every invalid role and manager by line and column and stores nothing', async () => {
    await importStaff('boss,salesManager,A,B,', 'c1,counselor,A,B,boss');
    const { faults, refusal } = await importStaff(
      'x1,counselor,A,B,',
      'x2,salesManager,A,B,boss',
      'x3,counselor,A,B,unknown',
      'x4,counselor,A,B,c1',
      'boss,counselor,A,B,x6',
      'x5,Counselor,A,B,boss',
      'x6,salesManager,,B,',
      ',salesManager,A,B,',
      'x7,salesManager,A,B,',
      'x7,salesManager,A,B,',
    );
    expect(faults).toEqual([
      'line 2 (row 1), column managerId: must name the sales manager of a counselor, and be empty for a sales manager',
      'line 3 (row 2), column managerId: must name the sales manager of a counselor, and be empty for a sales manager',
      'line 4 (row 3), column managerId: must be the id of a sales manager, in this file or stored',
      'line 5 (row 4), column managerId: must be the id of a sales manager, in this file or stored',
      'line 6 (row 5), column managerId: must be the id of a sales manager, in this file or stored',
      'line 6 (row 5), column role: must be salesManager while counselors name this person',
      'line 7 (row 6), column role: must be one of salesManager, counselor; did you mean counselor?',
      'line 8 (row 7), column firstName: must have at least 1 character',
      'line 9 (row 8), column id: must have 1 to 255 characters, none of them a control character',
      'line 11 (row 10), the same record is at line 10 (row 9) already',
    ]);
    expect(refusal).toBe('9 of 10 rows cannot be imported; nothing was stored.');
    expect(await storedStaff()).toHaveLength(2);
  });
});

describe('planning import activities', () => {
  beforeEach(async () => {
    await store.upsertStaff(
      [manager('boss'), counselor('c1', 'boss'), manager('other'), counselor('c2', 'other')],
      now,
    );
  });

  test.each([
    ['0', 0],
    ['12', 1200],
    ['1234.50', 123_450],
    ['1234.5', 123_450],
    ['0.07', 7],
    ['-0.29', -29],
    ['-0', 0],
    ['0019.99', 1999],
    ['10000000', 1_000_000_000],
    ['-10000000.00', -1_000_000_000],
    [' 4.35 ', 435],
  ])('reads an amount of %j as %i cents', async (amount, cents) => {
    expect(await importActivities([`a,c1,quote,${amount},2026-03-01T00:00:00Z`])).toMatchObject({ refusal: '' });
    expect(await storedActivities()).toMatchObject([{ amountCents: cents }]);
  });

  test.each([
    ['"1,234.50"', 'must be written without thousands separators, such as 1234.50'],
    ["1'234", 'must be written without thousands separators, such as 1234.50'],
    ['1 234', 'must be written without thousands separators, such as 1234.50'],
    ['"1.234,50"', 'must be a plain number such as -1234.50'],
    ['"1234,50"', 'must be a plain number such as -1234.50'],
    ['1.005', 'must have at most two decimals'],
    ['1.000', 'must have at most two decimals'],
    ['', 'is required'],
    ['1e3', 'must be a plain number such as -1234.50'],
    ['0x10', 'must be a plain number such as -1234.50'],
    ['$5', 'must be a plain number such as -1234.50'],
    ['+5', 'must be a plain number such as -1234.50'],
    ['.5', 'must be a plain number such as -1234.50'],
    ['5.', 'must be a plain number such as -1234.50'],
    ['NaN', 'must be a plain number such as -1234.50'],
    ['--5', 'must be a plain number such as -1234.50'],
    ['10000000.01', 'must lie between -10000000 and 10000000'],
    ['99999999999999999999', 'must lie between -10000000 and 10000000'],
  ])('rejects an amount of %s: %s', async (amount, reason) => {
    const { faults } = await importActivities([`a,c1,quote,${amount},2026-03-01T00:00:00Z`]);
    expect(faults).toEqual([`line 2 (row 1), column amount: ${reason}`]);
    expect(await storedActivities()).toEqual([]);
  });

  test('reads JSON amounts as text or number', async () => {
    const row = { staffId: 'c1', kind: 'quote', occurredAt: '2026-03-01T00:00:00Z' };
    const content = JSON.stringify([
      { ...row, externalId: 'a', amount: 1.1 },
      { ...row, externalId: 'b', amount: '2.20' },
      { ...row, externalId: 'c', amount: -3 },
    ]);
    await importContent(activitiesImport, db, { name: 'list.json', content });
    expect((await storedActivities()).map(({ amountCents }) => amountCents)).toEqual([110, 220, -300]);
    const bad = JSON.stringify([
      { ...row, externalId: 'a', amount: 1.005 },
      { ...row, externalId: 'b', amount: null },
      { ...row, externalId: 'c' },
      { ...row, externalId: 'd', amount: 1e21 },
    ]);
    expect((await importContent(activitiesImport, db, { name: 'list.json', content: bad })).faults).toEqual([
      expect.stringContaining('column amount: must have at most two decimals'),
      expect.stringContaining('column amount: must be'),
      expect.stringContaining('column amount: is required'),
      expect.stringContaining('column amount: must be a plain number'),
    ]);
  });

  test.each([
    ['2026-03-01T00:00:00Z', 'UTC', '2026-03-01T00:00:00.000Z'],
    ['2026-03-01T00:00+05:30', 'UTC', '2026-02-28T18:30:00.000Z'],
    ['2026-03-31T23:59:59.9999Z', 'UTC', '2026-03-31T23:59:59.999Z'],
    ['2026-03-01', 'America/New_York', '2026-03-01T05:00:00.000Z'],
    ['2012-04-01', 'America/Havana', '2012-04-01T05:00:00.000Z'],
  ])('reads %s in %s as %s', async (occurredAt, timeZone, instant) => {
    await importActivities([`a,c1,quote,0,${occurredAt}`], header, timeZone);
    expect((await storedActivities()).map((each) => new Date(each.occurredAt).toISOString())).toEqual([instant]);
  });

  test.each([
    '2026-03-01T00:00:00',
    '2026-02-29',
    '2026-02-29T00:00:00Z',
    '2026-03-01T24:00:00Z',
    '2026-03-01T23:59:60Z',
    '03/01/2026',
    '2026-3-1',
    '1772323200000',
    '2026-03-01 00:00:00Z',
    '2026-03-01T00:00:00Z[UTC]',
    '',
  ])('rejects %j as occurredAt', async (occurredAt) => {
    expect((await importActivities([`a,c1,quote,0,${occurredAt}`])).faults).toEqual([
      'line 2 (row 1), column occurredAt: must be a date that exists as YYYY-MM-DD, or such a date-time with Z or an offset',
    ]);
  });

  test.each(['1066-10-14', '2206-03-01', '1969-12-31T23:59:59Z', '2100-01-01'])(
    'rejects %s, which is outside 1970 to 2099',
    async (occurredAt) => {
      expect((await importActivities([`a,c1,quote,0,${occurredAt}`])).faults).toEqual([
        'line 2 (row 1), column occurredAt: must lie between 1970 and 2099',
      ]);
    },
  );

  test('skips empty rows and reports only the first 1,000 errors', async () => {
    const good = 'a,c1,quote,0,2026-03-01';
    expect(await importActivities([',,,,', good, '  ,, ,,', '   ', ',,,,'])).toMatchObject({ counts: { added: 1 } });
    const { faults, refusal } = await importActivities(
      Array.from({ length: 1200 }, (_, index) => `b${index},c1,no,0,2026-03-01`),
    );
    expect(faults).toHaveLength(1001);
    expect(faults.at(-1)).toBe('and 200 more errors');
    expect(refusal).toBe('1200 of 1200 rows cannot be imported; nothing was stored.');
  });

  test('reports every invalid activity by line and column and stores nothing', async () => {
    const at = '2026-03-01T00:00:00Z';
    const { faults, refusal } = await importActivities(
      [
        `a1,c1,monthlyPlan,5,${at},`,
        `a2,c1,semiAnnualPlan,5,${at},other`,
        `a3,unknown,quote,5,${at},`,
        `a4,c1,qoute,5,${at},`,
        `a5,c1,quote,5,${at},c2`,
        `a6,c1,quote,5,${at},unknown`,
        `a7,boss,monthlyPlan,5,${at},other`,
        `coverage:a8,c1,quote,5,${at},`,
        `a9,c1,monthlyPlan,5,${at},c1`,
        `good,boss,monthlyPlan,5,${at},boss`,
        `good,boss,monthlyPlan,5,${at},`,
      ],
      `${header},managerId`,
    );
    const plan = 'column kind: only a sales manager may have monthlyPlan and semiAnnualPlan';
    const notLed = 'column managerId: must be the id of a sales manager in staff';
    expect(faults).toEqual([
      `line 2 (row 1), ${plan}`,
      `line 3 (row 2), ${plan}`,
      'line 4 (row 3), column staffId: must be the id of a member of staff',
      expect.stringContaining('line 5 (row 4), column kind: must be one of monthlyPlan, '),
      `line 6 (row 5), ${notLed}`,
      `line 7 (row 6), ${notLed}`,
      `line 8 (row 7), ${plan}`,
      'line 9 (row 8), column externalId: must not begin with coverage:',
      `line 10 (row 9), ${notLed}`,
      'line 12 (row 11), the same record is at line 11 (row 10) already',
    ]);
    expect(refusal).toBe('10 of 11 rows cannot be imported; nothing was stored.');
    expect(await storedActivities()).toEqual([]);
  });

  test.each([
    ['unknown', `${header},colour`],
    ['doubled', `${header},amount`],
    ['doubled', `${header},managerId,managerId`],
    ['missing', 'externalId,staffId,kind,amount'],
    ['unknown', header.replaceAll(',', ';')],
  ])('rejects a header with an %s column: %s', async (what, columns) => {
    const { refusal } = await importActivities(['a,c1,quote,0,2026-03-01T00:00:00Z,x'], columns);
    expect(refusal).toContain(`${what}: `);
    expect(refusal).toContain(`${header} and optionally managerId`);
  });

  test('reads a file with a BOM, CRLF, quoted line breaks and blank trailing lines', async () => {
    const content = `\ufeff${header},managerId\r\n"a ""1""",c1,"quote",5,2026-03-01T00:00:00Z,\r\n\r\n\r\n`;
    expect(await importContent(activitiesImport, db, { content })).toMatchObject({ refusal: '', counts: { added: 1 } });
    const broken = `${header}\r\n"a\r\n1",c1,quote,5,2026-03-01T00:00:00Z\r\na2,c1,oops,5,2026-03-01T00:00:00Z\r\n`;
    expect((await importContent(activitiesImport, db, { content: broken })).faults).toEqual([
      expect.stringContaining('line 2 (row 1), column externalId: must have 1 to 255 characters'),
      expect.stringContaining('line 4 (row 2), column kind:'),
    ]);
  });

  test('keeps the team of an activity unless managerId is given', async () => {
    const row = (staffId: string, amount: number) => `a,${staffId},quote,${amount},2026-03-01T00:00:00Z`;
    const team = async () => (await storedActivities()).map(({ staffId, managerId }) => `${staffId} for ${managerId}`);
    await importActivities([row('c1', 1)]);
    await store.upsertStaff([counselor('c1', 'other')], now);
    expect(await importActivities([row('c1', 1)])).toMatchObject({ counts: { unchanged: 1 } });
    expect(await importActivities([row('c1', 2)])).toMatchObject({ counts: { changed: 1 } });
    expect(await team()).toEqual(['c1 for boss']);
    await importActivities([`${row('c1', 2)},other`], `${header},managerId`);
    expect(await team()).toEqual(['c1 for other']);
    await importActivities([`${row('c1', 2)},boss`], `${header},managerId`);
    await importActivities([row('c2', 2)]);
    expect(await team()).toEqual(['c2 for other']);
  });

  test('accepts unchanged sales of a former manager who is now a counselor', async () => {
    const at = '2026-03-01T00:00:00Z';
    await store.upsertActivities(
      [activity('other', at, { externalId: 'plan', kind: 'monthlyPlan', amountCents: 100 }), activity('c1', at)],
      now,
    );
    await store.upsertActivities([activity('c1', at, { externalId: 'led', managerId: 'other' })], now);
    await store.upsertStaff([counselor('c2', 'boss'), counselor('other', 'boss')], now);
    const again = [`plan,other,monthlyPlan,1,${at},`, `led,c1,quote,0,${at},other`];
    expect(await importActivities(again, `${header},managerId`)).toMatchObject({ counts: { unchanged: 2 } });
    expect((await importActivities([`new,other,monthlyPlan,1,${at}`])).faults).toHaveLength(1);
  });
});

const manyRows = 16_000;
const staffFile = [
  staffHeader,
  ...Array.from({ length: 60 }, (_, index) => `c${index},counselor,A,B,boss`),
  'boss,salesManager,A,B,',
  '',
].join('\n');
const activityLine = (index: number) =>
  `a${index},c${index % 60},quote,${index % 100}.25,2026-03-${String(1 + (index % 28)).padStart(2, '0')}`;
const manyActivities = [header, ...Array.from({ length: manyRows }, (_, index) => activityLine(index)), ''].join('\n');

/** Kills an import with SIGKILL during concurrent saves, then repeats it. */
async function interruptedImport(url: string) {
  const line = await createCommandLine({ DATABASE_URL: url, DATABASE_TIMEOUT_MS: '10000' }, { isProcess: true });
  const watcher = await openDatabase({ url, timeoutMs: 10_000 });
  await migrateDatabase(watcher);
  const testApp = await createTestApp({ db: watcher });
  const count = async () => Number((await watcher.$client.execute('SELECT count(*) FROM activities')).rows[0]?.[0]);
  await line.planning('import', 'staff', await line.write('staff.csv', staffFile));
  const killed = line.start('import', 'activities', await line.write('many.csv', manyActivities));
  const saves: { status: number; storedBefore: number }[] = [];
  for (let storedBefore = 0; killed.exitCode === null && storedBefore < manyRows / 4; storedBefore = await count()) {
    const body = { careCosts: saves.length };
    const { status } = await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'saver', body });
    saves.push({ status, storedBefore });
  }
  killed.kill('SIGKILL');
  await killed.exited;
  const stored = await count();
  const again = await line.planning('import', 'activities', 'many.csv', '--json');
  const last = await testApp.call('GET', '/v2/private/user', { as: 'saver' });
  const outcome = { stored, again: JSON.parse(again.stdout), count: await count(), saves, last: last.body };
  watcher.$client.close();
  return outcome;
}

describe('killed import', () => {
  const check = ({ stored, again, count, saves, last }: Awaited<ReturnType<typeof interruptedImport>>) => {
    expect(stored).toBeWithin(manyRows / 4, manyRows);
    expect(again).toEqual({ rows: manyRows, added: manyRows - stored, changed: 0, unchanged: stored });
    expect(count).toBe(manyRows);
    expect(saves.filter(({ status }) => status !== 200)).toEqual([]);
    expect(saves.filter(({ storedBefore }) => storedBefore > 0).length).toBeGreaterThan(3);
    expect(last).toMatchObject({ user: { ltc: { lifetimeCare: { careCosts: saves.length - 1 } } } });
  };

  test('completes in a second run during concurrent saves, on a file', async () => {
    const { url } = await temporaryDatabase();
    check(await interruptedImport(url));
  }, 30_000);

  test.skipIf(!hasSqld || !isLong)(
    'completes in a second run during concurrent saves, on a libSQL server',
    async () => {
      const { url } = await startSqld();
      check(await interruptedImport(url));
    },
    30_000,
  );
});

describe('import of many activities', () => {
  test.each(cases([1_000_000], 0))(
    'uses less than 300 MB for %i rows',
    async (rows) => {
      const line = await createCommandLine({}, { isProcess: true });
      await line.planning('import', 'staff', await line.write('staff.csv', staffFile));
      const writer = Bun.file(join(line.cwd, 'many.csv')).writer();
      writer.write(`${header}\n`);
      for (let index = 0; index < rows; index += 1) writer.write(`${activityLine(index)}\n`);
      await writer.end();
      const importing = line.start('import', 'activities', 'many.csv');
      expect(await importing.exited).toBe(0);
      expect(importing.resourceUsage()?.maxRSS).toBeWithin(1, 300_000_000);
    },
    300_000,
  );
});
