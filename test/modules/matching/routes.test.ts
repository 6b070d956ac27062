import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { users } from '../../../src/db/schema/people';
import { Catalog, readShippedCatalog } from '../../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../../src/modules/matching/catalog-store';
import { Matches } from '../../../src/modules/matching/model';
import { UserBody } from '../../../src/modules/users/model';
import { createUserStore } from '../../../src/modules/users/store';
import { seedCatalog } from '../../../src/seed';
import { type CallOptions, createTestApp, type TestApp, testConfig } from '../../support/app';
import { beforeStatements } from '../../support/database';
import { isLong } from '../../support/resources';
import { hasSqld, startSqld } from '../../support/servers';

const shippedCatalog = readShippedCatalog();
const path = '/v2/private/engine/matches';
const preview = '/v2/private/engine/preview';

async function matchesOf(
  testApp: TestApp,
  as: string,
  { query = '', ...options }: CallOptions & { query?: string } = {},
) {
  const response = await testApp.call('POST', `${path}${query}`, { as, ...options });
  if (response.status !== 200) throw new Error(`${response.status}: ${response.text}`);
  const { user } = v.parse(UserBody, response.body);
  return { ...response, user, matches: v.parse(Matches, user.insurance.matches) };
}

const smallCatalog = v.parse(Catalog, {
  conditions: [],
  products: [
    {
      id: 7,
      productName: 'Only',
      productWrapper: 'W',
      productIcon: 'https://icons.example/x.svg',
      disqualifiers: [],
      rules: [],
    },
  ],
});
const by = { source: 'imported', contentHash: 'other', now: new Date(0) } as const;

