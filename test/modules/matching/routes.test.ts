import { describe, expect, test } from 'bun:test';
import * as v from 'valibot';
import { users } from '../../../src/db/schema/people';
import { Catalog, readShippedCatalog } from '../../../src/modules/matching/catalog-model';
import { createCatalogStore } from '../../../src/modules/matching/catalog-store';
import { Matches } from '../../../src/modules/matching/model';
import { icons, PreviewBody } from '../../../src/modules/matching/routes';
import { UserBody } from '../../../src/modules/users/model';
import { createUserStore } from '../../../src/modules/users/store';
import { type CallOptions, createTestApp, type TestApp, testConfig } from '../../support/app';
import { beforeStatements } from '../../support/database';

const path = '/v2/private/engine/matches';
const preview = '/v2/private/engine/preview';

const saveProfile = ({ call }: TestApp, body: object) => call('POST', '/v2/private/user/profile', { as: 'ada', body });
const readUser = ({ call }: TestApp) => call('GET', '/v2/private/user', { as: 'ada' });

async function matchesOf(testApp: TestApp, { query = '', ...options }: CallOptions & { query?: string } = {}) {
  const response = await testApp.call('POST', `${path}${query}`, { as: 'ada', ...options });
  if (response.status !== 200) throw new Error(`${response.status}: ${response.text}`);
  const { user } = v.parse(UserBody, response.body);
  return { ...response, user, matches: v.parse(Matches, user.insurance.matches) };
}

async function previewOf({ call }: TestApp, body: object) {
  return v.parse(PreviewBody, (await call('POST', preview, { as: 'ada', body })).body).data.matches;
}

const heldIn = ({ remainingMatches }: Matches) =>
  new Set(remainingMatches.flatMap(({ explanation }) => explanation?.disqualifiersHeld ?? []));

const productOf = (id: number, { points = 0, ...change }: { points?: number; [member: string]: unknown } = {}) => ({
  ...{ id, productName: 'P', productWrapper: 'W', productIcon: 'https://icons.example/x.svg', disqualifiers: [] },
  rules: [{ id: 'base', when: { all: [] }, points, list: 'negatives', text: 'Base', reason: 'r' }],
  ...change,
});

/** Stores a catalogue, which is in force for an app that has not matched yet. */
function useProducts({ db }: TestApp, ...products: object[]) {
  const catalog = v.parse(Catalog, { conditions: [{ code: 'always', when: { all: [] } }], products });
  return createCatalogStore(db).add(catalog, { source: 'imported', contentHash: 'other', now: new Date(0) });
}

/** The app of the tests that store nothing, and that of people without answers. */
const [unchanged, unanswered] = [await createTestApp(), await createTestApp()];

