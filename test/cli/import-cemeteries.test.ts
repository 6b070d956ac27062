import { describe, expect, test } from 'bun:test';
import { cemeteriesImport } from '../../src/cli/import-kinds';
import { openDatabase } from '../../src/db/client';
import { createCommandLine, importContent as importInto } from '../support/command';
import { temporaryDatabase } from '../support/database';

const { db } = await temporaryDatabase();

async function importContent(name: string, content: string | Uint8Array) {
  await db.$client.execute('DELETE FROM cemeteries');
  const outcome = await importInto(cemeteriesImport, db, { name, content });
  const { rows } = await db.$client.execute('SELECT name FROM cemeteries ORDER BY external_id');
  return { ...outcome, names: rows.map((row) => String(row.name)) };
}

const header = 'externalId,name,street,city,state,zip';
const good = 'a1,First,1 Road,Town,VA,22030';

async function storedNames(databaseUrl: string): Promise<string[]> {
  const db = await openDatabase({ url: databaseUrl, timeoutMs: 1000 });
  const { rows } = await db.$client.execute('SELECT name FROM cemeteries ORDER BY external_id');
  db.$client.close();
  return rows.map(({ name }) => String(name));
}

describe('planning import cemeteries', () => {
  test('adds and changes rows, and prints the counts', async () => {
    const { planning, write, databaseUrl } = await createCommandLine();
    const file = await write('list.csv', `${header}\n${good}\na2,Second,,Town,DC,\n`);
    expect(await planning('import', 'cemeteries', file)).toMatchObject({
      exitCode: 0,
      stdout: '2 rows: 2 new, 0 changed, 0 unchanged.\n',
      stderr: '',
    });
    expect((await planning('import', 'cemeteries', file)).stdout).toBe('2 rows: 0 new, 0 changed, 2 unchanged.\n');
    await write('list.csv', `${header}\n${good}\na2,Second changed,,Town,DC,\n`);
    const changed = await planning('import', 'cemeteries', file, '--json');
    expect(JSON.parse(changed.stdout)).toEqual({ rows: 2, added: 0, changed: 1, unchanged: 1 });
    expect(await storedNames(databaseUrl)).toEqual(['First', 'Second changed']);
  });

  test('stores nothing in a dry run', async () => {
    const { planning, write, databaseUrl } = await createCommandLine();
    const file = await write('list.csv', `${header}\n${good}\n`);
    const result = await planning('import', 'cemeteries', file, '--dry-run');
    expect(result).toMatchObject({ exitCode: 0, stdout: '1 valid row; nothing was stored (dry run).\n' });
    expect(await storedNames(databaseUrl)).toEqual([]);
  });

  test.each([
    ['a BOM', `\ufeff${header}\n${good}\n`],
    ['a BOM before a quoted header', `\ufeff"externalId",name,street,city,state,zip\n${good}\n`],
    ['CRLF', `${header}\r\n${good}\r\n`],
    ['blank lines', `\n${header}\n\n${good}\n\n\n`],
    ['no last line break', `${header}\n${good}`],
    ['columns in another order', 'zip,state,city,street,name,externalId\n22030,VA,Town,1 Road,First,a1\n'],
    ['quoted fields', `${header}\n"a1","First","1 Road","Town","VA","22030"\n`],
    ['a state in lower case', `${header}\na1,First,1 Road,Town,va,22030\n`],
  ])('reads a CSV with %s', async (_, content) => {
    expect(await importContent('list.csv', content)).toMatchObject({ refusal: '', names: ['First'] });
  });

  test('keeps quotes, commas and non-ASCII letters inside a field', async () => {
    const content = `${header}\na1,"The ""Old"", Ground",1 Road,Šibenik,VA,\n`;
    expect(await importContent('list.csv', content)).toMatchObject({ names: ['The "Old", Ground'] });
  });

  test('reads a JSON array without street and zip', async () => {
    const rows = Array.from({ length: 300 }, (_, id) => ({
      externalId: `j${id}`,
      name: `é ${id}`,
      city: 'Town',
      state: 'VA',
    }));
    const { refusal, names } = await importContent('list.json', `\ufeff${JSON.stringify(rows, null, 2)}`);
    expect(refusal).toBe('');
    expect(names).toHaveLength(300);
  });

  test.each([
    ['semicolons', 'list.csv', header.replaceAll(',', ';'), 'unknown: "externalId;name;street;city;state;zip"'],
    ['an unknown column', 'list.csv', `${header},country\n${good},US`, 'unknown: "country"'],
    ['a missing column', 'list.csv', 'externalId,name,street,city,state\na,b,c,d,VA', 'missing: zip'],
    ['a doubled column', 'list.csv', `${header},zip\n${good},1`, 'doubled: zip'],
    ['no rows', 'list.csv', `${header}\n\n`, 'has no rows'],
    ['nothing', 'list.csv', '', 'is empty'],
    ['blank lines alone', 'list.csv', '\n\n', 'no header'],
    ['an open quote', 'list.csv', `${header}\n${good}\na2,"Second,,Town,VA,\n`, 'at line 3, column name: a quote'],
    ['a quote inside a field', 'list.csv', `${header}\na2,Sec"ond,,Town,VA,\n`, 'at line 2, column name: a quote'],
    ['an object', 'list.json', '{"externalId":"a"}', 'one JSON array'],
    ['an empty array', 'list.json', '[]', 'has no rows'],
    ['a cut-off array', 'list.json', '[\n{"externalId":"a"', 'not well-formed JSON: see line 2'],
    ['broken JSON', 'list.json', '[\n\n{"externalId":}]', 'not well-formed JSON: see line 3'],
    ['two arrays', 'list.json', '[][]', 'JSON'],
    ['an unknown kind of file', 'list.xlsx', 'x', 'must be a .csv or a .json file'],
  ])('rejects a file with %s', async (_, name, content, message) => {
    const { refusal, names } = await importContent(name, content);
    expect(refusal).toContain(message);
    expect(names).toEqual([]);
  });

  test('rejects a file in Latin-1', async () => {
    const content = Buffer.from(`${header}\n${good}\na2,Caf\u00e9,,Town,VA,\n`, 'latin1');
    const { refusal, names } = await importContent('list.csv', content);
    expect(refusal).toContain('not UTF-8');
    expect(names).toEqual([]);
  });

  test('reports every invalid CSV row by line and column and stores nothing', async () => {
    const rows = [
      good,
      'a2,,,Town,XX,123',
      'a3,"Two\nlines",,Town,VA,',
      '',
      'a4,Few,,Town',
      'a5,Many,,Town,VA,,extra',
      good,
      `a6,${'x'.repeat(201)},,Town,VA,`,
    ];
    const { faults, refusal, names } = await importContent('list.csv', [header, ...rows].join('\n'));
    expect(faults).toEqual([
      'line 3 (row 2), column name: must have at least 1 character',
      'line 3 (row 2), column state: must be a USPS state code such as VA, DC, PR or AE, or a state’s name',
      'line 3 (row 2), column zip: must be 5 digits, or 5 and 4 with a hyphen between them, or empty; a leading 0 may have been dropped: write all 5 digits',
      'line 4 (row 3), column name: must not contain control characters',
      'line 7 (row 4), column state: is required',
      'line 8 (row 5), column field 7: is not a known field',
      'line 10 (row 7), column name: must have at most 200 characters',
      'line 9 (row 6), the same record is at line 2 (row 1) already',
    ]);
    expect(refusal).toBe('6 of 7 rows cannot be imported; nothing was stored.');
    expect(names).toEqual([]);
  });

  test('reports every invalid JSON row by its first line', async () => {
    const content = `[
      {"externalId": "a", "name": "A", "city": "Town", "state": "VA"},
      {
        "externalId": 5, "name": "B", "city": "Town", "state": "VA"
      }, 7,
      {"externalId": "a", "name": "C", "city": "Town", "state": "VA", "colour": "red"},
      {"externalId": "a", "name": "D", "city": "Town", "state": "VA"}
    ]`;
    const { faults, refusal } = await importContent('list.json', content);
    expect(faults).toEqual([
      'line 3 (row 2), column externalId: must be text',
      'line 5 (row 3), the row must be a JSON object',
      'line 6 (row 4), column colour: is not a known field',
      'line 7 (row 5), the same record is at line 2 (row 1) already',
    ]);
    expect(refusal).toBe('4 of 5 rows cannot be imported; nothing was stored.');
  });

  test('stores all rows of a large file, or none when the last row is invalid', async () => {
    const rows = Array.from({ length: 8_000 }, (_, index) => `id-${index},Cemetery ${index},,Town,VA,22030`);
    const bad = await importContent('bad.csv', `${header}\n${rows.join('\n')}\nbad,,,,,\n`);
    expect(bad).toMatchObject({ refusal: '1 of 8001 rows cannot be imported; nothing was stored.', names: [] });
    const whole = await importContent('good.csv', `${header}\n${rows.join('\n')}\n`);
    expect(whole.counts).toEqual({ added: 8_000, changed: 0, unchanged: 0 });
  }, 20_000);

  test.each([[''], ['a'.repeat(256)], ['a\nb']])('rejects --as %p', async (as) => {
    const { planning, write } = await createCommandLine();
    const result = await planning('import', 'cemeteries', await write('list.csv', `${header}\n${good}\n`), '--as', as);
    expect(result).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('1 to 255 characters') });
  });

  test('prints only the validation errors', async () => {
    const { planning, write } = await createCommandLine();
    const result = await planning('import', 'cemeteries', await write('list.csv', `${header}\na2,,,Town,VA,\n`));
    expect(result).toEqual({
      exitCode: 1,
      stdout: '',
      stderr:
        'line 2 (row 1), column name: must have at least 1 character\n1 of 1 row cannot be imported; nothing was stored.\n',
    });
  });
});