describe(`POST ${path}`, () => {
  test.each([
    ['no body', {}],
    ['an empty object', { body: {} }],
    ['no body with Content-Type: text/plain', { headers: { 'content-type': 'text/plain' } }],
    ['null', { body: null }],
  ])('accepts %s and matches all products for a person without answers', async (_, options) => {
    const testApp = await createTestApp();
    const { matches, user } = await matchesOf(testApp, 'unknown', options);
    expect(user.id).toBe('unknown');
    expect(matches.remainingMatches.length + 1).toBe(shippedCatalog.products.length);
    expect(matches.bestMatch).not.toHaveProperty('negatives');
  });

  test.each([
    ['a field', { body: { products: [] } }, 422],
    ['an array', { body: [] }, 422],
    ['a text', { body: '{}', headers: { 'content-type': 'text/plain' } }, 415],
  ])('rejects %s', async (_, options, status) => {
    const testApp = await createTestApp();
    expect((await testApp.call('POST', path, { as: 'unknown', ...options })).status).toBe(status);
    expect(await testApp.db.$count(users)).toBe(0);
  });

  test('stores the returned matches, replaces them as a whole and skips an equal write', async () => {
    const testApp = await createTestApp();
    const first = await matchesOf(testApp, 'stored');
    const read = await testApp.call('GET', '/v2/private/user', { as: 'stored' });
    expect(read.body).toEqual(first.body);
    testApp.now = new Date(testApp.now.getTime() + 1000);
    const again = await matchesOf(testApp, 'stored');
    expect(again.text).toBe(first.text);
    expect(again.headers.get('etag')).toBe(first.headers.get('etag'));
    await testApp.call('POST', '/v2/private/user/profile', { as: 'stored', body: { seriousIllness: true } });
    const changed = await matchesOf(testApp, 'stored');
    expect(changed.matches).not.toEqual(first.matches);
    expect(changed.user.profile).toEqual({ seriousIllness: true });
    expect(changed.headers.get('cache-control')).toBe('private, no-store');
    expect(changed.user.updatedAt).toBe(testApp.now.toISOString());
    expect(first.user.updatedAt).not.toBe(changed.user.updatedAt);
    const readAgain = await testApp.call('GET', '/v2/private/user', { as: 'stored' });
    expect(readAgain.text).toBe(changed.text);
    expect(readAgain.headers.get('etag')).toBe(changed.headers.get('etag'));
  });

  test('returns explanations for explain=true without storing them', async () => {
    const testApp = await createTestApp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'explained', body: { dateOfBirth: '1940-01-01' } });
    const { matches } = await matchesOf(testApp, 'explained', { query: '?explain=true' });
    const term = matches.remainingMatches.find(({ id }) => id === 6);
    expect(term?.explanation).toMatchObject({ catalogVersion: 1, disqualifiersHeld: ['age80Plus'] });
    expect(term?.explanation?.penalty).toBeLessThan(0);
    expect(matches.bestMatch?.explanation?.unanswered).toContain('seriousIllness');
    const stored = await createUserStore(testApp.db).find('explained');
    expect(stored?.sections).toContain('bestMatch');
    expect(stored?.sections).not.toContain('explanation');
    expect((await matchesOf(testApp, 'explained')).text).not.toContain('explanation');
    for (const query of ['?explain=yes', '?explain=', '?explain=true&explain=true']) {
      expect((await testApp.call('POST', path + query, { as: 'explained' })).status).toBe(422);
    }
  });

  test('returns 412 when If-Match is stale or invalid, or when no record exists', async () => {
    const testApp = await createTestApp();
    const first = await matchesOf(testApp, 'tagged');
    const tag = first.headers.get('etag') ?? '';
    expect((await testApp.call('POST', path, { as: 'tagged', headers: { 'if-match': tag } })).status).toBe(200);
    for (const wrong of ['"1-1"', 'x']) {
      expect((await testApp.call('POST', path, { as: 'tagged', headers: { 'if-match': wrong } })).status).toBe(412);
    }
    expect((await testApp.call('POST', path, { as: 'unmade', headers: { 'if-match': '*' } })).status).toBe(412);
    expect(await testApp.db.$count(users)).toBe(1);
  });

  test('returns icon URLs that serve SVG, and /icons returns 404 for unknown names', async () => {
    const testApp = await createTestApp();
    const { matches } = await matchesOf(testApp, 'icons');
    for (const { productIcon } of [...(matches.bestMatch ? [matches.bestMatch] : []), ...matches.remainingMatches]) {
      expect(productIcon).toStartWith('http://localhost/icons/');
      const icon = await testApp.call('GET', new URL(productIcon).pathname);
      expect(icon.status).toBe(200);
      expect(icon.headers.get('content-type')).toBe('image/svg+xml');
      expect(icon.text).toStartWith('<svg');
    }
    for (const name of [
      'nothing.svg',
      '..%2Fapp.ts',
      'hybrid.png',
      '..%2F..%2Fpackage.json',
      '%252F',
      'a%252Fb',
      '%2500',
      '%252e%252e%252fapp.ts',
    ]) {
      expect((await testApp.call('GET', `/icons/${name}`)).status).toBe(404);
    }
  });

  test('uses a new catalogue version after the five-second cache expires', async () => {
    const testApp = await createTestApp();
    await matchesOf(testApp, 'versions');
    await createCatalogStore(testApp.db).add(smallCatalog, by);
    testApp.now = new Date(testApp.now.getTime() + 4_999);
    expect((await matchesOf(testApp, 'versions')).matches.remainingMatches).not.toBeEmpty();
    testApp.now = new Date(testApp.now.getTime() + 2);
    const { matches } = await matchesOf(testApp, 'versions');
    expect(matches).toMatchObject({
      bestMatch: { id: 7, productIcon: 'https://icons.example/x.svg' },
      remainingMatches: [],
    });
  });

  test('returns a null best match only when the catalogue has no products', async () => {
    const testApp = await createTestApp();
    await createCatalogStore(testApp.db).add({ conditions: [], products: [] }, by);
    expect((await matchesOf(testApp, 'none')).matches).toEqual({ bestMatch: null, remainingMatches: [] });
    const always = { code: 'always', when: { all: [] } };
    const products = smallCatalog.products.map((product) => ({ ...product, disqualifiers: ['always'] }));
    await createCatalogStore(testApp.db).add({ conditions: [always], products }, by);
    testApp.now = new Date(testApp.now.getTime() + 5_001);
    const { matches } = await matchesOf(testApp, 'none');
    expect(matches).toMatchObject({ bestMatch: { id: 7, score: -0.01, isEligible: false }, remainingMatches: [] });
  });

  test('ranks a disqualified product below every eligible one, by the stored points', async () => {
    const testApp = await createTestApp();
    const rule = (id: string, points: number) => ({
      id,
      when: { all: [] },
      points,
      list: 'highlights',
      text: id,
      reason: 'r',
    });
    const shape = { productName: 'P', productWrapper: 'W', productIcon: '/icons/hybrid.svg' };
    const file = v.parse(Catalog, {
      conditions: [{ code: 'always', when: { all: [] } }],
      products: [
        { ...shape, id: 1, disqualifiers: ['always'], rules: [rule('best', 1000)] },
        { ...shape, id: 2, disqualifiers: [], rules: [rule('worst', -500)] },
        { ...shape, id: 3, active: false, disqualifiers: [], rules: [rule('not-sold', 9000)] },
      ],
    });
    await createCatalogStore(testApp.db).add(file, by);
    expect((await matchesOf(testApp, 'penalty')).matches).toMatchObject({
      bestMatch: { id: 2, score: -500 },
      remainingMatches: [{ id: 1, score: -500.01 }],
    });
  });

  test('retries when the record changes concurrently and stores on the third attempt', async () => {
    const testApp = await createTestApp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'moving', body: { seriousIllness: true } });
    const users = createUserStore(testApp.db);
    let movesLeft = 2;
    let weight = 50;
    const moving = beforeStatements(testApp.db, async (sql) => {
      if (/^update "users" set "insurance"/.test(sql) && movesLeft > 0) {
        movesLeft -= 1;
        weight += 1;
        await users.saveSection({
          userId: 'moving',
          section: 'profile',
          patch: { weightKg: weight },
          requestId: null,
          now: testApp.now,
        });
      }
    });
    const app = await createTestApp({ db: moving });
    const { user } = await matchesOf(app, 'moving');
    expect(user.profile).toEqual({ seriousIllness: true, weightKg: 52 });
    await testApp.call('POST', '/v2/private/user/profile', { as: 'moving', body: { inCare: true } });
    movesLeft = 3;
    const moved = await matchesOf(app, 'moving');
    expect(moved.user.profile).toEqual({ seriousIllness: true, weightKg: 55, inCare: true });
    expect((await testApp.call('GET', '/v2/private/user', { as: 'moving' })).text).toBe(moved.text);
  });

  test('computes ages in the configured time zone', async () => {
    const held = async (reportTimeZone: string) => {
      const testApp = await createTestApp({ config: { ...testConfig, reportTimeZone } });
      testApp.now = new Date('2026-03-11T03:30:00Z');
      await testApp.call('POST', '/v2/private/user/profile', { as: 'born', body: { dateOfBirth: '1961-03-11' } });
      const { matches } = await matchesOf(testApp, 'born', { query: '?explain=true' });
      const response = await testApp.call('POST', preview, { as: 'born', body: {} });
      expect(response.text).toContain(JSON.stringify(matches.remainingMatches).slice(0, 200));
      return matches.remainingMatches.flatMap(({ explanation }) => explanation?.disqualifiersHeld ?? []);
    };
    expect(await held('UTC')).toContain('ageBetween65To69');
    expect(await held('America/New_York')).not.toContain('ageBetween65To69');
  });

  test('returns 503 and writes nothing when no catalogue is stored', async () => {
    const testApp = await createTestApp();
    for (const table of ['product_disqualifiers', 'product_rules', 'products', 'conditions', 'catalog_versions']) {
      await testApp.db.$client.execute(`DELETE FROM ${table}`);
    }
    expect((await testApp.call('POST', path, { as: 'none' })).status).toBe(503);
    expect(await testApp.db.$count(users)).toBe(0);
  });

  test('ignores a catalogue version whose import is incomplete', async () => {
    const testApp = await createTestApp();
    await createCatalogStore(testApp.db).add(smallCatalog, by);
    await testApp.db.$client.execute('UPDATE catalog_versions SET is_complete = 0 WHERE id = 2');
    expect((await matchesOf(testApp, 'early')).matches.remainingMatches).not.toBeEmpty();
    await createCatalogStore(testApp.db).add(smallCatalog, { ...by, now: new Date(7_200_000) });
    const { rows } = await testApp.db.$client.execute('SELECT DISTINCT catalog_version FROM products ORDER BY 1');
    expect(rows.map((row) => row[0])).toEqual([1, 3]);
  });

  test('excludes inactive products', async () => {
    const testApp = await createTestApp();
    const products = smallCatalog.products.map((product) => ({ ...product, active: false }));
    await createCatalogStore(testApp.db).add({ conditions: [], products }, by);
    expect((await matchesOf(testApp, 'inactive')).matches.bestMatch).toBeNull();
  });

  test('matches the latest answers after 30 saves and 30 matches in parallel', async () => {
    const testApp = await createTestApp();
    const calls = Array.from({ length: 60 }, (_, index) =>
      index % 2 === 0
        ? testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'busy', body: { policyValue: index } })
        : testApp.call('POST', path, { as: 'busy' }),
    );
    const responses = await Promise.all(calls);
    expect(responses.filter(({ status }) => status !== 200 && status !== 503)).toEqual([]);
    const last = await matchesOf(testApp, 'busy');
    const explained = await testApp.call('POST', preview, { as: 'busy', body: {} });
    const { data } = v.parse(v.object({ data: v.object({ matches: Matches }) }), explained.body);
    expect(last.matches.remainingMatches.map(({ id }) => id)).toEqual(
      data.matches.remainingMatches.map(({ id }) => id),
    );
  });
});