describe(`POST ${path}`, () => {
  test.each<[name: string, options: CallOptions]>([
    ['no body', {}],
    ['an empty object', { body: {} }],
    ['no body with Content-Type: text/plain', { headers: { 'content-type': 'text/plain' } }],
    ['null', { body: null }],
  ])('matches all products of a person without answers when the body is %s', async (name, options) => {
    for (const query of ['', '?explain=true']) {
      const { matches, user } = await matchesOf(unanswered, { as: name, query, ...options });
      expect(user).toMatchObject({ id: name, profile: {}, ltc: {}, purchase: {}, lifeInsurance: {}, lifetimeCare: {} });
      const found = [...(matches.bestMatch ? [matches.bestMatch] : []), ...matches.remainingMatches];
      expect(found).toHaveLength(readShippedCatalog().products.length);
      const served = new Set([...icons.keys()].map((icon) => `http://localhost/icons/${icon}`));
      for (const { productIcon } of found) expect(served).toContain(productIcon);
    }
  });

  test.each<[name: string, options: CallOptions, status: number]>([
    ['a field', { body: { products: [] } }, 422],
    ['an array', { body: [] }, 422],
    ['a text', { body: '{}', headers: { 'content-type': 'text/plain' } }, 415],
  ])('rejects %s', async (_, options, status) => {
    expect((await unchanged.call('POST', path, { as: 'ada', ...options })).status).toBe(status);
    expect(await unchanged.db.$count(users)).toBe(0);
  });

  test('stores the returned matches, replaces them as a whole and skips an equal write', async () => {
    const testApp = await createTestApp();
    const first = await matchesOf(testApp);
    expect((await readUser(testApp)).body).toEqual(first.body);
    testApp.now = new Date(testApp.now.getTime() + 1000);
    const again = await matchesOf(testApp);
    expect(again.text).toBe(first.text);
    expect(again.headers.get('etag')).toBe(first.headers.get('etag'));
    await saveProfile(testApp, { seriousIllness: true });
    const changed = await matchesOf(testApp);
    expect(changed.matches).not.toEqual(first.matches);
    expect(changed.user.profile).toEqual({ seriousIllness: true });
    expect(changed.headers.get('cache-control')).toBe('private, no-store');
    expect(changed.user.updatedAt).toBe(testApp.now.toISOString());
    expect(first.user.updatedAt).not.toBe(changed.user.updatedAt);
    const read = await readUser(testApp);
    expect([read.text, read.headers.get('etag')]).toEqual([changed.text, changed.headers.get('etag')]);
  });

  test('returns explanations for explain=true without storing them', async () => {
    const testApp = await createTestApp();
    await saveProfile(testApp, { dateOfBirth: '1940-01-01' });
    const { matches } = await matchesOf(testApp, { query: '?explain=true' });
    const term = matches.remainingMatches.find(({ id }) => id === 6);
    expect(term?.explanation).toMatchObject({ catalogVersion: 1, disqualifiersHeld: ['age80Plus'] });
    expect(term?.explanation?.penalty).toBeLessThan(0);
    expect(matches.bestMatch?.explanation?.unanswered).toContain('seriousIllness');
    const stored = await createUserStore(testApp.db).find('ada');
    expect(stored?.sections).toContain('bestMatch');
    expect(stored?.sections).not.toContain('explanation');
    expect((await matchesOf(testApp)).text).not.toContain('explanation');
    for (const query of ['?explain=yes', '?explain=', '?explain=true&explain=true']) {
      expect((await testApp.call('POST', path + query, { as: 'ada' })).status).toBe(422);
    }
  });

  test('uses a new catalogue version after the five-second cache expires', async () => {
    const testApp = await createTestApp();
    await matchesOf(testApp);
    await useProducts(testApp, productOf(7));
    testApp.now = new Date(testApp.now.getTime() + 4_999);
    expect((await matchesOf(testApp)).matches.remainingMatches).not.toBeEmpty();
    testApp.now = new Date(testApp.now.getTime() + 2);
    expect((await matchesOf(testApp)).matches).toMatchObject({
      bestMatch: { id: 7, productIcon: 'https://icons.example/x.svg' },
      remainingMatches: [],
    });
  });

  test('ranks a disqualified product below every eligible one by the stored points, and omits inactive ones', async () => {
    const testApp = await createTestApp();
    await useProducts(
      testApp,
      productOf(1, { points: 1000, disqualifiers: ['always'] }),
      productOf(2, { points: -500 }),
      productOf(3, { points: 9000, active: false }),
    );
    const { matches } = await matchesOf(testApp);
    expect(matches).toMatchObject({
      bestMatch: { id: 2, score: -500, isEligible: true },
      remainingMatches: [{ id: 1, score: -500.01, isEligible: false, negatives: ['Base'] }],
    });
    expect(matches.bestMatch).not.toHaveProperty('negatives');
    const explained = await matchesOf(testApp, { query: '?explain=true' });
    expect(explained.matches.bestMatch?.id).toBe(2);
  });

  test('replaces matches that an earlier version stored, which are readable until then', async () => {
    const testApp = await createTestApp();
    const earlier = {
      ...{ id: 1, productName: 'A', productWrapper: 'W', productIcon: 'http://localhost/icons/hybrid.svg' },
      ...{ disqualifiers: ['always'], score: -0.01, highlights: [], objectives: [], negatives: ['Base'] },
    };
    const insurance = { matches: { bestMatch: null, remainingMatches: [earlier] } };
    await saveProfile(testApp, { firstName: 'Ada' });
    await testApp.db.update(users).set({ insurance: JSON.stringify(insurance), version: 2 });
    expect(v.parse(UserBody, (await readUser(testApp)).body).user.insurance).toEqual(insurance);
    await useProducts(testApp, productOf(1, { disqualifiers: ['always'] }));
    expect((await matchesOf(testApp)).matches).toMatchObject({
      bestMatch: { id: 1, score: -0.01, isEligible: false },
      remainingMatches: [],
    });
  });

  test('computes ages in the configured time zone', async () => {
    const held = async (reportTimeZone: string) => {
      const testApp = await createTestApp({ config: { ...testConfig, reportTimeZone } });
      testApp.now = new Date('2026-03-11T03:30:00Z');
      await saveProfile(testApp, { dateOfBirth: '1961-03-11' });
      const { matches } = await matchesOf(testApp, { query: '?explain=true' });
      expect(await previewOf(testApp, {})).toEqual(matches);
      return heldIn(matches).has('ageBetween65To69');
    };
    expect(await held('UTC')).toBeTrue();
    expect(await held('America/New_York')).toBeFalse();
  });

  test('returns 503 and writes nothing when no catalogue is stored', async () => {
    const testApp = await createTestApp();
    for (const table of ['product_disqualifiers', 'product_rules', 'products', 'conditions', 'catalog_versions']) {
      await testApp.db.$client.execute(`DELETE FROM ${table}`);
    }
    expect((await testApp.call('POST', path, { as: 'ada' })).status).toBe(503);
    expect(await testApp.db.$count(users)).toBe(0);
  });
});

