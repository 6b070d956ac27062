import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import * as v from 'valibot';
import { openDatabase } from '../../src/db/client';
import { migrateDatabase } from '../../src/db/migrate';
import { CemeteryPage, type CemeteryRecord, placeNames } from '../../src/modules/cemeteries/model';
import { createCemeteryStore } from '../../src/modules/cemeteries/store';
import { demoCemeteries } from '../../src/modules/demo-data/store';
import { seedDatabase } from '../../src/seed';
import { createTestApp, type TestApp } from '../support/app';
import { createCommandLine } from '../support/command';
import { explainFirst } from '../support/database';
import { amount } from '../support/resources';
import { hasSqld, startSqld } from '../support/servers';

const { compare } = new Intl.Collator('en');
const by = { createdBy: 'tester', now: new Date(0) };

const record = (externalId: string, name: string): CemeteryRecord => ({
  externalId,
  name,
  street: '',
  city: 'Town',
  state: 'VA',
  zip: '',
});
const recordsOf = (names: readonly string[], prefix = 'c') =>
  names.map((name, index) => record(`${prefix}${index}`, name));

/** Names of each page of a walk, with the ids that order equal names. */
async function walk({ call }: TestApp, sort: 'asc' | 'desc', limit: number) {
  const found: { name: string; _id: string }[] = [];
  for (let page = 1; ; page += 1) {
    const path = `/v2/private/cemetery/all?page=${page}&limit=${limit}&sort=${sort}`;
    const { cemeteries } = v.parse(CemeteryPage, (await call('GET', path, { as: 'reader' })).body).data;
    if (cemeteries.length === 0) return found;
    found.push(...cemeteries.map(({ name, _id }) => ({ name, _id })));
  }
}

const inOrder = (a: { name: string; _id: string }, b: { name: string; _id: string }) =>
  compare(a.name, b.name) || (a._id < b._id ? -1 : 1);

async function expectOrder(testApp: TestApp, count: number) {
  const ascending = await walk(testApp, 'asc', 7);
  expect(ascending).toHaveLength(count);
  expect(new Set(ascending.map(({ _id }) => _id)).size).toBe(count);
  expect(ascending).toEqual(ascending.toSorted(inOrder));
  expect(await walk(testApp, 'desc', 5)).toEqual(ascending.toReversed());
}

const lists: [string, string[]][] = [
  [
    'accents',
    ['Zion', 'Álamo', 'Łódź', 'Lodge', 'Øster', 'Oster', 'ʻIolani', 'Iolani', 'Alamo', 'Éire', 'eire', 'Ñuñoa'],
  ],
  ['case', ['oak', 'Oak', 'OAK', 'oAK', 'Oaks', 'oaks']],
  [
    'punctuation, spaces and digits',
    ['St. John', 'St John', 'St-John', "St. John's", 'Saint John', '1st', '10th', '2nd', '#3', '(Old)', ' '],
  ],
  ['letters that expand', ['Straße', 'Strasse', 'Strassf', 'Æther', 'Aether', 'Œuvre', 'Oeuvre', 'ﬁne', 'fine']],
  ['other scripts', ['Кладбище', '墓地', 'あ', 'ア', 'مقبرة', 'בית', 'Ω', '한국', '🌳 Grove', '𝔄lt', 'ไทย']],
  ['names that compare equal', ['Oak Hill', 'Oak\u00ad Hill', 'Oak\u200d Hill', 'Oak Hill', 'Oak Hill ']],
  ['one name', Array.from({ length: 20 }, () => 'Same Name')],
];