describe(`POST ${preview}`, () => {
  const ids = (response: { body: unknown }) => {
    const { data } = v.parse(v.object({ data: v.object({ matches: Matches }) }), response.body);
    return data.matches;
  };

  test('returns the explained matches of a later save and stores nothing', async () => {
    const testApp = await createTestApp();
    const body = {
      profile: { dateOfBirth: '1976-01-01', weightKg: 80 },
      ltc: { insuranceCover: ['payingFuneral'], policyValue: 5000, selections: [{ id: 0, title: 'x' }] },
      lifeInsurance: { policySupport: [{ title: 'My niece' }] },
      lifetimeCare: { hobbies: [], careSafety: 2 },
    };
    const response = await testApp.call('POST', preview, { as: 'curious', body });
    expect(response.status).toBe(200);
    expect(ids(response).bestMatch?.explanation?.rules).not.toBeEmpty();
    expect(await testApp.db.$count(users)).toBe(0);
    await testApp.call('POST', '/v2/private/user/profile', { as: 'curious', body: body.profile });
    await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'curious', body: body.ltc });
    await testApp.call('POST', '/v2/private/deepDives/lifeInsurance', { as: 'curious', body: body.lifeInsurance });
    await testApp.call('POST', '/v2/private/deepDives/lifetimeCare', { as: 'curious', body: body.lifetimeCare });
    const saved = await matchesOf(testApp, 'curious', { query: '?explain=true' });
    expect(saved.matches).toEqual(ids(response));
  });

  test('merges the body over the saved record: null removes an answer, an absent field keeps it', async () => {
    const testApp = await createTestApp();
    const save = { as: 'merged', body: { dateOfBirth: '1940-01-01', seriousIllness: true } };
    await testApp.call('POST', '/v2/private/user/profile', save);
    const before = await testApp.call('GET', '/v2/private/user', { as: 'merged' });
    const held = (response: { body: unknown }) =>
      new Set(
        ids(response)
          .remainingMatches.flatMap(({ explanation }) => explanation?.disqualifiersHeld ?? [])
          .filter((code) => !/^age(Over|Under)/.test(code)),
      );
    expect(held(await testApp.call('POST', preview, { as: 'merged', body: {} }))).toEqual(
      new Set(['seriousIllness', 'age80Plus']),
    );
    const without = { profile: { seriousIllness: null } };
    expect(held(await testApp.call('POST', preview, { as: 'merged', body: without }))).toEqual(new Set(['age80Plus']));
    expect((await testApp.call('GET', '/v2/private/user', { as: 'merged' })).text).toBe(before.text);
  });

  test.each([
    ['an unknown section', { insurance: {} }, '/insurance'],
    ['an unknown field', { profile: { age: 5 } }, '/profile/age'],
    ['an invalid answer', { ltc: { careCosts: -1 } }, '/ltc/careCosts'],
    ['null for a section', { profile: null }, '/profile'],
    ['a list for a section', { profile: [] }, '/profile'],
    ['a filled list for a section', { ltc: [1] }, '/ltc'],
    ['a long list', { lifeInsurance: { billsAndDebt: Array(101).fill('cc') } }, '/lifeInsurance/billsAndDebt'],
  ])('returns 422 with a pointer for %s', async (_, body, pointer) => {
    const testApp = await createTestApp();
    const response = await testApp.call('POST', preview, { as: 'curious', body });
    expect(response.status).toBe(422);
    expect(response.body).toMatchObject({ errors: [{ pointer }] });
  });
});