describe(`POST ${path} of a busy record`, () => {
  type Store = ReturnType<typeof createUserStore>;
  const by = { requestId: null, now: new Date('2026-03-10T12:00:00Z') };
  const save = (store: Store, weightKg: number) =>
    store.saveSection({ userId: 'ada', section: 'profile', patch: { weightKg }, ...by });

  /** An app that calls `overtake` before it stores each match of the record of `ada`. */
  async function overtakenApp(overtake: (store: Store, count: number) => Promise<unknown>) {
    const testApp = await createTestApp();
    await saveProfile(testApp, { seriousIllness: true });
    const store = createUserStore(testApp.db);
    let count = 0;
    const db = beforeStatements(testApp.db, async (sql) => {
      if (!/^update "users" set "insurance"/.test(sql)) return;
      count += 1;
      await overtake(store, count);
    });
    return { app: await createTestApp({ db }), store };
  }

  test.each([1, 3, 11])('matches the newest answers when saves overtake it %d times', async (times) => {
    const { app } = await overtakenApp(async (store, count) => count <= times && save(store, 50 + count));
    const matched = await matchesOf(app);
    expect(matched.user.profile).toEqual({ seriousIllness: true, weightKg: 50 + times });
    const read = await readUser(app);
    expect([read.text, read.headers.get('etag')]).toEqual([matched.text, matched.headers.get('etag')]);
  });

  test('returns 429 and stores no matches when a save overtakes each attempt', async () => {
    const { app, store } = await overtakenApp((own, count) => save(own, 50 + count));
    const response = await app.call('POST', path, { as: 'ada' });
    expect([response.status, response.headers.get('retry-after')]).toEqual([429, '1']);
    expect((await store.findAnswers('ada'))?.insurance).toBeNull();
  });

  test('replaces the matches that another request stored meanwhile', async () => {
    const { app } = await overtakenApp(async (store, count) => {
      if (count > 3) return;
      await save(store, 50 + count);
      if (count < 3) return;
      const matches = JSON.stringify({ bestMatch: null, remainingMatches: [] });
      await store.replaceMatches({ userId: 'ada', read: await store.findAnswers('ada'), matches, ...by });
    });
    const matched = await matchesOf(app);
    expect(matched.user.profile).toEqual({ seriousIllness: true, weightKg: 53 });
    expect(matched.matches.bestMatch).toBeObject();
    expect((await readUser(app)).text).toBe(matched.text);
  });

  test('returns 412 when a save makes If-Match stale during the match', async () => {
    const { app, store } = await overtakenApp((own) => save(own, 51));
    const tag = (await readUser(app)).headers.get('etag') ?? '';
    expect((await app.call('POST', path, { as: 'ada', headers: { 'if-match': tag } })).status).toBe(412);
    expect((await store.findAnswers('ada'))?.insurance).toBeNull();
  });

  test('returns 200 to each of 30 saves and 30 matches at one instant, and the next match has the newest answers', async () => {
    const testApp = await createTestApp();
    const calls = Array.from({ length: 60 }, (_, index) =>
      index % 2 === 0
        ? testApp.call('POST', path, { as: 'ada' })
        : saveProfile(testApp, { weightKg: 50 + index, inCare: index % 4 === 1 }),
    );
    expect(new Set((await Promise.all(calls)).map(({ status }) => status))).toEqual(new Set([200]));
    expect((await matchesOf(testApp, { query: '?explain=true' })).matches).toEqual(await previewOf(testApp, {}));
  });
});