describe('cemeteries', () => {
  test.each(lists)('D4 follow English order: %s', async (_, names) => {
    const testApp = await createTestApp();
    await createCemeteryStore(testApp.db).upsert(recordsOf(names), by);
    await expectOrder(testApp, names.length);
  });

  test('D4 keep English order when added one by one, changed and removed in any order', async () => {
    const testApp = await createTestApp();
    const name = fc.oneof(
      fc.constantFrom(...lists.flatMap(([, names]) => names)),
      fc.string({ unit: 'grapheme', minLength: 1, maxLength: 6 }).filter((text) => text.isWellFormed()),
    );
    const step = fc.record({
      names: fc.array(name, { minLength: 1, maxLength: 8 }),
      first: fc.nat(20),
      removed: fc.nat(20),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
        await testApp.db.$client.execute('DELETE FROM cemeteries');
        const store = createCemeteryStore(testApp.db);
        for (const { names, first, removed } of steps) {
          await store.upsert(
            names.map((each, index) => record(`c${first + index}`, each)),
            by,
          );
          await testApp.db.$client.execute({
            sql: 'DELETE FROM cemeteries WHERE external_id = ?',
            args: [`c${removed}`],
          });
        }
        const { rows } = await testApp.db.$client.execute(
          'SELECT id AS _id, name FROM cemeteries ORDER BY sort_name, id',
        );
        const found = rows.map((row) => ({ name: String(row.name), _id: String(row._id) }));
        expect(found).toEqual(found.toSorted(inOrder));
      }),
      { numRuns: amount({ long: 300, short: 30 }) },
    );
  });

  test.each([
    ['ascending', (index: number) => index],
    ['descending', (index: number) => 9000 - index],
    ['from both ends to the middle', (index: number) => (index % 2 === 0 ? index : 9000 - index)],
  ])('D4 keep keys of at most 100 characters when names come %s, an import each', async (_, numberOf) => {
    const testApp = await createTestApp();
    const nameOf = (index: number) => `Name ${String(numberOf(index)).padStart(5, '0')}`;
    let placed = placeNames([], []);
    for (let index = 0; index < 700; index += 1) placed = placeNames(placed, [nameOf(index)]);
    await createCemeteryStore(testApp.db).upsert(recordsOf(placed.map(({ name }) => name)), by);
    for (const { name, key } of placed) {
      await testApp.db.$client.execute({
        sql: 'UPDATE cemeteries SET sort_name = ? WHERE name = ?',
        args: [key, name],
      });
    }
    await createCemeteryStore(testApp.db).upsert([record('new', nameOf(700))], by);
    const { rows } = await testApp.db.$client.execute('SELECT max(length(sort_name)) AS longest FROM cemeteries');
    expect(Number(rows[0]?.longest)).toBeWithin(1, 101);
    await expectOrder(testApp, 701);
  });

  test('D4 change no row but their own when one is added', async () => {
    const testApp = await createTestApp();
    const keys = async () => {
      const { rows } = await testApp.db.$client.execute(
        "SELECT external_id, sort_name FROM cemeteries WHERE external_id <> 'new'",
      );
      return Object.fromEntries(rows.map((row) => [String(row.external_id), String(row.sort_name)]));
    };
    await createCemeteryStore(testApp.db).upsert(recordsOf(['Zion', 'Álamo', 'Oak']), by);
    const before = await keys();
    const store = createCemeteryStore(testApp.db);
    expect(await store.upsert([record('new', 'Łódź')], by)).toEqual({ added: 1, changed: 0, unchanged: 0 });
    expect(await keys()).toEqual(before);
    expect(await store.upsert(recordsOf(['Zion', 'Álamo', 'Oak']), by)).toEqual({ added: 0, changed: 0, unchanged: 3 });
    await expectOrder(testApp, 4);
  });

  test.each([
    ['keys of an earlier build', 'lower(name)'],
    ['empty keys', "''"],
    ['keys of one order for names of another', "'a' || (9 - length(name) % 10)"],
    ['invalid keys', "'a' || name"],
    ['keys with a zero at their end', "'a10'"],
  ])('D4 regain their order at the next start after %s', async (_, key) => {
    const testApp = await createTestApp();
    const names = lists.flatMap(([, each]) => each);
    await createCemeteryStore(testApp.db).upsert(recordsOf(names), by);
    const versions = async () =>
      (await testApp.db.$client.execute('SELECT version, updated_at FROM cemeteries ORDER BY id')).rows;
    const before = await versions();
    await testApp.db.$client.execute(`UPDATE cemeteries SET sort_name = ${key}`);
    await seedDatabase(testApp.db, { withDemo: false, now: testApp.now });
    await expectOrder(testApp, names.length);
    expect(await versions()).toEqual(before);
  });

  test('D4 regain their order with the next import when an earlier build stored some', async () => {
    const testApp = await createTestApp();
    await createCemeteryStore(testApp.db).upsert(recordsOf(['Zion', 'Álamo', 'Oak']), by);
    await testApp.db.$client.execute("UPDATE cemeteries SET sort_name = lower(name) WHERE name <> 'Oak'");
    await createCemeteryStore(testApp.db).upsert([record('new', 'Øster')], by);
    await expectOrder(testApp, 4);
  });

  test('D4 keep their order with several concurrent writers', async () => {
    const testApp = await createTestApp();
    const names = lists.flatMap(([, each]) => each);
    const writers = await Promise.all(
      Array.from({ length: 4 }, async (_, writer) => {
        const db = await openDatabase({ url: testApp.url, timeoutMs: 5000 });
        const store = createCemeteryStore(db);
        const counts = [];
        for (let at = writer; at < names.length; at += 4) {
          counts.push(await store.upsert([record(`w${at}`, names[at] ?? '')], by));
        }
        db.$client.close();
        return counts;
      }),
    );
    expect(writers.flat()).toEqual(names.map(() => ({ added: 1, changed: 0, unchanged: 0 })));
    await expectOrder(testApp, names.length);
  });

  test('D4 have English order in the demo', async () => {
    const testApp = await createTestApp();
    await createCemeteryStore(testApp.db).upsert(demoCemeteries, by);
    await expectOrder(testApp, demoCemeteries.length);
  });

  test('D4 have English order after an import and a migration by command', async () => {
    const { planning, write, databaseUrl } = await createCommandLine({ SEED_DEMO: 'false' });
    const names = ['Zion', 'Álamo', 'Łódź', 'Øster', 'ʻIolani', 'Oak', 'Iris'];
    const rows = names.map((name, index) => `id-${index},${name},,Town,VA,`);
    await planning(
      'import',
      'cemeteries',
      await write('list.csv', ['externalId,name,street,city,state,zip', ...rows].join('\n')),
    );
    const db = await openDatabase({ url: databaseUrl, timeoutMs: 2000 });
    const stored = async () =>
      (await db.$client.execute('SELECT name FROM cemeteries ORDER BY sort_name, id')).rows.map(({ name }) => name);
    expect(await stored()).toEqual(names.toSorted(compare));
    await db.$client.execute('UPDATE cemeteries SET sort_name = lower(name)');
    expect(await planning('migrate')).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await stored()).toEqual(names.toSorted(compare));
    db.$client.close();
  });

  test.skipIf(!hasSqld)('D4 keep their order with two concurrent writers on a libSQL server', async () => {
    const { url } = await startSqld();
    const connect = () => openDatabase({ url, timeoutMs: 5000 });
    const [db, other] = [await connect(), await connect()];
    await migrateDatabase(db);
    const names = lists.flatMap(([, each]) => each);
    await Promise.all(
      [db, other].map(async (each, writer) => {
        const store = createCemeteryStore(each);
        for (let at = writer; at < names.length; at += 2) await store.upsert([record(`w${at}`, names[at] ?? '')], by);
      }),
    );
    const { rows } = await db.$client.execute('SELECT id AS _id, name FROM cemeteries ORDER BY sort_name, id');
    const found = rows.map((row) => ({ name: String(row.name), _id: String(row._id) }));
    expect(found).toHaveLength(names.length);
    expect(found).toEqual(found.toSorted(inOrder));
    for (const { $client } of [db, other]) $client.close();
  });

  test('D4 use the index for a page in either direction', async () => {
    const { db } = await createTestApp();
    for (const sort of ['asc', 'desc'] as const) {
      const steps = await explainFirst(db, (watched) =>
        createCemeteryStore(watched).listPage({ page: 5, limit: 10, sort }),
      );
      expect(steps.filter((step) => step.includes('SCAN'))).toEqual([
        'SCAN cemeteries USING COVERING INDEX cemeteries_by_name',
      ]);
    }
  });
});
