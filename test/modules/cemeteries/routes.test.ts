import { beforeAll, describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { CemeteryPage } from '../../../src/modules/cemeteries/model';
import { createCemeteryStore } from '../../../src/modules/cemeteries/store';
import { createTestApp } from '../../support/app';
import { explainFirst, temporaryDatabase } from '../../support/database';

const testApp = await createTestApp();
const store = createCemeteryStore(testApp.db);
const path = '/v2/private/cemetery/all';

const record = (externalId: string, name: string) => ({
  externalId,
  name,
  street: '',
  city: 'Springfield',
  state: 'IL' as const,
  zip: '',
});

async function page(query: string) {
  const response = await testApp.call('GET', `${path}${query}`, { as: 'reader' });
  if (response.status !== 200) throw new Error(`${query} returned ${response.status}: ${response.text}`);
  return v.parse(CemeteryPage, response.body).data;
}

async function walk(query: string, limit: number) {
  const ids: string[] = [];
  for (let number = 1; ; number += 1) {
    const { cemeteries, count } = await page(`?limit=${limit}&page=${number}${query}`);
    expect(count).toBe(60);
    if (cemeteries.length === 0) return ids;
    ids.push(...cemeteries.map(({ _id }) => _id));
  }
}

describe(`GET ${path} without cemeteries`, () => {
  test('returns a count of 0 on every page', async () => {
    expect(await page('')).toEqual({ cemeteries: [], count: 0 });
    expect(await page('?page=3')).toEqual({ cemeteries: [], count: 0 });
  });
});

describe(`GET ${path}`, () => {
  beforeAll(async () => {
    // Forty rows share a name, so only the id orders them.
    const same = Array.from({ length: 40 }, (_, index) => record(`same-${index}`, 'Same Name'));
    const named = ['apple', 'Banana', 'cherry', 'Öl', 'ähre', 'Zed', "O'Hill", '100 Acres', 'a_b', 'a%b'];
    const others = [...named, ...named.map((name) => `${name} II`)].map((name, index) =>
      record(`other-${index}`, name),
    );
    await store.upsert([...same, ...others], { createdBy: 'tester', now: testApp.now });
  });

  test('returns ten cemeteries sorted by name when no parameter is sent', async () => {
    const { cemeteries, count } = await page('');
    expect(cemeteries).toHaveLength(10);
    expect(count).toBe(60);
    expect(cemeteries[0]).toEqual({
      _id: expect.stringMatching(/^[0-9a-f]{24}$/),
      name: '100 Acres',
      address: { street: '', city: 'Springfield', state: 'IL', zip: '' },
      createdBy: 'tester',
      createdAt: testApp.now.toISOString(),
      updatedAt: testApp.now.toISOString(),
      __v: 0,
    });
  });

  test.each([1, 7, 59, 60, 61, 1000])(
    'returns each row exactly once in both directions with limit=%i',
    async (limit) => {
      const ascending = await walk('', limit);
      expect(new Set(ascending).size).toBe(60);
      expect(await walk('&sort=asc', limit)).toEqual(ascending);
      expect(await walk('&sort=desc', limit)).toEqual(ascending.toReversed());
    },
  );

  test('sorts by the English collation, then by id', async () => {
    const { cemeteries } = await page('?limit=1000');
    const { compare } = new Intl.Collator('en');
    expect(cemeteries).toEqual(cemeteries.toSorted((a, b) => compare(a.name, b.name) || (a._id < b._id ? -1 : 1)));
    const shown = cemeteries.map(({ name }) => name);
    expect(shown.indexOf('ähre')).toBeLessThan(shown.indexOf('apple'));
    expect(shown.indexOf('Öl')).toBeLessThan(shown.indexOf('Zed'));
  });

  test('returns an empty page and the full count past the last page', async () => {
    expect(await page('?page=7')).toEqual({ cemeteries: [], count: 60 });
    expect(await page('?page=999999999999999&limit=1000')).toEqual({ cemeteries: [], count: 60 });
  });

  test.each([
    ['page=0', 'page'],
    ['page=-1', 'page'],
    ['page=1.5', 'page'],
    ['page=', 'page'],
    ['page=abc', 'page'],
    ['page=1e3', 'page'],
    ['page=0x10', 'page'],
    ['page=1000000000000000', 'page'],
    ['page=1&page=2', 'page'],
    ['page=[1]', 'page'],
    ['page=1,2', 'page'],
    ['limit=0', 'limit'],
    ['limit=1001', 'limit'],
    ['limit=', 'limit'],
    ['sort=up', 'sort'],
    ['sort=ascending', 'sort'],
    ['other=1', 'other'],
    ['sort=', 'sort'],
    ['sort=name%3B--', 'sort'],
  ])('returns 422 for ?%s', async (query, parameter) => {
    const response = await testApp.call('GET', `${path}?${query}`, { as: 'reader' });
    expect(response.status).toBe(422);
    expect(response.body).toMatchObject({ errors: [{ pointer: parameter }] });
  });

  test('reports every invalid parameter in one response', async () => {
    const response = await testApp.call('GET', `${path}?page=0&limit=0&sort=up`, { as: 'reader' });
    expect(response.body).toMatchObject({ errors: [{ pointer: 'page' }, { pointer: 'limit' }, { pointer: 'sort' }] });
  });
});

describe('cemetery upsert', () => {
  test('leaves an equal row unchanged and increments __v on a change', async () => {
    const by = { createdBy: 'first', now: testApp.now };
    const later = { createdBy: 'second', now: new Date(testApp.now.getTime() + 1000) };
    expect(await store.upsert([record('again', 'Again')], by)).toEqual({ added: 1, changed: 0, unchanged: 0 });
    expect(await store.upsert([record('again', 'Again')], later)).toEqual({ added: 0, changed: 0, unchanged: 1 });
    expect(await store.upsert([record('again', 'AGAIN')], later)).toEqual({ added: 0, changed: 1, unchanged: 0 });
    const { cemeteries } = await page('?limit=1000');
    expect(cemeteries.find(({ name }) => name === 'AGAIN')).toMatchObject({
      createdBy: 'first',
      createdAt: by.now.toISOString(),
      updatedAt: later.now.toISOString(),
      __v: 1,
    });
  });
});

describe('cemetery count', () => {
  test('equals the number of stored rows after inserts, updates, deletes and a failed batch', async () => {
    const { db } = await temporaryDatabase();
    const cemeteries = createCemeteryStore(db);
    const counted = async () => Number((await db.$client.execute('SELECT count(*) AS n FROM cemeteries')).rows[0]?.n);
    const shown = async () => {
      const pages = await Promise.all([1, 1000].map((page) => cemeteries.listPage({ page, limit: 10, sort: 'asc' })));
      return pages.map(({ count }) => count);
    };
    const by = { createdBy: 'a', now: testApp.now };
    const names = (from: number, to: number) =>
      Array.from({ length: to - from }, (_, index) => record(`counted-${from + index}`, `Name ${from}`));
    const steps = [
      () => cemeteries.upsert(names(0, 40), by),
      () => cemeteries.upsert(names(20, 60), by),
      () => cemeteries.upsert(names(0, 60), { ...by, keepsStored: true }),
      () => db.$client.execute("DELETE FROM cemeteries WHERE external_id LIKE 'counted-1%'"),
      () => db.$client.execute('INSERT OR IGNORE INTO cemeteries SELECT * FROM cemeteries'),
      () =>
        Promise.allSettled([
          db.$client.batch(['DELETE FROM cemeteries', "INSERT INTO cemeteries (id) VALUES ('refused')"], 'write'),
        ]),
      () => db.$client.execute('DELETE FROM cemeteries'),
    ];
    for (const step of steps) {
      await step();
      const count = await counted();
      expect(await shown()).toEqual([count, count]);
    }
  });
});

describe('query plan of a deep page', () => {
  test('scans only the name index and sorts only the rows of the page', async () => {
    const steps = await explainFirst(testApp.db, (db) =>
      createCemeteryStore(db).listPage({ page: 5, limit: 10, sort: 'asc' }),
    );
    expect(steps.filter((step) => step.includes('SCAN'))).toEqual([
      'SCAN cemeteries USING COVERING INDEX cemeteries_by_name',
    ]);
    expect(steps[0]).toStartWith('SEARCH cemeteries USING INDEX sqlite_autoindex_cemeteries_1 (id=?)');
  });
});
