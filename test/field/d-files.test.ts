import { afterEach, describe, expect, test } from 'bun:test';
import { activitiesImport, cemeteriesImport, staffImport } from '../../src/cli/import-kinds';
import { createSalesStore } from '../../src/modules/sales/store';
import { counselor, manager } from '../support/app';
import { createCommandLine, importContent } from '../support/command';
import { temporaryDatabase } from '../support/database';

const { db } = await temporaryDatabase();
const header = 'externalId,name,street,city,state,zip';
const [first, second, third] = ['a1,First,,Town,VA,22030', 'a2,Second,,Town,VA,', 'a3,Third,,Town,VA,'];
const mark = '\ufeff';

afterEach(async () => {
  await db.$client.batch(['DELETE FROM cemeteries', 'DELETE FROM activities']);
});

async function importCemeteries(content: string | Uint8Array, name = 'list.csv') {
  const { faults, refusal } = await importContent(cemeteriesImport, db, { name, content });
  const { rows } = await db.$client.execute('SELECT name FROM cemeteries ORDER BY external_id');
  return { faults, refusal, names: rows.map((row) => String(row.name)) };
}

describe('a CSV whose lines end in several ways', () => {
  test.each([
    ['a header with CRLF and rows with LF', `${header}\r\n${first}\n${second}\n${third}\n`],
    ['a header with LF and rows with CRLF', `${header}\n${first}\r\n${second}\r\n${third}\r\n`],
    ['a file with LF joined to one with CRLF', `${header}\r\n${first}\r\n${second}\n${third}\n`],
    ['CR alone', `${header}\r${first}\r${second}\r${third}\r`],
    ['CR, LF and CRLF, and no end of the last line', `${header}\r${first}\n${second}\r\n${third}`],
    ['CR alone and no end of the last line', `${header}\r${first}\r${second}\r${third}`],
    ['CR twice before LF', `${header}\r\r\n${first}\r\r\n${second}\r\r\n${third}\r\r\n`],
    [
      'quoted rows with CRLF after a header with LF',
      `${header}\n"a1","First",,"Town","VA",""\r\n${second}\r\n${third}`,
    ],
    ['blank lines of each kind', `\r\n\n\r${header}\r\n\n${first}\r\r${second}\n\r\n${third}\n\n\r`],
    ['a byte order mark where a file without a header was joined', `${header}\n${first}\n${mark}${second}\r\n${third}`],
    ['a byte order mark before a quote', `${header}\r\n${first}\r\n${mark}"a2","Second",,Town,VA,\n${third}`],
    [
      'a mark on each file, and one on a line of its own',
      `${mark}${header}\n${first}\n${mark}\n${mark}${second}\n${third}`,
    ],
    ['Ctrl-Z at the end, as DOS joins files', `${header}\r\n${first}\r\n${second}\r\n${third}\r\n\u001a`],
  ])('D1 imports %s', async (_, content) => {
    expect(await importCemeteries(content)).toEqual({ faults: [], refusal: '', names: ['First', 'Second', 'Third'] });
  });

  test('D1 imports CRLF and marks wherever the file is cut into chunks', async () => {
    for (let filler = 65_520; filler < 65_545; filler += 1) {
      const wide = `a0,${'x'.repeat(150)},${'s'.repeat(150)},Town,VA,\n`;
      const rows = Array.from({ length: Math.floor(filler / wide.length) }, (__, n) => wide.replace('a0', `b${n}`));
      const length = header.length + 2 + rows.join('').length;
      const blanks = '\n'.repeat(Math.max(0, filler - length));
      const content = `${header}\r\n${rows.join('')}${blanks}\r\n${mark}${first}\r\n${second}`;
      expect(await importCemeteries(content)).toMatchObject({ faults: [], refusal: '' });
    }
  });

  test.each([
    ['after CRLF and LF', `${header}\r\n${first}\nbad,,,,VA,\n`, 3],
    ['after CR alone', `${header}\r${first}\r\rbad,,,,VA,\r`, 4],
    ['after a CRLF in quotes', `${header}\n"a\r\n1",First,,Town,VA,\nbad,,,,VA,\r\n`, 4],
    ['after a CR and an LF in quotes', `${header}\r\n"a\r1\n2",First,,Town,VA,\r\nbad,,,,VA,`, 5],
    ['after blank lines of each kind', `\r\n\r${header}\n\n\r\n${first}\r\r\nbad,,,,VA,`, 8],
    ['after a joined mark', `${header}\r\n${first}\n${mark}${second}\r\nbad,,,,VA,`, 4],
  ])('D1 reports an error at its line %s', async (_, content, line) => {
    const { faults, names } = await importCemeteries(content);
    expect(faults.filter((fault) => fault.includes('column name'))).toEqual([
      expect.stringMatching(new RegExp(`^line ${line} \\(row \\d\\), column name: must have at least 1 character$`)),
    ]);
    expect(names).toEqual([]);
  });

  test.each([
    ['not closed', `${header}\r\n${first}\na2,"Second,,Town,VA,\r\n${third}\n`, 'line 3, column name'],
    ['misplaced', `${header}\r${first}\ra2,Second,,To"wn,VA,\r`, 'line 3, column city'],
    ['misplaced after lines in quotes', `${header}\n"a\r\n1",First,,Town,VA,\r\na2,,"a" b,,,`, 'line 4, column street'],
  ])('D1 names the place of a quote that is %s', async (_, content, place) => {
    expect((await importCemeteries(content)).refusal).toBe(
      `The file is not well-formed CSV at ${place}: a quote is misplaced or not closed.`,
    );
  });

  test.each([
    ['with CR alone', `${header}\r${first}\rCaf\u00e9,Name,,Town,VA,\r${third}\r`, 3],
    ['far from the beginning', `${header}\r\n${`${first}\n`.repeat(9000)}Caf\u00e9,Name,,Town,VA,\r\n${third}`, 9002],
    ['at the end of a line', `${header}\n${first}\na2,Second,,Town,VA,\u00e9\r\n${third}\n`, 3],
    ['at the end of the file', `${header}\n${first}\n\u00e9`, 3],
  ])('D1 names the line of a byte that is not UTF-8 %s', async (_, content, line) => {
    const { refusal } = await importCemeteries(Buffer.from(content, 'latin1'));
    expect(refusal).toBe(`The file is not UTF-8 text: see line ${line}.`);
  });

  test('D1 names the line of a byte that is not UTF-8 after a character that two chunks share', async () => {
    const start = `${header}\n`;
    const padding = `${'x'.repeat(65_535 - start.length - 1)}\n`;
    const bytes = Buffer.concat([Buffer.from(`${start}${padding}\u{1f333}\nb\n`), Buffer.from([0xe9, 10])]);
    expect((await importCemeteries(bytes)).refusal).toBe('The file is not UTF-8 text: see line 5.');
  });

  const repeated = 'the row repeats the header, as where two files were joined: remove this line';
  const glued = 'the header of another file follows the row: two files were joined without a line break between them';
  test.each([
    ['a repeated header', `${header}\r\n${first}\r\n${header}\n${second}\n`, `line 3 (row 2), ${repeated}`],
    [
      'a repeated header after a mark',
      `${header}\n${first}\n${mark}${header}\r\n${second}`,
      `line 3 (row 2), ${repeated}`,
    ],
    [
      'a quoted header after a mark',
      `${header}\n${first}\n${mark}"externalId","name","street","city","state","zip"\n${second}`,
      `line 3 (row 2), ${repeated}`,
    ],
    [
      'a header with its columns in another order',
      `${header}\n${first}\nname,externalId,zip,state,city,street\nSecond,a2,,VA,Town,\n`,
      `line 3 (row 2), ${repeated}`,
    ],
    ['a header on the line of a row', `${header}\n${first}${header}\n${second}`, `line 2 (row 1), ${glued}`],
    [
      'a header with a byte order mark on the line of a row',
      `${header}\n${first}${mark}${header}\n${second}`,
      `line 2 (row 1), ${glued}`,
    ],
  ])('D1 names %s', async (_, content, fault) => {
    const { faults, names } = await importCemeteries(content);
    expect(faults[0]).toBe(fault);
    expect(names).toEqual([]);
  });

  test('D1 accepts a row that contains column names', async () => {
    const content = `${header}\nname,city,state,zip,VA,\nzip,name,,city,VA,22030\n`;
    expect(await importCemeteries(content)).toMatchObject({ refusal: '', names: ['city', 'name'] });
  });

  test('D1 names the line of an error in JSON with CR and CRLF', async () => {
    const row = '{"externalId":"a","name":"A","city":"Town","state":"VA"}';
    const content = `[\r${row},\r\n{"externalId":"b"}\r]\r`;
    expect((await importCemeteries(content, 'list.json')).faults[0]).toStartWith('line 3 (row 2), ');
  });

  test('D1 names JSON files that were joined', async () => {
    const row = '{"externalId":"a","name":"A","city":"Town","state":"VA"}';
    for (const between of ['', '\r\n', ',', mark]) {
      const { refusal } = await importCemeteries(`[${row}]${between}[${row}]`, 'list.json');
      expect(refusal).toBe('The file must hold one JSON array, and nothing after it.');
    }
  });

  test('D1 applies to staff and activities on the command line', async () => {
    const { planning, write } = await createCommandLine();
    const staff = 'id,role,firstName,lastName,managerId\r\nboss,salesManager,A,B,\nc1,counselor,A,B,boss\r';
    expect(await planning('import', 'staff', await write('staff.csv', staff))).toMatchObject({
      stdout: '2 rows: 2 new, 0 changed, 0 unchanged.\n',
      stderr: '',
    });
    const names = 'externalId,staffId,kind,amount,occurredAt';
    const activities = `${names}\r\ns1,c1,quote,1,2026-03-01\n${mark}s2,c1,quote,1,2026-03-01`;
    expect(await planning('import', 'activities', await write('sold.csv', activities))).toMatchObject({
      stdout: '2 rows: 2 new, 0 changed, 0 unchanged.\n',
    });
    const joined = `${activities}\n${names}\ns3,c1,quote,1,2026-03-01\n`;
    expect(await planning('import', 'activities', await write('joined.csv', joined))).toMatchObject({
      exitCode: 1,
      stderr: `line 4 (row 3), ${repeated}\n1 of 4 rows cannot be imported; nothing was stored.\n`,
    });
  });

  test('D1 names a repeated header of staff', async () => {
    const names = 'id,role,firstName,lastName,managerId';
    const content = `${names}\nboss,salesManager,A,B,\n${names}\nc1,counselor,A,B,boss\n`;
    expect((await importContent(staffImport, db, { content })).faults).toEqual([`line 3 (row 2), ${repeated}`]);
  });
});

