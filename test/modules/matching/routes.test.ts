import { describe, expect, test } from 'bun:test';
import type { InStatement } from '@libsql/client';
import { drizzle } from 'drizzle-orm/libsql';
import * as v from 'valibot';
import { openDatabase } from '../../../src/db/client';
import { migrateDatabase } from '../../../src/db/migrate';
import { users } from '../../../src/db/schema';
import { Catalog } from '../../../src/modules/matching/catalog-model';
import { Matches } from '../../../src/modules/matching/model';
import { seedCatalog } from '../../../src/modules/matching/seed-catalog';
import { readShippedCatalog } from '../../../src/modules/matching/shipped-catalog';
import { createCatalogStore } from '../../../src/modules/matching/store';
import { UserBody } from '../../../src/modules/users/model';
import { createUserStore } from '../../../src/modules/users/store';
import { type CallOptions, createTestApp, type TestApp, testConfig } from '../../support/app';
import { isLong } from '../../support/long';
import { hasSqld, startSqld } from '../../support/sqld';

const shippedCatalog = readShippedCatalog();
const path = '/v2/private/engine/matches';
const preview = '/v2/private/engine/preview';

async function matchesOf(
  testApp: TestApp,
  as: string,
  { query = '', ...options }: CallOptions & { query?: string } = {},
) {
  const answer = await testApp.call('POST', `${path}${query}`, { as, ...options });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
  const { user } = v.parse(UserBody, answer.body);
  return { ...answer, user, matches: v.parse(Matches, user.insurance.matches) };
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
    ['no body, whatever its type is said to be', { headers: { 'content-type': 'text/plain' } }],
    ['null', { body: null }],
  ])('takes %s, and gives a person without answers the full list', async (_, options) => {
    const testApp = await createTestApp();
    const { matches, user } = await matchesOf(testApp, 'nobody', options);
    expect(user.id).toBe('nobody');
    expect(matches.remainingMatches.length + 1).toBe(shippedCatalog.products.length);
    expect(matches.bestMatch).not.toHaveProperty('negatives');
  });

  test.each([
    ['a field', { body: { products: [] } }, 422],
    ['an array', { body: [] }, 422],
    ['a text', { body: '{}', headers: { 'content-type': 'text/plain' } }, 415],
  ])('refuses %s', async (_, options, status) => {
    const testApp = await createTestApp();
    expect((await testApp.call('POST', path, { as: 'nobody', ...options })).status).toBe(status);
    expect(await testApp.db.$count(users)).toBe(0);
  });

  test('stores what it answers, replaces it whole, and writes nothing that is the same', async () => {
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

  test('explains on demand, in the answer alone', async () => {
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

  test('honours If-Match like every save', async () => {
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

  test('gives icons that answer', async () => {
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

  test('uses a new version of the catalogue within five seconds, and asks for one no sooner', async () => {
    const testApp = await createTestApp();
    await matchesOf(testApp, 'versions');
    await createCatalogStore(testApp.db).add(smallCatalog, by);
    testApp.now = new Date(testApp.now.getTime() + 4_999);
    expect((await matchesOf(testApp, 'versions')).matches.remainingMatches).not.toBeEmpty();
    testApp.now = new Date(testApp.now.getTime() + 1);
    const { matches } = await matchesOf(testApp, 'versions');
    expect(matches).toMatchObject({
      bestMatch: { id: 7, productIcon: 'https://icons.example/x.svg' },
      remainingMatches: [],
    });
  });

  test('has no best match only when the catalogue has no product', async () => {
    const testApp = await createTestApp();
    await createCatalogStore(testApp.db).add({ conditions: [], products: [] }, by);
    expect((await matchesOf(testApp, 'none')).matches).toEqual({ bestMatch: null, remainingMatches: [] });
    const always = { code: 'always', when: { all: [] } };
    const products = smallCatalog.products.map((product) => ({ ...product, disqualifiers: ['always'] }));
    await createCatalogStore(testApp.db).add({ conditions: [always], products }, by);
    testApp.now = new Date(testApp.now.getTime() + 5_000);
    const { matches } = await matchesOf(testApp, 'none');
    expect(matches).toMatchObject({ bestMatch: { id: 7, score: -0.01, isEligible: false }, remainingMatches: [] });
  });

  test('takes away more than all points can make up for, by what is stored', async () => {
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

  test('repeats when the record changes meanwhile, and stores over newer answers the third time', async () => {
    const testApp = await createTestApp();
    await testApp.call('POST', '/v2/private/user/profile', { as: 'moving', body: { seriousIllness: true } });
    const users = createUserStore(testApp.db);
    const { $client } = testApp.db;
    let movesLeft = 2;
    let weight = 50;
    const execute = async (statement: InStatement) => {
      const sql = typeof statement === 'string' ? statement : statement.sql;
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
      return $client.execute(statement);
    };
    const moving = drizzle({ client: { ...$client, execute, closed: false, protocol: 'file' } });
    const app = await createTestApp({ db: moving });
    const { user } = await matchesOf(app, 'moving');
    expect(user.profile).toEqual({ seriousIllness: true, weightKg: 52 });
    await testApp.call('POST', '/v2/private/user/profile', { as: 'moving', body: { inCare: true } });
    movesLeft = 3;
    const moved = await matchesOf(app, 'moving');
    expect(moved.user.profile).toEqual({ seriousIllness: true, weightKg: 55, inCare: true });
    expect((await testApp.call('GET', '/v2/private/user', { as: 'moving' })).text).toBe(moved.text);
  });

  test('reckons ages in the configured time zone', async () => {
    const held = async (reportTimeZone: string) => {
      const testApp = await createTestApp({ config: { ...testConfig, reportTimeZone } });
      testApp.now = new Date('2026-03-11T03:30:00Z');
      await testApp.call('POST', '/v2/private/user/profile', { as: 'born', body: { dateOfBirth: '1961-03-11' } });
      const { matches } = await matchesOf(testApp, 'born', { query: '?explain=true' });
      const answer = await testApp.call('POST', preview, { as: 'born', body: {} });
      expect(answer.text).toContain(JSON.stringify(matches.remainingMatches).slice(0, 200));
      return matches.remainingMatches.flatMap(({ explanation }) => explanation?.disqualifiersHeld ?? []);
    };
    expect(await held('UTC')).toContain('ageBetween65To69');
    expect(await held('America/New_York')).not.toContain('ageBetween65To69');
  });

  test('without any catalogue is refused, and overwrites nothing', async () => {
    const testApp = await createTestApp();
    for (const table of ['product_disqualifiers', 'product_rules', 'products', 'conditions', 'catalog_versions']) {
      await testApp.db.$client.execute(`DELETE FROM ${table}`);
    }
    expect((await testApp.call('POST', path, { as: 'none' })).status).toBe(503);
    expect(await testApp.db.$count(users)).toBe(0);
  });

  test('does not see a version whose rows are still being stored', async () => {
    const testApp = await createTestApp();
    await createCatalogStore(testApp.db).add(smallCatalog, by);
    await testApp.db.$client.execute('UPDATE catalog_versions SET is_complete = 0 WHERE id = 2');
    expect((await matchesOf(testApp, 'early')).matches.remainingMatches).not.toBeEmpty();
    await createCatalogStore(testApp.db).add(smallCatalog, { ...by, now: new Date(7_200_000) });
    const { rows } = await testApp.db.$client.execute('SELECT DISTINCT catalog_version FROM products ORDER BY 1');
    expect(rows.map((row) => row[0])).toEqual([1, 3]);
  });

  test('leaves out what is not active', async () => {
    const testApp = await createTestApp();
    const products = smallCatalog.products.map((product) => ({ ...product, active: false }));
    await createCatalogStore(testApp.db).add({ conditions: [], products }, by);
    expect((await matchesOf(testApp, 'inactive')).matches.bestMatch).toBeNull();
  });

  test('beside saves of the same person loses no answer and is never left behind', async () => {
    const testApp = await createTestApp();
    const calls = Array.from({ length: 60 }, (_, index) =>
      index % 2 === 0
        ? testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'busy', body: { policyValue: index } })
        : testApp.call('POST', path, { as: 'busy' }),
    );
    const answers = await Promise.all(calls);
    expect(answers.filter(({ status }) => status !== 200 && status !== 503)).toEqual([]);
    const last = await matchesOf(testApp, 'busy');
    const explained = await testApp.call('POST', preview, { as: 'busy', body: {} });
    const { data } = v.parse(v.object({ data: v.object({ matches: Matches }) }), explained.body);
    expect(last.matches.remainingMatches.map(({ id }) => id)).toEqual(
      data.matches.remainingMatches.map(({ id }) => id),
    );
  });
});

describe(`POST ${preview}`, () => {
  const ids = (answer: { body: unknown }) => {
    const { data } = v.parse(v.object({ data: v.object({ matches: Matches }) }), answer.body);
    return data.matches;
  };

  test('answers as if it were saved, explains, and saves nothing', async () => {
    const testApp = await createTestApp();
    const body = {
      profile: { dateOfBirth: '1976-01-01', weightKg: 80 },
      ltc: { insuranceCover: ['payingFuneral'], policyValue: 5000, selections: [{ id: 0, title: 'x' }] },
      lifeInsurance: { policySupport: [{ title: 'My niece' }] },
      lifetimeCare: { hobbies: [], careSafety: 2 },
    };
    const answer = await testApp.call('POST', preview, { as: 'curious', body });
    expect(answer.status).toBe(200);
    expect(ids(answer).bestMatch?.explanation?.rules).not.toBeEmpty();
    expect(await testApp.db.$count(users)).toBe(0);
    await testApp.call('POST', '/v2/private/user/profile', { as: 'curious', body: body.profile });
    await testApp.call('POST', '/v2/private/ltc/lifetimeCare', { as: 'curious', body: body.ltc });
    await testApp.call('POST', '/v2/private/deepDives/lifeInsurance', { as: 'curious', body: body.lifeInsurance });
    await testApp.call('POST', '/v2/private/deepDives/lifetimeCare', { as: 'curious', body: body.lifetimeCare });
    const saved = await matchesOf(testApp, 'curious', { query: '?explain=true' });
    expect(saved.matches).toEqual(ids(answer));
  });

  test('merges over the saved record: null forgets an answer, and what is left out stays', async () => {
    const testApp = await createTestApp();
    const save = { as: 'merged', body: { dateOfBirth: '1940-01-01', seriousIllness: true } };
    await testApp.call('POST', '/v2/private/user/profile', save);
    const before = await testApp.call('GET', '/v2/private/user', { as: 'merged' });
    const held = (answer: { body: unknown }) =>
      new Set(
        ids(answer)
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
    ['a bad answer', { ltc: { careCosts: -1 } }, '/ltc/careCosts'],
    ['null for a section', { profile: null }, '/profile'],
    ['a list for a section', { profile: [] }, '/profile'],
    ['a filled list for a section', { ltc: [1] }, '/ltc'],
    ['a long list', { lifeInsurance: { billsAndDebt: Array(101).fill('cc') } }, '/lifeInsurance/billsAndDebt'],
  ])('refuses %s by name', async (_, body, pointer) => {
    const testApp = await createTestApp();
    const answer = await testApp.call('POST', preview, { as: 'curious', body });
    expect(answer.status).toBe(422);
    expect(answer.body).toMatchObject({ errors: [{ pointer }] });
  });
});

describe('seeding the catalogue', () => {
  const versions = async (testApp: TestApp) => {
    const stored = await createCatalogStore(testApp.db).listVersions();
    return stored.map(({ source }) => source);
  };

  test('at once from several places stores it once, and never over an import', async () => {
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

describe.skipIf(!hasSqld || !isLong)('a catalogue of 10,000 products with 50,000 rules', () => {
  test('goes to a libSQL server while others save', async () => {
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