describe('catalogue seed', () => {
  const versions = async (testApp: TestApp) => {
    const stored = await createCatalogStore(testApp.db).listVersions();
    return stored.map(({ source }) => source);
  };

  test('stores one version when run in parallel and never replaces an import', async () => {
    const testApp = await createTestApp();
    const store = createCatalogStore(testApp.db);
    const shipped = (contentHash: string) =>
      store.add(smallCatalog, { source: 'shipped', contentHash, now: testApp.now });
    expect(
      (await Promise.all([shipped('new'), shipped('new'), shipped('new')])).filter((id) => id !== undefined),
    ).toHaveLength(1);
    expect(await shipped('new')).toBeUndefined();
    expect(await versions(testApp)).toEqual(['shipped', 'shipped']);
    await seedCatalog(store, testApp.now);
    expect(await versions(testApp)).toEqual(['shipped', 'shipped']);
    await store.add(smallCatalog, by);
    expect(await shipped('newer')).toBeUndefined();
    expect(await versions(testApp)).toEqual(['shipped', 'shipped', 'imported']);
  });
});

describe.skipIf(!hasSqld || !isLong)('import of 10,000 products with 50,000 rules', () => {
  test('completes on a libSQL server during concurrent saves', async () => {
    const sqld = await startSqld();
    const db = await openDatabase({ url: sqld.url, timeoutMs: 5000 });
    await migrateDatabase(db);
    const rules = Array.from({ length: 5 }, (_, index) => ({
      id: `rule-${index}`,
      when: { fact: 'age', atLeast: index },
      points: 1,
      list: 'highlights',
      text: 'A text of the usual length for a highlight',
      reason: 'r',
    }));
    const products = Array.from({ length: 10_000 }, (_, id) => ({
      id,
      productName: 'P',
      productWrapper: 'W',
      productIcon: '/icons/hybrid.svg',
      disqualifiers: [],
      rules,
    }));
    const store = createCatalogStore(db);
    const adding = store.add(v.parse(Catalog, { conditions: [], products }), by);
    let isAdded = false;
    let saves = 0;
    const users = createUserStore(db);
    const saving = (async () => {
      while (!isAdded) {
        await users.saveSection({
          userId: 'x',
          section: 'profile',
          patch: { heightCm: 100 + (saves % 2) },
          requestId: null,
          now: new Date(),
        });
        saves += 1;
      }
    })();
    expect(await adding).toBe(1);
    isAdded = true;
    await saving;
    expect(saves).toBeGreaterThan(10);
    expect((await store.find(1))?.products).toHaveLength(10_000);
    db.$client.close();
  }, 60_000);
});