describe('a ZIP code that a program has changed', () => {
  const rule = 'must be 5 digits, or 5 and 4 with a hyphen between them, or empty';
  const states = ['AE', 'CT', 'MA', 'ME', 'NH', 'NJ', 'RI', 'VT'];
  const faultsOf = (zip: string, state: string) => importCemeteries(`${header}\na1,First,,Town,${state},"${zip}"\n`);

  test.each([
    ...states.map((state) => ['6101', state, `it begins with 0 in ${state}: write all 5 digits`]),
    ...['PR', 'VI'].map((state) => ['601', state, `it begins with 00 in ${state}: write all 5 digits`]),
    ['6101-1234', 'ct', 'it begins with 0 in CT: write all 5 digits'],
    ['6101–1234', 'CT', 'it begins with 0 in CT: write all 5 digits'],
    ['61011234', 'CT', 'it begins with 0 in CT: write all 9 digits, with a hyphen after the fifth'],
    ['6011234', 'PR', 'it begins with 00 in PR: write all 9 digits, with a hyphen after the fifth'],
    ['6390', 'NY', 'a leading 0 may have been dropped: write all 5 digits'],
    ['1', 'VA', 'a leading 0 may have been dropped: write all 5 digits'],
    ['220301234', 'VA', 'write a hyphen after the fifth digit'],
    ['22030–1234', 'VA', 'write a plain hyphen (-) after the fifth digit'],
    ['22030—1234', 'VA', 'write a plain hyphen (-) after the fifth digit'],
    ['22030\u20111234', 'VA', 'write a plain hyphen (-) after the fifth digit'],
    ['22030\u22121234', 'VA', 'write a plain hyphen (-) after the fifth digit'],
    ['22030 1234', 'VA', 'write a plain hyphen (-) after the fifth digit'],
    ['22030.0', 'VA', 'write it as text, without a decimal point or an exponent'],
    ['6101.0', 'CT', 'write it as text, without a decimal point or an exponent'],
    ['2.20301E+08', 'VA', 'write it as text, without a decimal point or an exponent'],
    ['’06101', 'CT', 'write it without quotes, an apostrophe or an equals sign'],
    ["'06101", 'CT', 'write it without quotes, an apostrophe or an equals sign'],
    ['=""06101""', 'CT', 'write it without quotes, an apostrophe or an equals sign'],
  ])('D2 says what to write instead of %s in %s', async (zip, state, hint) => {
    expect(await faultsOf(zip, state)).toMatchObject({
      faults: [`line 2 (row 1), column zip: ${rule}; ${hint}`],
      names: [],
    });
  });

  test.each(['22030-', '220301', '22030-12', 'unknown', '２２０３０', '22030-1234-1', 'E+08', '.0', '-'])(
    'D2 states only the rule for %s',
    async (zip) => {
      expect((await faultsOf(zip, 'VT')).faults).toEqual([`line 2 (row 1), column zip: ${rule}`]);
    },
  );

  test.each(['', '06101', '06101-1234', ' 22030 '])('D2 keeps %j as it is', async (zip) => {
    expect(await faultsOf(zip, 'CT')).toMatchObject({ refusal: '' });
    expect((await db.$client.execute('SELECT zip FROM cemeteries')).rows).toMatchObject([{ zip: zip.trim() }]);
  });

  test('D2 refuses a number in JSON', async () => {
    const row = { externalId: 'a', name: 'A', city: 'Town', state: 'CT' };
    const content = JSON.stringify(
      [
        { ...row, zip: 6101 },
        { ...row, externalId: 'b', zip: 22030 },
      ],
      null,
      1,
    );
    expect((await importCemeteries(content, 'list.json')).faults).toEqual([
      'line 2 (row 1), column zip: must be text in quotes, since a number has no leading zeros',
      'line 9 (row 2), column zip: must be text in quotes, since a number has no leading zeros',
    ]);
  });

  test('D2 appears beside the other errors of its row', async () => {
    expect((await importCemeteries(`${header}\na1,,,Town,XX,6101\n7\n`)).faults).toEqual([
      'line 2 (row 1), column name: must have at least 1 character',
      'line 2 (row 1), column state: must be a USPS state code such as VA, DC, PR or AE, or a state’s name',
      `line 2 (row 1), column zip: ${rule}; a leading 0 may have been dropped: write all 5 digits`,
      'line 3 (row 2), column name: is required',
      'line 3 (row 2), column city: is required',
      'line 3 (row 2), column state: is required',
    ]);
  });
});

