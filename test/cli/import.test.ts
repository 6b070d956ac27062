import { beforeEach, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { asc } from 'drizzle-orm';
import fc from 'fast-check';
import { activitiesImport, cemeteriesImport, staffImport } from '../../src/cli/import-kinds';
import { openSourceFile } from '../../src/cli/import-source';
import { activities, staff } from '../../src/db/schema/lists';
import { createSalesStore } from '../../src/modules/sales/store';
import { activity, counselor, manager } from '../support/app';
import { createCommandLine, importContent, refusalOf } from '../support/command';
import { temporaryDatabase } from '../support/database';
import { temporaryFolder } from '../support/resources';

const { db } = await temporaryDatabase();
const store = createSalesStore(db);
const now = new Date('2026-03-10T12:00:00Z');
const mark = '\ufeff';
const repeated = 'the row repeats the header, as where two files were joined: remove this line';

beforeEach(async () => {
  await db.$client.batch(['DELETE FROM activities', 'DELETE FROM staff', 'DELETE FROM cemeteries']);
});

describe('planning import cemeteries', () => {
  const header = 'externalId,name,street,city,state,zip';
  const [first, second] = ['a1,First,,Town,VA,22030', 'a2,Second,,Town,VA,'];
  const town = { name: 'A', city: 'Town', state: 'VA' };

  async function importCemeteries(content: string | Uint8Array, name = 'list.csv') {
    const { faults, refusal, counts } = await importContent(cemeteriesImport, db, { name, content });
    const { rows } = await db.$client.execute('SELECT name FROM cemeteries ORDER BY external_id');
    return { faults, refusal, counts, names: rows.map((row) => String(row.name)) };
  }

  test('adds and changes rows, prints the counts, and stores nothing in a dry run or with an invalid row', async () => {
    const { planning, write } = await createCommandLine();
    const file = await write('list.csv', [header, first, second].join('\n'));
    const run = (...args: string[]) => planning('import', 'cemeteries', file, ...args);
    const printed = (stdout: string) => ({ exitCode: 0, stdout, stderr: '' });
    expect(await run('--dry-run')).toEqual(printed('2 valid rows; nothing was stored (dry run).\n'));
    expect(await run()).toEqual(printed('2 rows: 2 new, 0 changed, 0 unchanged.\n'));
    expect(await run()).toEqual(printed('2 rows: 0 new, 0 changed, 2 unchanged.\n'));
    await write('list.csv', [header, first, 'a2,,,Town,VA,'].join('\n'));
    expect(await run()).toEqual({
      exitCode: 1,
      stdout: '',
      stderr:
        'line 3 (row 2), column name: must have at least 1 character\n1 of 2 rows cannot be imported; nothing was stored.\n',
    });
    await write('list.csv', [header, first, 'a2,Changed,,Town,VA,'].join('\n'));
    expect(JSON.parse((await run('--json')).stdout)).toEqual({ rows: 2, added: 0, changed: 1, unchanged: 1 });
  });

  test.each(['', 'a'.repeat(256), 'a\nb'])('rejects --as %j', async (as) => {
    expect(await refusalOf({}, 'import', 'cemeteries', 'list.csv', '--as', as)).toContain('1 to 255 characters');
  });

  test('reads a CSV with any order of columns, line ends, quotes, marks and blank lines, and the line of each row', async () => {
    const end = fc.constantFrom('\r\n', '\n', '\r');
    // A blank line is empty, has a mark of a joined file, commas of a spreadsheet, or Ctrl-Z as DOS ends a file.
    const blanks = fc.array(fc.tuple(fc.constantFrom('', mark, ',,,,,', '  ', '\u001a'), end), { maxLength: 2 });
    const layout = fc.record({ start: fc.constantFrom('', mark), isQuoted: fc.boolean(), end, blanks });
    const text = fc.constantFrom('', ' a ', 'Šibenik', 'The "Old", Ground', 'a\r\n1', '1\r2\n3', 'zip', '’06101');
    const fields = fc.array(text, { minLength: 5, maxLength: 5 }).map((all) => ['id', ...all]);
    const files = fc.record({
      names: fc.shuffledSubarray(cemeteriesImport.columns.columns.slice(), { minLength: 6 }),
      before: blanks,
      records: fc.array(fc.tuple(fields, layout), { minLength: 1, maxLength: 4 }),
      headerLayout: layout,
      // The text of a file is read in chunks of 64 KiB.
      padding: fc.option(fc.integer({ min: 65_450, max: 65_540 }), { nil: 0 }),
      hasEnd: fc.boolean(),
    });
    const path = join(temporaryFolder(), 'list.csv');
    const property = fc.asyncProperty(files, async ({ names, before, records, headerLayout, padding, hasEnd }) => {
      let content = before.flat().join('');
      const expected = [[names, headerLayout] as const, ...records].map(
        ([values, { start, isQuoted, end, blanks }], index) => {
          const padded = index === 1 ? values.with(1, 'x'.repeat(padding)) : values;
          const texts = padded.map((each) =>
            isQuoted || /[",\r\n]/.test(each) ? `"${each.replaceAll('"', '""')}"` : each,
          );
          const line = content.replaceAll(mark, '').split(/\r\n|\r|\n/).length;
          content += `${start}${texts.join(',')}${end}${blanks.flat().join('')}`;
          return {
            line,
            values: Object.fromEntries(names.map((name, place) => [name, padded[place]])),
            fault: undefined,
          };
        },
      );
      await Bun.write(path, hasEnd ? content : content.replace(/[\r\n]+$/, ''));
      const file = await openSourceFile(path, cemeteriesImport.columns);
      expect(await Array.fromAsync(file.rows())).toEqual(expected.slice(1));
    });
    await fc.assert(property, { numRuns: 100 });
  });

  test('reads a JSON array with a byte order mark, without street and zip', async () => {
    const rows = Array.from({ length: 300 }, (_, id) => ({ ...town, externalId: `j${id}`, name: `é ${id}` }));
    const { refusal, names } = await importCemeteries(`${mark}${JSON.stringify(rows, null, 2)}`, 'list.json');
    expect([refusal, names.length]).toEqual(['', 300]);
  });

  const json = JSON.stringify([{ ...town, externalId: 'a' }]);
  const joined = 'The file must hold one JSON array, and nothing after it.';
  const latin1 = (text: string) => Buffer.from(text, 'latin1');
  const padding = 'x'.repeat(65_535 - header.length - 2);
  const split = Buffer.concat([Buffer.from(`${header}\n${padding}\n\u{1f333}\nb\n`), Buffer.from([0xe9, 10])]);
  test.each<[string, string, string | Uint8Array, string]>([
    ['an unknown kind of file', 'list.xlsx', 'x', 'must be a .csv or a .json file'],
    ['nothing', 'list.csv', '', 'is empty'],
    ['blank lines alone', 'list.csv', '\n\n', 'no header'],
    ['no rows', 'list.csv', `${header}\n\n`, 'has no rows'],
    ['semicolons', 'list.csv', header.replaceAll(',', ';'), 'unknown: "externalId;name;street;city;state;zip"'],
    ['an unknown column', 'list.csv', `${header},country\n${first},US`, 'unknown: "country"'],
    ['a missing column', 'list.csv', 'externalId,name,street,city,state\na,b,c,d,VA', 'missing: zip'],
    ['a doubled column', 'list.csv', `${header},zip\n${first},1`, 'doubled: zip'],
    ['an open quote', 'list.csv', `${header}\r\n${first}\na2,"Se,,Town,VA,\r\n`, 'CSV at line 3, column name: a quote'],
    ['a quote in a field', 'list.csv', `${header}\r\r${first}\ra2,Se,,To"wn,VA,\r`, 'line 4, column city: a quote'],
    [
      'a quote after a CRLF in quotes',
      'list.csv',
      `${header}\n"a\r\n1",B,,T,VA,\r\na,,"a" b,`,
      'line 4, column street',
    ],
    ['Latin-1 and CR', 'list.csv', latin1(`${header}\r${first}\rCaf\u00e9,,,T,VA,\r`), 'not UTF-8 text: see line 3.'],
    ['Latin-1 far down', 'list.csv', latin1(`${header}\r\n${`${first}\n`.repeat(9000)}Caf\u00e9,`), 'see line 9002.'],
    ['Latin-1 before CRLF', 'list.csv', latin1(`${header}\n${first}\na2,Second,,T,VA,\u00e9\r\n`), 'see line 3.'],
    ['Latin-1 after a character that two chunks share', 'list.csv', split, 'The file is not UTF-8 text: see line 5.'],
    ['an object', 'list.json', '{"externalId":"a"}', 'one JSON array'],
    ['an empty array', 'list.json', '[]', 'has no rows'],
    ['a cut-off array', 'list.json', '[\n{"externalId":"a"', 'not well-formed JSON: see line 2'],
    ['broken JSON', 'list.json', '[\n\n{"externalId":}]', 'not well-formed JSON: see line 3'],
    ['two arrays on two lines', 'list.json', `${json}\r\n${json}`, joined],
    ['two arrays with a comma', 'list.json', `${json},${json}`, joined],
    ['two arrays with a mark', 'list.json', `${json}${mark}${json}`, joined],
  ])('rejects a file with %s', async (_, name, content, message) => {
    const { refusal, names } = await importCemeteries(content, name);
    expect(refusal).toContain(message);
    expect(names).toEqual([]);
  });

  const again = `line 3 (row 2), ${repeated}`;
  const quotedHeader = `"${header.replaceAll(',', '","')}"`;
  const glued =
    'line 2 (row 1), the header of another file follows the row: two files were joined without a line break between them';
  test.each([
    ['a repeated header', `${header}\r\n${first}\r\n${header}\n${second}\n`, again],
    ['a header after a mark', `${header}\n${first}\n${mark}${header}\r\n${second}`, again],
    ['a quoted header after a mark', `${header}\n${first}\n${mark}${quotedHeader}\n${second}`, again],
    ['a header in another order', `${header}\n${first}\nname,externalId,zip,state,city,street\n${second}`, again],
    ['a header with a mark on the line of a row', `${header}\n${first}${mark}${header}\n${second}`, glued],
  ])('rejects joined files with %s', async (_, content, fault) => {
    const { faults, names } = await importCemeteries(content);
    expect(faults[0]).toBe(fault);
    expect(names).toEqual([]);
  });

  test('reports every invalid CSV row by line and column and stores nothing', async () => {
    const incomplete = ['a2,,,Town,XX,123', 'a3,"Two\nlines",,Town,VA,', '', 'a4,Few,,Town', 'a5,Many,,Town,VA,,extra'];
    const rows = [first, ...incomplete, first, `a6,${'x'.repeat(201)},,Town,VA,`, '7'];
    const { faults, refusal, names } = await importCemeteries([header, ...rows].join('\n'));
    expect(faults).toEqual([
      'line 3 (row 2), column name: must have at least 1 character',
      'line 3 (row 2), column state: must be a USPS state code such as VA, DC, PR or AE, or a state’s name',
      'line 3 (row 2), column zip: must be 5 digits, or 5 and 4 with a hyphen between them, or empty; a leading 0 may have been dropped: write all 5 digits',
      'line 4 (row 3), column name: must not contain control characters',
      'line 7 (row 4), column state: is required',
      'line 8 (row 5), column field 7: is not a known field',
      'line 10 (row 7), column name: must have at most 200 characters',
      'line 11 (row 8), column name: is required',
      'line 11 (row 8), column city: is required',
      'line 11 (row 8), column state: is required',
      'line 9 (row 6), the same record is at line 2 (row 1) already',
    ]);
    expect(refusal).toBe('7 of 8 rows cannot be imported; nothing was stored.');
    expect(names).toEqual([]);
  });

  test('reports every invalid JSON row by its first line, also after CR and CRLF', async () => {
    const content = `[\r
      {"externalId": "a", "name": "A", "city": "Town", "state": "VA"},\r
      {\r\n"externalId": 5, "name": "B", "city": "Town", "state": "VA"}, 7,\r
      {"externalId": "a", "name": "C", "city": "Town", "state": "VA", "colour": "red"},\r
      {"externalId": "b", "name": "D", "city": "Town", "state": "CT", "zip": 6101},
      {"externalId": "a", "name": "D", "city": "Town", "state": "VA"}
    ]`;
    const { faults, refusal } = await importCemeteries(content, 'list.json');
    expect(faults).toEqual([
      'line 3 (row 2), column externalId: must be text',
      'line 4 (row 3), the row must be a JSON object',
      'line 5 (row 4), column colour: is not a known field',
      'line 6 (row 5), column zip: must be text in quotes, since a number has no leading zeros',
      'line 7 (row 6), the same record is at line 2 (row 1) already',
    ]);
    expect(refusal).toBe('5 of 6 rows cannot be imported; nothing was stored.');
  });

  test('stores all rows of a large file, or none when the last row is invalid', async () => {
    const rows = Array.from({ length: 2_500 }, (_, index) => `id-${index},Cemetery ${index},,Town,VA,22030`).join('\n');
    const bad = await importCemeteries(`${header}\n${rows}\nbad,,,,,\n`);
    expect(bad).toMatchObject({ refusal: '1 of 2501 rows cannot be imported; nothing was stored.', names: [] });
    expect((await importCemeteries(`${header}\n${rows}\n`)).counts).toEqual({ added: 2_500, changed: 0, unchanged: 0 });
  });

  describe('with a ZIP code', () => {
    const rule = 'must be 5 digits, or 5 and 4 with a hyphen between them, or empty';
    const faultsOf = async (zips: readonly string[], state: string) => {
      const rows = zips.map((zip, index) => `a${index},First,,Town,${state},"${zip}"`);
      return (await importCemeteries([header, ...rows].join('\n'))).faults;
    };
    const dashes = ['22030–1234', '22030—1234', '22030\u20111234', '22030\u22121234', '22030 1234'];
    const unknown = ['22030-', '220301', '22030-12', 'unknown', '２２０３０', '22030-1234-1', 'E+08', '.0', '-'];

    test.each<[states: string, zips: string[], hint: string]>([
      ['AE MA ME NH NJ RI VT', ['6101'], '; it begins with 0 in STATE: write all 5 digits'],
      ['PR VI', ['601'], '; it begins with 00 in STATE: write all 5 digits'],
      ['ct', ['6101', '6101-1234', '6101–1234'], '; it begins with 0 in CT: write all 5 digits'],
      ['CT', ['61011234'], '; it begins with 0 in CT: write all 9 digits, with a hyphen after the fifth'],
      ['PR', ['6011234'], '; it begins with 00 in PR: write all 9 digits, with a hyphen after the fifth'],
      ['NY', ['6390', '1'], '; a leading 0 may have been dropped: write all 5 digits'],
      ['VA', ['220301234'], '; write a hyphen after the fifth digit'],
      ['VA', dashes, '; write a plain hyphen (-) after the fifth digit'],
      ['VA CT', ['22030.0', '2.20301E+08', '6101.0'], '; write it as text, without a decimal point or an exponent'],
      ['CT', ['’06101', "'06101", '=""06101""'], '; write it without quotes, an apostrophe or an equals sign'],
      ['VT', unknown, ''],
    ])('states the rule, and what to write in %s instead of %j where that is known', async (states, zips, hint) => {
      for (const state of states.split(' ')) {
        const faults = zips.map((_, index) => `line ${index + 2} (row ${index + 1}), column zip: ${rule}${hint}`);
        expect(await faultsOf(zips, state)).toEqual(faults.map((fault) => fault.replace('STATE', state)));
      }
    });

    test('keeps a valid or empty one without the spaces around it', async () => {
      expect(await faultsOf(['', '06101', '06101-1234', ' 22030 '], 'CT')).toEqual([]);
      const { rows } = await db.$client.execute('SELECT zip FROM cemeteries ORDER BY external_id');
      expect(rows.map(({ zip }) => zip)).toEqual(['', '06101', '06101-1234', '22030']);
    });
  });
});

describe('planning import staff', () => {
  const header = 'id,role,firstName,lastName,managerId';
  const importStaff = (...rows: string[]) => importContent(staffImport, db, { content: [header, ...rows].join('\n') });
  const storedStaff = async () =>
    (await db.select().from(staff).orderBy(asc(staff.id))).map(({ id, role, managerId }) => [id, role, managerId]);

  test('accepts a manager listed after the counselors and changes nothing when repeated', async () => {
    const rows = ['c1,counselor,Emmy,Noether,boss\r', 'boss,salesManager,Mary,Somerville,'];
    expect(await importStaff(...rows)).toMatchObject({ refusal: '', counts: { added: 2 } });
    expect(await importStaff(...rows)).toMatchObject({ counts: { added: 0, changed: 0, unchanged: 2 } });
    expect(await storedStaff()).toEqual([
      ['boss', 'salesManager', null],
      ['c1', 'counselor', 'boss'],
    ]);
  });

  test('moves and promotes counselors and demotes a manager without a team', async () => {
    await store.upsertStaff([manager('boss'), manager('old'), counselor('c1', 'old'), counselor('c2', 'boss')], now);
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
    const name = { firstName: 'A', lastName: 'B' };
    const content = JSON.stringify([
      { ...name, id: 'boss', role: 'salesManager', managerId: null },
      { ...name, id: 'c1', role: 'counselor', managerId: 'boss' },
      { ...name, id: 'boss-2', role: 'salesManager' },
    ]);
    const imported = await importContent(staffImport, db, { name: 'staff.json', content });
    expect(imported).toMatchObject({ refusal: '', counts: { added: 3 } });
  });

  test('reports a repeated header and every invalid role and manager by line and column, and stores nothing', async () => {
    await store.upsertStaff([manager('boss'), counselor('c1', 'boss')], now);
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
      header,
    );
    const place = 'column managerId: must be the id of a sales manager, in this file or stored';
    const rule = 'column managerId: must name the sales manager of a counselor, and be empty for a sales manager';
    expect(faults).toEqual([
      `line 12 (row 11), ${repeated}`,
      `line 2 (row 1), ${rule}`,
      `line 3 (row 2), ${rule}`,
      `line 4 (row 3), ${place}`,
      `line 5 (row 4), ${place}`,
      `line 6 (row 5), ${place}`,
      'line 6 (row 5), column role: must be salesManager while counselors name this person',
      'line 7 (row 6), column role: must be one of salesManager, counselor; did you mean counselor?',
      'line 8 (row 7), column firstName: must have at least 1 character',
      'line 9 (row 8), column id: must have 1 to 255 characters, none of them a control character',
      'line 11 (row 10), the same record is at line 10 (row 9) already',
    ]);
    expect(refusal).toBe('10 of 11 rows cannot be imported; nothing was stored.');
    expect(await storedStaff()).toHaveLength(2);
  });
});

describe('planning import activities', () => {
  const header = 'externalId,staffId,kind,amount,occurredAt';
  const at = '2026-03-01T00:00:00Z';
  const importActivities = (rows: string[], columns = header, timeZone = 'UTC') =>
    importContent(activitiesImport, db, { content: [columns, ...rows, ''].join('\n'), timeZone });
  const importJson = (rows: object[], options = {}) =>
    importContent(activitiesImport, db, { name: 'list.json', content: JSON.stringify(rows), ...options });
  const storedActivities = () => db.select().from(activities).orderBy(asc(activities.externalId));
  const everyRow = (count: number, fault: string) =>
    Array.from({ length: count }, (_, index) => `line ${index + 2} (row ${index + 1}), column ${fault}`);

  beforeEach(async () => {
    const team = [manager('boss'), counselor('c1', 'boss'), manager('other'), counselor('c2', 'other')];
    await store.upsertStaff(team, now);
  });

  test('reads amounts as cents', async () => {
    const plain = { '0': 0, '12': 1200, '10000000': 1_000_000_000, '1234.5': 123_450, '1234.50': 123_450, '0.07': 7 };
    const others = { '-0.29': -29, '-0': 0, '-10000000.00': -1_000_000_000, '0019.99': 1999, ' 4.35 ': 435 };
    const cents = { ...plain, ...others };
    await importActivities(Object.keys(cents).map((amount, index) => `a${index + 10},c1,quote,${amount},${at}`));
    expect((await storedActivities()).map(({ amountCents }) => amountCents)).toEqual(Object.values(cents));
  });

  test.each([
    ['must be written without thousands separators, such as 1234.50', ['"1,234.50"', "1'234", '1 234']],
    ['must have at most two decimals', ['1.005', '1.000']],
    ['is required', ['']],
    ['must lie between -10000000 and 10000000', ['10000000.01', '99999999999999999999']],
    [
      'must be a plain number such as -1234.50',
      ['"1.234,50"', '"1234,50"', '1e3', '0x10', '$5', '+5', '.5', '5.', 'NaN'],
    ],
  ])('rejects an amount that %s: %j', async (reason, amounts) => {
    const { faults } = await importActivities(amounts.map((amount, index) => `a${index},c1,quote,${amount},${at}`));
    expect(faults).toEqual(everyRow(amounts.length, `amount: ${reason}`));
    expect(await storedActivities()).toEqual([]);
  });

  test('reads JSON amounts as text or number', async () => {
    const rows = (amounts: unknown[]) =>
      amounts.map((amount, id) => ({ externalId: `a${id}`, staffId: 'c1', kind: 'quote', occurredAt: at, amount }));
    await importJson(rows([1.1, '2.20', -3]));
    expect((await storedActivities()).map(({ amountCents }) => amountCents)).toEqual([110, 220, -300]);
    expect((await importJson(rows([1.005, null, undefined, 1e21]))).faults).toEqual([
      expect.stringContaining('column amount: must have at most two decimals'),
      expect.stringContaining('column amount: must be'),
      expect.stringContaining('column amount: is required'),
      expect.stringContaining('column amount: must be a plain number'),
    ]);
  });

  test.each([
    [at, 'UTC', '2026-03-01T00:00:00.000Z'],
    ['2026-03-01T00:00+05:30', 'UTC', '2026-02-28T18:30:00.000Z'],
    ['2026-03-31T23:59:59.9999Z', 'UTC', '2026-03-31T23:59:59.999Z'],
    ['2026-03-01', 'America/New_York', '2026-03-01T05:00:00.000Z'],
    ['2012-04-01', 'America/Havana', '2012-04-01T05:00:00.000Z'],
  ])('reads %s in %s as %s', async (occurredAt, timeZone, instant) => {
    await importActivities([`a,c1,quote,0,${occurredAt}`], header, timeZone);
    expect((await storedActivities()).map((each) => new Date(each.occurredAt).toISOString())).toEqual([instant]);
  });

  const local = ['2026-03-01T00:00:00', '03/01/2026', '2026-3-1', '1772323200000', '2026-03-01 00:00:00Z', ''];
  const missing = ['2026-02-29', '2026-02-29T00:00:00Z', '2026-03-01T24:00:00Z', '2026-03-01T23:59:60Z'];
  test.each([
    [
      'be a date that exists as YYYY-MM-DD, or such a date-time with Z or an offset',
      [...local, ...missing, '2026-03-01T00:00:00Z[UTC]'],
    ],
    ['lie between 1970 and 2099', ['1066-10-14', '2206-03-01', '1969-12-31T23:59:59Z', '2100-01-01']],
  ])('rejects an occurredAt that does not %s: %j', async (rule, instants) => {
    const { faults } = await importActivities(instants.map((instant, index) => `a${index},c1,quote,0,${instant}`));
    expect(faults).toEqual(everyRow(instants.length, `occurredAt: must ${rule}`));
  });

  test('skips empty rows and reports only the first 1,000 errors', async () => {
    const rows = [',,,,', 'a,c1,quote,0,2026-03-01', '  ,, ,,', '   ', ',,,,'];
    expect(await importActivities(rows)).toMatchObject({ counts: { added: 1 } });
    const bad = Array.from({ length: 1200 }, (_, index) => `b${index},c1,no,0,2026-03-01`);
    const { faults, refusal } = await importActivities(bad);
    expect([faults.length, faults.at(-1)]).toEqual([1001, 'and 200 more errors']);
    expect(refusal).toBe('1200 of 1200 rows cannot be imported; nothing was stored.');
  });

  test('reports every invalid activity by line and column and stores nothing', async () => {
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
        `"a\r\n1",c1,quote,5,${at},`,
        `a12,c1,oops,5,${at},`,
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
      expect.stringContaining('line 13 (row 12), column externalId: must have 1 to 255 characters'),
      expect.stringContaining('line 15 (row 13), column kind:'),
      'line 12 (row 11), the same record is at line 11 (row 10) already',
    ]);
    expect(refusal).toBe('12 of 13 rows cannot be imported; nothing was stored.');
    expect(await storedActivities()).toEqual([]);
  });

  test.each([
    ['unknown', `${header},colour`],
    ['doubled', `${header},managerId,managerId`],
    ['missing', 'externalId,staffId,kind,amount'],
  ])('rejects a header with an %s column, and names the optional one', async (what, columns) => {
    const { refusal } = await importActivities([`a,c1,quote,0,${at},x`], columns);
    expect(refusal).toContain(`${what}: `);
    expect(refusal).toContain(`${header} and optionally managerId`);
  });

  test('keeps the team of an activity unless managerId is given', async () => {
    const row = (staffId: string, amount: number) => `a,${staffId},quote,${amount},${at}`;
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
    const plan = activity('other', at, { externalId: 'plan', kind: 'monthlyPlan', amountCents: 100 });
    await store.upsertActivities([plan, activity('c1', at)], now);
    await store.upsertActivities([activity('c1', at, { externalId: 'led', managerId: 'other' })], now);
    await store.upsertStaff([counselor('c2', 'boss'), counselor('other', 'boss')], now);
    const again = [`plan,other,monthlyPlan,1,${at},`, `led,c1,quote,0,${at},other`];
    expect(await importActivities(again, `${header},managerId`)).toMatchObject({ counts: { unchanged: 2 } });
    expect((await importActivities([`new,other,monthlyPlan,1,${at}`])).faults).toHaveLength(1);
  });

  const newYork = ['2026-03-01', '2026-03-01T05:00:00Z', '2026-03-01T00:00:00-05:00', '2026-03-01T00:00:01Z'];
  test.each<[string, string[], { dayBefore: number; monthBefore: number } | undefined]>([
    ['America/New_York', [at, '2026-03-02T00:00:00.000Z', '2026-04-01T00:00Z'], { dayBefore: 3, monthBefore: 2 }],
    ['America/New_York', ['2026-03-01T00:00:00+00:00', ...newYork], { dayBefore: 1, monthBefore: 1 }],
    ['America/New_York', ['2026-01-01T00:00:00-04:00', '2026-01-02T00:00:00-04:00'], { dayBefore: 2, monthBefore: 1 }],
    ['UTC', ['2026-03-01T00:00:00+01:00', '2026-03-29T00:00:00+02:00'], { dayBefore: 2, monthBefore: 1 }],
    ['Pacific/Honolulu', [' 2026-12-01T00:00:00Z '], { dayBefore: 1, monthBefore: 1 }],
    ['Atlantic/Azores', ['2026-01-01T00:00:00Z', '2026-07-01T00:00:00Z'], { dayBefore: 1, monthBefore: 1 }],
    ['Asia/Tokyo', [at, '2026-03-01'], undefined],
    ['Europe/London', [at, '2026-07-01T00:00:00Z'], undefined],
    ['America/New_York', newYork, undefined],
  ])('counts dates that were exported as midnight of another time zone, in %s: %j', async (timeZone, dates, counts) => {
    const sold = { staffId: 'c1', kind: 'quote', amount: 1 };
    const rows = dates.map((occurredAt, index) => ({ externalId: `s${index}`, ...sold, occurredAt }));
    const options = { timeZone, dryRun: true };
    const content = [header, ...rows.map((row) => Object.values(row).join(','))].join('\n');
    const expected = counts === undefined ? [] : [{ rows: dates.length, ...counts }];
    for (const imported of [importContent(activitiesImport, db, { content, ...options }), importJson(rows, options)]) {
      expect((await imported).warnings.map((warning) => warning.counts)).toEqual(expected);
    }
  });

  test('warns of such dates in text and JSON of a dry run, and stores them as written', async () => {
    const line = await createCommandLine({ REPORT_TIME_ZONE: 'America/New_York' });
    await line.write('staff.csv', 'id,role,firstName,lastName,managerId\nboss,salesManager,A,B,\n');
    await line.planning('import', 'staff', 'staff.csv');
    await line.write('sold.csv', `${header}\r\ns1,boss,quote,1,${at}\ns2,boss,quote,1,2026-03-15T00:00:00Z`);
    const message =
      '2 of 2 dates are written as midnight and fall on the day before in America/New_York, 1 of them in the month before. ' +
      'A date without a time begins in America/New_York: write YYYY-MM-DD.';
    expect(await line.planning('import', 'activities', 'sold.csv', '--dry-run')).toEqual({
      exitCode: 0,
      stdout: '2 valid rows; nothing was stored (dry run).\n',
      stderr: `warning: ${message}\n`,
    });
    const { stdout } = await line.planning('import', 'activities', 'sold.csv', '--dry-run', '--json');
    expect(JSON.parse(stdout)).toEqual({
      rows: 2,
      warnings: [{ code: 'midnight-on-the-day-before', message, counts: { rows: 2, dayBefore: 2, monthBefore: 1 } }],
    });
    expect(await line.planning('import', 'activities', 'sold.csv')).toMatchObject({ exitCode: 0, stderr: '' });
  });
});
