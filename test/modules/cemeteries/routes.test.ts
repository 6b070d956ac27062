import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import * as v from 'valibot';
import { openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { CemeteryPage, type CemeteryRecord, placeNames } from '../../../src/modules/cemeteries/model';
import { createCemeteryStore } from '../../../src/modules/cemeteries/store';
import { seedDatabase } from '../../../src/seed';
import { createTestApp, type TestApp } from '../../support/app';
import { createCommandLine } from '../../support/command';
import { explainFirst, temporaryDatabase } from '../../support/database';
import { amount } from '../../support/resources';
import { hasSqld, startSqld } from '../../support/servers';

const testApp = await createTestApp();
const path = '/v2/private/cemetery/all';
const by = { createdBy: 'tester', now: new Date(0) };
const { compare } = new Intl.Collator('en');

const record = (externalId: string, name: string): CemeteryRecord => ({
  ...{ externalId, name, street: '', city: 'Springfield', state: 'IL', zip: '' },
});
const recordsOf = (names: readonly string[]) => names.map((name, index) => record(`c${index}`, name));

/** Names in which the orders of English, of bytes and of letters without accents differ. */
const names = [
  ...['Zion', 'Álamo', 'Łódź', 'Lodge', 'Øster', 'Oster', 'ʻIolani', 'Iolani', 'Alamo', 'Éire', 'eire', 'Ñuñoa'],
  ...['oak', 'Oak', 'OAK', 'oAK', 'Oaks', 'oaks', 'apple', 'Banana', 'Öl', 'ähre', 'a_b', 'a%b', "O'Hill"],
  ...['St. John', 'St John', 'St-John', "St. John's", 'Saint John', '1st', '10th', '2nd', '#3', '(Old)', ' '],
  ...['Straße', 'Strasse', 'Strassf', 'Æther', 'Aether', 'Œuvre', 'Oeuvre', 'ﬁne', 'fine'],
  ...['Кладбище', '墓地', 'あ', 'ア', 'مقبرة', 'בית', 'Ω', '한국', '🌳 Grove', '𝔄lt', 'ไทย'],
  ...['Oak Hill', 'Oak\u00ad Hill', 'Oak\u200d Hill', 'Oak Hill', 'Oak Hill '],
  ...Array.from({ length: 20 }, () => 'Same Name'),
];

type Row = { readonly name: string; readonly _id: string };
const inOrder = (a: Row, b: Row) => compare(a.name, b.name) || (a._id < b._id ? -1 : 1);

async function pageOf({ call }: TestApp, query: string) {
  const response = await call('GET', `${path}${query}`, { as: 'reader' });
  if (response.status !== 200) throw new Error(`${query} returned ${response.status}: ${response.text}`);
  return v.parse(CemeteryPage, response.body).data;
}

async function walk(app: TestApp, limit: number, sort = '') {
  const found: Row[] = [];
  for (let page = 1; ; page += 1) {
    const { cemeteries } = await pageOf(app, `?page=${page}&limit=${limit}${sort}`);
    if (cemeteries.length === 0) return found;
    found.push(...cemeteries.map(({ name, _id }) => ({ name, _id })));
  }
}

/** Expects each of `count` cemeteries once, in English order, then by id. */
async function expectOrder({ db }: Pick<TestApp, 'db'>, count: number) {
  const { rows } = await db.$client.execute('SELECT id AS _id, name FROM cemeteries ORDER BY sort_name, id');
  const found = rows.map((row) => ({ name: String(row.name), _id: String(row._id) }));
  expect(found).toHaveLength(count);
  expect(found).toEqual(found.toSorted(inOrder));
}

async function filledApp() {
  const app = await createTestApp();
  await createCemeteryStore(app.db).upsert(recordsOf(names), { ...by, now: app.now });
  return app;
}

describe(`GET ${path}`, async () => {
  const filled = await filledApp();
  const count = names.length;

  test('returns the first ten cemeteries when no parameter is sent', async () => {
    const page = await pageOf(filled, '');
    expect([page.cemeteries.length, page.count]).toEqual([10, count]);
    expect(page.cemeteries[0]).toEqual({
      _id: expect.stringMatching(/^[0-9a-f]{24}$/),
      name: ' ',
      address: { street: '', city: 'Springfield', state: 'IL', zip: '' },
      createdBy: 'tester',
      createdAt: filled.now.toISOString(),
      updatedAt: filled.now.toISOString(),
      __v: 0,
    });
  });

  test.each([7, count - 1, count, 1000])(
    'returns each cemetery once, in English order, in both directions with limit=%i',
    async (limit) => {
      const ascending = await walk(filled, limit);
      expect(new Set(ascending.map(({ _id }) => _id)).size).toBe(count);
      expect(ascending).toEqual(ascending.toSorted(inOrder));
      expect(await walk(filled, limit, '&sort=asc')).toEqual(ascending);
      expect(await walk(filled, limit, '&sort=desc')).toEqual(ascending.toReversed());
    },
  );

  test('returns an empty page and the full count past the last page, and without cemeteries', async () => {
    expect(await pageOf(testApp, '')).toEqual({ cemeteries: [], count: 0 });
    expect(await pageOf(filled, `?page=${Math.ceil(count / 10) + 1}`)).toEqual({ cemeteries: [], count });
    expect(await pageOf(filled, '?page=999999999999999&limit=1000')).toEqual({ cemeteries: [], count });
  });

  test.each([
    ...['page=0', 'page=-1', 'page=1.5', 'page=', 'page=abc', 'page=1e3', 'page=0x10', 'page=1000000000000000'],
    ...['page=1&page=2', 'page=[1]', 'page=1,2', 'limit=0', 'limit=1001', 'limit=', 'sort=up', 'sort=ascending'],
    ...['sort=', 'sort=name%3B--', 'other=1', 'page=0&limit=0&sort=up'],
  ])('returns 422 with each parameter for ?%s', async (query) => {
    const response = await testApp.call('GET', `${path}?${query}`, { as: 'reader' });
    const pointers = [...new Set(query.split('&').map((parameter) => parameter.split('=')[0]))];
    expect(response).toMatchObject({ status: 422, body: { errors: pointers.map((pointer) => ({ pointer })) } });
  });

  test('scans only the name index and sorts only the rows of the page', async () => {
    for (const sort of ['asc', 'desc'] as const) {
      const steps = await explainFirst(testApp.db, (db) =>
        createCemeteryStore(db).listPage({ page: 5, limit: 10, sort }),
      );
      expect(steps.filter((step) => step.includes('SCAN'))).toEqual([
        'SCAN cemeteries USING COVERING INDEX cemeteries_by_name',
      ]);
      expect(steps[0]).toStartWith('SEARCH cemeteries USING INDEX sqlite_autoindex_cemeteries_1 (id=?)');
    }
  });
});

describe('the upsert of cemeteries', () => {
  test('leaves an equal row unchanged and increments __v on a change', async () => {
    const app = await createTestApp();
    const store = createCemeteryStore(app.db);
    const later = { createdBy: 'second', now: new Date(1000) };
    expect(await store.upsert([record('again', 'Again')], by)).toEqual({ added: 1, changed: 0, unchanged: 0 });
    expect(await store.upsert([record('again', 'Again')], later)).toEqual({ added: 0, changed: 0, unchanged: 1 });
    expect(await store.upsert([record('again', 'AGAIN')], later)).toEqual({ added: 0, changed: 1, unchanged: 0 });
    const times = { createdAt: by.now.toISOString(), updatedAt: later.now.toISOString() };
    expect((await pageOf(app, '')).cemeteries).toMatchObject([
      { name: 'AGAIN', createdBy: 'tester', ...times, __v: 1 },
    ]);
  });

  test('keeps the count of rows, also after deletions and a failed batch', async () => {
    const { db } = await temporaryDatabase();
    const store = createCemeteryStore(db);
    const some = (from: number, to: number) =>
      Array.from({ length: to - from }, (_, index) => record(`counted-${from + index}`, `Name ${from}`));
    const failing = ['DELETE FROM cemeteries', "INSERT INTO cemeteries (id) VALUES ('refused')"];
    for (const step of [
      () => store.upsert(some(0, 40), by),
      () => store.upsert(some(20, 60), by),
      () => store.upsert(some(0, 60), { ...by, keepsStored: true }),
      () => db.$client.execute("DELETE FROM cemeteries WHERE external_id LIKE 'counted-1%'"),
      () => db.$client.execute('INSERT OR IGNORE INTO cemeteries SELECT * FROM cemeteries'),
      () => db.$client.batch(failing, 'write').catch(() => undefined),
      () => db.$client.execute('DELETE FROM cemeteries'),
    ]) {
      await step();
      const counted = Number((await db.$client.execute('SELECT count(*) AS n FROM cemeteries')).rows[0]?.n);
      const pages = await Promise.all([1, 1000].map((page) => store.listPage({ page, limit: 10, sort: 'asc' })));
      expect(pages.map(({ count }) => count)).toEqual([counted, counted]);
    }
  });
});

describe('the order of cemeteries', () => {
  test('is kept when names are added, changed and removed in any order', async () => {
    const { db } = await temporaryDatabase();
    const name = fc.oneof(
      fc.constantFrom(...names),
      fc.string({ unit: 'grapheme', minLength: 1, maxLength: 6 }).filter((text) => text.isWellFormed()),
    );
    const step = fc.record({
      added: fc.array(name, { minLength: 1, maxLength: 8 }),
      first: fc.nat(20),
      removed: fc.nat(20),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
        await db.$client.execute('DELETE FROM cemeteries');
        const store = createCemeteryStore(db);
        for (const { added, first, removed } of steps) {
          await store.upsert(
            added.map((each, index) => record(`c${first + index}`, each)),
            by,
          );
          const sql = 'DELETE FROM cemeteries WHERE external_id = ?';
          await db.$client.execute({ sql, args: [`c${removed}`] });
        }
        const { rows } = await db.$client.execute('SELECT count(*) AS n FROM cemeteries');
        await expectOrder({ db }, Number(rows[0]?.n));
      }),
      { numRuns: amount({ long: 300, short: 30 }) },
    );
  });

  test.each([
    ['ascending', 100, (index: number) => index],
    ['descending', 100, (index: number) => 9000 - index],
    ['from both ends to the middle', 640, (index: number) => (index % 2 === 0 ? index : 9000 - index)],
  ])('has keys of at most 100 characters when names come %s, an import each', async (_, count, numberOf) => {
    const { db } = await temporaryDatabase();
    const nameOf = (index: number) => `Name ${String(numberOf(index)).padStart(5, '0')}`;
    let placed = placeNames([], []);
    for (let index = 0; index < count; index += 1) placed = placeNames(placed, [nameOf(index)]);
    await createCemeteryStore(db).upsert(recordsOf(placed.map(({ name }) => name)), by);
    const sql = 'UPDATE cemeteries SET sort_name = ? WHERE name = ?';
    await db.$client.write(placed.map(({ name, key }) => ({ sql, args: [key, name] })));
    await createCemeteryStore(db).upsert([record('new', nameOf(count))], by);
    const { rows } = await db.$client.execute('SELECT max(length(sort_name)) AS longest FROM cemeteries');
    expect(Number(rows[0]?.longest)).toBeWithin(1, 101);
    await expectOrder({ db }, count + 1);
  });

  test('changes no key of another row when one is added', async () => {
    const { db } = await temporaryDatabase();
    const store = createCemeteryStore(db);
    const keys = async () =>
      (await db.$client.execute("SELECT id, sort_name FROM cemeteries WHERE external_id <> 'new' ORDER BY id")).rows;
    const three = recordsOf(['Zion', 'Álamo', 'Oak']);
    await store.upsert(three, by);
    const before = await keys();
    expect(await store.upsert([record('new', 'Łódź')], by)).toEqual({ added: 1, changed: 0, unchanged: 0 });
    expect(await keys()).toEqual(before);
    expect(await store.upsert(three, by)).toEqual({ added: 0, changed: 0, unchanged: 3 });
    await expectOrder({ db }, 4);
  });

  test.each([
    ['keys of an earlier build', 'lower(name)'],
    ['empty keys', "''"],
    ['keys of one order for names of another', "'a1' || (10000 + rowid) || '1'"],
    ['one key for all', "'a1'"],
    ['invalid keys', "'a' || name"],
    ['a zero at the end of each key', "sort_name || '0'"],
    ['two neighbours with exchanged keys', "replace(replace(replace(sort_name, 'a3', '-'), 'a4', 'a3'), '-', 'a4')"],
  ])('is restored by the next start after %s, and no version changes', async (_, key) => {
    const { db, now } = await filledApp();
    const versions = async () =>
      (await db.$client.execute('SELECT version, updated_at FROM cemeteries ORDER BY id')).rows;
    const before = await versions();
    await db.$client.execute(`UPDATE cemeteries SET sort_name = ${key}`);
    await seedDatabase(db, { withDemo: false, now });
    await expectOrder({ db }, names.length);
    expect(await versions()).toEqual(before);
    await createCemeteryStore(db).upsert([record('new', 'Between')], by);
    await expectOrder({ db }, names.length + 1);
  });

  test('is restored by the next import after an earlier build stored some', async () => {
    const { db } = await temporaryDatabase();
    await createCemeteryStore(db).upsert(recordsOf(['Zion', 'Álamo', 'Oak']), by);
    await db.$client.execute("UPDATE cemeteries SET sort_name = lower(name) WHERE name <> 'Oak'");
    await createCemeteryStore(db).upsert([record('new', 'Øster')], by);
    await expectOrder({ db }, 4);
  });

  test('is restored by planning migrate', async () => {
    const { planning, databaseUrl } = await createCommandLine({ SEED_DEMO: 'false' });
    const db = await openDatabase({ url: databaseUrl, timeoutMs: 2000 });
    await createCemeteryStore(db).upsert(recordsOf(['Zion', 'Álamo', 'Łódź', 'Oak']), by);
    await db.$client.execute('UPDATE cemeteries SET sort_name = lower(name)');
    expect(await planning('migrate')).toMatchObject({ exitCode: 0, stderr: '' });
    await expectOrder({ db }, 4);
    db.$client.close();
  });

  /** Each of the databases adds its part of the names, one by one. */
  async function addConcurrently(dbs: Awaited<ReturnType<typeof openDatabase>>[]) {
    const parts = dbs.map(async (db, writer) => {
      const store = createCemeteryStore(db);
      for (let at = writer; at < names.length; at += dbs.length) {
        const counts = await store.upsert([record(`w${at}`, names[at] ?? '')], by);
        expect(counts).toEqual({ added: 1, changed: 0, unchanged: 0 });
      }
    });
    await Promise.all(parts);
    const [db] = dbs;
    if (db !== undefined) await expectOrder({ db }, names.length);
    for (const { $client } of dbs) $client.close();
  }

  test('is kept by four concurrent writers of a file', async () => {
    const { url } = await temporaryDatabase();
    await addConcurrently(await Promise.all([1, 2, 3, 4].map(() => openDatabase({ url, timeoutMs: 5000 }))));
  });

  test.skipIf(!hasSqld)('is kept by two concurrent writers of a libSQL server', async () => {
    const { url } = await startSqld();
    const dbs = await Promise.all([1, 2].map(() => openDatabase({ url, timeoutMs: 5000 })));
    if (dbs[0] !== undefined) await migrateDatabase(dbs[0]);
    await addConcurrently(dbs);
  });
});