describe('dates that were exported as midnight of another time zone', async () => {
  await createSalesStore(db).upsertStaff([manager('boss'), counselor('c1', 'boss')], new Date(0));
  const warningsOf = async (timeZone: string, dates: readonly string[], name = 'list.csv') => {
    const rows = dates.map((occurredAt, index) => ({
      externalId: `s${index}`,
      staffId: 'c1',
      kind: 'quote',
      amount: 1,
      occurredAt,
    }));
    const csv = ['externalId,staffId,kind,amount,occurredAt', ...rows.map((row) => Object.values(row).join(','))];
    const content = name.endsWith('json') ? JSON.stringify(rows) : csv.join('\n');
    const { warnings } = await importContent(activitiesImport, db, { name, content, timeZone, dryRun: true });
    return warnings.map(({ counts }) => counts);
  };

  test.each([
    ['America/New_York', ['2026-03-01T00:00:00Z', '2026-03-02T00:00:00.000Z', '2026-04-01T00:00Z'], 3, 2],
    ['America/New_York', ['2026-03-01T00:00:00+00:00', '2026-03-01T12:00:00Z', '2026-03-01'], 1, 1],
    ['America/Los_Angeles', ['2026-01-01T00:00:00-05:00', '2026-01-02T00:00:00-05:00'], 2, 1],
    ['UTC', ['2026-03-01T00:00:00+01:00', '2026-03-29T00:00:00+02:00'], 2, 1],
    ['Pacific/Honolulu', [' 2026-12-01T00:00:00Z '], 1, 1],
    ['Atlantic/Azores', ['2026-01-01T00:00:00Z', '2026-07-01T00:00:00Z'], 1, 1],
  ])('D9 counts the dates in %s: %j', async (timeZone, dates, dayBefore, monthBefore) => {
    const counts = { rows: dates.length, dayBefore, monthBefore };
    expect(await warningsOf(timeZone, dates)).toEqual([counts]);
    expect(await warningsOf(timeZone, dates, 'list.json')).toEqual([counts]);
  });

  test.each([
    ['UTC', ['2026-03-01T00:00:00Z', '2026-03-01']],
    ['Asia/Tokyo', ['2026-03-01T00:00:00Z']],
    ['Europe/London', ['2026-03-01T00:00:00Z', '2026-07-01T00:00:00Z']],
    ['America/New_York', ['2026-03-01', '2026-03-01T05:00:00Z', '2026-03-01T00:00:00-05:00', '2026-03-01T00:00:01Z']],
  ])('D9 gives no warning in %s for %j', async (timeZone, dates) => {
    expect(await warningsOf(timeZone, dates)).toEqual([]);
  });

  test('D9 warns in text and JSON of a dry run, and stores them as written', async () => {
    const line = await createCommandLine({ REPORT_TIME_ZONE: 'America/New_York' });
    await line.planning(
      'import',
      'staff',
      await line.write('staff.csv', 'id,role,firstName,lastName,managerId\nboss,salesManager,A,B,\n'),
    );
    const rows = ['s1,boss,quote,1,2026-03-01T00:00:00Z', 's2,boss,quote,1,2026-03-15T00:00:00Z'];
    await line.write('sold.csv', ['externalId,staffId,kind,amount,occurredAt', ...rows].join('\r\n'));
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