describe(`POST ${preview}`, () => {
  test('returns the explained matches of a later save and stores nothing', async () => {
    const testApp = await createTestApp();
    const body = {
      profile: { dateOfBirth: '1976-01-01', weightKg: 80 },
      ltc: { insuranceCover: ['payingFuneral'], policyValue: 5000, selections: [{ id: 0, title: 'x' }] },
      lifeInsurance: { policySupport: [{ title: 'My niece' }] },
      lifetimeCare: { hobbies: [], careSafety: 2 },
    };
    const previewed = await previewOf(testApp, body);
    expect(previewed.bestMatch?.explanation?.rules).not.toBeEmpty();
    expect(await testApp.db.$count(users)).toBe(0);
    for (const [savePath, section] of [
      ['user/profile', body.profile],
      ['ltc/lifetimeCare', body.ltc],
      ['deepDives/lifeInsurance', body.lifeInsurance],
      ['deepDives/lifetimeCare', body.lifetimeCare],
    ] as const) {
      await testApp.call('POST', `/v2/private/${savePath}`, { as: 'ada', body: section });
    }
    expect((await matchesOf(testApp, { query: '?explain=true' })).matches).toEqual(previewed);
  });

  test('merges the body over the saved record: null removes an answer, an absent field keeps it', async () => {
    const testApp = await createTestApp();
    await saveProfile(testApp, { dateOfBirth: '1940-01-01', seriousIllness: true });
    const before = await readUser(testApp);
    expect(heldIn(await previewOf(testApp, {}))).toContain('seriousIllness');
    const without = heldIn(await previewOf(testApp, { profile: { seriousIllness: null } }));
    expect(without).toContain('age80Plus');
    expect(without).not.toContain('seriousIllness');
    expect((await readUser(testApp)).text).toBe(before.text);
  });

  test.each([
    [{ insurance: {} }, '/insurance'],
    [{ profile: { age: 5 } }, '/profile/age'],
    [{ ltc: { careCosts: -1 } }, '/ltc/careCosts'],
    [{ profile: null }, '/profile'],
    [{ profile: [] }, '/profile'],
    [{ ltc: [1] }, '/ltc'],
    [{ lifeInsurance: { billsAndDebt: Array(101).fill('cc') } }, '/lifeInsurance/billsAndDebt'],
  ])('returns 422 with a pointer for %j', async (body, pointer) => {
    const response = await unchanged.call('POST', preview, { as: 'ada', body });
    expect(response).toMatchObject({ status: 422, body: { errors: [{ pointer }] } });
  });
});
